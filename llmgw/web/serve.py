"""Our listeners under hypercorn's HTTP: every request knows its peer, and a stop ends streams properly.

Order of a stop: no new connection, `closing` is set (followers finish their answer), idle connections close, what is
in flight gets the grace, the rest is cut.
"""

import contextlib
import logging
import math
import socket
import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData
from hypercorn.trio.task_group import TaskGroup
from hypercorn.trio.tcp_server import TCPServer
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import AppWrapper, ASGIFramework, ConnectionState, Scope
from hypercorn.utils import parse_socket_addr

from llmgw.core.addresses import Address
from llmgw.core.sockets import listen_tcp, listen_unix
from llmgw.transfer.moving import send_to_socket
from llmgw.web.strict import MAX_HEAD_BYTES, StrictProtocol

log = logging.getLogger("llmgw.web")

BACKLOG = 4096
"""With hypercorn's 100 a burst of 3,000 connects made 27 of them wait a second or more."""
GRACE_S = 10.0
"""What is in flight at a stop gets this long; the longest answer of these apps takes well under it."""
HEAD_S = 5.0
"""From a connection's first silence, or a head's first byte, to the head's end: half-sent and dripped heads alike."""
KEEP_ALIVE_S = 75.0
"""A connection that had an answer may be silent this long: longer than clients' own pools keep theirs."""
MAX_RECV_BYTES = 64 * 1024
"""One read."""
STALL_S = 120.0
"""A peer that takes nothing of its answer for this long is cut."""
LINGER_S = 1.0
"""After a refusal the rest of a request is taken and thrown away for this long."""
LINGER_BYTES = 64 * 1024
MAX_CONNECTIONS = 1024
"""Connections of one app at once; the next ones are closed at once."""
PEER = "llmgw.peer"
"""Key of the `Peer` in a request's scope."""
CLOSING = "llmgw.closing"
"""Key of the `trio.Event` in a request's scope that is set when the server stops."""
NURSERY = "llmgw.nursery"
"""Key of the request's own nursery in its scope, for tasks that outlive a handler but not the request."""

_UCRED = struct.Struct("3i")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """Who is at the other end of a connection, as the kernel says."""

    uid: int | None = None
    """Of a process at a unix socket; None over TCP."""
    pid: int | None = None
    address: str = ""
    """`host:port` over TCP."""


def open_unix(path: Path) -> socket.socket:
    """A listener at `path` (0600) for `serve`; the caller holds the directory's lock. Raises OSError."""
    return listen_unix(path, backlog=BACKLOG)


def open_tcp(address: Address) -> socket.socket:
    """A listener at `address` for `serve`, not shared with another process; raises OSError."""
    return listen_tcp(address.host, address.port, backlog=BACKLOG)


async def serve(
    app: ASGIFramework,
    listeners: Sequence[socket.socket],
    *,
    closing: trio.Event,
    grace_s: float = GRACE_S,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve `app` on `listeners`, which it owns and closes, until `closing` is set and what was in flight has ended.

    Cancelling it ends everything at once.
    """
    server = _Server(app, closing)
    owned = [trio.SocketListener(trio.socket.from_stdlib_socket(sock)) for sock in listeners]
    try:
        async with trio.open_nursery() as watching:
            watching.start_soon(server.sends.end_when_cancelled)
            async with trio.open_nursery() as connections:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(
                        partial(trio.serve_listeners, server.connection, owned, handler_nursery=connections)
                    )
                    task_status.started()
                    await closing.wait()
                    accepting.cancel_scope.cancel()
                await server.context.terminated.set()
                connections.cancel_scope.deadline = trio.current_time() + grace_s
                server.sends.end(connections.cancel_scope.deadline)
            watching.cancel_scope.cancel()
    finally:
        for listener in owned:
            listener.socket.close()


def connection_facts(scope: Scope) -> tuple[Peer, trio.Event, trio.Nursery]:
    """Peer, stop event and request nursery of a request that came through `serve`; raises KeyError for another."""
    values = cast("dict[str, Any]", scope)
    return values[PEER], values[CLOSING], values[NURSERY]


class _Sends:
    """Sends under way. Nothing that ends a request ends them, so that its answer leaves whole; a stop does."""

    def __init__(self) -> None:
        self._scopes: set[trio.CancelScope] = set()
        self._end = math.inf

    @contextlib.contextmanager
    def one(self) -> Iterator[trio.CancelScope]:
        """What is sent in the context is cancelled by the stop alone."""
        with trio.CancelScope(shield=True, deadline=self._end) as scope:
            self._scopes.add(scope)
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def end(self, at: float) -> None:
        """End all of them at a moment, and those that begin until then."""
        self._end = at
        for scope in self._scopes:
            scope.deadline = at

    async def end_when_cancelled(self) -> None:
        """Wait to be cancelled, and end them with that."""
        try:
            await trio.sleep_forever()
        finally:
            self.end(-math.inf)


class _Server:
    """What the connections of one app share."""

    def __init__(self, app: ASGIFramework, closing: trio.Event) -> None:
        self._app = app
        self._closing = closing
        self._open = 0
        self.context = WorkerContext(None)
        self.sends = _Sends()
        self._config = _hypercorn_config()

    async def connection(self, stream: trio.SocketStream) -> None:
        """Serve one connection to its end."""
        if self._open >= MAX_CONNECTIONS:
            await trio.aclose_forcefully(stream)
            return
        self._open += 1
        try:
            app = partial(self._request, _peer(stream.socket))
            state = ConnectionState({})
            await _Connection(cast("Any", app), self._config, self.context, state, stream, self.sends).run()
        except OSError as error:
            # The peer left between accept and its first byte.
            log.debug("connection ended early: %s", error)
        except Exception:
            # A supervised border: one connection's trouble must not end the others.
            log.exception("a connection failed")
        finally:
            self._open -= 1

    async def _request(
        self,
        peer: Peer,
        scope: Scope,
        receive: Callable[[], Awaitable[Any]],
        send: Callable[[Any], Awaitable[None]],
        _sync_spawn: object,
        _call_soon: object,
    ) -> None:
        if scope["type"] != "http":
            return
        async with trio.open_nursery() as nursery:
            values = cast("dict[str, object]", scope)
            values[PEER], values[CLOSING], values[NURSERY] = peer, self._closing, nursery
            await self._app(scope, receive, send)
            nursery.cancel_scope.cancel()


class _Connection(TCPServer):
    """hypercorn's connection, always in the strict protocol, and out of reach of the application's cancellation.

    quart-trio cancels a request's tasks as soon as its answer is whole. hypercorn 0.18 is then still on its way through
    `protocol_send` in one of them: neither was an idle connection ever closed nor `Connection: close` obeyed.
    """

    def __init__(
        self,
        app: AppWrapper,
        config: Config,
        context: WorkerContext,
        state: ConnectionState,
        stream: trio.SocketStream,
        sends: _Sends,
    ) -> None:
        super().__init__(app, config, context, cast("Any", state), cast("Any", stream))
        self._sends = sends
        self._awaits_head = False
        """Whether the idle connection has the head's deadline, rather than that of a kept connection."""
        self._read_all = trio.Event()
        self._reader: trio.lowlevel.Task | None = None

    async def run(self) -> None:
        """Read requests until the connection ends."""
        sock = cast("trio.SocketStream", self.stream).socket
        try:
            async with TaskGroup() as task_group:
                self._task_group = task_group
                self.protocol = StrictProtocol(  # type: ignore[assignment]
                    self.app,
                    self.config,
                    self.context,
                    task_group,
                    ConnectionState(self.state.copy()),
                    False,
                    parse_socket_addr(sock.family, sock.getpeername()),
                    parse_socket_addr(sock.family, sock.getsockname()),
                    self.protocol_send,
                )
                await self.protocol.initiate()
                await self.idle_task.restart(self._task_group, self._idle_timeout)
                self._reader = trio.lowlevel.current_task()
                await self._read_data()
                self._read_all.set()
                # The peer has gone; hypercorn would keep the connection for the rest of its idle time.
                await self.idle_task.stop()
        finally:
            await trio.aclose_forcefully(self.stream)

    async def _read_data(self) -> None:
        stream = cast("trio.SocketStream", self.stream)
        with contextlib.suppress(trio.ClosedResourceError, trio.BrokenResourceError):
            while data := bytes(await stream.receive_some(MAX_RECV_BYTES)):
                await self.protocol.handle(RawData(data))
                if not self._awaits_head and self._head_began:
                    await self.idle_task.restart(self._task_group, self._idle_timeout)
            await self.protocol.handle(RawData(b""))
        await self.protocol.handle(Closed())

    @property
    def _head_began(self) -> bool:
        connection = cast("StrictProtocol", self.protocol).connection
        return connection.their_state is h11.IDLE and bool(connection.trailing_data[0])

    async def _idle_timeout(self) -> None:
        answered = cast("StrictProtocol", self.protocol).keep_alive_requests > 0
        self._awaits_head = not answered or self._head_began
        with trio.move_on_after(HEAD_S if self._awaits_head else KEEP_ALIVE_S):
            await cast("trio.Event", self.context.terminated).wait()
        with trio.CancelScope(shield=True):
            await self._initiate_server_close()

    async def _close(self) -> None:
        # Closed with bytes of the request unread, the kernel resets the connection and the client may lose the answer.
        stream = cast("trio.SocketStream", self.stream)
        gone = (trio.BrokenResourceError, trio.ClosedResourceError, trio.BusyResourceError)
        with trio.move_on_after(LINGER_S), contextlib.suppress(*gone):
            await stream.send_eof()
            if trio.lowlevel.current_task() is self._reader:
                while await stream.receive_some(LINGER_BYTES):
                    pass
            else:
                # Only one task may read: the connection's own goes on, and what it reads has no taker any more.
                await self._read_all.wait()
        await trio.aclose_forcefully(stream)

    async def protocol_send(self, event: Event) -> None:
        """Write bytes, close, or note that the connection is idle; cut a peer that does not read for STALL_S."""
        if isinstance(event, RawData) and trio.current_effective_deadline() == -math.inf:
            # The grace is over: the client must not take what hypercorn would write now for our answer.
            await trio.aclose_forcefully(self.stream)
            return
        with self._sends.one() as scope:
            if not isinstance(event, RawData):
                await super().protocol_send(event)
                return
            async with self.send_lock:
                sock = cast("trio.SocketStream", self.stream).socket
                try:
                    await send_to_socket(sock, event.data, stall_s=STALL_S)
                    return
                except trio.TooSlowError:
                    log.warning("a peer did not read for %g s; its connection is cut", STALL_S)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    pass
                await trio.aclose_forcefully(self.stream)
            await self.protocol.handle(Closed())
        if scope.cancelled_caught:
            await trio.aclose_forcefully(self.stream)


def _hypercorn_config() -> Config:
    config = Config()
    config.backlog = BACKLOG
    config.h11_max_incomplete_size = MAX_HEAD_BYTES
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = log
    return config


def _peer(sock: trio.socket.SocketType) -> Peer:
    if sock.family == socket.AF_UNIX:
        pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
        return Peer(uid=uid, pid=pid)
    host, port = sock.getpeername()[:2]
    return Peer(address=str(Address(host=host, port=port)))
