"""A gRPC server that a hostile peer can neither fill nor kill: every queue it could grow is bounded, and every error it
can cause ends its own connection only.

grpclib by itself buffers frames of any length, keeps one object a DATA frame (a byte costs hundreds), answers pings
into an unread socket without end, and lets a frame it does not know raise out of the protocol.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial

import grpclib.server
from grpclib.config import Configuration
from grpclib.protocol import H2Protocol, Stream
from grpclib.utils import Wrapper
from h2.config import H2Configuration

from llmgw.agents.sessions import TokenBucket
from llmgw.core.wire_limits import KIB, MIB, DecodeError

log = logging.getLogger("llmgw.agents")

CONNECTION_WINDOW_BYTES = 1 * MIB
STREAM_WINDOW_BYTES = 256 * KIB
"""Undelivered bytes of a stream, beyond the one message being read."""
WRITE_BUFFER_BYTES = 1 * MIB
"""Answers a peer may leave unread before its connection is cut."""
MAX_CONNECTIONS = 8192
FRAMES_AT_ONCE = 20_000
"""HTTP/2 frames a connection may send in a burst; they come back at FRAMES_PER_S. The longest message takes 256."""
FRAMES_PER_S = 2000.0
ANSWER_BYTES = 13
"""Size of the answer to a frame that is refused (RST_STREAM)."""
MAX_STREAMS_STARTED = 200
"""Streams a connection may start at once; they come back at STREAMS_PER_S. An agent starts one or two."""
STREAMS_PER_S = 5.0
IDLE_S = 15.0
"""A connection without a stream is closed after this long, twice this at most."""
BACKLOG = 1024
NOISY_LOGGERS = ("asyncio", "grpclib.server")


class BoundedBuffer:
    """Received bytes of one stream, as bytes: what is kept is at most one message and the stream's window."""

    def __init__(self, acknowledge: Callable[[int], None]) -> None:
        self._acknowledge = acknowledge
        self._data = bytearray()
        self._held = 0
        self._ended = False
        self._changed = asyncio.Event()

    def add(self, data: bytes, ack_size: int) -> None:
        """A DATA frame arrived; `ack_size` is what it took from the window."""
        self._data += data
        self._held += ack_size
        self._changed.set()

    def eof(self) -> None:
        """The peer will send no more."""
        self._ended = True
        self._changed.set()

    async def read(self, size: int) -> bytes:
        """Exactly `size` bytes, or b"" at the end; raises DecodeError when the stream ends in between."""
        while len(self._data) < size and not self._ended:
            self._release(self._held)
            self._changed.clear()
            await self._changed.wait()
        if len(self._data) < size:
            if not self._data:
                return b""
            raise DecodeError("the stream ended within a message")
        taken = bytes(self._data[:size])
        del self._data[:size]
        self._release(max(0, self._held - len(self._data)))
        return taken

    def unacked_size(self) -> int:
        """What the window still has to get back when the stream is let go."""
        held, self._held = self._held, 0
        return held

    def _release(self, size: int) -> None:
        if size:
            self._held -= size
            self._acknowledge(size)


class BoundedProtocol(H2Protocol):
    """One connection of the agent port."""

    def __init__(self, server: "BoundedServer", handler: grpclib.server.Handler) -> None:
        super().__init__(handler, server.configuration, server.h2_configuration)
        self._server = server
        self._idle: asyncio.TimerHandle | None = None
        self._was_idle = False
        self._loop = asyncio.get_running_loop()
        now = self._loop.time()
        self._streams = TokenBucket(rate=STREAMS_PER_S, burst=MAX_STREAMS_STARTED, now=now)
        self._frames = TokenBucket(rate=FRAMES_PER_S, burst=FRAMES_AT_ONCE, now=now)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The TLS handshake is done."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        super().connection_made(transport)
        self.connection.create_stream = self._create_stream  # type: ignore[method-assign]  # the one seam there is
        self._idle = self._loop.call_later(IDLE_S, self._check_idle)
        if not self._server.admit(self):
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Bytes of the peer."""
        try:
            events = self.connection.feed(data)
            answers = self.connection._connection.data_to_send()
            # Frames for streams that are over are no events, but each is answered.
            if self._frames.take(max(len(events), len(answers) // ANSWER_BYTES), self._loop.time()):
                raise DecodeError(f"more than {FRAMES_AT_ONCE} frames came at once")
            self.transport.write(answers)
            for event in events:
                self.processor.process(event)
            if not self.connection.is_closing():
                self.connection.flush()
        except Exception as error:
            # grpclib and h2 raise what they like on frames they did not foresee; the loop must not see it.
            log.info("cut a connection on the agent port: %s: %s", type(error).__name__, error)
            self.cut()
        if not self.transport.is_closing() and self.transport.get_write_buffer_size() > WRITE_BUFFER_BYTES:
            log.info("cut a connection on the agent port: its answers were not read")
            self.cut()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        if self._idle is not None:
            self._idle.cancel()
        self._server.forget(self)
        super().connection_lost(exc)

    def cut(self) -> None:
        """End the connection without a farewell."""
        self.processor.close("Connection cut")
        self.transport.abort()

    def _create_stream(self, *, stream_id: int | None = None, wrapper: Wrapper | None = None) -> Stream:
        if self._streams.take(1, self._loop.time()):
            raise DecodeError(f"more than {MAX_STREAMS_STARTED} streams were started at once")
        connection = self.connection
        stream = Stream(connection, connection._connection, self.transport, stream_id=stream_id, wrapper=wrapper)
        stream.buffer = BoundedBuffer(partial(self._acknowledge, stream_id or 0))  # type: ignore[assignment]
        return stream

    def _acknowledge(self, stream_id: int, size: int) -> None:
        if not self.connection.is_closing():
            self.connection.ack(stream_id, size)

    def _check_idle(self) -> None:
        idle = not self.processor.streams
        if idle and self._was_idle:
            self.cut()
            return
        self._was_idle = idle
        self._idle = self._loop.call_later(IDLE_S, self._check_idle)


class _PeerNoise(logging.Filter):
    """Drops what a peer could fill the log with: asyncio's line for every write to a peer that is gone, and grpclib's
    stack traces for requests without the usual headers. What matters of a call is logged by the bridge itself.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        return record.name != "grpclib.server" and record.msg != "socket.send() raised exception."


class BoundedServer(grpclib.server.Server):
    """grpclib's server with bounded connections, and a stop that leaves no socket behind."""

    def __init__(self, service: "grpclib._typing.IServable") -> None:
        configuration = Configuration(
            http2_connection_window_size=CONNECTION_WINDOW_BYTES, http2_stream_window_size=STREAM_WINDOW_BYTES
        )
        super().__init__([service], config=configuration)
        self._protocols: set[BoundedProtocol] = set()
        self._none_left = asyncio.Event()
        self._log_filter = _PeerNoise()

    @property
    def configuration(self) -> Configuration:
        """What every connection of this server uses."""
        return self._config

    @property
    def h2_configuration(self) -> H2Configuration:
        """What every connection's HTTP/2 state machine uses."""
        return self._h2_config

    async def listen(self, listener: socket.socket, context: ssl.SSLContext, *, handshake_s: float) -> None:
        """Accept connections on a listening socket, which is closed with the server."""
        for name in NOISY_LOGGERS:
            logging.getLogger(name).addFilter(self._log_filter)
        self._server = await self._loop.create_server(
            self._protocol_factory,
            sock=listener,
            ssl=context,
            backlog=BACKLOG,
            ssl_handshake_timeout=handshake_s,
            ssl_shutdown_timeout=2.0,
        )
        self._server_closed_fut = self._loop.create_future()

    def admit(self, protocol: BoundedProtocol) -> bool:
        """Count a connection; False when there are too many."""
        self._protocols.add(protocol)
        self._none_left.clear()
        return len(self._protocols) <= MAX_CONNECTIONS

    def forget(self, protocol: BoundedProtocol) -> None:
        """A connection is gone."""
        self._protocols.discard(protocol)
        if not self._protocols:
            self._none_left.set()

    async def stop(self, *, grace_s: float) -> None:
        """Close the port and every connection; what is not closed after `grace_s` is cut."""
        self.close()
        for protocol in list(self._protocols):
            protocol.processor.close("The control plane stops")
        await self._within(grace_s, self._until_none_left())
        for protocol in list(self._protocols):
            protocol.transport.abort()
        await self._within(grace_s, self._until_none_left())
        await self._within(grace_s, self.wait_closed())
        for name in NOISY_LOGGERS:
            logging.getLogger(name).removeFilter(self._log_filter)

    async def _until_none_left(self) -> None:
        if self._protocols:
            await self._none_left.wait()

    @staticmethod
    async def _within(limit_s: float, awaitable: Coroutine[object, object, None]) -> None:
        try:
            async with asyncio.timeout(limit_s):
                await awaitable
        except TimeoutError:
            log.warning("the agent port did not close within %s s", limit_s)

    def _protocol_factory(self) -> BoundedProtocol:
        self.__gc_step__()
        handler = grpclib.server.Handler(self._mapping, self._codec, self._status_details_codec, self.__dispatch__)
        self._handlers.add(handler)
        return BoundedProtocol(self, handler)
