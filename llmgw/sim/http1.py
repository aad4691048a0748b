"""One HTTP/1.1 connection of the sim engine: strict llhttp in, plain bytes out, bounded memory and time both ways."""

import collections
import contextlib
import socket
from dataclasses import dataclass, field
from http import HTTPStatus

import httptools
import trio

from llmgw.sim.requests import Refused

MAX_HEAD_BYTES = 64 * 1024
MAX_BODY_BYTES = 32 * 1024 * 1024
MAX_PIPELINED = 16
"""Requests a client may send ahead; one more closes the connection."""
READ_BYTES = 64 * 1024
REQUEST_READ_S = 60.0
"""A request that has begun arrives within this."""
STALLED_WRITE_S = 120.0
"""A client that takes no byte for this long is cut."""
LINGER_S = 1.0
"""How long a refused client may go on sending before the connection closes under it."""
LINGER_BYTES = 4 * 1024 * 1024


class ClientGone(Exception):
    """The connection is of no more use."""


@dataclass(kw_only=True)
class Request:
    """A whole request. Header names are lower case."""

    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes
    keep_alive: bool
    chunked_ok: bool
    """HTTP/1.1; an older client gets its stream's end by the connection's."""


@dataclass
class _Assembly:
    target: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)
    head_bytes: int = 0


class Connection:
    """A client's connection. Only one task reads, only one writes."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._parser = httptools.HttpRequestParser(self)
        self._now = _Assembly()
        self._ready: collections.deque[Request] = collections.deque()
        self._begun = False
        self._refused: Refused | None = None
        self._continue = False

    async def next_request(self, idle_s: float) -> Request | None:
        """The next request, none when the client left or stayed silent for `idle_s`; raises Refused, ClientGone."""
        while not self._ready:
            with trio.move_on_after(REQUEST_READ_S if self._begun else idle_s) as scope:
                if not await self.receive():
                    return None
            if scope.cancelled_caught:
                return None
            if self._continue:
                self._continue = False
                await self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        return self._ready.popleft()

    async def receive(self) -> bool:
        """Read once and parse; false when the client closed. Raises Refused, ClientGone."""
        while self.sock.fileno() >= 0:
            try:
                await trio.lowlevel.wait_readable(self.sock)
                data = self.sock.recv(READ_BYTES)
                break
            except BlockingIOError:
                continue
            except (OSError, trio.ClosedResourceError) as error:
                raise ClientGone(str(error)) from error
        else:
            raise ClientGone("the connection was closed here")
        if not data:
            return False
        self._parse(data)
        return True

    async def watch(self) -> None:
        """Return when the client leaves; meanwhile, requests sent ahead are kept."""
        with contextlib.suppress(ClientGone, Refused):
            while len(self._ready) < MAX_PIPELINED and await self.receive():
                pass

    async def write(self, data: bytes) -> None:
        """Send it all; raises ClientGone."""
        view = memoryview(data)
        while view:
            try:
                view = view[self.sock.send(view) :]
            except BlockingIOError:
                with trio.move_on_after(STALLED_WRITE_S) as scope:
                    await trio.lowlevel.wait_writable(self.sock)
                if scope.cancelled_caught:
                    raise ClientGone("the client takes nothing") from None
            except OSError as error:
                raise ClientGone(str(error)) from error

    async def linger(self) -> None:
        """Take what a refused client still sends, within bounds: closing on unread bytes would destroy the answer."""
        with contextlib.suppress(OSError):
            self.sock.shutdown(socket.SHUT_WR)
            left = LINGER_BYTES
            with trio.move_on_after(LINGER_S):
                while left > 0:
                    await trio.lowlevel.wait_readable(self.sock)
                    data = self.sock.recv(READ_BYTES)
                    if not data:
                        return
                    left -= len(data)

    def close(self, *, reset: bool = False) -> None:
        """Close the socket; `reset` sends RST."""
        if self.sock.fileno() < 0:
            return
        trio.lowlevel.notify_closing(self.sock)
        if reset:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.sock.close()

    def _parse(self, data: bytes) -> None:
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as error:
            raise Refused(400, "this engine speaks HTTP/1.1 only, without upgrades") from error
        except httptools.HttpParserError as error:
            raise self._refused or Refused(400, f"not HTTP/1.1: {error}") from error

    # httptools callbacks; what they raise comes out of feed_data wrapped, so a refusal is kept aside

    def on_message_begin(self) -> None:
        self._now = _Assembly()
        self._begun = True

    def on_url(self, url: bytes) -> None:
        self._now.target += url
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes | None) -> None:
        self._count_head(len(name) + len(value or b"") + 4)
        self._now.headers[name.lower()] = value or b""

    def on_headers_complete(self) -> None:
        length = self._now.headers.get(b"content-length", b"0")
        if length.isdigit() and int(length[:20]) > MAX_BODY_BYTES:
            self._refuse(413, f"the body is over {MAX_BODY_BYTES} bytes")
        self._continue = self._now.headers.get(b"expect", b"").lower() == b"100-continue"

    def on_body(self, body: bytes) -> None:
        if len(self._now.body) + len(body) > MAX_BODY_BYTES:
            self._refuse(413, f"the body is over {MAX_BODY_BYTES} bytes")
        self._now.body += body

    def on_message_complete(self) -> None:
        self._begun = self._continue = False
        done = self._now
        self._ready.append(
            Request(
                method=self._parser.get_method(),
                target=done.target,
                headers=done.headers,
                body=bytes(done.body),
                keep_alive=self._parser.should_keep_alive(),
                chunked_ok=self._parser.get_http_version() == "1.1",
            )
        )

    def _count_head(self, size: int) -> None:
        self._now.head_bytes += size
        if self._now.head_bytes > MAX_HEAD_BYTES:
            self._refuse(431, f"the request's head is over {MAX_HEAD_BYTES} bytes")

    def _refuse(self, status: int, message: str) -> None:
        self._refused = Refused(status, message)
        raise self._refused


def head(
    status: int, content_type: str, *, length: int | None, request: Request | None, extra: tuple[str, ...] = ()
) -> bytes:
    """A response's head. Without `length` the body is chunked, or ends with the connection for an HTTP/1.0 client."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = "Injected"
    lines = [f"HTTP/1.1 {status} {reason}", f"Content-Type: {content_type}", "Server: llmgw-sim", *extra]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    elif request is not None and request.chunked_ok:
        lines.append("Transfer-Encoding: chunked")
    if not stays_open(request, length):
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def stays_open(request: Request | None, length: int | None) -> bool:
    """Whether the connection serves another request after this answer."""
    return request is not None and request.keep_alive and (length is not None or request.chunked_ok)


def chunk(data: bytes, request: Request) -> bytes:
    """`data` framed as one chunk, or bare for an HTTP/1.0 client."""
    return b"%x\r\n%b\r\n" % (len(data), data) if request.chunked_ok else data


def last_chunk(request: Request) -> bytes:
    """What ends a body begun without a length."""
    return b"0\r\n\r\n" if request.chunked_ok else b""
