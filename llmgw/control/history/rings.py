"""Rings of rows. A row stands under its step, a count of `step_s` since the Unix epoch: what was missed is not there.

Nothing is moved or copied when a figure is added, and a clock that goes back takes what it had recorded ahead with it.
"""

from array import array
from collections.abc import Sequence

from llmgw.control.history.packing import Packing, Row

SHORT_S = 5
"""Seconds between two samples."""
SHORT_STEPS = 3600 // SHORT_S + 1
"""An hour, both its ends."""
LONG_S = 60
LONG_STEPS = 24 * 3600 // LONG_S + 1
"""A day."""
EACH = LONG_S // SHORT_S
"""Samples of a minute."""


class Ring:
    """The newest `size` steps of one figure."""

    def __init__(self, size: int) -> None:
        self._rows: list[Row | None] = [None] * size
        self._steps = array("q", [-1]) * size

    def put(self, step: int, row: Row) -> None:
        """A step's row, in place of the one `size` steps before."""
        place = step % len(self._rows)
        self._rows[place], self._steps[place] = row, step

    def row(self, step: int) -> "Row | None":
        """A step's row; none when it was not recorded or is too old."""
        place = step % len(self._rows)
        return self._rows[place] if self._steps[place] == step else None

    def drop_from(self, step: int) -> None:
        """Forget that step and what comes after it."""
        for place, held in enumerate(self._steps):
            if held >= step:
                self._rows[place], self._steps[place] = None, -1

    @property
    def bytes(self) -> int:
        """What the rows hold."""
        return sum(len(row) * row.itemsize for row in self._rows if row is not None)


class Track:
    """One figure at both resolutions."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self._short, self._long = Ring(SHORT_STEPS), Ring(LONG_STEPS)

    def put(self, step: int, row: Row) -> None:
        """A sample."""
        self._short.put(step, row)

    def fold(self, minute: int) -> None:
        """Keep the minute's means for a day."""
        rows = self._samples(minute)
        if rows:
            self._long.put(minute, self.packing.mean(rows))

    def drop_from(self, step: int) -> None:
        """Forget samples from that step on, and the minute it is in."""
        self._short.drop_from(step)
        self._long.drop_from(step // EACH)

    def at(self, step: int, slot: int) -> float | None:
        """A sample of one slot."""
        row = self._short.row(step)
        return None if row is None or slot >= len(row) else self.packing.decode(row[slot])

    def minute(self, minute: int, slot: int, born: int) -> float | None:
        """A minute's mean of one slot that is used since the step `born`; of one under way, of its samples so far."""
        row = self._long.row(minute)
        if row is not None and minute * EACH >= born:
            return None if slot >= len(row) else self.packing.decode(row[slot])
        steps = range(max(born, minute * EACH), (minute + 1) * EACH)
        known = [value for step in steps if (value := self.at(step, slot)) is not None]
        return sum(known) / len(known) if known else None

    def _samples(self, minute: int) -> Sequence[Row]:
        steps = range(minute * EACH, (minute + 1) * EACH)
        return [row for step in steps if (row := self._short.row(step)) is not None]

    @property
    def bytes(self) -> int:
        """What both rings hold."""
        return self._short.bytes + self._long.bytes


STEPS_KEPT = SHORT_STEPS + LONG_STEPS
"""Rows of a figure, when all are there."""
