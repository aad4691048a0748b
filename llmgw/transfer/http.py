"""One HTTP/1.1 request on a connection of its own. Everything read is bounded, and silence ends in `Interrupted`.

trio's streams under llhttp: a cancelled scope closes the socket at once, which a client in a worker thread cannot do.
"""

import base64
import ipaddress
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import cache
from urllib.parse import SplitResult, quote, unquote, urljoin, urlsplit
from urllib.request import getproxies_environment, proxy_bypass

import httptools
import trio

from llmgw.transfer.errors import Interrupted, Refused
from llmgw.transfer.moving import MovingStream
from llmgw.transfer.tls import TlsStream

MAX_HEADER_BYTES = 64 * 1024
MAX_REDIRECTS = 6
"""A hub redirects once or twice to its content network."""
RECEIVE_BYTES = 256 * 1024
_PORTS = {"http": 80, "https": 443}
_MAY_STAND = "%!#$&'()*+,/:;=?@[]~"
"""In an address, besides letters and digits: what has a meaning there, and what is written as %XX already."""
_SECRET_HEADERS = frozenset({"authorization", "cookie"})


@dataclass(frozen=True, kw_only=True)
class Timeouts:
    """How long silence may last."""

    connect_s: float = 15.0
    """Address lookup, TCP and TLS together."""
    stall_s: float = 60.0
    """Between two bytes of an answer, and before its first."""


@dataclass(frozen=True, kw_only=True)
class Remote:
    """Where to ask, and as whom."""

    url: str
    headers: Mapping[str, str] | None = None
    """`Authorization` goes to the URL's own origin only, never along a redirect to another."""
    tls: ssl.SSLContext | None = None
    """None trusts the system's authorities."""
    proxies: bool = True
    """Whether http_proxy, https_proxy, all_proxy and no_proxy of the environment apply."""
    timeouts: Timeouts = Timeouts()


class Response:
    """Status and headers of an answer, and its body as it arrives."""

    def __init__(self, stream: trio.abc.Stream, url: str, timeouts: Timeouts) -> None:
        self.url = url
        self.status = 0
        self.headers: dict[str, str] = {}
        """Names in lower case; repeated headers are joined with a comma."""
        self._stream = stream
        self._timeouts = timeouts
        self._parser = httptools.HttpResponseParser(self)
        self._started = False
        self._ended = False
        self._header_bytes = 0
        self._chunks: list[bytes | bytearray] = []
        self._left: int | None = None  # of a body that is plain bytes, after what came with its header
        self._host = str(urlsplit(url).hostname)

    @property
    def length(self) -> int | None:
        """Content-Length, if the answer has a usable one."""
        text = self.headers.get("content-length", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None

    async def receive(self, most: int = RECEIVE_BYTES) -> bytes | bytearray:
        """The next piece of the body, empty at its end; raises Interrupted when it is cut short.

        No more than `most` bytes are taken from the connection for it; what came with the header is given as it is.
        """
        while not self._chunks:
            if self._ended:
                return b""
            await self._feed(most)
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        return data

    async def read(self, most: int) -> bytes:
        """The whole body; raises Refused when it is longer than `most`."""
        parts: list[bytes | bytearray] = []
        size = 0
        while chunk := await self.receive():
            parts.append(chunk)
            size += len(chunk)
            if size > most:
                raise Refused(f"{redacted(self.url)} answers with more than {most} bytes", status=self.status)
        return b"".join(parts)

    async def read_headers(self) -> None:
        """Wait for the header; informational answers are stepped over."""
        while not self._started:
            await self._feed()
            if not self._started and self._header_bytes > MAX_HEADER_BYTES:
                raise Refused(f"{redacted(self.url)} answers with a header of more than {MAX_HEADER_BYTES} bytes")

    async def _feed(self, most: int = RECEIVE_BYTES) -> None:
        host = self._host
        try:
            data = await self._stream.receive_some(most)
        except trio.TooSlowError as error:
            raise Interrupted(f"{host} sent nothing for {self._timeouts.stall_s:g} s") from error
        except (OSError, trio.BrokenResourceError) as error:
            raise Interrupted(f"the connection to {host} broke ({_reason(error)})") from error
        if not data:
            self._end_of_stream(host)
        elif self._left is not None:
            self._take(data)
        else:
            self._parse(bytes(data))

    def _take(self, data: bytes | bytearray) -> None:
        """A piece of a plain body, past the parser: it would copy every byte."""
        assert self._left is not None
        piece = data[: self._left] if len(data) > self._left else data
        self._left -= len(piece)
        self._chunks.append(piece)
        self._ended = not self._left

    def _parse(self, data: bytes) -> None:
        if not self._started:
            self._header_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise Refused(f"{self._host} wants another protocol than HTTP/1.1") from error
        except httptools.HttpParserError as error:
            raise Interrupted(f"{self._host} answers something that is not HTTP ({error})") from error
        plain = self._started and not self._ended and "transfer-encoding" not in self.headers
        if plain and self.status in (200, 206) and self.length is not None:
            self._left = self.length - sum(map(len, self._chunks))

    def _end_of_stream(self, host: str) -> None:
        if not self._started:
            raise Interrupted(f"{host} closed the connection without an answer")
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        if not self._ended and (chunked or self.length is not None):
            raise Interrupted(f"{host} ended the answer early")
        self._ended = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """llhttp's callback."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        self.headers[key] = f"{self.headers[key]}, {text}" if key in self.headers else text

    def on_headers_complete(self) -> None:
        """llhttp's callback."""
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self.headers.clear()
            return
        self.status = status
        self._started = True

    def on_body(self, body: bytes) -> None:
        """llhttp's callback."""
        self._chunks.append(body)

    def on_message_complete(self) -> None:
        """llhttp's callback."""
        self._ended = self._started


@asynccontextmanager
async def request(
    remote: Remote, *, method: str = "GET", headers: Mapping[str, str] | None = None, body: bytes = b""
) -> AsyncIterator[Response]:
    """Send one request and give its answer; GET follows redirects. Raises Interrupted or Refused."""
    url = remote.url
    # Where nothing is said of it, an answer may come in any encoding.
    everything = {"Accept-Encoding": "identity", **(remote.headers or {}), **(headers or {})}
    for _ in range(MAX_REDIRECTS):
        async with AsyncExitStack() as stack:
            response = await stack.enter_async_context(_exchange(remote, url, method, everything, body))
            location = response.headers.get("location")
            if method != "GET" or response.status not in (301, 302, 303, 307, 308) or not location:
                yield response
                return
        # Some servers write names there as they are, in UTF-8 and with blanks.
        following = urljoin(url, quote(location.encode("latin-1"), safe=_MAY_STAND))
        if urlsplit(following).scheme not in _PORTS or (url.startswith("https:") and following.startswith("http:")):
            raise Refused(f"{redacted(url)} redirects to {redacted(following)}, which is not as safe as where it began")
        if _origin(following) != _origin(url):
            if (inner := await _inner(following, remote)) and inner != await _inner(url, remote):
                raise Refused(f"{redacted(url)} redirects to {redacted(following)}, which is {inner}")
            everything = {k: v for k, v in everything.items() if k.lower() not in _SECRET_HEADERS}
        url = following
    raise Refused(f"{redacted(remote.url)} redirects more than {MAX_REDIRECTS} times")


async def _inner(url: str, remote: Remote) -> str:
    """What makes the address one that only this machine can reach; nothing for all others, and behind a proxy."""
    split = _checked(url)
    if remote.proxies and _proxy_for(split) is not None:
        return ""
    try:
        found = await trio.socket.getaddrinfo(split.hostname, split.port or _PORTS[split.scheme])
        addresses = [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]
    except (OSError, UnicodeError, ValueError):
        return ""  # connecting will say what is wrong with it
    addresses = [getattr(address, "ipv4_mapped", None) or address for address in addresses]
    if any(address.is_loopback or address.is_unspecified for address in addresses):
        return "this machine itself"
    return "an address of this machine's link" if any(address.is_link_local for address in addresses) else ""


def redacted(url: str) -> str:
    """The address without user, password, query and fragment: signed queries are credentials."""
    try:
        split = urlsplit(url)
        return f"{split.scheme}://{split.netloc.rpartition('@')[2]}{split.path}"
    except ValueError:
        return "an address that is none"


@asynccontextmanager
async def _exchange(
    remote: Remote, url: str, method: str, headers: Mapping[str, str], body: bytes
) -> AsyncIterator[Response]:
    split = _checked(url)
    proxy = _proxy_for(split) if remote.proxies else None
    stream = await _connect(split, proxy, remote)
    try:
        response = Response(stream, url, remote.timeouts)
        head = _head(split, proxy, method, headers, body)
        try:
            await stream.send_all(head + body)
        except (OSError, trio.BrokenResourceError, trio.TooSlowError) as error:
            raise Interrupted(f"the connection to {split.hostname} broke ({_reason(error)})") from error
        await response.read_headers()
        yield response
    finally:
        await trio.aclose_forcefully(stream)


def _head(split: SplitResult, proxy: SplitResult | None, method: str, headers: Mapping[str, str], body: bytes) -> bytes:
    target = (split.path or "/") + (f"?{split.query}" if split.query else "")
    if proxy is not None and split.scheme == "http":
        target = f"http://{split.netloc}{target}"
        headers = {**_proxy_authorization(proxy), **headers}
    lines = [f"{method} {target} HTTP/1.1", f"Host: {split.netloc}", "Connection: close", "User-Agent: llmgw"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body or method == "POST":
        lines.append(f"Content-Length: {len(body)}")
    text = "\r\n".join(lines)
    if text.count("\n") != len(lines) - 1 or "\0" in text or not text.isascii():
        raise Refused("the request holds a character that HTTP does not allow; write it as %XX in the address")
    return text.encode() + b"\r\n\r\n"


async def _connect(split: SplitResult, proxy: SplitResult | None, remote: Remote) -> trio.abc.Stream:
    through = proxy or split
    host = through.hostname or ""
    port = through.port or _PORTS[through.scheme]
    try:
        with trio.fail_after(remote.timeouts.connect_s):
            moving = MovingStream(await trio.open_tcp_stream(host, port), stall_s=remote.timeouts.connect_s)
            stream: trio.abc.Stream = moving
            try:
                if split.scheme == "https":
                    if proxy is not None:
                        await _tunnel(stream, split, proxy)
                    secured = TlsStream(stream, remote.tls or _system_tls(), server_hostname=split.hostname)
                    await secured.do_handshake()
                    stream = secured
            except BaseException:
                await trio.aclose_forcefully(stream)
                raise
    except trio.TooSlowError as error:
        raise Interrupted(f"{host}:{port} did not answer within {remote.timeouts.connect_s:g} s") from error
    except (OSError, trio.BrokenResourceError) as error:
        cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) else error
        if isinstance(cause, ssl.SSLCertVerificationError):
            raise Refused(f"the certificate of {host}:{port} is not trusted: {cause.verify_message}") from error
        raise Interrupted(f"cannot connect to {host}:{port} ({_reason(error)})") from error
    moving.stall_s = remote.timeouts.stall_s
    return stream


async def _tunnel(stream: trio.abc.Stream, split: SplitResult, proxy: SplitResult) -> None:
    authority = f"{split.hostname}:{split.port or 443}"
    lines = [f"CONNECT {authority} HTTP/1.1", f"Host: {authority}"]
    lines += [f"{name}: {value}" for name, value in _proxy_authorization(proxy).items()]
    await stream.send_all(("\r\n".join(lines) + "\r\n\r\n").encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        data = await stream.receive_some(4096)
        answer += data
        if not data or len(answer) > MAX_HEADER_BYTES:
            raise Interrupted(f"the proxy {proxy.hostname} closed the connection")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200":
        raise Refused(f"the proxy {proxy.hostname} refuses to connect to {authority}: {answer[:80]!r}")


def _proxy_for(split: SplitResult) -> SplitResult | None:
    proxies = getproxies_environment()
    address = proxies.get(split.scheme) or proxies.get("all")
    if not address or proxy_bypass(split.netloc):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    if proxy.scheme != "http" or not proxy.hostname:
        raise Refused(f"the {split.scheme}_proxy variable must be http://HOST:PORT; other proxies are not spoken to")
    return proxy


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _checked(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError as error:
        raise Refused(f"{redacted(url)} is not an address: {error}") from error
    if split.scheme not in _PORTS or not split.hostname or "@" in split.netloc:
        raise Refused(f"{redacted(url)} is not an http or https address")
    return split


def _origin(url: str) -> tuple[str, str | None, int]:
    split = _checked(url)
    return split.scheme, split.hostname, split.port or _PORTS[split.scheme]


def _reason(error: BaseException) -> str:
    cause = error.__cause__ if isinstance(error, trio.BrokenResourceError) and error.__cause__ else error
    return str(cause) or type(cause).__name__


@cache
def _system_tls() -> ssl.SSLContext:
    return ssl.create_default_context()
