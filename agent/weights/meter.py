"""Progress of one fetch: within a phase it never goes back, it ends at its total, and is told every 2 s at most."""

from collections.abc import Callable

from llmgw.core.cluster import FetchProgress

TELL_EVERY_S = 2.0
"""A screen needs no more, and a thousand nodes must not flood the leader."""


class Meter:
    """Tells `tell` how far a fetch is."""

    def __init__(self, tell: Callable[[FetchProgress], None], clock: Callable[[], float]) -> None:
        self._tell = tell
        self._clock = clock
        self._phase = ""
        self._done = 0
        self._total = 0
        self._told: tuple[str, int, int] = ("", 0, 0)
        self._told_at = float("-inf")

    def begin(self, phase: str, total: int, *, done: int = 0) -> None:
        """A new phase: told at once. Naming the current phase again changes nothing."""
        if phase != self._phase:
            self._phase, self._total, self._done = phase, total, min(done, total) if total else done
            self._say()

    def at(self, done: int, total: int) -> None:
        """So many bytes are done, of so many (0 is unknown)."""
        self._total = max(total, self._total)
        done = min(done, self._total) if self._total else done
        self._done = max(done, self._done)
        if self._clock() - self._told_at >= TELL_EVERY_S:
            self._say()

    def end(self) -> None:
        """The phase is over: told at its total, if that was not the last word."""
        self._done = self._total
        if self._told != (self._phase, self._done, self._total):
            self._say()

    def _say(self) -> None:
        self._told = (self._phase, self._done, self._total)
        self._told_at = self._clock()
        self._tell(FetchProgress(phase=self._phase, done_bytes=self._done, total_bytes=self._total, at=self._told_at))
