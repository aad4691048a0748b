"""How fast the transfers of one process go together: each pays for the bytes it moved before it moves more.

They pay in the order in which they come, a small piece at a time: all get the same share, one that is slow holds up no
other, and no more than a piece of each waits in memory. Time that the other side takes is not counted here, and time
that is waited here is not counted as the other side's silence.
"""

from collections.abc import Awaitable, Callable

import trio

PIECE_S = 0.02
"""A piece is what the limit lets through in this time: of hundreds of transfers each moves every few seconds."""
LEAST_PIECE_BYTES = 4096
SPARE_S = 0.1
"""So much time that went unused may be made up for, since nobody wakes at the very moment; no idle hour is saved up."""
Wait = Callable[[trio.Event, float], Awaitable[None]]


async def wait_for(event: trio.Event, seconds: float) -> None:
    """Return when the event is set or the time is over."""
    with trio.move_on_after(seconds):
        await event.wait()


class Limit:
    """Bytes a second for all who pay, which may change at any time; none at first. Tests replace `clock` and `wait`."""

    def __init__(self, *, clock: Callable[[], float] = trio.current_time, wait: Wait = wait_for) -> None:
        self._clock = clock
        self._wait = wait
        self._bytes_s = 0
        self._paid = 0
        """Bytes that were paid for, or are being."""
        self._let_through = 0.0
        """How many of them the limit had let through at `_at`."""
        self._at = 0.0
        self._changed = trio.Event()

    @property
    def bytes_s(self) -> int:
        """Bytes a second; 0 is no limit."""
        return self._bytes_s

    def set(self, bytes_s: int) -> None:
        """Change it, also for those who wait now; 0 is no limit."""
        if bytes_s == self._bytes_s:
            return
        self._pass_time()
        self._bytes_s, self._at = bytes_s, self._clock()
        if not bytes_s:
            self._let_through = self._paid
        self._changed.set()
        self._changed = trio.Event()

    def within(self, seconds: float, most: int) -> int:
        """Bytes it lets through in so many seconds, `most` at most and without a limit."""
        if not self._bytes_s:
            return most
        return min(most, max(LEAST_PIECE_BYTES, int(self._bytes_s * seconds)))

    async def pay(self, count: int) -> None:
        """Return once the limit has let through `count` bytes more; what is cancelled here stays paid for."""
        if not self._bytes_s:
            return
        self._paid += count
        mine = self._paid
        while (wait_s := self._time_to(mine)) > 0:
            await self._wait(self._changed, wait_s)

    def _time_to(self, paid: int) -> float:
        """Seconds until so many bytes in all are let through."""
        self._pass_time()
        missing = paid - self._let_through
        # Less than a byte is a rounding error, and waiting for it might not move the clock.
        return missing / self._bytes_s if self._bytes_s and missing >= 1 else 0.0

    def _pass_time(self) -> None:
        if not self._bytes_s:
            return
        now = self._clock()
        through = self._let_through + self._bytes_s * (now - self._at)
        self._let_through, self._at = min(through, self._paid + self._bytes_s * SPARE_S), now
