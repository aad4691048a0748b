"""The machine's own sensors: CPU heat and inlet heat from hwmon, CPU power from RAPL's energy counters."""

import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path

_CPU_CHIPS = frozenset({"coretemp", "k10temp", "zenpower", "cpu_thermal", "cpu-thermal", "scpi_sensors"})
_PACKAGE = re.compile(r"(package id \d+|tdie|tctl|cpu.*)", re.IGNORECASE)
_INLET = re.compile(r"\b(inlet|ambient)\b", re.IGNORECASE)
_RAPL_SOCKET = re.compile(r"(intel|amd)-rapl:\d+")
MAX_SENSORS = 512
"""hwmon files looked at."""


def temperatures(*, root: Path = Path("/")) -> tuple[float | None, float | None]:
    """Hottest CPU package and inlet air, in degrees; none where there is no such sensor."""
    cpu: list[float] = []
    other_cpu: list[float] = []
    inlet: list[float] = []
    for chip, label, degrees in _sensors(root):
        if _INLET.search(label):
            inlet.append(degrees)
        elif chip in _CPU_CHIPS:
            (cpu if _PACKAGE.fullmatch(label) else other_cpu).append(degrees)
    return max(cpu or other_cpu, default=None), max(inlet, default=None)


class CpuPower:
    """Watts of all sockets between two calls. The counters are root's to read on most machines."""

    def __init__(self, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic) -> None:
        self._zones = root / "sys/class/powercap"
        self._clock = clock
        self._at = 0.0
        self._last: dict[str, int] = {}

    def watts(self) -> float | None:
        """Since the last call; none at the first, and where no socket tells."""
        now, before = self._clock(), self._at
        read = {zone: value for zone, value in self._energies().items() if value is not None}
        passed = [self._spent(zone, self._last.get(zone), value) for zone, value in read.items()]
        spent = [joules for joules in passed if joules is not None]
        self._at, self._last = now, read
        return sum(spent) / (now - before) if spent and now > before else None

    def _energies(self) -> dict[str, int | None]:
        try:
            zones = [zone for zone in self._zones.iterdir() if _RAPL_SOCKET.fullmatch(zone.name)]
        except OSError:
            return {}
        # A zone that is called "psys" counts the sockets again.
        return {zone.name: _number(zone / "energy_uj") for zone in zones if _read(zone / "name").startswith("package")}

    def _spent(self, zone: str, before: int | None, now: int) -> float | None:
        """Joules; the counter begins anew at its range."""
        if before is None:
            return None
        spent = now - before
        if spent < 0:
            spent += _number(self._zones / zone / "max_energy_range_uj") or 0
        return spent / 1e6 if spent >= 0 else None


def _sensors(root: Path) -> Iterator[tuple[str, str, float]]:
    """Chip, label and degrees of every temperature."""
    seen = 0
    try:
        chips = sorted((root / "sys/class/hwmon").iterdir())
    except OSError:
        return
    for chip in chips:
        name = _read(chip / "name")
        try:
            inputs = sorted(chip.glob("temp*_input"))
        except OSError:
            continue
        for path in inputs:
            seen += 1
            thousandths = _number(path)
            if seen <= MAX_SENSORS and thousandths is not None and -50_000 < thousandths < 200_000:
                yield name, _read(path.with_name(path.name.replace("_input", "_label"))), thousandths / 1000


def _number(path: Path) -> int | None:
    text = _read(path)
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else None


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(256).decode(errors="replace").strip()
    except OSError:
        return ""
