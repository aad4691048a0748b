"""What processes cost, from /proc: CPU time, resident memory, and the process's fair share of what it shares."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes; `pss` counts a page shared by n processes as an nth."""

    rss: int = 0
    pss: int = 0

    def __add__(self, other: "Memory") -> "Memory":
        return Memory(rss=self.rss + other.rss, pss=self.pss + other.pss)


def cpu_ms(pids: Iterable[int]) -> float:
    """User and system CPU of the processes so far, all threads, in milliseconds (a tick is 10 ms)."""
    total = 0
    for pid in pids:
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total * 1000 / _TICKS_PER_S


def tree_cpu_ms(roots: Iterable[int]) -> float:
    """User and system CPU of the processes and all below them so far, those that ended and were waited for included."""
    total = 0
    for pid in tree(roots):
        try:
            fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total * 1000 / _TICKS_PER_S


def tree(roots: Iterable[int]) -> list[int]:
    """The processes and all below them."""
    waiting, found = list(roots), []
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.append(pid)
            try:
                waiting += children(pid)
            except OSError:
                continue
    return found


def descriptors(pids: Iterable[int]) -> int:
    """Open descriptors of the processes together; one that is gone has none."""
    total = 0
    for pid in pids:
        try:
            total += len(os.listdir(PROC / str(pid) / "fd"))
        except OSError:
            continue
    return total


def machine_busy_ms() -> float:
    """CPU time that all processes of the machine used so far, in milliseconds."""
    user, nice, system, _, _, irq, softirq, *_ = map(int, (PROC / "stat").read_text().split("\n", 1)[0].split()[1:])
    return (user + nice + system + irq + softirq) * 1000 / _TICKS_PER_S


def own_ms() -> float:
    """CPU time of this process and of its children that ended, in milliseconds."""
    own = os.times()
    return (own.user + own.system + own.children_user + own.children_system) * 1000


def memory(pids: Iterable[int]) -> Memory:
    """Memory of the processes together; one that is gone counts nothing."""
    total = Memory()
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        figures = {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines[1:])}
        total += Memory(rss=figures.get("Rss", 0), pss=figures.get("Pss", 0))
    return total


def children(pid: int) -> list[int]:
    """Direct children of a process."""
    found = []
    for task in (PROC / str(pid) / "task").iterdir():
        found += [int(number) for number in (task / "children").read_text().split()]
    return found


def family(needle: str) -> dict[int, str]:
    """Command lines of the processes that mention `needle` and of all below them, by pid; not this process's own."""
    lines: dict[int, str] = {}
    below: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        pid = int(entry.name)
        try:
            lines[pid] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        below.setdefault(parent, []).append(pid)
    waiting = [pid for pid, line in lines.items() if needle in line and pid != os.getpid()]
    found: dict[int, str] = {}
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found[pid] = lines.get(pid, "")
            waiting += below.get(pid, [])
    return found
