"""A client's connection: bytes in, bounded in size and time; answers out; its end noticed at once.

The socket is registered with the reactor once, edge-triggered, for the connection's life. Bytes that arrive while an
answer is on its way stay in the socket and are read as the next request.
"""

import select
import socket
import ssl
import struct
import time
from collections.abc import Callable
from enum import Enum
from typing import Final

from llmgw.router.heads import ChunkedBody, RequestHead, bad_request, parse_head
from llmgw.router.limits import (
    BODY_STALL_S,
    BODY_TOTAL_S,
    HEAD_DEADLINE_S,
    KEEP_ALIVE_IDLE_S,
    LINGER_BYTES,
    LINGER_S,
    MAX_HEAD_BYTES,
    RECV_BYTES,
)
from llmgw.router.ports import Refusal
from llmgw.router.reactor import CLIENT_EVENTS, GONE_EVENTS, Reactor, Signal
from llmgw.router.relay import Stream
from llmgw.router.tls import TlsSocket

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_NOT_PLAIN_TEXT = b"This port speaks HTTPS: ask again with https:// in the address.\n"
NOT_PLAIN = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
    % (len(_NOT_PLAIN_TEXT), _NOT_PLAIN_TEXT)
)
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Gone(Exception):
    """The client's connection ended, or was idle for too long: there is nobody to answer."""


class _Waiting(Enum):
    NOTHING = 0
    TO_READ = 1
    TO_WRITE = 2


_NOTHING: Final = _Waiting.NOTHING  # bound once: an enum's member is looked up by way of its metaclass, each time
_TO_READ: Final = _Waiting.TO_READ
_TO_WRITE: Final = _Waiting.TO_WRITE


class ClientConnection:
    """One client connection, used by one task."""

    __slots__ = (
        "_buffer",
        "_chunks",
        "_deadline",
        "_expired",
        "_head",
        "_left",
        "_look",
        "_raw_head",
        "_reactor",
        "_retiring",
        "_sock",
        "_tls",
        "_waiting",
        "address",
        "answered",
        "closed",
        "fd",
        "gone",
        "on_gone",
        "peer",
        "send",
        "signal",
        "stall_s",
        "stream",
    )

    def __init__(
        self, reactor: Reactor, sock: socket.socket, address: str, context: ssl.SSLContext | None = None
    ) -> None:
        """Take over a client's socket, under TLS with a `context`. Raises OSError."""
        self._reactor = reactor
        self._tls = None if context is None else TlsSocket(sock, context)
        self._look: Callable[[], bool] | None = None
        """Under TLS a client's goodbye stands between its bytes: whether it is there."""
        self._sock: socket.socket | TlsSocket = self._tls or sock
        self.fd = self._sock.fileno()
        self.peer = address
        """Who connected."""
        self.address = address
        """Who asks: `peer`, or the client for whom a proxy that is believed asks now."""
        self.send = self._sock.send
        self.stream: Stream | None = None
        self.signal = Signal()
        self.gone = False
        """The client closed its side, or both."""
        self.on_gone: Callable[[], None] | None = None
        """Called when that happens while no stream is on its way."""
        self.closed = False
        self.answered = 0
        """Requests answered."""
        self.stall_s = 120.0
        """How long a client may take nothing of what is sent to it."""
        self._buffer = b""
        self._left = 0
        """Bytes of the current request's body that were not read yet; chunked bodies are `_chunks`."""
        self._chunks: ChunkedBody | None = None
        self._raw_head = b""
        self._head: RequestHead | None = None
        """The last head and how it came; heads are not changed after parsing, but for the expectation."""
        self._deadline = 0.0
        self._expired = False
        self._retiring = False
        self._waiting: _Waiting = _NOTHING
        reactor.add(self.fd, CLIENT_EVENTS, self.on_event)
        reactor.ticking.add(self)

    def on_event(self, mask: int) -> None:
        """Serve the socket; called by the reactor."""
        stream = self.stream
        if mask & GONE_EVENTS or (self._look is not None and self._said_goodbye(mask)):
            self.gone = True
            if stream is not None:
                stream.client_left()
                return
            if self.on_gone is not None:
                self._reactor.woken = True
                self.on_gone()
        elif stream is not None:
            if stream.pending and mask & select.EPOLLOUT:
                stream.flush()
            return
        waiting = self._waiting
        if waiting is _NOTHING:
            return
        wanted = select.EPOLLIN if waiting is _TO_READ else select.EPOLLOUT
        if mask & (wanted | GONE_EVENTS):
            self._wake()

    def _said_goodbye(self, mask: int) -> bool:
        """Whether a client ended TLS without ending its connection; whoever reads finds out without this."""
        reads = self._waiting is not _NOTHING
        return not reads and self._look is not None and bool(mask & select.EPOLLIN) and self._look()

    def tick(self, now: float) -> None:
        """Look at the deadlines; called by the reactor."""
        if self.stream is not None:
            self.stream.tick(now)
        elif self._waiting is not _NOTHING and now > self._deadline:
            self._expired = True
            self._wake()

    def retire(self) -> None:
        """End the connection once it is idle: at once, or after the answer on its way."""
        self._retiring = True
        if self._waiting is _TO_READ and self.idle:
            self._wake()

    @property
    def retiring(self) -> bool:
        """Whether no further request will be read."""
        return self._retiring

    @property
    def idle(self) -> bool:
        """Whether no request has begun."""
        return not self._buffer and not self._left and self._chunks is None

    def _wake(self) -> None:
        self._waiting = _NOTHING
        self._reactor.woken = True
        self.signal.set()

    async def secure(self) -> None:
        """The TLS handshake, if there is to be one; raises Gone when it fails or takes longer than a head may."""
        tls = self._tls
        if tls is None:
            return
        self._deadline, self._expired = time.monotonic() + HEAD_DEADLINE_S, False
        try:
            while (reading := tls.handshake()) is not None:
                if self._expired or self._retiring or self.gone:
                    raise Gone
                await self._wait(_TO_READ if reading else _TO_WRITE)
        except ssl.SSLError as error:
            if error.reason == "HTTP_REQUEST":
                await self._answer_plainly(tls)
            raise Gone from None
        except OSError:
            raise Gone from None
        self._look = tls.ended

    async def _answer_plainly(self, tls: TlsSocket) -> None:
        plain = tls.plain()
        self._sock, self._tls, self.send = plain, None, plain.send
        await self.write(NOT_PLAIN)
        await self.linger()

    async def next_head(self) -> RequestHead:
        """The next request's head; raises Gone or Refusal."""
        now = time.monotonic()
        self._deadline = now + (HEAD_DEADLINE_S if self._buffer or not self.answered else KEEP_ALIVE_IDLE_S)
        while True:
            end = self._buffer.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)
            if end >= 0:
                break
            if b"\n\n" in self._buffer or b"\r\r" in self._buffer:
                raise bad_request("The request head is malformed: its lines end in CR LF, see RFC 9112, section 2.2.")
            if len(self._buffer) >= MAX_HEAD_BYTES:
                raise bad_request(f"The request head is longer than {MAX_HEAD_BYTES} bytes.", 431)
            if self._retiring and self.idle:
                raise Gone
            fresh = not self._buffer
            data = await self._receive()
            if data is None:
                if fresh:
                    raise Gone
                raise bad_request(f"The request head did not arrive within {HEAD_DEADLINE_S:g} s.", 408)
            if not data:
                raise Gone
            if fresh and self.answered:
                self._deadline = time.monotonic() + HEAD_DEADLINE_S
            self._buffer = self._buffer + data if self._buffer else data
        raw, self._buffer = self._buffer[: end + 4], self._buffer[end + 4 :]
        head = self._head
        if head is None or raw != self._raw_head:  # clients repeat their heads for as long as a connection lives
            head = parse_head(raw)
            self._raw_head, self._head = raw, None if head.wants_continue else head
        self._left = head.content_length
        self._chunks = ChunkedBody() if head.chunked else None
        return head

    async def read_body(self, head: RequestHead, limit_bytes: int) -> bytes:
        """The whole body; raises Refusal (413, 408, 400) or Gone."""
        if head.content_length > limit_bytes:
            raise _too_long(limit_bytes)
        if not head.chunked and len(self._buffer) >= self._left:
            body, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
            self._left = 0
            return body
        whole = bytearray()
        until = time.monotonic() + BODY_TOTAL_S
        while (part := await self.read_some(head, until=until)) is not None:
            whole += part
            if len(whole) > limit_bytes:
                raise _too_long(limit_bytes)
        return bytes(whole)

    async def read_some(self, head: RequestHead, *, until: float) -> bytes | None:
        """The next decoded bytes of the body, none at its end; `until` is monotonic. Raises like `read_body`."""
        if self._chunks is None and not self._left:
            return None
        if head.wants_continue:
            head.wants_continue = False
            if not self._buffer:
                await self.write(CONTINUE)
        while True:
            if self._buffer:
                part = self._decode()
                if part or (self._chunks is None and not self._left):
                    return part or None
            if self._chunks is None and not self._left:
                return None
            self._deadline = min(time.monotonic() + BODY_STALL_S, until)
            data = await self._receive()
            if data is None:
                raise bad_request("The request body stopped arriving.", 408)
            if not data:
                raise Gone
            self._buffer = data

    def _decode(self) -> bytes:
        data, self._buffer = self._buffer, b""
        chunks = self._chunks
        if chunks is not None:
            part = chunks.feed(data)
            if chunks.done:
                self._buffer, self._chunks = chunks.rest, None
            return part
        part, self._buffer = data[: self._left], data[self._left :]
        self._left -= len(part)
        return part

    @property
    def body_read(self) -> bool:
        """Whether the current request's body was read to its end, so that what follows is another request."""
        return not self._left and self._chunks is None

    def skip_body(self) -> None:
        """Drop the current request's body if all of it is here: its connection can then carry another request."""
        if self._chunks is None and len(self._buffer) >= self._left:
            self._buffer, self._left = self._buffer[self._left :], 0

    async def _receive(self) -> bytes | None:
        """More bytes, empty at the end of the connection, none at the deadline."""
        self._expired = False
        while True:
            try:
                return self._sock.recv(RECV_BYTES)
            except BlockingIOError:
                pass
            except OSError:
                return b""
            if self._expired:
                return None
            if self._retiring and self.idle:
                return b""
            await self._wait(_TO_READ)

    async def _wait(self, what: _Waiting) -> None:
        self._waiting = what
        try:
            await self.signal.wait()
        finally:
            self._waiting = _NOTHING

    async def write(self, data: bytes) -> None:
        """Send all of it; raises Gone when the client left or takes nothing for `stall_s`."""
        self._expired = False
        while True:
            try:
                sent = self.send(data)
            except BlockingIOError:
                sent = 0
            except OSError:
                raise Gone from None
            data = data[sent:]
            if not data:
                return
            if sent:
                continue
            if self._expired:
                raise Gone
            self._deadline = time.monotonic() + self.stall_s
            await self._wait(_TO_WRITE)

    async def linger(self) -> None:
        """End our side and throw away what still arrives, so that the client can read its answer before the close."""
        if self.closed:
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return
        thrown, until = len(self._buffer), time.monotonic() + LINGER_S
        while thrown < LINGER_BYTES:
            self._deadline = until
            self._buffer = b"."  # not idle: a retiring connection lingers too
            data = await self._receive()
            if not data:
                return
            thrown += len(data)

    def abort(self) -> None:
        """Close with a reset: what the client did not take is thrown away."""
        if not self.closed:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.close()

    def close(self) -> None:
        """Close the connection; harmless when repeated."""
        if not self.closed:
            self.closed = self.gone = True
            self._reactor.ticking.discard(self)
            self._reactor.remove(self.fd)
            self._sock.close()


def _too_long(limit_bytes: int) -> Refusal:
    return bad_request(f"The body is longer than {limit_bytes} bytes.", 413)
