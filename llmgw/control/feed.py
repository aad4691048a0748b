"""The control plane's side of the feed: every router of this machine hears the newest routing, and is believed in turn.

A slow router gets only the latest routing; everything else that waits for it is bounded, and one that takes nothing
loses its connection, never memory of ours. Usage is acknowledged when it is in the store and not before. Trouble with
the store is passed on as trouble, never as "nobody's key".
"""

import contextlib
import logging
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import trio

from llmgw.api.types import RouterInfo
from llmgw.control.breakers import Breaker, gathered
from llmgw.control.feed_connection import READ_BYTES, Connection, frame_of, hear_hello
from llmgw.control.load_board import LoadBoard
from llmgw.control.router_metrics import Account, RouterMetrics
from llmgw.control.usage_intake import StoreUsage, store_patiently
from llmgw.core.errors import LlmgwError
from llmgw.core.frames import FrameDecoder, FrameTooLong
from llmgw.core.layout import ServerLayout
from llmgw.core.routing import (
    Activity,
    ControlMessage,
    DrainRouter,
    KeyAnswer,
    KeyAsk,
    KeyChanged,
    KeyRecord,
    RouterHello,
    RouterMessage,
    Routing,
    ScopeTable,
    UsageBatch,
    UsageStored,
)
from llmgw.core.sockets import listen_unix

HELLO_S = 5.0
"""A connection that does not say who it is within this time is ended."""
LOOKUP_S = 5.0
"""A key that the store did not find within this time cannot be checked now."""
LOOKUPS_AT_ONCE = 16
"""Keys looked up in the store at the same time, for all routers together."""
MAX_ASKED = 1_000
"""Keys one router may be waiting for; a further question is answered with trouble at once."""
MAX_ROUTERS = 256
"""Connections served at once."""
_UCRED = struct.Struct("3i")

Lookup = Callable[[str], Awaitable[KeyRecord | None]]
"""Whose key has this digest; raises LlmgwError when that cannot be found out now."""

_log = logging.getLogger(__name__)
_decoder = msgspec.msgpack.Decoder(RouterMessage)


class FeedServer:
    """Accepts routers on `layout.feed_socket`. All methods but `run` are synchronous and belong to the trio thread."""

    def __init__(
        self,
        layout: ServerLayout,
        *,
        version: str,
        lookup: Lookup,
        store_usage: StoreUsage,
        on_want: Callable[[str], None] = lambda model: None,
        metrics: RouterMetrics | None = None,
    ) -> None:
        """`on_want` is called with a model that was asked for without a Ready replica; it must not raise or wait."""
        self._layout = layout
        self._version = version
        self._lookup = lookup
        self._store_usage = store_usage
        self._on_want = on_want
        self._connections: dict[int, Connection] = {}
        self._supervised: tuple[RouterInfo, ...] = ()
        self._routing: bytes | None = None
        self._routed: frozenset[str] | None = None
        """Replicas of the newest routing; none before the first."""
        self._publication = 0
        self._scope_table: bytes | None = None
        self._scope_publication = 0
        self.loads = LoadBoard()
        """What engines say of their work, as routers are to know it."""
        self._load_publication = 0
        self._last_used: dict[str, float] = {}
        self.metrics = metrics or RouterMetrics()
        """What all routers measured."""
        self._looking = trio.CapacityLimiter(LOOKUPS_AT_ONCE)

    # what the control plane calls

    def publish(self, routing: Routing) -> None:
        """Every router gets `routing`; what it had not yet taken of earlier ones it never sees. Raises FrameTooLong."""
        self._routing = frame_of(routing)
        self._publication += 1
        self._routed = routed = frozenset(replica.id for replica in routing.replicas)
        self._last_used = {replica: at for replica, at in self._last_used.items() if replica in routed}
        for connection in self._connections.values():
            connection.wake.set()

    def publish_scopes(self, table: ScopeTable) -> None:
        """Every router gets `table`, before any key looked up after this. Raises FrameTooLong."""
        self._scope_table = frame_of(table)
        self._scope_publication += 1
        for connection in self._connections.values():
            connection.wake.set()

    def publish_loads(self) -> None:
        """Every router that knows of loads gets what is new to it of `loads`, or hears that nothing is."""
        self._load_publication += 1
        for connection in self._connections.values():
            connection.wake.set()

    def told(self) -> str:
        """How many of the routers here hear what is said now: `2 of 2 routers here were told`."""
        routers = self.routers()
        return f"{sum(router.connected for router in routers)} of {len(routers)} routers here were told"

    def key_changed(self, digest: str) -> None:
        """Every router forgets the key; call it after the change is in the store."""
        self._send_all(KeyChanged(digest=digest))

    def drain(self, pid: int, deadline_s: float) -> bool:
        """Tell the router `pid` to end within `deadline_s`; false when it is not connected."""
        found = [connection for connection in self._connections.values() if connection.hello.pid == pid]
        for connection in found:
            connection.send(DrainRouter(deadline_s=deadline_s))
        return bool(found)

    def supervise(self, routers: Sequence[RouterInfo]) -> None:
        """The routers that should be there, connected or not; the supervisor's call."""
        self._supervised = tuple(routers)

    def connected(self) -> Mapping[int, RouterHello]:
        """Routers connected, by pid (as the kernel says it)."""
        return {connection.hello.pid: connection.hello for connection in self._connections.values()}

    def routers(self) -> list[RouterInfo]:
        """All routers of this machine: those supervised, in order, then others still connected (draining ones)."""
        heard = {connection.hello.pid: connection for connection in self._connections.values()}
        infos = [
            heard.pop(router.pid).info() if router.pid in heard else msgspec.structs.replace(router, connected=False)
            for router in self._supervised
        ]
        return infos + [connection.info() for connection in heard.values()]

    def in_flight(self) -> dict[str, int]:
        """Open requests by replica id, all routers together, as last reported."""
        total: dict[str, int] = {}
        for connection in self._connections.values():
            for replica, count in connection.activity.in_flight.items():
                total[replica] = total.get(replica, 0) + count
        return total

    def open_requests(self) -> int:
        """Open requests of all routers together, as last reported; those that wait for a replica too."""
        return sum(connection.activity.open_requests for connection in self._connections.values())

    def breakers(self) -> dict[str, Breaker]:
        """Breakers that are not closed, by id of a routed replica, as last reported.

        A router that nobody asks for anything does not notice that a replica is gone, and goes on reporting it.
        """
        found = gathered(connection.activity for connection in self._connections.values())
        return found if self._routed is None else {name: found[name] for name in found.keys() & self._routed}

    def last_used(self) -> Mapping[str, float]:
        """Unix seconds each routed replica last ended a request, as far as that was reported."""
        return self._last_used

    # serving

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: started once the socket listens. Raises OSError when it cannot."""
        self._layout.run.mkdir(mode=0o700, parents=True, exist_ok=True)
        door = listen_unix(self._layout.feed_socket, backlog=MAX_ROUTERS)
        try:
            with trio.socket.from_stdlib_socket(door) as accepting:
                async with trio.open_nursery() as nursery:
                    task_status.started()
                    await self._accept(accepting, nursery)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._layout.feed_socket)

    async def _accept(self, accepting: trio.socket.SocketType, nursery: trio.Nursery) -> None:
        while True:
            try:
                sock, _ = await accepting.accept()
            except OSError as error:
                _log.warning("a router could not be accepted: %s", error)
                await trio.sleep(0.1)
                continue
            if len(nursery.child_tasks) >= MAX_ROUTERS:
                sock.close()
                continue
            nursery.start_soon(self._serve, sock)

    async def _serve(self, sock: trio.socket.SocketType) -> None:
        """One router's connection; whatever it does wrong ends only it."""
        with sock:
            pid, uid, _ = _UCRED.unpack(sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
            if uid not in (0, os.geteuid()):
                _log.warning("user %d tried to follow the feed and was refused", uid)
                return
            frames = FrameDecoder()
            try:
                with trio.fail_after(HELLO_S):
                    hello, early = await hear_hello(sock, frames)
                await self._follow(sock, msgspec.structs.replace(hello, pid=pid), frames, early)
            except (OSError, FrameTooLong, msgspec.DecodeError, trio.TooSlowError) as error:
                _log.warning("the feed of process %d ended: %s", pid, error or type(error).__name__)

    async def _follow(
        self, sock: trio.socket.SocketType, hello: RouterHello, frames: FrameDecoder, early: list[bytes]
    ) -> None:
        sending, batches = trio.open_memory_channel[UsageBatch](2)
        with trio.CancelScope() as scope:
            connection = Connection(sock=sock, scope=scope, hello=hello, batches=sending, account=Account(self.metrics))
            self._connections[id(connection)] = connection
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(connection.write, self._take)
                    nursery.start_soon(self._keep_usage, connection, batches)
                    for frame in early:
                        self._receive(connection, frame, nursery)
                    while data := await sock.recv(READ_BYTES):
                        for frame in frames.feed(data):
                            self._receive(connection, frame, nursery)
                    scope.cancel()
            except* (OSError, FrameTooLong) as errors:
                _log.warning("router %d (pid %d) is gone: %s", hello.index, hello.pid, errors.exceptions[0])
            finally:
                del self._connections[id(connection)]
                connection.account.close()

    def _receive(self, connection: Connection, frame: bytes, nursery: trio.Nursery) -> None:
        try:
            message = _decoder.decode(frame)
        except msgspec.DecodeError as error:
            # A newer router may say things this control plane has no word for.
            _log.warning("a message of router %d was ignored: %s", connection.hello.index, error)
            return
        match message:
            case Activity():
                self._heard(connection, message)
            case KeyAsk():
                if connection.asked >= MAX_ASKED:
                    connection.send(KeyAnswer(digest=message.digest, error=f"{MAX_ASKED} keys are asked for already"))
                    return
                connection.asked += 1
                nursery.start_soon(self._answer, connection, message.digest)
            case UsageBatch():
                try:
                    connection.batches.send_nowait(message)
                except trio.WouldBlock:
                    _log.warning("router %d sends usage without waiting for answers", connection.hello.index)
                    connection.scope.cancel()
            case RouterHello():
                pass

    def _heard(self, connection: Connection, activity: Activity) -> None:
        connection.activity = activity
        connection.account.hear(activity.metrics)
        for replica, at in activity.last_used.items():
            self._last_used[replica] = max(at, self._last_used.get(replica, 0.0))
        for model in activity.want:
            self._on_want(model)

    async def _answer(self, connection: Connection, digest: str) -> None:
        answer = KeyAnswer(digest=digest, error=f"the store gave no answer within {LOOKUP_S:g} s")
        try:
            with trio.move_on_after(LOOKUP_S):
                async with self._looking:
                    answer = KeyAnswer(digest=digest, record=await self._lookup(digest))
        except LlmgwError as error:
            answer = KeyAnswer(digest=digest, error=error.message)
        except Exception:
            # A look-up that breaks is trouble for its one key; the router's connection carries all its streams' counts.
            _log.exception("a key could not be looked up")
            answer = KeyAnswer(digest=digest, error="the key could not be looked up")
        connection.asked -= 1
        connection.send(answer)

    async def _keep_usage(self, connection: Connection, batches: trio.MemoryReceiveChannel[UsageBatch]) -> None:
        async for batch in batches:
            await store_patiently(self._store_usage, batch.rows)
            connection.send(UsageStored(seq=batch.seq))

    def _take(self, connection: Connection) -> bytes:
        frames = connection.outbox
        connection.outbox = []
        if self._routing is not None and connection.publication != self._publication:
            connection.publication = self._publication
            frames.insert(0, self._routing)
        if self._scope_table is not None and connection.scopes != self._scope_publication:
            connection.scopes = self._scope_publication
            frames.insert(0, self._scope_table)
        if connection.hello.loads and connection.beat != self._load_publication:
            connection.beat = self._load_publication
            frames.append(frame_of(self.loads.since(connection.loads)))
            connection.loads = self.loads.revision
        return b"".join(frames)

    def _send_all(self, message: ControlMessage) -> None:
        for connection in self._connections.values():
            connection.send(message)
