"""How far a build is, by what uv says of large downloads: `Downloading torch (821.4MiB)`, then `Downloaded torch`."""

import re
from dataclasses import dataclass, field

from llmgw.core.units import size

_BEGAN = re.compile(r"Downloading (\S{1,120}) \(([0-9.]{1,12})([KMG]?i?B)\)")
_ENDED = re.compile(r"Downloaded (\S{1,120})")
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass
class Progress:
    """What is here, of what is known to come. Written by one thread and read by another: each field is one value."""

    done: int = 0
    total: int = 0
    """0 while nothing is known to come."""
    _sizes: dict[str, int] = field(default_factory=dict)

    def report(self, done: int, total: int) -> None:
        """As a download reports it."""
        self.done, self.total = done, total

    def heard(self, line: str) -> None:
        """A line of uv's."""
        if began := _BEGAN.fullmatch(line):
            try:
                count = int(float(began[2]) * _UNITS.get(began[3], 1))
            except ValueError:
                return
            # One that is begun anew is announced again.
            self.total += count - self._sizes.get(began[1], 0)
            self._sizes[began[1]] = count
        elif ended := _ENDED.fullmatch(line):
            self.done += self._sizes.pop(ended[1], 0)

    def words(self) -> str:
        """`3.1 GB of 8 GB`; empty while nothing is known to come, and once all of it is here."""
        return f"{size(self.done)} of {size(self.total)}" if self.done < self.total else ""
