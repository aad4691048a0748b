"""Which replicas have lately read the beginning of a prompt, in a table whose size is bounded whatever clients send.

A prompt is cut into blocks of its bytes as they came, and each block is known by a hash of all up to its end: prompts
that begin alike have the same first hashes. Nothing is decoded. The hashes begin with the scope of the key, so that no
tenant's prompts can be found out by another's, and use Python's keyed hash, whose key is this process's own.
"""

from collections.abc import Sequence

KIB = 1024
FINE_BLOCK, FINE_BYTES = 512, 8 * KIB
COARSE_BLOCK, READ_BYTES = 2 * KIB, 64 * KIB
BOUNDS = (*range(FINE_BLOCK, FINE_BYTES, FINE_BLOCK), *range(FINE_BYTES, READ_BYTES + 1, COARSE_BLOCK))
"""Where blocks end, in bytes: fine where most prompts end, coarser after that, and nothing is read beyond the last."""
GENERATION = 16_384
"""Blocks of one model that are remembered before the oldest are forgotten: 8 MB of text and more, and as much again
of what was used before them. It is what the KV caches of a few replicas hold."""
MAX_TABLES = 16
"""Models with a table; of one more, the table that was used the longest ago is forgotten."""
WORTH = 0.5
"""Share of a prompt that a replica must have read for it to be worth going there."""


def chain(text: bytes, scope: str) -> list[int]:
    """A hash for each whole block of the text, of all up to its end; `text` holds no more than READ_BYTES."""
    marks: list[int] = []
    length, at, mark = len(text), 0, hash(scope)
    for bound in BOUNDS:
        if bound > length:
            break
        mark = hash((mark, text[at:bound]))
        marks.append(mark)
        at = bound
    return marks


class PrefixTable:
    """One model's blocks, and by which replicas they were read: a bit each.

    What is used is in the younger of two generations. When that is full, it becomes the old one, and what was in the
    old one and not used since is forgotten.
    """

    __slots__ = ("_old", "_young")

    def __init__(self) -> None:
        self._young: dict[int, int] = {}
        self._old: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def read(self, marks: Sequence[int]) -> list[int]:
        """The bits of the replicas for each block, up to the first that none has read."""
        young, old = self._young, self._old
        found: list[int] = []
        for mark in marks:
            bits = young.get(mark, 0) | old.get(mark, 0)
            if not bits:
                break
            found.append(bits)
        return found

    def note(self, marks: Sequence[int], bit: int) -> None:
        """The replica with this bit reads these blocks."""
        young = self._young
        for mark in marks:
            young[mark] = young.get(mark, 0) | bit
        if len(young) >= GENERATION:
            self._old, self._young = young, {}


class PrefixTables:
    """The tables of the models that were asked lately."""

    __slots__ = ("_tables",)

    def __init__(self) -> None:
        self._tables: dict[str, PrefixTable] = {}

    def __len__(self) -> int:
        return len(self._tables)

    def of(self, model: str) -> PrefixTable:
        """The model's table; an empty one if it has none any more."""
        tables = self._tables
        table = tables.pop(model, None)
        if table is None:
            table = PrefixTable()
            if len(tables) >= MAX_TABLES:
                del tables[next(iter(tables))]
        tables[model] = table
        return table

    def drop(self, model: str) -> None:
        """Forget the model."""
        self._tables.pop(model, None)
