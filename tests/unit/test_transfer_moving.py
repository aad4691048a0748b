"""Silence on a socket: what is taken byte by byte is never cut, and what is not taken is."""

import itertools

import pytest
import trio
from trio.testing import MockClock

from llmgw.transfer.moving import send_moving

STALL_S = 60.0


class Peer:
    """A socket's buffer of `room` bytes that says it has room again once a third of it was taken, as Linux does."""

    def __init__(self, room: int, bytes_s: float, *, until: float = float("inf")) -> None:
        self.room = room
        self.got = 0
        """Bytes that were sent to it."""
        self._bytes_s = bytes_s
        self._until = until
        """From then on it takes nothing."""
        self._began = trio.current_time()

    def untaken(self) -> int:
        passed = min(trio.current_time(), self._until) - self._began
        return max(0, self.got - int(passed * self._bytes_s))

    async def send(self, data: memoryview) -> int:
        full = self.untaken() >= self.room
        while self.untaken() >= (self.room * 2 // 3 if full else self.room):  # noqa: ASYNC110 - the clock jumps
            await trio.sleep(1)
        took = min(len(data), self.room - self.untaken())
        self.got += took
        return took


@pytest.mark.trio
@pytest.mark.parametrize("bytes_s", [100_000, 17_000, 1000, 1])
async def test_a_peer_that_takes_a_little_is_never_cut(autojump_clock: MockClock, bytes_s: int) -> None:
    peer = Peer(room=bytes_s * 600, bytes_s=bytes_s)
    data = bytes(bytes_s * 3000)
    await send_moving(data, send=peer.send, untaken=peer.untaken, stall_s=STALL_S)
    assert peer.got == len(data)
    assert trio.current_time() > 20 * STALL_S


@pytest.mark.trio
async def test_a_peer_that_takes_nothing_any_more_is_let_go_in_time(autojump_clock: MockClock) -> None:
    peer = Peer(room=1_000_000, bytes_s=1000, until=500.0)
    with pytest.raises(trio.TooSlowError):
        await send_moving(bytes(10_000_000), send=peer.send, untaken=peer.untaken, stall_s=STALL_S)
    assert 500.0 + STALL_S <= trio.current_time() <= 500.0 + 2 * STALL_S


@pytest.mark.trio
async def test_everything_goes_in_its_order() -> None:
    got = bytearray()
    sizes = itertools.cycle([1, 7, 100])

    async def send(data: memoryview) -> int:
        await trio.lowlevel.checkpoint()
        took = bytes(data[: next(sizes)])
        got.extend(took)
        return len(took)

    data = bytes(range(256)) * 5
    await send_moving(data, send=send, untaken=lambda: 0, stall_s=STALL_S)
    assert bytes(got) == data
