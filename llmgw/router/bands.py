"""The bands as this router follows them, and what each uses of a model: room is kept for those that go first.

A band that goes first finds a place at once only if lower ones leave one: engines do not stop what they have begun. So
of a model's places those stay free that higher bands had in use lately, up to half of all, and while they use it lower
ones are let in to places that are free and to no engine's queue.
"""

import math
import time
from collections.abc import Iterable

from llmgw.core.admission import DEFAULT_BAND, Admission, Band, default_band
from llmgw.core.routing import Timeouts

HALVED_S = 20.0
"""What a band used at most counts half as much after this long: places kept in vain are answers not given."""


class InUse:
    """What one band has open at one model."""

    __slots__ = ("_at", "_most", "open")

    def __init__(self) -> None:
        self.open = 0
        self._most = 0.0
        self._at = 0.0

    def begin(self, now: float) -> None:
        """One more is open."""
        self.open += 1
        self._most, self._at = max(self._faded(now), self.open), now

    def end(self) -> None:
        """One less is."""
        self.open -= 1

    def kept(self, now: float) -> int | None:
        """Places that it had lately and has not now; none for one that had none lately."""
        most = math.floor(self._faded(now) + 0.5)
        return max(0, most - self.open) if most or self.open else None

    def _faded(self, now: float) -> float:
        return self._most * 0.5 ** ((now - self._at) / HALVED_S) if self._most else 0.0


class Bands:
    """Bands by name; replaced whole when the routing changes what they are."""

    def __init__(self, rules: Admission, timeouts: Timeouts) -> None:
        self._queue_s = timeouts.queue
        self.default = default_band(rules.bands)
        self._bands = {band.name: band for band in rules.bands} | {DEFAULT_BAND: self.default}
        priorities = {band.priority for band in self._bands.values()}
        self.ranked = len(priorities) > 1
        """Whether any goes before another."""
        self.several = len(self._bands) > 1

    def of(self, name: str) -> Band:
        """The band of a key; the default one for a name that is none."""
        return self._bands.get(name, self.default)

    def ttl_s(self, band: Band) -> float:
        """Seconds its requests may wait."""
        return band.queue_ttl if band.queue_ttl is not None else self._queue_s

    def higher(self, band: Band) -> Iterable[str]:
        """Names of the bands that go before it."""
        return (other.name for other in self._bands.values() if other.priority > band.priority)


class Uses:
    """What each band has open at each model."""

    def __init__(self) -> None:
        self._models: dict[str, dict[str, InUse]] = {}

    def begin(self, model: str, band: str) -> InUse:
        """A request of the band was let in; `end` what this answers."""
        bands = self._models.setdefault(model, {})
        use = bands.get(band)
        if use is None:
            use = bands[band] = InUse()
        use.begin(time.monotonic())
        return use

    def kept(self, model: str, bands: Iterable[str], now: float) -> int | None:
        """Places of the model that are kept for these bands; none where none of them used it lately."""
        used = self._models.get(model)
        if not used:
            return None
        found = [use.kept(now) for name in bands if (use := used.get(name)) is not None]
        known = [kept for kept in found if kept is not None]
        return sum(known) if known else None

    def keep(self, models: set[str]) -> None:
        """Forget models that are gone."""
        self._models = {name: bands for name, bands in self._models.items() if name in models}
