"""Connections to engines: each is in its replica's pool, answering one stream, or closed; never two of these.

Life of a connection: `Pool.connect` or `Pool.take` → `begin(stream, request)` → the reactor calls `on_event`, which
feeds the parser and the stream → `release` puts it back, or closes it if the answer left any doubt about what follows.
An idle connection that becomes readable was closed by the engine, or says what nobody asked for: it is dropped at once.
"""

import select
from collections.abc import Callable, Sequence
from typing import Protocol

import httptools

from llmgw.router.limits import MAX_ENGINE_HEAD_BYTES, RECV_BYTES
from llmgw.router.reactor import READ_EVENTS, Reactor
from llmgw.router.tls import TlsFailure
from llmgw.router.token_pass import loaded

Header = tuple[bytes, bytes]
TOKEN_PASS, _ = loaded()
"""What looks for whole chunks in C; without it the parser takes them one by one."""


class Receiver(Protocol):
    """What a connection hands its answer to."""

    def on_head(self, status: int, headers: list[Header]) -> None:
        """The final head; called from within the parser, so it may only take notes."""

    def express(self) -> Callable[[int], None] | None:
        """A quicker handler while the parser stands between two chunks, if the stream has one now."""

    def advance(self) -> None:
        """Body parts arrived, or the answer is complete."""

    def on_eof(self) -> None:
        """The engine closed or reset the connection."""

    def on_garbage(self) -> None:
        """What the engine sent is not an answer."""


class Socket(Protocol):
    """What is used of a connected, non-blocking socket, under TLS or not."""

    def fileno(self) -> int:
        """Its descriptor."""

    def recv(self, size: int, /) -> bytes:
        """What is there, empty at the end; raises BlockingIOError, and OSError when it broke off."""

    def send(self, data: bytes | memoryview, /) -> int:
        """How much was taken; raises BlockingIOError and OSError."""

    def close(self) -> None:
        """Close the descriptor."""


class Owner(Protocol):
    """Where a connection belongs while it answers nobody."""

    reactor: Reactor

    def put(self, upstream: "Upstream") -> None:
        """Keep it for the next request."""

    def forget(self, upstream: "Upstream") -> None:
        """It was closed."""


class _Surplus(Exception):
    """A second answer to one request."""


class Upstream:
    """One connection to an engine."""

    __slots__ = (
        "_barren_bytes",
        "_between_chunks",
        "_chunked",
        "_feed",
        "_headers",
        "_in_chunk",
        "_keep_alive",
        "_parser",
        "_paused",
        "_recv",
        "_rest",
        "_status",
        "_unsent",
        "broken",
        "closed",
        "complete",
        "fd",
        "idle_since",
        "on_body",
        "on_chunk_complete",
        "on_chunk_header",
        "parts",
        "pool",
        "reused",
        "sock",
        "stream",
        "until_close",
    )

    def __init__(self, pool: Owner, sock: Socket) -> None:
        self.pool = pool
        self.sock = sock
        self.fd = sock.fileno()
        self.stream: Receiver | None = None
        self.parts: list[bytes] = []
        """Body bytes of the last read; the stream empties it."""
        self.on_body = self.parts.append
        self.complete = False
        """The answer ended where its framing says."""
        self.until_close = False
        """The answer has no length: only the end of the connection ends it."""
        self.closed = False
        self.broken = False
        """A TLS connection ended without a goodbye: what has no other end may have been cut."""
        self.reused = False
        self.idle_since = 0.0
        self._unsent: memoryview | None = None
        self._rest: Sequence[memoryview] = ()
        """What of the request follows `_unsent`."""
        self._paused = False
        self._status = 0
        self._headers: list[Header] = []
        self._barren_bytes = 0
        """Bytes since the last that brought any of the body."""
        self._keep_alive = False
        # The parser calls both for every chunk. Reversing turns the flag over without a Python frame.
        self._in_chunk = [False, True]
        self.on_chunk_header = self.on_chunk_complete = self._in_chunk.reverse
        self._between_chunks = False
        """The parser expects a chunk's size line, so that a whole chunk may go past it and leave it as it is."""
        self._chunked = False
        """The answer comes in chunks."""
        self._recv = sock.recv
        self._parser = httptools.HttpResponseParser(self)
        self._feed = self._parser.feed_data
        pool.reactor.add(self.fd, READ_EVENTS, self.on_event)

    def begin(self, stream: Receiver, request: bytes, rest: Sequence[memoryview] = ()) -> None:
        """Send a request, and the `rest` of it as the engine takes it; its answer goes to `stream`.

        Failures show when the answer is read.
        """
        self.stream = stream
        self.complete = self.until_close = self._keep_alive = False
        self._in_chunk[:] = (False, True)
        self._between_chunks = self._chunked = False
        self._status = self._barren_bytes = 0
        try:
            sent = self.sock.send(request)
        except BlockingIOError:
            sent = 0
        except OSError:
            return
        if sent < len(request) or rest:
            self._rest = rest
            self._unsent = memoryview(request)[sent:] or self._next_part()
            self.pool.reactor.epoll.modify(self.fd, READ_EVENTS | select.EPOLLOUT)

    def on_event(self, mask: int) -> None:
        """Serve the socket."""
        if self._unsent is not None and mask & select.EPOLLOUT:
            self._push(self._unsent)
            if mask == select.EPOLLOUT:
                return
        try:
            data = self._recv(RECV_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self.broke(error)
            return
        self.take(data)

    def broke(self, error: OSError) -> None:
        """Reading failed: the connection is at its end, and not a proper one if TLS says so."""
        self.broken = isinstance(error, TlsFailure)
        self.take(b"")

    def take(self, data: bytes) -> None:
        """Bytes were read; none are the connection's end."""
        stream = self.stream
        if stream is None:
            self.close()
        elif not data:
            stream.on_eof()
        else:
            self._barren_bytes += len(data)
            try:
                self._parse(data)
                self._between_chunks = self._status > 0 and not self._in_chunk[0] and data.endswith(b"\r\n")
            except (httptools.HttpParserError, httptools.HttpParserUpgrade):
                self._keep_alive = False
                stream.advance()
                if self.stream is stream:
                    stream.on_garbage()
                return
            brought = self._status and (self.parts or self.complete)
            if self._barren_bytes > MAX_ENGINE_HEAD_BYTES and not brought:
                stream.on_garbage()  # a head, a trailer or a chunk extension without end
            else:
                if brought:
                    self._barren_bytes = 0
                stream.advance()
                handler = stream.express() if self._between_chunks and self.stream is stream else None
                self._handle_by(handler or self.on_event)

    def _parse(self, data: bytes) -> None:
        """Feed the parser, but for chunks that are all there: a read of many tokens has a hundred."""
        if TOKEN_PASS is None:
            self._feed(data)
            return
        at, between = 0, self._between_chunks
        if not self._status:
            at = data.find(b"\r\n\r\n") + 4
            if at == 3:
                at = len(data)
            self._feed(data[:at])
            between = self._status > 0 and not self._in_chunk[0] and data.endswith(b"\r\n", 0, at)
        if between and self._chunked and not self.complete:
            body, at = TOKEN_PASS.whole_chunks(data, at)
            if body:
                self.parts.append(body)
        if at < len(data):
            self._feed(data[at:])

    def _handle_by(self, handler: Callable[[int], None]) -> None:
        handlers = self.pool.reactor.handlers
        if self.fd in handlers and not self.closed:  # else it is paused, or its descriptor another's by now
            handlers[self.fd] = handler

    def _push(self, unsent: memoryview) -> None:
        try:
            sent = self.sock.send(unsent)
        except BlockingIOError:
            return
        except OSError:
            sent, self._rest = len(unsent), ()
            self._keep_alive = False
        self._unsent = unsent[sent:] or self._next_part()
        if self._unsent is None:
            self.pool.reactor.epoll.modify(self.fd, READ_EVENTS)

    def _next_part(self) -> memoryview | None:
        """The next part of the request that is not empty."""
        while self._rest:
            part, self._rest = self._rest[0], self._rest[1:]
            if part:
                return part
        return None

    def on_message_begin(self) -> None:
        """Parser: an answer begins; only interim ones may come before another."""
        if self.complete:
            raise _Surplus
        self._headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        """Parser: a header, or a trailer, which is dropped."""
        if not self._status:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Parser: the head is complete."""
        status = self._parser.get_status_code()
        if status < 200:
            return
        self._status = status
        names = [name for name, _ in self._headers]
        bodiless = status in (204, 304)
        codings = [value.lower() for name, value in self._headers if name == b"transfer-encoding"]
        coded = bool(codings) and codings != [b"identity"]
        self.until_close = not bodiless and b"content-length" not in names and not coded
        self._chunked = not bodiless and coded and codings[-1].endswith(b"chunked")
        self._keep_alive = self._parser.should_keep_alive() and not self.until_close
        if self.stream is not None:
            self.stream.on_head(status, self._headers)

    def on_message_complete(self) -> None:
        """Parser: an answer ended."""
        if self._status:
            self.complete = True

    def pause(self) -> None:
        """Read nothing until `resume`: the client does not keep up."""
        if not self._paused and not self.closed:
            self._paused = True
            self.pool.reactor.remove(self.fd)

    def resume(self) -> None:
        """Read again."""
        if self._paused and not self.closed:
            self._paused = False
            events = READ_EVENTS if self._unsent is None else READ_EVENTS | select.EPOLLOUT
            self.pool.reactor.add(self.fd, events, self.on_event)

    def release(self) -> None:
        """The stream is through with it: back to the pool if a next answer can only be the next request's."""
        self.stream = None
        self.parts.clear()
        if self.complete and self._keep_alive and self._unsent is None and not self._paused and not self.closed:
            self.reused = True
            self.pool.put(self)
        else:
            self.close()

    def close(self) -> None:
        """Close it, which ends whatever the engine is doing for it."""
        self.stream = None
        if not self.closed:
            self.closed = True
            self.pool.forget(self)
            self.pool.reactor.remove(self.fd)
            self.sock.close()
