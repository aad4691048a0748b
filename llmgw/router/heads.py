"""Request heads and chunked bodies, read so strictly that no other reader on the way can see another request in them.

One anchored grammar covers the whole head: a bare CR or LF, a folded line, a space before the colon or a control
byte matches nowhere in it. What is left to check is how the headers agree with each other.
"""

import re
from dataclasses import dataclass

from llmgw.router.limits import MAX_CHUNK_LINE_BYTES, MAX_HEADERS
from llmgw.router.ports import Refusal

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]"
_HEAD = re.compile(
    rb"(?P<method>[A-Z]{1,16}) (?P<target>[\x21-\x7e]++) HTTP/1\.(?P<minor>[01])\r\n"
    rb"(?:" + _TOKEN + rb"++:[\t \x21-\x7e\x80-\xff]*+\r\n)*+\r\n"
)
_HOST = re.compile(rb"[A-Za-z0-9._~:\[\]-]*")
_DIGITS = re.compile(rb"[0-9]{1,15}")
METHODS = frozenset({b"GET", b"HEAD", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS"})
_ONCE = frozenset(
    {b"host", b"authorization", b"content-length", b"transfer-encoding", b"x-api-key", b"api-key", b"expect"}
)
"""Headers of which a second one makes the request ambiguous."""
_FRAMING = frozenset({b"content-length", b"transfer-encoding", b"host"})
_HEADS_ONLY = _ONCE | {b"connection", b"content-encoding", b"content-type", b"x-forwarded-for"}
"""Fields that mean nothing after a body; a reader that merges trailers into the head would take them for the head's."""
_INTERNAL = (b"x-llmgw-", b"x-forwarded-")
_LOOK_ALIKE = _ONCE | {b"connection", b"forwarded", b"x-real-ip", b"upgrade"}
"""With underscores for dashes these are other headers to us and the same ones to CGI-like readers."""

_BAD_ESCAPE = re.compile(
    rb"%(?![0-9A-Fa-f]{2})|%(?:2[eE]|5[cC]|7[fF]|[01][0-9A-Fa-f]|[cC][01])|%25(?:2[eEfF]|5[cC]|00)"
)
"""No escape, or one of a dot, a backslash, a control byte or what begins no UTF-8; or one of these encoded twice."""
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*;[\t \x21-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(_TOKEN + rb"+:[\t \x21-\x7e\x80-\xff]*")


@dataclass(slots=True)
class RequestHead:
    """A request head that passed every check."""

    method: bytes
    path: bytes
    """Raw path: begins with a slash, holds no dot segment, empty segment, backslash or encoded form of one."""
    query: bytes
    """With its question mark, or empty."""
    http11: bool
    headers: list[tuple[bytes, bytes]]
    """Lower-case names, values without surrounding blanks, as they came."""
    once: dict[bytes, bytes]
    """Headers that may come once only."""
    content_length: int
    chunked: bool
    keep_alive: bool
    wants_continue: bool

    @property
    def has_body(self) -> bool:
        """Whether bytes follow the head."""
        return self.chunked or self.content_length > 0


def bad_request(message: str, status: int = 400) -> Refusal:
    """A request no reader should have to guess at; its connection is closed."""
    return Refusal(status, message, code="bad_request")


def parse_head(raw: bytes) -> RequestHead:
    """The head in `raw`, which ends with the first empty line; raises Refusal."""
    found = _HEAD.fullmatch(raw)
    if found is None:
        raise bad_request(_malformed(raw))
    method, target, minor = found.group("method", "target", "minor")
    if method not in METHODS:
        known = b", ".join(sorted(METHODS)).decode()
        raise Refusal(501, f"The method {method.decode()} is not known here: there are {known}.", code="bad_request")
    lines = raw[:-4].split(b"\r\n")
    if len(lines) - 1 > MAX_HEADERS:
        raise bad_request(f"More than {MAX_HEADERS} headers.", 431)
    headers, once, connection = [], {}, b""
    for line in lines[1:]:
        name, _, value = line.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        headers.append((name, value))
        if name in _ONCE:
            if name in once:
                raise bad_request(f"The header {name.decode()} came twice.")
            once[name] = value
        elif name == b"connection":
            connection += b"," + value.lower()
        elif b"_" in name:
            _check_look_alike(name)
    http11 = minor == b"1"
    _check_host(once, http11)
    if connection:
        _check_connection(connection)
    length, chunked = _framing(once, http11)
    path, query = _split_target(target, once.get(b"host"))
    return RequestHead(
        method=method,
        path=path,
        query=query,
        http11=http11,
        headers=headers,
        once=once,
        content_length=length,
        chunked=chunked,
        keep_alive=http11 and b"close" not in connection,
        wants_continue=b"expect" in once and _expects_continue(once[b"expect"], http11),
    )


def _malformed(raw: bytes) -> str:
    """What is wrong with a head that is none, where that can be told."""
    line, _, _ = raw.partition(b"\r\n")
    if not line.isascii():
        return "The request target holds bytes beyond ASCII: they are percent-encoded in UTF-8 (é is %C3%A9)."
    return "The request head is malformed: see RFC 9112, sections 3 and 5."


def _check_host(once: dict[bytes, bytes], http11: bool) -> None:
    host = once.get(b"host")
    if host is None:
        if http11:
            raise bad_request("The Host header is missing.")
    elif not _HOST.fullmatch(host):
        raise bad_request("The Host header is malformed.")


def _check_look_alike(name: bytes) -> None:
    dashed = name.replace(b"_", b"-")
    if dashed in _LOOK_ALIKE or dashed.startswith(_INTERNAL):
        raise bad_request(f"The header {name[:40].decode()} has an underscore, which some readers take for a dash.")


def _check_connection(options: bytes) -> None:
    if not _FRAMING.isdisjoint(option.strip() for option in options.split(b",")):
        raise bad_request("The Connection header names one that says where the request ends or goes.")


def _framing(once: dict[bytes, bytes], http11: bool) -> tuple[int, bool]:
    length, coding = once.get(b"content-length"), once.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            raise bad_request("Content-Length and Transfer-Encoding together are ambiguous.")
        if not http11:
            raise bad_request("HTTP/1.0 has no Transfer-Encoding.")
        if coding.lower() != b"chunked":
            raise bad_request("The only transfer coding here is chunked.", 501)
        return 0, True
    if length is None:
        return 0, False
    if not _DIGITS.fullmatch(length):
        raise bad_request("Content-Length is not a number of bytes.")
    return int(length), False


def _expects_continue(value: bytes, http11: bool) -> bool:
    if value.lower() != b"100-continue":
        raise bad_request("The only expectation met here is 100-continue.", 417)
    return http11


def _split_target(target: bytes, host: bytes | None) -> tuple[bytes, bytes]:
    if target[:7].lower() == b"http://" or target[:8].lower() == b"https://":
        scheme, _, rest = target.partition(b"://")
        authority, slash, rest = rest.partition(b"/")
        if not _HOST.fullmatch(authority) or not authority or not slash:
            raise bad_request("The request target is malformed.")
        if host is not None and _named(host, scheme) != _named(authority, scheme):
            raise bad_request("The request target names another host than the Host header.")
        target = b"/" + rest
    if not target.startswith(b"/") or b"#" in target:
        raise bad_request("The request target must be a path.")
    path, mark, query = target.partition(b"?")
    check_path(path)
    return path, mark + query


def _named(authority: bytes, scheme: bytes) -> bytes:
    """The authority as it is compared: without the scheme's own port, in lower case."""
    return authority.lower().removesuffix(b":443" if scheme.lower() == b"https" else b":80")


def check_path(path: bytes) -> None:
    """Refuse a path that another reader could take for a different one; an encoded slash is the route's to judge."""
    if b"//" in path or b"\\" in path:
        raise bad_request("The path holds an empty segment or a backslash.")
    if b"%" in path and _BAD_ESCAPE.search(path):
        raise bad_request("The path holds an encoded dot, backslash or control byte, or a broken escape.")
    if b"/." in path and any(segment.split(b";")[0] in (b".", b"..") for segment in path.split(b"/")):
        raise bad_request("The path holds a dot segment.")


class ChunkedBody:
    """Decodes one chunked body as it arrives and leaves alone what follows it."""

    __slots__ = ("_buffer", "_in_trailers", "_left", "done", "received_bytes", "rest", "trailer_lines")

    def __init__(self) -> None:
        self._buffer = b""
        self._left = -1
        """Bytes left of the chunk and its CRLF; -1 expects a size line."""
        self._in_trailers = False
        self.done = False
        self.rest = b""
        """What came after the body; set when `done`."""
        self.received_bytes = 0
        self.trailer_lines = 0

    def feed(self, data: bytes) -> bytes:
        """Decoded bytes of `data`; raises Refusal."""
        buffer = self._buffer + data if self._buffer else data
        at, parts = 0, []
        while not self.done:
            if self._left >= 0:
                at, part = self._chunk(buffer, at)
                parts.append(part)
                if self._left >= 0:
                    break
            else:
                end = buffer.find(b"\r\n", at, at + MAX_CHUNK_LINE_BYTES)
                if end < 0:
                    if len(buffer) - at >= MAX_CHUNK_LINE_BYTES:
                        raise bad_request("A chunk's size line is too long.")
                    break
                self._line(buffer[at:end])
                at = end + 2
        if self.done:
            self.rest, self._buffer = buffer[at:], b""
        else:
            self._buffer = buffer[at:]
        body = b"".join(parts)
        self.received_bytes += len(body)
        return body

    def _chunk(self, buffer: bytes, at: int) -> tuple[int, bytes]:
        have = len(buffer) - at
        if have >= self._left:
            part, end = buffer[at : at + self._left - 2], at + self._left
            if self._left >= 2 and buffer[end - 2 : end] != b"\r\n":
                raise bad_request("A chunk does not end where its size says.")
            self._left = -1
            return end, part
        take = min(have, max(0, self._left - 2))
        self._left -= take
        return at + take, buffer[at : at + take]

    def _line(self, line: bytes) -> None:
        if self._in_trailers:
            if not line:
                self.done = True
                return
            self.trailer_lines += 1
            if self.trailer_lines > MAX_HEADERS or not _TRAILER.fullmatch(line):
                raise bad_request("The chunked body's trailers are malformed.")
            if line.partition(b":")[0].lower() in _HEADS_ONLY:
                raise bad_request("A trailer of the chunked body belongs into the head.")
            return
        found = _CHUNK_SIZE.fullmatch(line)
        if found is None:
            raise bad_request("A chunk's size line is malformed.")
        size = int(found.group(1), 16)
        if size == 0:
            self._in_trailers = True
        else:
            self._left = size + 2
