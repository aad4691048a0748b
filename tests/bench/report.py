"""Figures as tables for people and as JSON for scripts, with the machine they were taken on."""

import os
import platform
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from llmgw import __version__
from tests.bench import venvs
from tests.bench.demo import DemoFigures
from tests.bench.proc import Memory

MIB = 1024 * 1024
FULL_CORE = 0.9
"""A thread that has this much of a core has all of it, given the scheduler and the ticks."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One gateway in one round."""

    gateway: str
    clients: int
    """Fewer than the mode's for a gateway that is much slower."""
    requests: int
    errors: int
    cpu_ms: float
    """CPU of the gateway's processes a request; 0 where there is no gateway."""
    engine_cpu_ms: float
    per_s: float
    p50_ms: float
    p99_ms: float
    cores: float
    """That the gateway kept busy."""
    engine_cores: float
    load_cores: float
    """That the load generator kept busy, with the benchmark's own share (our router's feed among it)."""
    strangers: float
    """Cores that processes outside the benchmark kept busy meanwhile: with more than a tenth, measure again."""


@dataclass(kw_only=True)
class ModeFigures:
    """One shape of load."""

    mode: str
    gap_us: int
    clients: int
    tokens: int
    samples: list[Sample] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    memory: dict[str, Memory] = field(default_factory=dict)
    """Of each gateway, after its load."""
    checked: dict[str, str] = field(default_factory=dict)
    """What the stream check found, by gateway."""
    does: dict[str, str] = field(default_factory=dict)
    """What each gateway does for a request beside passing it on."""

    def median(self, gateway: str, value: Callable[[Sample], float]) -> float | None:
        """Median over the rounds; none without samples."""
        values = [value(sample) for sample in self.samples if sample.gateway == gateway]
        return statistics.median(values) if values else None


@dataclass(kw_only=True)
class Figures:
    """All of a run."""

    machine: dict[str, str]
    modes: list[ModeFigures] = field(default_factory=list)
    demos: list[DemoFigures] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    watch: object = None
    """`tests.bench.watch.WatchFigures`, when the live feed was measured."""
    console: object = None
    """`tests.bench.console.ConsoleFigures`, when the console was measured."""
    others: dict[str, object] = field(default_factory=dict)
    """Figures of the parts that have a shape of their own, by part."""
    texts: list[str] = field(default_factory=list)
    """The same for people."""
    wrong: list[str] = field(default_factory=list)
    """What came wrong in them."""

    def add(self, part: str, measured: object, shown: str, wrong: Sequence[str]) -> None:
        """Take in one such part."""
        self.others[part] = measured
        self.texts.append(shown)
        self.wrong += [f"{part}: {what}" for what in wrong]


def machine(argv: Sequence[str]) -> dict[str, str]:
    """What ran where."""
    model = next((line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line[:10] == "model name"), "?")
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "command": "python -m tests.bench.run " + " ".join(argv),
        "cores": f"{len(os.sched_getaffinity(0))} ({model})",
        "memory": f"{memory_kib / 1024 / 1024:.1f} GiB",
        "kernel": platform.release(),
        "python": platform.python_version(),
        "llmgw": __version__,
        "nginx": _version("nginx", "-v"),
        "wrk": _version("wrk", "-v"),
        "cc": _version("cc", "--version"),
        "vllm-r.": venvs.version("vllm-router"),
        "litellm": venvs.version("litellm"),
    }


def text(figures: Figures) -> str:
    """The whole report."""
    parts = ["\n".join(f"{name:8} {value}" for name, value in figures.machine.items())]
    parts += [mode_text(mode) for mode in figures.modes]
    parts += figures.texts
    parts += [demo_text(demo) for demo in figures.demos]
    parts += [f"skipped: {what}: {why}" for what, why in figures.skipped.items()]
    parts += [f"WRONG: {what}" for what in figures.wrong]
    return "\n\n".join(parts) + "\n"


def mode_text(mode: ModeFigures) -> str:
    """One shape of load as a table."""
    names = list(dict.fromkeys(sample.gateway for sample in mode.samples))
    rows = [_mode_row(mode, name) for name in names]
    gap = f"a token every {mode.gap_us / 1000:g} ms"
    title = f"{mode.mode}: {gap}, {mode.clients} clients, {mode.tokens}-token streams; medians (lowest–highest)"
    head = ["", "rounds", "clients", "CPU ms/request", "vs nginx", "requests/s", "vs direct", "p50 ms", "p99 ms"]
    head += ["its cores", "engine's", "load's", "others'", "ceiling", "errors", "PSS MiB", "checked"]
    notes = [f"{name}, for each request: {does}" for name, does in mode.does.items() if does]
    notes += [f"skipped: {name}: {why}" for name, why in mode.skipped.items()]
    return "\n".join([title, table([head, *rows]), *notes])


def _mode_row(mode: ModeFigures, name: str) -> list[str]:
    samples = [sample for sample in mode.samples if sample.gateway == name]
    cpu, base = mode.median(name, lambda s: s.cpu_ms), mode.median("nginx", lambda s: s.cpu_ms)
    rate, top = mode.median(name, lambda s: s.per_s), mode.median("direct", lambda s: s.per_s)
    held, fewer = mode.memory.get(name), any(s.clients < mode.clients for s in samples)
    return [
        name,
        str(len(samples)),
        str(max(s.clients for s in samples)),
        spread([s.cpu_ms for s in samples], 3) if cpu else "–",
        f"{cpu / base:.2f}×" if cpu and base else "–",
        spread([s.per_s for s in samples], 0),
        f"{rate / top:.2f}×" if rate and top and not fewer else "–",
        spread([s.p50_ms for s in samples], 1),
        spread([s.p99_ms for s in samples], 1),
        *(f"{statistics.median(cores):.2f}" for cores in _shares(samples)),
        ceiling(samples),
        str(sum(s.errors for s in samples)),
        f"{held.pss / MIB:.0f}" if held else "–",
        mode.checked.get(name, "–"),
    ]


def _shares(samples: Sequence[Sample]) -> list[list[float]]:
    """Cores of the gateway, the engine, the load and all others, each over the rounds."""
    return [
        [s.cores for s in samples],
        [s.engine_cores for s in samples],
        [s.load_cores for s in samples],
        [s.strangers for s in samples],
    ]


def ceiling(samples: Sequence[Sample]) -> str:
    """What kept requests/s from being higher: what had its core full, else the machine, else the tokens' own pace.

    Engine and load have one thread each, and of the gateways only vllm-router has more.
    """
    own, engine, load, others = (statistics.median(cores) for cores in _shares(samples))
    full = [what for what, cores in (("gateway", own), ("engine", engine), ("load", load)) if cores >= FULL_CORE]
    if full:
        return "+".join(full)
    return "machine" if own + engine + load + others >= FULL_CORE * len(os.sched_getaffinity(0)) else "pace"


def demo_text(demo: DemoFigures) -> str:
    """Start times and memory of the demo."""
    lines = [f"llmgw demo --no-console --model {demo.model}"]
    lines.append(f"to READY, model cached: {spread(demo.ready_s, 2)} s ({len(demo.ready_s)} starts)")
    lines.append(f"to READY, empty directory: {demo.first_ready_s:.2f} s (everything made and fetched)")
    rows = [[kind, f"{m.rss / MIB:.0f}", f"{m.pss / MIB:.0f}"] for kind, m in sorted(demo.memory.items())]
    return "\n".join([*lines, table([["memory at rest", "RSS MiB", "PSS MiB"], *rows])])


def spread(values: Sequence[float], digits: int) -> str:
    """`median (lowest–highest)`."""
    if not values:
        return "–"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def table(rows: Sequence[Sequence[str]]) -> str:
    """Columns lined up."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip() for row in rows)


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _version(program: str, flag: str) -> str:
    found = shutil.which(program) or shutil.which(program, path="/usr/sbin:/usr/local/sbin")
    if found is None:
        return "not installed"
    said = subprocess.run([found, flag], capture_output=True, text=True, check=False)
    return ((said.stdout + said.stderr).strip().splitlines() or [sys.executable])[0][:80]
