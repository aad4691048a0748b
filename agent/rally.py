"""Where one of several shards waits: none starts before all have their weights, and no worker before its head is up."""

from collections.abc import Callable

import trio


class Rally:
    """One shard's place in line. The control plane, which hears of all shards, says when it may go on."""

    def __init__(self) -> None:
        self.waiting = False
        """Whether it has its weights and waits now."""
        self.head = ""
        """`host:port` at which the head takes it in; empty for the head."""
        self._called = trio.Event()

    def go(self, head: str) -> None:
        """It may go on. Again: the first word stands."""
        if not self._called.is_set():
            self.head = head
            self._called.set()

    async def wait(self, tell: Callable[[], None]) -> None:
        """Return once it may go on; `tell` is called when it begins to wait."""
        self.waiting = True
        tell()
        try:
            await self._called.wait()
        finally:
            self.waiting = False
