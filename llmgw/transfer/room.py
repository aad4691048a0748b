"""The space of one file system as its fetches see it: what is free, less what the others were promised.

A fetch claims what it needs before its first byte, and its claim shrinks as bytes arrive. So two fetches that would
each fit alone are never both begun to fail halfway. Everything here is immediate and belongs to one thread.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmgw.transfer.errors import DiskFull, free_bytes


@dataclass(eq=False)
class Claim:
    """What one fetch was promised and has not written yet."""

    label: str
    """Names the fetch in another's refusal."""
    room: "Room"
    needed_bytes: int = 0

    def need(self, path: Path, needed: int) -> None:
        """Promise `needed` bytes for `path`; raises DiskFull, naming who was promised space before.

        A fetch that learns of more while it runs asks again: the larger claim holds.
        """
        self.room.check(self, path, needed)
        self.needed_bytes = max(needed, self.needed_bytes)

    def still(self, needed: int) -> None:
        """So much is to come yet."""
        self.needed_bytes = max(0, needed)


class Room:
    """Claims on the file system of `root`."""

    def __init__(self, root: Path, free: Callable[[Path], int] = free_bytes) -> None:
        self._root = root
        self._free = free
        self._claims: list[Claim] = []

    @contextmanager
    def claim(self, label: str) -> Iterator[Claim]:
        """A claim of nothing yet, let go when the block ends."""
        claim = Claim(label=label, room=self)
        self._claims.append(claim)
        try:
            yield claim
        finally:
            self._claims.remove(claim)

    def check(self, asking: Claim, path: Path, needed: int) -> None:
        """Raise DiskFull unless `needed` bytes fit beside what the others were promised."""
        promised: dict[str, int] = {}
        for claim in self._claims:
            if claim is not asking and claim.needed_bytes:
                promised[claim.label] = promised.get(claim.label, 0) + claim.needed_bytes
        free = self._free(self._root)
        if needed > free - sum(promised.values()):
            raise DiskFull(path, needed_bytes=needed, free_bytes=free, promised=promised)
