"""A router under load that has nobody to tell: memory and descriptors while its control plane is away."""

import contextlib
import statistics
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.load import LoadPlan
from tests.bench.native import Timed, child, client_argv, engine, timed
from tests.bench.ours import router
from tests.bench.proc import descriptors, memory, tree_cpu_ms
from tests.bench.report import MIB, table
from tests.bench.streams import MAX_STREAMS

CLIENTS = 32
TOKENS = 16
GAP_US = 5000
SPREAD_US = 2500
SAMPLES = 60
"""Over the whole time, however long it is."""
WARM_S = 45.0
"""Of load before the first reading: by then the router's allocator has what it needs."""
FLAT_MIB = 1.0
"""A median of the last quarter this far over the first quarter's still counts as flat."""
FLAT_DESCRIPTORS = 2


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The router at one time."""

    at_s: float
    rss: int
    pss: int
    descriptors: int
    spool_bytes: int
    """Of usage that waits on disk for the control plane."""


@dataclass(kw_only=True)
class SteadyFigures:
    """All readings of one run."""

    minutes: float
    readings: list[Reading] = field(default_factory=list)
    seen: Timed
    cpu_ms: float
    """A request."""

    def quarter(self, number: int, value: Callable[[Reading], int]) -> float:
        """Median in the quarter of that number, from 0."""
        size = max(1, len(self.readings) // 4)
        part = self.readings[number * size : (number + 1) * size] or self.readings
        return statistics.median(map(value, part))

    def growth(self, value: Callable[[Reading], int]) -> float:
        """From the first quarter to the last."""
        return self.quarter(3, value) - self.quarter(0, value)

    @property
    def flat(self) -> bool:
        """Whether neither memory nor descriptors grew once it was warm."""
        grew = self.growth(lambda r: r.pss) / MIB
        return grew < FLAT_MIB and self.growth(lambda r: r.descriptors) <= FLAT_DESCRIPTORS


def measure_steady(minutes: float, programs: tuple[Path, Path], directory: Path) -> SteadyFigures:
    """`minutes` of load after the feed was closed; raises Missing when the router does not start."""
    seconds = minutes * 60
    with contextlib.ExitStack() as stack:
        _, engine_port = stack.enter_context(engine(programs[0], gap_us=GAP_US, tokens=TOKENS))
        gateway = router(stack, directory, engine_port)
        assert gateway.feed is not None
        gateway.feed.close()
        plan = LoadPlan(
            port=gateway.port,
            clients=CLIENTS,
            streams=MAX_STREAMS,
            seconds=WARM_S + seconds,
            tokens=TOKENS,
            key=gateway.key,
        )
        (pid,), cpu = gateway.roots, tree_cpu_ms(gateway.roots)
        argv = client_argv(programs[1], plan, spread_us=SPREAD_US)
        with child(argv, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            readings = _read(process, pid, directory / "spool", seconds)
            seen = timed(process.stdout.read().decode())
        cpu = tree_cpu_ms(gateway.roots) - cpu
    return SteadyFigures(minutes=minutes, readings=readings, seen=seen, cpu_ms=cpu / max(1, seen.right))


def _read(process: subprocess.Popen[bytes], pid: int, spool: Path, seconds: float) -> list[Reading]:
    """Readings at even distances while the load runs, once it has run for a while."""
    began, readings = time.monotonic() + WARM_S, list[Reading]()
    for number in range(SAMPLES):
        due = began + seconds * (number + 0.5) / SAMPLES
        time.sleep(max(0.0, due - time.monotonic()))
        if process.poll() is not None:
            break
        held = memory([pid])
        waiting = sum(file.stat().st_size for file in spool.rglob("*") if file.is_file()) if spool.is_dir() else 0
        readings.append(
            Reading(
                at_s=time.monotonic() - began,
                rss=held.rss,
                pss=held.pss,
                descriptors=descriptors([pid]),
                spool_bytes=waiting,
            )
        )
    return readings


def steady_text(figures: SteadyFigures) -> str:
    """Readings along the way, and whether they were flat."""
    head = ["after s", "RSS MiB", "PSS MiB", "descriptors", "usage waiting on disk, MiB"]
    shown = [r for i, r in enumerate(figures.readings) if i % (SAMPLES // 6) == 0] + figures.readings[-1:]
    rows = [
        [f"{r.at_s:.0f}", f"{r.rss / MIB:.1f}", f"{r.pss / MIB:.1f}", str(r.descriptors), f"{r.spool_bytes / MIB:.1f}"]
        for r in shown
    ]
    seen, grew = figures.seen, figures.growth(lambda r: r.pss) / MIB
    title = f"steady: {CLIENTS} clients for {figures.minutes:g} minutes after {WARM_S:g} s, {TOKENS}-token streams,"
    done = f"{seen.right} streams right, {seen.wrong} wrong{f' ({seen.why})' if seen.why else ''}"
    word = "flat" if figures.flat else "not flat"
    lines = [f"{title} no control plane", table([head, *rows]), f"{done}, {figures.cpu_ms:.3f} CPU ms a request"]
    lines.append(f"{word}: PSS {grew:+.1f} MiB and descriptors {figures.growth(lambda r: r.descriptors):+.0f}")
    return "\n".join(lines) + " from the first quarter to the last"
