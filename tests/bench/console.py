"""What the console costs, on a real pseudo-terminal and against the real live feed: time, CPU, bytes and memory.

The server is `tests.bench.watch_server`, a process of its own: every node has new readings every 5 s, 500 requests a
second end, so that deltas come ten times a second throughout, while keys are pressed too.
"""

import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from tests.bench.console_child import Stopwatch
from tests.bench.demo import START
from tests.bench.proc import cpu_ms, memory
from tests.bench.report import MIB, spread, table
from tests.bench.terminal import Terminal, on_terminal
from tests.bench.watch import served

FEW_NODES, MANY_NODES, CARDS = 50, 1000, 8
COLUMNS, ROWS = 120, 40
VIEWS = ("overview", "models", "replicas", "nodes", "gpus")
SETTLE_S = 5.0
"""The first samples fill charts that were empty."""
LETTERS = "αβγδεζηθικλμνξοπρστυφχψω"
"""Each is written once only when it is typed."""
SWITCHES = (("4", b"heard"), ("2", b"cost today"))
"""Key of a view, and a heading that only this view has."""
FIRST_FRAME = b"Overview"
FIRST_DATA = b"model-"
PAUSE_S = 0.13
"""Between keys: not a multiple of the frame's time, so that they fall anywhere in it."""


@dataclass(kw_only=True)
class Watched:
    """One view with many nodes."""

    view: str
    frames: int = 0
    frame_ms: tuple[float, float] = (0.0, 0.0)
    """p50 and p95 by the wall."""
    frame_cpu_ms: tuple[float, float] = (0.0, 0.0)
    """p50 and p95 of the console's own CPU."""
    tick_cpu_ms: tuple[float, float] = (0.0, 0.0)
    message_cpu_ms: tuple[float, float] = (0.0, 0.0)
    cpu_percent: float = 0.0
    """Of one core, all of the process."""


@dataclass(kw_only=True)
class ConsoleFigures:
    """All of it."""

    first_frame_ms: list[float] = field(default_factory=list)
    """From starting the process to its first frame."""
    first_cpu_ms: list[float] = field(default_factory=list)
    """CPU of the process until then: what it would take on a machine that nobody else uses."""
    first_data_ms: list[float] = field(default_factory=list)
    """To the first rows."""
    bytes_per_s: dict[str, float] = field(default_factory=dict)
    """By view, with FEW_NODES."""
    watched: list[Watched] = field(default_factory=list)
    letter_ms: list[float] = field(default_factory=list)
    """From a letter typed on the command line to the letter drawn."""
    switch_ms: list[float] = field(default_factory=list)
    """From the key of a view to its headings drawn."""
    rss_mib: list[float] = field(default_factory=list)
    """After SETTLE_S, and at the end of `minutes`."""
    minutes: float = 0.0


def measure_console(directory: Path, *, rounds: int, seconds: float, minutes: float) -> ConsoleFigures:
    """Everything, in about `minutes` and a minute and a half."""
    figures = ConsoleFigures(minutes=minutes)
    with served(directory, FEW_NODES, CARDS) as (_, path):
        for _ in range(rounds):
            _first_paint(figures, path)
        for view in VIEWS:
            figures.bytes_per_s[view] = _steady_bytes(path, view, seconds)
    with served(directory, MANY_NODES, CARDS) as (_, path):
        for view in VIEWS:
            figures.watched.append(_watch(path, directory / f"{view}.json", view, seconds))
        _long_look(figures, path)
    return figures


def _command(path: Path) -> list[str]:
    return [sys.executable, "-c", START, "console", "--server", str(path)]


def _child(path: Path, out: Path, view: str) -> list[str]:
    return [sys.executable, "-m", "tests.bench.console_child", str(path), str(out), view]


def _first_paint(figures: ConsoleFigures, path: Path) -> None:
    with on_terminal(_command(path), columns=COLUMNS, rows=ROWS) as terminal:
        figures.first_frame_ms.append((terminal.wait_for(FIRST_FRAME) - terminal.began) * 1000)
        figures.first_cpu_ms.append(cpu_ms([terminal.process.pid]))
        figures.first_data_ms.append((terminal.wait_for(FIRST_DATA) - terminal.began) * 1000)


def _steady_bytes(path: Path, view: str, seconds: float) -> float:
    """Bytes a second to the terminal while nobody touches it."""
    with on_terminal(_child(path, path.with_name("bytes.json"), view), columns=COLUMNS, rows=ROWS) as terminal:
        terminal.wait_for(FIRST_FRAME)
        time.sleep(SETTLE_S)
        before, began = terminal.total, time.monotonic()
        time.sleep(seconds)
        return (terminal.total - before) / (time.monotonic() - began)


def _watch(path: Path, out: Path, view: str, seconds: float) -> Watched:
    with on_terminal(_child(path, out, view), columns=COLUMNS, rows=ROWS) as terminal:
        terminal.wait_for(FIRST_FRAME)
        time.sleep(SETTLE_S)
        pid = terminal.process.pid
        cpu, began = cpu_ms([pid]), time.monotonic()
        time.sleep(seconds)
        percent = (cpu_ms([pid]) - cpu) / 10 / (time.monotonic() - began)
    seen = msgspec.json.decode(out.read_bytes(), type=Stopwatch)
    return Watched(
        view=view,
        frames=len(seen.frames_ms),
        frame_ms=_p50_p95(seen.frames_ms),
        frame_cpu_ms=_p50_p95(seen.frames_cpu_ms),
        tick_cpu_ms=_p50_p95(seen.ticks_cpu_ms),
        message_cpu_ms=_p50_p95(seen.messages_cpu_ms),
        cpu_percent=percent,
    )


def _long_look(figures: ConsoleFigures, path: Path) -> None:
    """Keys while deltas come, and memory after a while."""
    with on_terminal(_command(path), columns=COLUMNS, rows=ROWS) as terminal:
        terminal.wait_for(FIRST_DATA)
        time.sleep(SETTLE_S)
        figures.rss_mib.append(memory([terminal.process.pid]).rss / MIB)
        ends = time.monotonic() + figures.minutes * 60
        _switch(figures, terminal, rounds=6)
        _type(figures, terminal)
        time.sleep(max(0.0, ends - time.monotonic()))
        figures.rss_mib.append(memory([terminal.process.pid]).rss / MIB)


def _switch(figures: ConsoleFigures, terminal: Terminal, *, rounds: int) -> None:
    for _ in range(rounds):
        for key, heading in SWITCHES:
            began = time.monotonic()
            after = terminal.press(key)
            figures.switch_ms.append((terminal.wait_for(heading, after=after) - began) * 1000)
            time.sleep(PAUSE_S)


def _type(figures: ConsoleFigures, terminal: Terminal) -> None:
    terminal.press(":")
    time.sleep(1.0)
    for letter in LETTERS:
        began = time.monotonic()
        after = terminal.press(letter)
        figures.letter_ms.append((terminal.wait_for(letter.encode(), after=after) - began) * 1000)
        time.sleep(PAUSE_S)
    terminal.press("\x1b")


def _p50_p95(values: Sequence[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (0.0, 0.0)
    return (statistics.median(values), statistics.quantiles(values, n=20)[18])


def console_text(figures: ConsoleFigures) -> str:
    """The figures beside their targets."""
    most = max(figures.bytes_per_s.values(), default=0.0)
    views = ", ".join(f"{view} {value / 1000:.1f}" for view, value in figures.bytes_per_s.items())
    rows = [
        ["first frame, from the process's start", f"{spread(figures.first_frame_ms, 0)} ms", "500 ms"],
        ["CPU until then", f"{spread(figures.first_cpu_ms, 0)} ms", "–"],
        ["first rows, 1 s of which the server waits for its store", f"{spread(figures.first_data_ms, 0)} ms", "–"],
        [f"to the terminal, {FEW_NODES} nodes", f"{most / 1000:.1f} kB/s at most ({views})", "4 kB/s"],
        ["letter typed to letter drawn", _spans(figures.letter_ms), "–"],
        ["view's key to its rows drawn", _spans(figures.switch_ms), "–"],
        [f"RSS after {SETTLE_S:g} s and {figures.minutes:g} min", _rss(figures.rss_mib), "–"],
    ]
    watched = [
        [
            seen.view,
            str(seen.frames),
            "{:.1f} / {:.1f}".format(*seen.frame_ms),
            "{:.1f} / {:.1f}".format(*seen.frame_cpu_ms),
            "{:.1f} / {:.1f}".format(*seen.tick_cpu_ms),
            "{:.1f} / {:.1f}".format(*seen.message_cpu_ms),
            f"{seen.cpu_percent:.1f}",
        ]
        for seen in figures.watched
    ]
    head = ["", "frames", "frame ms", "its CPU ms", "tick CPU ms", "message CPU ms", "CPU % of a core"]
    title = f"console, {COLUMNS}×{ROWS}, deltas ten times a second"
    many = f"with {MANY_NODES:,} nodes × {CARDS} cards; p50 / p95; targets: a frame 16 ms at p95, 10% of a core"
    return "\n".join([title, table([["", "measured", "target"], *rows]), "", many, table([head, *watched])])


def _spans(values: Sequence[float]) -> str:
    return "p50 {:.0f} / p95 {:.0f} ms".format(*_p50_p95(values)) + f" ({len(values)} keys)"


def _rss(values: Sequence[float]) -> str:
    return " → ".join(f"{value:.0f}" for value in values) + " MiB"


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as made:
        print(console_text(measure_console(Path(made), rounds=3, seconds=10.0, minutes=0.5)))
