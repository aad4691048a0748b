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
from dataclasses import dataclass, field

import msgspec
import trio

from llmgw.api.types import RouterInfo
from llmgw.core.errors import InvalidInput, LlmgwError, Unavailable
from llmgw.core.frames import FrameDecoder, FrameTooLong, encode_frame
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
    UsageBatch,
    UsageRow,
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
STORE_FIRST_S = 0.2
STORE_LAST_S = 5.0
"""Usage that could not be stored is tried again after this long at first and at most."""
WRITE_STALL_S = 30.0
"""A router that reads nothing for this long loses its connection."""
MAX_OUTBOX = 10_000
"""Messages that may wait for one router."""
MAX_ROUTERS = 256
"""Connections served at once."""
_READ_BYTES = 256 * 1024
_UCRED = struct.Struct("3i")

Lookup = Callable[[str], Awaitable[KeyRecord | None]]
"""Whose key has this digest; raises LlmgwError when that cannot be found out now."""
StoreUsage = Callable[[Sequence[UsageRow]], Awaitable[None]]
"""Stores rows, those already there once; raises Unavailable (ask again) or InvalidInput (a row it cannot hold)."""

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RouterMessage)


@dataclass(slots=True)
class _Connection:
    """A router that said hello. `revision` is the publication it was last sent."""

    sock: trio.socket.SocketType
    scope: trio.CancelScope
    hello: RouterHello
    batches: trio.MemorySendChannel[UsageBatch]
    activity: Activity = field(default_factory=Activity)
    outbox: list[bytes] = field(default_factory=list)
    wake: trio.Event = field(default_factory=trio.Event)
    publication: int = 0
    asked: int = 0

    def send(self, message: ControlMessage) -> None:
        """Queue `message`; a router that lets too many wait loses its connection."""
        if len(self.outbox) >= MAX_OUTBOX:
            _log.warning("router %d (pid %d) reads too slowly", self.hello.index, self.hello.pid)
            self.scope.cancel()
            return
        self.outbox.append(encode_frame(_encoder.encode(message)))
        self.wake.set()


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
    ) -> None:
        """`on_want` is called with a model that was asked for without a Ready replica; it must not raise or wait."""
        self._layout = layout
        self._version = version
        self._lookup = lookup
        self._store_usage = store_usage
        self._on_want = on_want
        self._connections: dict[int, _Connection] = {}
        self._supervised: tuple[RouterInfo, ...] = ()
        self._routing: bytes | None = None
        self._publication = 0
        self._last_used: dict[str, float] = {}
        self._looking = trio.CapacityLimiter(LOOKUPS_AT_ONCE)

    # what the control plane calls

    def publish(self, routing: Routing) -> None:
        """Every router gets `routing`; what it had not yet taken of earlier ones it never sees. Raises FrameTooLong."""
        self._routing = encode_frame(_encoder.encode(routing))
        self._publication += 1
        known = {replica.id for replica in routing.replicas}
        self._last_used = {replica: at for replica, at in self._last_used.items() if replica in known}
        for connection in self._connections.values():
            connection.wake.set()

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
            _info(heard.pop(router.pid)) if router.pid in heard else msgspec.structs.replace(router, connected=False)
            for router in self._supervised
        ]
        return infos + [_info(connection) for connection in heard.values()]

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
                    hello, early = await _hello(sock, frames)
                await self._follow(sock, msgspec.structs.replace(hello, pid=pid), frames, early)
            except (OSError, FrameTooLong, msgspec.DecodeError, trio.TooSlowError) as error:
                _log.warning("the feed of process %d ended: %s", pid, error or type(error).__name__)

    async def _follow(
        self, sock: trio.socket.SocketType, hello: RouterHello, frames: FrameDecoder, early: list[bytes]
    ) -> None:
        sending, batches = trio.open_memory_channel[UsageBatch](2)
        with trio.CancelScope() as scope:
            connection = _Connection(sock=sock, scope=scope, hello=hello, batches=sending)
            self._connections[id(connection)] = connection
            try:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._write, connection)
                    nursery.start_soon(self._keep_usage, connection, batches)
                    for frame in early:
                        self._receive(connection, frame, nursery)
                    while data := await sock.recv(_READ_BYTES):
                        for frame in frames.feed(data):
                            self._receive(connection, frame, nursery)
                    scope.cancel()
            except* (OSError, FrameTooLong) as errors:
                _log.warning("router %d (pid %d) is gone: %s", hello.index, hello.pid, errors.exceptions[0])
            finally:
                del self._connections[id(connection)]

    def _receive(self, connection: _Connection, frame: bytes, nursery: trio.Nursery) -> None:
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

    def _heard(self, connection: _Connection, activity: Activity) -> None:
        connection.activity = activity
        for replica, at in activity.last_used.items():
            self._last_used[replica] = max(at, self._last_used.get(replica, 0.0))
        for model in activity.want:
            self._on_want(model)

    async def _answer(self, connection: _Connection, digest: str) -> None:
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

    async def _keep_usage(self, connection: _Connection, batches: trio.MemoryReceiveChannel[UsageBatch]) -> None:
        async for batch in batches:
            await self._store(batch.rows)
            connection.send(UsageStored(seq=batch.seq))

    async def _store(self, rows: Sequence[UsageRow]) -> None:
        """Return once `rows` are stored, however long the store is away."""
        wait_s = STORE_FIRST_S
        while True:
            try:
                await self._store_usage(rows)
                return
            except InvalidInput as error:
                if len(rows) == 1:
                    _log.error("usage row %r cannot be stored and is dropped: %s", rows[0].id, error)
                    return
                # One row must not keep the others out.
                for row in rows:
                    await self._store((row,))
                return
            except Unavailable as error:
                _log.warning("%d rows of usage wait for the store: %s", len(rows), error)
            except Exception:
                # Rows are kept by the router until they are stored; whatever is wrong may pass.
                _log.exception("%d rows of usage could not be stored", len(rows))
            await trio.sleep(wait_s)
            wait_s = min(wait_s * 2, STORE_LAST_S)

    async def _write(self, connection: _Connection) -> None:
        while True:
            connection.wake = trio.Event()
            data = self._take(connection)
            if not data:
                await connection.wake.wait()
                continue
            with trio.move_on_after(WRITE_STALL_S) as stall:
                view = memoryview(data)
                while view:
                    view = view[await connection.sock.send(view) :]
            if stall.cancelled_caught:
                raise TimeoutError(f"it took nothing for {WRITE_STALL_S:.0f} s")

    def _take(self, connection: _Connection) -> bytes:
        frames = connection.outbox
        connection.outbox = []
        if self._routing is not None and connection.publication != self._publication:
            connection.publication = self._publication
            frames.insert(0, self._routing)
        return b"".join(frames)

    def _send_all(self, message: ControlMessage) -> None:
        for connection in self._connections.values():
            connection.send(message)


async def _hello(sock: trio.socket.SocketType, frames: FrameDecoder) -> tuple[RouterHello, list[bytes]]:
    """The first frame, which must be the hello, and the frames that came with it."""
    while data := await sock.recv(_READ_BYTES):
        received = frames.feed(data)
        if received:
            return msgspec.msgpack.decode(received[0], type=RouterHello), received[1:]
    raise ConnectionResetError("it left without a word")


def _info(connection: _Connection) -> RouterInfo:
    return RouterInfo(
        pid=connection.hello.pid,
        port=connection.hello.port,
        requests=connection.activity.requests,
        open_requests=connection.activity.open_requests,
        version=connection.hello.version,
        connected=True,
    )
