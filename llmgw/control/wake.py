"""A wake-up that coalesces: any number of `set` before a `wait` wake it once, and none is lost."""

import trio


class Wake:
    """Wakes one waiting loop."""

    def __init__(self) -> None:
        self._event = trio.Event()

    def set(self) -> None:
        """Wake the loop, now or when it next waits."""
        self._event.set()

    async def wait(self, at_most_s: float) -> None:
        """Return when woken, or after `at_most_s`; a loop resyncs by time behind its wake-ups."""
        with trio.move_on_after(at_most_s):
            await self._event.wait()
        self._event = trio.Event()
