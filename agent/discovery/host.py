"""CPU, memory, disk and system, as far as this process may use them: a container's limit is the machine's size."""

import os
import platform
import shutil
from dataclasses import dataclass
from pathlib import Path

_CGROUP = Path("/sys/fs/cgroup")
_OS_RELEASE = Path("/etc/os-release")
_MAX_READ = 256 * 1024
_NODES = Path("/sys/devices/system/node")
_CARDS_OWN = "System RAM (NVIDIA)"
"""What the driver calls memory of its cards that it hands to the kernel: a GH200's is a NUMA node without CPUs."""


@dataclass(frozen=True, kw_only=True)
class HostFacts:
    """What holds until a reboot."""

    cpus: int
    """CPUs this process may use, by affinity and cgroup quota, at least 1."""
    cpu_model: str
    memory_total_bytes: int
    """Memory this process may use at most."""
    disk_total_bytes: int
    """Size of the file system the weights are on."""
    kernel: str
    os: str


def host_facts(weights: Path, *, root: Path = Path("/")) -> HostFacts:
    """Facts of this machine; `root` lets tests put another /proc and /sys in its place."""
    return HostFacts(
        cpus=usable_cpus(root=root),
        cpu_model=cpu_model(_read(root / "proc/cpuinfo")),
        memory_total_bytes=memory_total(root=root),
        disk_total_bytes=shutil.disk_usage(_existing(weights)).total,
        kernel=platform.release(),
        os=os_name(_read(root / _OS_RELEASE.relative_to("/"))),
    )


def usable_cpus(*, root: Path = Path("/")) -> int:
    """CPUs by affinity, fewer where a cgroup v2 quota allows less; at least 1."""
    count = len(os.sched_getaffinity(0))
    for directory in _cgroups(root):
        quota, _, period = _read(directory / "cpu.max").strip().partition(" ")
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            count = min(count, int(quota) // int(period))
    return max(1, count)


def memory_total(*, root: Path = Path("/")) -> int:
    """Bytes of RAM, without the cards' own, less where a cgroup v2 limit allows less."""
    total = max(0, meminfo(_read(root / "proc/meminfo")).get("MemTotal", 0) - _of_cards(root, "MemTotal"))
    limits = [limit for directory in _cgroups(root) if (limit := _number(directory / "memory.max")) is not None]
    return min([*limits, *([total] if total else [])], default=0)


def memory_available(*, root: Path = Path("/")) -> int | None:
    """Bytes that could be taken now without swapping; none when the kernel does not say."""
    available = meminfo(_read(root / "proc/meminfo")).get("MemAvailable")
    figures = [] if available is None else [max(0, available - _of_cards(root, "MemFree"))]
    for directory in _cgroups(root):
        limit, used = _number(directory / "memory.max"), _number(directory / "memory.current")
        if limit is not None and used is not None:
            # Page cache counts as used in a cgroup though it gives way: what is inactive is free to take.
            figures.append(max(0, limit - used + _inactive_file(directory)))
    return min(figures, default=None)


def _of_cards(root: Path, figure: str) -> int:
    """Bytes of a figure of `/proc/meminfo` that are of the cards' own memory, which cards are told with already."""
    nodes = (root / _NODES.relative_to("/")).glob("node[0-9]*")
    bare = [node for node in nodes if (node / "cpulist").exists() and not _read(node / "cpulist").strip()]
    told = [meminfo(_read(node / "meminfo")) for node in bare]
    found = sum(bytes_ for text in told for name, bytes_ in text.items() if name.endswith(f" {figure}"))
    return found if found and _CARDS_OWN in _read(root / "proc/iomem") else 0


def disk_free(weights: Path) -> int | None:
    """Bytes an unprivileged process may still write where the weights are."""
    try:
        return shutil.disk_usage(_existing(weights)).free
    except OSError:
        return None


def meminfo(text: str) -> dict[str, int]:
    """`/proc/meminfo` in bytes."""
    figures = {}
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        words = rest.split()
        if words and words[0].isdigit():
            figures[name] = int(words[0]) * (1024 if words[1:] == ["kB"] else 1)
    return figures


def cpu_model(text: str) -> str:
    """The first CPU's name in `/proc/cpuinfo`, else the architecture (ARM has none there)."""
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Model", "cpu model") and value.strip():
            return value.strip()[:120]
    return platform.machine()


def os_name(text: str) -> str:
    """`PRETTY_NAME` of os-release."""
    for line in text.splitlines():
        name, _, value = line.partition("=")
        if name == "PRETTY_NAME":
            return value.strip().strip("\"'")[:120]
    return platform.system()


class CpuMeter:
    """CPU use of the machine between two calls."""

    def __init__(self, *, root: Path = Path("/")) -> None:
        self._stat = root / "proc/stat"
        self._last = self._times()

    def percent(self) -> float | None:
        """Busy share since the last call, 0 to 100; none when no time has passed."""
        busy, total = self._times()
        spent, passed = busy - self._last[0], total - self._last[1]
        self._last = (busy, total)
        return min(100.0, max(0.0, 100.0 * spent / passed)) if passed > 0 else None

    def _times(self) -> tuple[int, int]:
        words = _read(self._stat).split("\n", 1)[0].split()[1:9]
        ticks = [int(word) for word in words if word.isdigit()]
        idle = sum(ticks[3:5])
        return sum(ticks) - idle, sum(ticks)


def load_1m() -> float | None:
    """Load average of the last minute."""
    try:
        return os.getloadavg()[0]
    except OSError:
        return None


def _cgroups(root: Path) -> list[Path]:
    """This process's cgroup v2 directory and those above it: the tightest limit of all counts."""
    top = root / _CGROUP.relative_to("/")
    for line in _read(root / "proc/self/cgroup").splitlines():
        if line.startswith("0::/"):
            inside = Path(line.removeprefix("0::/"))
            if ".." not in inside.parts:
                return [top / part for part in (inside, *inside.parents)]
    return [top]


def _number(path: Path) -> int | None:
    text = _read(path).strip()
    return int(text) if text.isdigit() else None


def _inactive_file(directory: Path) -> int:
    for line in _read(directory / "memory.stat").splitlines():
        name, _, value = line.partition(" ")
        if name == "inactive_file" and value.isdigit():
            return int(value)
    return 0


def _existing(path: Path) -> Path:
    while not path.exists():
        path = path.parent
    return path


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_READ).decode(errors="replace")
    except OSError:
        return ""
