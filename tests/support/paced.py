"""Limits for tests: one whose own clock moves where others wait, and one that lets nothing through until it changes."""

import trio

from llmgw.transfer.limit import Limit


class PacedLimit(Limit):
    """A limit on a clock that only its waiting moves; `took_s` is what all of it took."""

    def __init__(self, bytes_s: int = 0) -> None:
        super().__init__(clock=lambda: self.took_s, wait=self._pass)
        self.took_s = 0.0
        self.pays: list[int] = []
        """What was paid for at once, in order."""
        self.set(bytes_s)

    async def pay(self, count: int) -> None:
        """As it does, and remembered."""
        if self.bytes_s:
            self.pays.append(count)
        await super().pay(count)

    async def _pass(self, _event: trio.Event, seconds: float) -> None:
        self.took_s += seconds
        await trio.lowlevel.checkpoint()


class HeldLimit(PacedLimit):
    """One that lets nothing more through after `holds_at` bytes until it changes; `waiting` is set once it holds."""

    def __init__(self, bytes_s: int, *, holds_at: int = 0) -> None:
        self.holds_at = holds_at
        self.waiting = trio.Event()
        super().__init__(bytes_s)

    async def _pass(self, event: trio.Event, seconds: float) -> None:
        if sum(self.pays) < self.holds_at:
            await super()._pass(event, seconds)
            return
        self.waiting.set()
        await event.wait()
