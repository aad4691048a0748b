"""A socket whose deadlines are of silence: what moves is never cut, however slowly, and what does not is let go.

Whether the other side takes what is sent to it, its kernel says: a socket with megabytes in its buffer takes more only
once a third of them are gone, which at a few kB/s lasts minutes.
"""

import fcntl
import struct
import termios
from collections.abc import Awaitable, Callable

import trio

_COUNT = struct.Struct("i")


async def send_moving(
    data: bytes | bytearray | memoryview,
    *,
    send: Callable[[memoryview], Awaitable[int]],
    untaken: Callable[[], int],
    stall_s: float,
) -> None:
    """Send all of it; raises trio.TooSlowError once the other side has taken nothing for `stall_s`.

    `send` sends some and gives how much; cancelled, it has sent nothing. `untaken` counts what was sent before and is
    not taken yet.
    """
    with memoryview(data) as whole:
        sent, taken = 0, -untaken()
        while sent < len(whole):
            # One deadline for as much as goes: a fast transfer pays for few.
            with trio.move_on_after(stall_s):
                while sent < len(whole):
                    with whole[sent:] as rest:
                        sent += await send(rest)
                return
            before, taken = taken, sent - untaken()
            if taken <= before:
                raise trio.TooSlowError


def untaken_bytes(socket: trio.socket.SocketType) -> int:
    """What was sent and the other side has not taken: SIOCOUTQ of tcp(7) and unix(7)."""
    if socket.fileno() < 0:
        raise trio.ClosedResourceError("this socket was closed")
    told = fcntl.ioctl(socket.fileno(), termios.TIOCOUTQ, bytes(_COUNT.size))
    return int(_COUNT.unpack(told)[0])


async def send_to_socket(
    socket: trio.socket.SocketType, data: bytes | bytearray | memoryview, *, stall_s: float
) -> None:
    """Send all of it as `send_moving` does; raises trio.BrokenResourceError where the connection is gone."""
    try:
        await send_moving(data, send=socket.send, untaken=lambda: untaken_bytes(socket), stall_s=stall_s)
    except OSError as error:
        raise trio.BrokenResourceError from error


class MovingStream(trio.abc.HalfCloseableStream):
    """A socket's stream; sending and receiving raise trio.TooSlowError after `stall_s` in which nothing moved."""

    def __init__(self, stream: trio.SocketStream, *, stall_s: float) -> None:
        self.stall_s = stall_s
        self._stream = stream

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it."""
        if not data:
            await self._stream.send_all(data)
        await send_to_socket(self._stream.socket, data, stall_s=self.stall_s)

    async def wait_send_all_might_not_block(self) -> None:
        """As the socket's own."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As the socket's own."""
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """What is there of up to `max_bytes`, waiting for the first; empty at the end."""
        with trio.fail_after(self.stall_s):
            return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """Close the socket."""
        await self._stream.aclose()
