"""How figures are packed: whole numbers in one or two bytes where the range is known, single precision elsewhere.

A code is linear in its figure, so that a mean of codes is the code of the mean. What is not reported has a code of its
own, and nothing that is reported ever gets it.
"""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

Row: TypeAlias = "array[float]"
"""One figure of everything of a kind at one moment, by slot; whole numbers where its packing has them."""


@dataclass(frozen=True, kw_only=True)
class Packing:
    """Codes of `bytes` bytes; `scale` codes make one unit. A scale of 0 is single precision."""

    typecode: str
    scale: float

    @property
    def bytes(self) -> int:
        """Of one figure at one moment."""
        return array(self.typecode).itemsize

    @property
    def absent(self) -> float:
        """The code of what is not reported."""
        return math.nan if not self.scale else (1 << 8 * self.bytes) - 1

    @property
    def error(self) -> float:
        """The most by which an unpacked figure in range differs from the packed one, single precision aside."""
        return 0.5 / self.scale if self.scale else 0.0

    @property
    def most(self) -> float:
        """The highest figure; a higher one is told as this."""
        return math.inf if not self.scale else (self.absent - 1) / self.scale

    def blank(self, slots: int) -> Row:
        """A row in which nothing is reported."""
        if not self.scale:
            return array("f", [math.nan]) * slots
        return cast("Row", array(self.typecode, b"\xff" * (slots * self.bytes)))

    def encoder(self) -> Callable[[float], float]:
        """Figure → code. NaN and infinities are not reported; below zero is zero."""
        if not self.scale:
            return float
        scale, absent = self.scale, int(self.absent)
        most = absent - 1

        def encode(value: float) -> float:
            if not math.isfinite(value):
                return absent
            return max(0, min(most, int(value * scale + 0.5)))

        return encode

    def decode(self, code: float) -> float | None:
        """Code → figure; none is not reported."""
        if not self.scale:
            return code if math.isfinite(code) else None
        return None if code == self.absent else code / self.scale

    def mean(self, rows: Sequence[Row]) -> Row:
        """Slot by slot the mean of what is reported; shorter rows report nothing of the last slots."""
        slots = max(map(len, rows))
        full = [row if len(row) == slots else row + self.blank(slots - len(row)) for row in rows]
        found = self.blank(slots)
        absent = self.absent
        if self.scale and slots and max(map(max, full)) < absent:
            count = len(full)
            means = [(2 * sum(codes) + count) // (2 * count) for codes in zip(*full, strict=True)]
            return cast("Row", array(self.typecode, means))
        for slot, codes in enumerate(zip(*full, strict=True)):
            known = [code for code in codes if code == code and code != absent]
            if known:
                mean = sum(known) / len(known)
                found[slot] = int(mean + 0.5) if self.scale else mean
        return found


HALVES = Packing(typecode="B", scale=2)
"""0 to 127 by halves: percent, degrees."""
TENTHS = Packing(typecode="H", scale=10)
"""0 to 6,553 by tenths: watts of a card, load."""
WHOLE = Packing(typecode="H", scale=1)
"""0 to 65,534: megahertz, megabytes a second of a node's network."""
TENS = Packing(typecode="H", scale=0.1)
"""0 to 655,340 by tens: megabytes a second of a node's InfiniBand ports."""
SINGLE = Packing(typecode="f", scale=0)
"""Whatever has no bound."""
