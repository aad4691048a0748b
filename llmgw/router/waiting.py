"""Who waits for which model, and whose turn it is. Nothing here knows time, engines or tasks.

Within a band keys take turns, so that one with a thousand requests is no faster than one with a single request. Between
bands the higher priority goes first, but none that was passed over `PASSED_OVER` times in a row is passed over again.
Every change costs the same however many wait, except making room, which happens only when all places are taken.
"""

from collections import OrderedDict
from collections.abc import Iterator
from enum import Enum

from llmgw.core.admission import Band
from llmgw.router.reactor import Signal

PASSED_OVER = 7
"""Of eight requests let in while a lower band waits as well, one is of that band."""
ONE_BAND = 0.75
"""Share of all places, and of all bytes, that one of several bands may fill: the others always find room."""


class Standing(Enum):
    """What became of somebody who waits."""

    WAITING = "waiting"
    LET_IN = "let in"
    DISPLACED = "displaced"
    """Its place was given to a request of a higher band."""


class Waiter:
    """One request that waits."""

    __slots__ = ("band", "held_bytes", "key_id", "model", "signal", "since", "standing")

    def __init__(self, model: str, band: Band, key_id: str, held_bytes: int, since: float) -> None:
        self.model = model
        self.band = band
        self.key_id = key_id
        self.held_bytes = held_bytes
        self.since = since
        """Monotonic seconds."""
        self.standing = Standing.WAITING
        self.signal = Signal()
        """Set when it waits no more, and when its key may have changed."""


class BandLine:
    """Those of one band who wait for one model; keys take turns."""

    __slots__ = ("_keys", "band", "count", "held_bytes", "passed")

    def __init__(self, band: Band) -> None:
        self.band = band
        self.count = 0
        self.held_bytes = 0
        self.passed = 0
        """How often another band was preferred since this one's last turn."""
        self._keys: OrderedDict[str, OrderedDict[Waiter, None]] = OrderedDict()

    @property
    def due(self) -> bool:
        """Whether it was passed over too often."""
        return self.passed >= PASSED_OVER

    def add(self, waiter: Waiter) -> None:
        """At the end of its key's requests; a key that has none waiting is the last to have its turn."""
        self._keys.setdefault(waiter.key_id, OrderedDict())[waiter] = None
        self.count += 1
        self.held_bytes += waiter.held_bytes

    def remove(self, waiter: Waiter) -> None:
        """Somebody leaves the line."""
        line = self._keys[waiter.key_id]
        del line[waiter]
        if not line:
            del self._keys[waiter.key_id]
        self.count -= 1
        self.held_bytes -= waiter.held_bytes

    def next(self) -> Waiter:
        """Take whose turn it is."""
        key_id, line = next(iter(self._keys.items()))
        waiter, _ = line.popitem(last=False)
        if line:
            self._keys.move_to_end(key_id)
        else:
            del self._keys[key_id]
        self.count -= 1
        self.held_bytes -= waiter.held_bytes
        return waiter

    def heads(self) -> Iterator[Waiter]:
        """The oldest request of each key."""
        return (next(iter(line)) for line in self._keys.values())

    def of_key(self, key_id: str) -> Iterator[Waiter]:
        """Those of one key, or without its id those of all."""
        keys = self._keys.values() if not key_id else (self._keys.get(key_id, ()),)
        return (waiter for line in keys for waiter in line)

    def newest_of_most(self) -> Waiter:
        """The newest request of the key that has most of them waiting."""
        most: OrderedDict[Waiter, None] = max(self._keys.values(), key=len)
        return next(reversed(most))


class ModelLine:
    """Those who wait for one model, by band."""

    __slots__ = ("bands", "count")

    def __init__(self) -> None:
        self.bands: dict[str, BandLine] = {}
        self.count = 0

    def turns(self) -> list[BandLine]:
        """Bands in the order of their turns: those passed over too often, then by priority, then by who was longest."""
        return sorted(
            self.bands.values(),
            key=lambda line: (not line.due, -line.band.priority, -line.passed),
        )

    def goes_before(self, priority: int) -> bool:
        """Whether anybody waits who goes before a newcomer of that priority."""
        return any(line.band.priority >= priority for line in self.bands.values())

    def take(self, chosen: BandLine) -> Waiter:
        """Whose turn it is in a band."""
        waiter = chosen.next()
        self.pass_over(chosen.band)
        chosen.passed = 0
        return waiter

    def pass_over(self, preferred: Band) -> None:
        """A request of a band was let in while those of others wait."""
        for line in self.bands.values():
            if line.band is not preferred and line.band.priority <= preferred.priority:
                line.passed += 1


class WaitingRoom:
    """All who wait in this router, counted and weighed, over all and by band."""

    def __init__(self) -> None:
        self.count = 0
        self.held_bytes = 0
        self.lines: dict[str, ModelLine] = {}
        """By model; one that nobody waits for is not there."""
        self._of_band: dict[str, list[int]] = {}

    def of_band(self, name: str) -> tuple[int, int]:
        """How many of a band wait, and the bytes they hold."""
        count, held = self._of_band.get(name, (0, 0))
        return count, held

    def add(self, waiter: Waiter) -> None:
        """Let somebody wait; whether there is room is for the caller to know."""
        line = self.lines.setdefault(waiter.model, ModelLine())
        band = line.bands.get(waiter.band.name)
        if band is None:
            band = line.bands[waiter.band.name] = BandLine(waiter.band)
        band.add(waiter)
        line.count += 1
        self._weigh(waiter, 1)

    def remove(self, waiter: Waiter) -> None:
        """Somebody who waits leaves."""
        line = self.lines[waiter.model]
        line.bands[waiter.band.name].remove(waiter)
        self._left(line, waiter)

    def take(self, model: str, band: BandLine) -> Waiter:
        """Whose turn it is in that band of the model's line."""
        line = self.lines[model]
        waiter = line.take(band)
        self._left(line, waiter)
        return waiter

    def lowest_below(self, priority: int) -> list[tuple[str, BandLine]]:
        """Lines of the lowest priority that waits anywhere, with their models; none unless it is below `priority`."""
        found = [(model, band) for model, line in self.lines.items() for band in line.bands.values()]
        lowest = min((band.band.priority for _, band in found), default=priority)
        return [(model, band) for model, band in found if band.band.priority == lowest < priority]

    def nobody_before(self, waiter: Waiter) -> bool:
        """Whether nobody of its own band or a higher one waits for the model besides somebody who waits."""
        bands = self.lines[waiter.model].bands
        alone = bands[waiter.band.name].count == 1
        return alone and sum(line.band.priority >= waiter.band.priority for line in bands.values()) == 1

    def bytes_from(self, priority: int) -> int:
        """Bytes held by those who give no place to a request of that priority: of its own and of higher ones."""
        bands = (band for line in self.lines.values() for band in line.bands.values())
        return sum(band.held_bytes for band in bands if band.band.priority >= priority)

    def _left(self, line: ModelLine, waiter: Waiter) -> None:
        line.count -= 1
        if not line.bands[waiter.band.name].count:
            del line.bands[waiter.band.name]
        if not line.count:
            del self.lines[waiter.model]
        self._weigh(waiter, -1)

    def _weigh(self, waiter: Waiter, sign: int) -> None:
        self.count += sign
        self.held_bytes += sign * waiter.held_bytes
        weights = self._of_band.setdefault(waiter.band.name, [0, 0])
        weights[0] += sign
        weights[1] += sign * waiter.held_bytes
        if not weights[0]:
            del self._of_band[waiter.band.name]
