"""One router's connection to the feed. What waits for it is bounded: one that takes nothing loses its connection."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import trio

from llmgw.api.types import RouterInfo
from llmgw.control.load_board import NOTHING_YET
from llmgw.control.router_metrics import Account
from llmgw.core.frames import FrameDecoder, encode_frame
from llmgw.core.routing import Activity, ControlMessage, RouterHello, UsageBatch

WRITE_STALL_S = 30.0
"""A router that reads nothing for this long loses its connection."""
MAX_OUTBOX = 10_000
"""Messages that may wait for one router."""
READ_BYTES = 256 * 1024

_log = logging.getLogger(__name__)
_encoder = msgspec.msgpack.Encoder()


@dataclass(slots=True)
class Connection:
    """A router that said hello.

    `publication` and `scopes` are the routing and the scope table it was last sent, `loads` is the newest revision of
    loads and `beat` the last publication of them.
    """

    sock: trio.socket.SocketType
    scope: trio.CancelScope
    hello: RouterHello
    batches: trio.MemorySendChannel[UsageBatch]
    account: Account
    activity: Activity = field(default_factory=Activity)
    outbox: list[bytes] = field(default_factory=list)
    wake: trio.Event = field(default_factory=trio.Event)
    publication: int = 0
    scopes: int = 0
    loads: int = NOTHING_YET
    beat: int = 0
    asked: int = 0

    def send(self, message: ControlMessage) -> None:
        """Queue `message`; a router that lets too many wait loses its connection."""
        if len(self.outbox) >= MAX_OUTBOX:
            _log.warning("router %d (pid %d) reads too slowly", self.hello.index, self.hello.pid)
            self.scope.cancel()
            return
        self.outbox.append(frame_of(message))
        self.wake.set()

    async def write(self, take: Callable[["Connection"], bytes]) -> None:
        """Send what `take` gives whenever there is something; raises TimeoutError for a router that stalls."""
        while True:
            self.wake = trio.Event()
            data = take(self)
            if not data:
                await self.wake.wait()
                continue
            with trio.move_on_after(WRITE_STALL_S) as stall:
                view = memoryview(data)
                while view:
                    view = view[await self.sock.send(view) :]
            if stall.cancelled_caught:
                raise TimeoutError(f"it took nothing for {WRITE_STALL_S:.0f} s")

    def info(self) -> RouterInfo:
        """The router as operators see it."""
        return RouterInfo(
            pid=self.hello.pid,
            port=self.hello.port,
            requests=self.activity.requests,
            open_requests=self.activity.open_requests,
            version=self.hello.version,
            connected=True,
        )


def frame_of(message: ControlMessage) -> bytes:
    """A message as it travels; raises FrameTooLong."""
    return encode_frame(_encoder.encode(message))


async def hear_hello(sock: trio.socket.SocketType, frames: FrameDecoder) -> tuple[RouterHello, list[bytes]]:
    """The first frame, which must be the hello, and the frames that came with it."""
    while data := await sock.recv(READ_BYTES):
        received = frames.feed(data)
        if received:
            return msgspec.msgpack.decode(received[0], type=RouterHello), received[1:]
    raise ConnectionResetError("it left without a word")
