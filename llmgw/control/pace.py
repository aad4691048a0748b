"""How fast tokens came in the last minute, by model: gaps between them, from what routers counted between reports.

Memory is bounded by the models that were asked lately: a model whose gaps are all older than a minute is forgotten.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from llmgw.api.watch import ALL_MODELS
from llmgw.core.meters import INTER_TOKEN_S, Histogram

WINDOW_S = 60.0
"""Gaps are looked at over this long."""
SLOT_S = 5.0
"""They are forgotten in steps of this long."""
_SLOTS = round(WINDOW_S / SLOT_S)


class Gaps(NamedTuple):
    """Milliseconds that half, 95% and 99% of the gaps stayed within; none where no gap was counted."""

    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None


NO_GAPS = Gaps()


class Pace:
    """Collects the gaps. `clock` is monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._slots: dict[str, dict[int, list[int]]] = {}
        self._expired_at = 0
        """Slot as of which what is too old was forgotten."""

    def add(self, model: str, before: Histogram, after: Histogram) -> None:
        """A router counted up from `before` to `after`."""
        old = before.counts or (0,) * len(after.counts)
        if not after.counts:
            return
        new = [max(0, b - a) for a, b in zip(old, after.counts, strict=True)]
        if not any(new):
            return
        slot = int(self._clock() / SLOT_S)
        for name in (model, ALL_MODELS):
            slots = self._slots.setdefault(name, {})
            held = slots.get(slot)
            slots[slot] = new if held is None else [a + b for a, b in zip(held, new, strict=True)]
        self._expire(slot)

    def gaps(self, model: str) -> Gaps:
        """Of one model, or of ALL_MODELS, over the last minute."""
        self._expire(int(self._clock() / SLOT_S))
        slots = self._slots.get(model)
        if not slots:
            return NO_GAPS
        counts = [sum(column) for column in zip(*slots.values(), strict=True)]
        return Gaps(*(round(1000 * quantile(counts, INTER_TOKEN_S, share), 2) for share in (0.5, 0.95, 0.99)))

    def _expire(self, now: int) -> None:
        # Every model asks for its gaps in the same slot: they are gone through once.
        if now == self._expired_at:
            return
        self._expired_at = now
        for name, slots in list(self._slots.items()):
            for slot in [s for s in slots if s <= now - _SLOTS]:
                del slots[slot]
            if not slots:
                del self._slots[name]


def quantile(counts: Sequence[int], bounds: Sequence[float], share: float) -> float:
    """The value that `share` of what was counted stays within, evenly spread within its class; at least one is counted.

    What lies beyond the highest bound is said to lie on it.
    """
    left = share * sum(counts)
    for low, high, count in zip((0.0, *bounds), (*bounds, bounds[-1]), counts, strict=True):
        if count and left <= count:
            return low + (high - low) * left / count
        left -= count
    return bounds[-1]
