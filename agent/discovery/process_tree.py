"""CPU and memory of an engine and all its children, from /proc. What ended meanwhile is left out."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from llmgw.core.figures import ReplicaFigures

MAX_PROCESSES = 1024
"""Processes of one engine that are looked at."""
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_UTIME, _STIME, _STARTED = 11, 12, 19
"""Fields of /proc/PID/stat, counted from the one after the name."""


class TreeMeter:
    """What trees of processes take, between two calls."""

    def __init__(self, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._proc = root / "proc"
        self._clock = clock
        self._at = 0.0
        self._last: dict[str, dict[tuple[int, int], int]] = {}

    def figures(self, roots: Mapping[str, int]) -> dict[str, ReplicaFigures]:
        """Figures by the name each tree's first process goes by here; a tree that is gone is left out."""
        now, before = self._clock(), self._at
        found: dict[str, ReplicaFigures] = {}
        read: dict[str, dict[tuple[int, int], int]] = {}
        for name, pid in roots.items():
            ticks: dict[tuple[int, int], int] = {}
            resident = 0
            for process in self._tree(pid):
                stat = self._stat(process)
                if stat is not None:
                    started, used = stat
                    ticks[process, started] = used
                    resident += self._resident(process)
            if not ticks:
                continue
            read[name] = ticks
            known = self._last.get(name)
            spent = None if known is None else sum(max(0, used - known.get(key, 0)) for key, used in ticks.items())
            cpu = None if spent is None or now <= before else 100.0 * spent / _TICKS / (now - before)
            found[name] = ReplicaFigures(cpu_percent=cpu, memory_bytes=resident or None)
        self._at, self._last = now, read
        return found

    def _tree(self, pid: int) -> Iterator[int]:
        waiting, seen = [pid], set[int]()
        while waiting and len(seen) < MAX_PROCESSES:
            process = waiting.pop()
            if process in seen or process <= 0:
                continue
            seen.add(process)
            yield process
            waiting.extend(self._children(process))

    def _children(self, pid: int) -> list[int]:
        """Children of every thread; none where the kernel was built without the list."""
        try:
            threads = list((self._proc / str(pid) / "task").iterdir())
        except OSError:
            return []
        return [int(word) for thread in threads for word in _read(thread / "children").split() if word.isdigit()]

    def _stat(self, pid: int) -> tuple[int, int] | None:
        """Start time and ticks used."""
        text = _read(self._proc / str(pid) / "stat")
        fields = text[text.rfind(")") + 2 :].split()
        try:
            return int(fields[_STARTED]), int(fields[_UTIME]) + int(fields[_STIME])
        except (IndexError, ValueError):
            return None

    def _resident(self, pid: int) -> int:
        words = _read(self._proc / str(pid) / "statm").split()
        return int(words[1]) * _PAGE if len(words) > 1 and words[1].isdigit() else 0


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(64 * 1024).decode(errors="replace")
    except OSError:
        return ""
