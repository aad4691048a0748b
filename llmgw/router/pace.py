"""How fast a model's line moves, as measured: what clients are told when they had better come back."""

_LEARNING = 0.2
"""Weight of the newest interval between two that were let in."""


class Pace:
    """How often somebody is let in from a line. Times are monotonic seconds."""

    __slots__ = ("at", "interval_s")

    def __init__(self, now: float) -> None:
        self.at = now
        """When the last one was, or the line began."""
        self.interval_s: float | None = None

    def let_in(self, now: float) -> None:
        """Somebody was."""
        took_s = now - self.at
        known = self.interval_s
        self.interval_s = took_s if known is None else known + (took_s - known) * _LEARNING
        self.at = now

    def interval(self, now: float) -> float | None:
        """Seconds between two; a line that stands still is as slow as it has stood. None before the first."""
        return None if self.interval_s is None else max(self.interval_s, now - self.at)
