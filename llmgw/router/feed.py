"""The router's only tie to the cluster: it reports what it did and hears what there is, over one unix connection.

Losing the connection changes nothing a client sees: routes and keys stay, rows collect. Only one task writes, so
frames never mix; what is to be sent waits in bounded places (a question a digest, one batch, one report).
"""

import logging
import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import trio

from llmgw.core.figures import LOAD_HOLDS_S
from llmgw.core.frames import FrameDecoder, FrameTooLong, encode_frame
from llmgw.core.routing import (
    ControlMessage,
    DrainRouter,
    KeyAnswer,
    KeyAsk,
    KeyChanged,
    LoadTable,
    RouterHello,
    RouterMessage,
    Routing,
    ScopeTable,
    UsageBatch,
    UsageStored,
)
from llmgw.core.sockets import short_path
from llmgw.router.keys import KeyCache
from llmgw.router.saved import SavedState
from llmgw.router.state import FollowerState
from llmgw.router.usage import UsageSpool

ACTIVITY_S = 1.0
"""A report goes at least this often; the control plane expects one every two seconds."""
KICK_S = 0.1
"""A report that cannot wait goes at most this often."""
FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 2.0
"""Reconnecting waits this long at first and at most, times a random half to one and a half."""
WRITE_STALL_S = 30.0
"""A control plane that reads nothing for this long is left and looked for again."""
_READ_BYTES = 256 * 1024

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(ControlMessage)


class FeedClient:
    """Keeps a connection to the control plane and passes on what comes over it."""

    def __init__(
        self,
        path: Path,
        hello: RouterHello,
        *,
        state: FollowerState,
        keys: KeyCache,
        usage: UsageSpool,
        saved: SavedState,
        drain: Callable[[float], None],
    ) -> None:
        """Follow the socket at `path` as `hello`; `drain` is called with seconds when told to end."""
        self._path = path
        self._hello = hello
        self._state = state
        self._keys = keys
        self._usage = usage
        self._saved = saved
        self._drain = drain
        self._asks: dict[str, None] = {}
        self._batch: UsageBatch | None = None
        self._report_at = 0.0
        self._reported_at = 0.0
        self._wake = trio.Event()
        self._loads_heard = trio.Event()
        keys.ask = self._ask
        usage.send = self._send_batch
        state.on_want = self._kick

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: connected whenever there is something to connect to."""
        task_status.started()
        backoff_s = FIRST_BACKOFF_S
        while True:
            began = trio.current_time()
            try:
                sock = await self._connect()
            except OSError as error:
                _log.debug("no control plane at %s: %s", self._path, error)
            else:
                with sock:
                    await self._follow(sock)
                _log.warning("the control plane went away; serving on what is known")
            lasted_s = trio.current_time() - began
            backoff_s = FIRST_BACKOFF_S if lasted_s > LAST_BACKOFF_S else min(backoff_s * 2, LAST_BACKOFF_S)
            # Spread routers that lost their control plane at the same moment.
            await trio.sleep(backoff_s * random.uniform(0.5, 1.5))

    async def _connect(self) -> trio.socket.SocketType:
        sock = trio.socket.socket(trio.socket.AF_UNIX, trio.socket.SOCK_STREAM)
        try:
            with short_path(self._path) as name:
                await sock.connect(name)
        except BaseException:
            sock.close()
            raise
        return sock

    async def _follow(self, sock: trio.socket.SocketType) -> None:
        """One connection, until either side ends it."""
        self._asks.clear()
        self._batch = None
        self._report_at = 0.0
        self._state.meters.begin_anew()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write, sock, nursery.cancel_scope)
                nursery.start_soon(self._forget_loads)
                self._keys.feed_up()
                self._usage.feed_up()
                await self._read(sock)
                nursery.cancel_scope.cancel()
        finally:
            self._keys.feed_down()
            self._usage.feed_down()
            self._state.forget_loads()

    async def _forget_loads(self) -> None:
        """What was heard of engines' work holds for LOAD_HOLDS_S after the last word of it, whoever hangs."""
        while True:
            with trio.move_on_after(LOAD_HOLDS_S) as silence:
                await self._loads_heard.wait()
            self._loads_heard = trio.Event()
            if silence.cancelled_caught:
                self._state.forget_loads()

    async def _read(self, sock: trio.socket.SocketType) -> None:
        frames = FrameDecoder()
        while True:
            try:
                data = await sock.recv(_READ_BYTES)
                if not data:
                    return
                received = frames.feed(data)
            except (OSError, FrameTooLong) as error:
                _log.warning("the feed is broken: %s", error)
                return
            for frame in received:
                self._receive(frame)

    def _receive(self, frame: bytes) -> None:
        try:
            message = _decoder.decode(frame)
        except msgspec.DecodeError as error:
            # A newer control plane may say things this router has no word for.
            _log.warning("a message of the control plane is not understood and was ignored: %s", error)
            return
        match message:
            case Routing():
                self._apply(message)
            case ScopeTable():
                if message != self._state.scope_table:
                    self._state.apply_scopes(message)
                    self._saved.heard_scopes(message)
            case LoadTable():
                self._state.apply_loads(message)
                self._loads_heard.set()
            case KeyAnswer():
                self._keys.answered(message)
            case KeyChanged():
                self._keys.changed(message.digest)
            case UsageStored():
                self._usage.stored(message.seq)
            case DrainRouter():
                self._drain(message.deadline_s)

    def _apply(self, routing: Routing) -> None:
        known = self._state.routes.routing
        if known != routing:
            self._state.apply(routing)
            self._saved.heard(routing)

    async def _write(self, sock: trio.socket.SocketType, connection: trio.CancelScope) -> None:
        """Send what waits, until the connection is cancelled; cancels it when nothing can be sent."""
        frames = [_frame(self._hello)]
        while True:
            self._wake = trio.Event()
            frames += self._take()
            if frames:
                try:
                    with trio.fail_after(WRITE_STALL_S):
                        await _send_all(sock, b"".join(frames))
                except (OSError, trio.TooSlowError) as error:
                    _log.warning("the control plane takes nothing: %s", error or f"for {WRITE_STALL_S:.0f} s")
                    connection.cancel()
                    return
                frames = []
            with trio.move_on_at(self._report_at):
                await self._wake.wait()

    def _take(self) -> list[bytes]:
        frames = [_frame(KeyAsk(digest=digest)) for digest in self._asks]
        self._asks.clear()
        if self._batch is not None:
            frames.append(_frame(self._batch))
            self._batch = None
        now = trio.current_time()
        if now >= self._report_at:
            frames.append(_frame(self._state.take_activity()))
            self._reported_at, self._report_at = now, now + ACTIVITY_S
        return frames

    def _ask(self, digest: str) -> None:
        self._asks[digest] = None
        self._wake.set()

    def _send_batch(self, batch: UsageBatch) -> None:
        self._batch = batch
        self._wake.set()

    def _kick(self) -> None:
        self._report_at = min(self._report_at, self._reported_at + KICK_S)
        self._wake.set()


def _frame(message: RouterMessage) -> bytes:
    return encode_frame(_encoder.encode(message))


async def _send_all(sock: trio.socket.SocketType, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[await sock.send(view) :]
