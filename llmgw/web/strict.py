"""One reading of a request, or none: what two HTTP parsers could take for two things is refused before any handler.

hypercorn and h11 accept forms that proxies in front read differently (both lengths, folded headers, bare line feeds,
several Authorization headers, underscores for dashes, upgrades to HTTP/2 in plain text), and paths that some of them
shorten. Each ends here with a problem document, and the connection is closed. Bodies come with a Content-Length: our
clients and the routers send one. HTTP/2 is spoken on none of these ports: it would need TLS, and they have none.
"""

import re
from itertools import chain

import h11
import msgspec
from hypercorn.protocol.h11 import H11Protocol

from llmgw.api.paths import PROBLEM_TYPE
from llmgw.api.types import Problem

MAX_HEAD_BYTES = 16 * 1024
"""Request line and headers together."""
MAX_HEADERS = 100
_ONCE = frozenset((b"authorization", b"host", b"content-length", b"content-type", b"expect"))
_FRAMING = frozenset((b"content-length", b"transfer-encoding", b"host"))
_LENGTH = re.compile(rb"[^:]*:[ \t]*[0-9]{1,15}[ \t]*")
_HOST = re.compile(rb"[A-Za-z0-9._~:\[\]-]*")
_ESCAPED = re.compile(rb"%(2[eEfF]|5[cC])")
_PLAIN = {b"2e": b".", b"2f": b"/", b"5c": b"\\"}


class StrictConnection(h11.Connection):
    """An h11 server connection that raises RemoteProtocolError for every ambiguous request."""

    refusal = "the request is not well-formed HTTP/1.1"

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event; raises RemoteProtocolError with the status to answer."""
        if self.their_state is h11.IDLE:
            self._check_head(self.trailing_data[0])
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._check_request(event)
        return event

    def _check_head(self, data: bytes) -> None:
        head, complete, _ = data.partition(b"\r\n\r\n")
        if len(head) > MAX_HEAD_BYTES:
            self._refuse(f"the headers are larger than {MAX_HEAD_BYTES} bytes", 431)
        # Until the head is whole its last byte may be half of a line ending.
        lines = head.split(b"\r\n")
        if any(b"\n" in line or b"\r" in line.removesuffix(b"" if complete else b"\r") for line in lines):
            self._refuse("a line ends with something other than CR LF", 400)
        if any(line[:1] in (b" ", b"\t") for line in lines[1:]):
            self._refuse("a header is folded over two lines", 400)
        # h11 makes one of several equal lengths, and of a list of them.
        lengths = [_LENGTH.fullmatch(line) for line in lines[1:] if line[:15].lower() == b"content-length:"]
        if complete and (len(lengths) > 1 or None in lengths):
            self._refuse("there are several lengths, or one that is none", 400)

    def _check_request(self, request: h11.Request) -> None:
        if request.method == b"PRI" or request.http_version not in (b"1.0", b"1.1"):
            self._refuse("this port speaks no other protocol than HTTP/1.1", 505)
        if not request.method.isupper():
            self._refuse("the method is not in capital letters", 400)
        if not request.target.startswith(b"/") or request.target.startswith(b"//"):
            self._refuse("the request target is not a path", 400)
        self._check_path(request.target.partition(b"?")[0])
        names = [name for name, _ in request.headers]
        if len(names) > MAX_HEADERS:
            self._refuse(f"{len(names)} headers are more than {MAX_HEADERS}", 431)
        for name in _ONCE:
            if names.count(name) > 1:
                self._refuse(f"there are {names.count(name)} {name.decode()} headers", 400)
        if any(b"_" in name for name in names):
            self._refuse("a header name has an underscore, which proxies read as a dash", 400)
        if b"upgrade" in names:
            self._refuse("no upgrade is offered here", 400)
        self._check_values(request)
        if b"transfer-encoding" in names:
            both = b"content-length" in names
            self._refuse("Content-Length stands beside Transfer-Encoding", 400) if both else self._refuse(
                "a body needs a Content-Length", 411
            )

    def _check_path(self, path: bytes) -> None:
        """Names in our paths may hold an encoded slash, but nothing that another reader could shorten."""
        plain = _ESCAPED.sub(lambda found: _PLAIN[found[1].lower()], path)
        if b"//" in path or b"\\" in plain:
            self._refuse("the path holds an empty segment or a backslash", 400)
        if any(segment.partition(b";")[0] in (b".", b"..") for segment in plain.split(b"/")):
            self._refuse("the path holds a dot segment", 400)

    def _check_values(self, request: h11.Request) -> None:
        for name, value in request.headers:
            if b"\x7f" in value:
                self._refuse(f"the header {name.decode()} has a control character", 400)
            if name == b"host" and not _HOST.fullmatch(value):
                self._refuse("the Host header is malformed", 400)
            if name == b"expect" and value.lower() != b"100-continue":
                self._refuse("the only expectation met here is 100-continue", 417)
            if name == b"connection" and not _FRAMING.isdisjoint(part.strip() for part in value.lower().split(b",")):
                self._refuse("the Connection header names one that says where the request ends or goes", 400)

    def _refuse(self, why: str, status: int) -> None:
        self.refusal = why
        raise h11.RemoteProtocolError(why, error_status_hint=status)


class StrictProtocol(H11Protocol):
    """hypercorn's HTTP/1.1 protocol over a `StrictConnection`; never becomes HTTP/2 or a web socket."""

    connection: StrictConnection

    async def initiate(self) -> None:
        """Take the strict connection's place before the first byte."""
        self.connection = StrictConnection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_BYTES)

    async def _check_protocol(self, event: h11.Request) -> None:
        # Upgrades are refused by the connection already.
        return

    async def _send_error_response(self, status_code: int) -> None:
        problem = Problem(code="invalid", message=self.connection.refusal, status=status_code)
        body = msgspec.json.encode(problem)
        headers = [
            (b"content-type", PROBLEM_TYPE.encode()),
            (b"content-length", str(len(body)).encode()),
            (b"connection", b"close"),
        ]
        await self._send_h11_event(
            h11.Response(status_code=status_code, headers=list(chain(headers, self.config.response_headers("h11"))))
        )
        await self._send_h11_event(h11.Data(data=body))
        await self._send_h11_event(h11.EndOfMessage())
