"""The console with a stopwatch in it: `python -m tests.bench.console_child SOCKET OUT VIEW`, on a terminal.

It is the product's own console and driver. What is timed is the work of a frame: messages taken in since the frame
before, the views told of them, and the paint that follows, with the bytes handed to the terminal. Ends with SIGTERM,
and then writes what it measured to OUT.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import msgspec

from console import app
from console.app import Console
from console.state.store import Store
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import Message

MAX_FRAMES = 100_000


class Stopwatch(msgspec.Struct):
    """Milliseconds of every frame, and of every tick of the clock."""

    frames_ms: list[float] = []
    """By the wall."""
    frames_cpu_ms: list[float] = []
    """CPU of the console's own thread: what others on the machine do does not count."""
    ticks_cpu_ms: list[float] = []


class TimedStore(Store):
    """Adds what taking in a message takes to the frame that will show it."""

    def __init__(self) -> None:
        super().__init__()
        self.wall = self.cpu = 0.0

    def receive(self, message: Message, *, at: float) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        super().receive(message, at=at)
        self.wall += time.perf_counter() - wall
        self.cpu += time.thread_time() - cpu


class TimedConsole(Console):
    """Writes down how long its frames took."""

    CSS_PATH: ClassVar[list[str]] = [str(Path(app.__file__).parent / name) for name in Console.CSS_PATH]

    def __init__(self, target: ServerTarget, view: str) -> None:
        self.stopwatch = Stopwatch()
        self.timed = TimedStore()
        self._wall = self._cpu = 0.0
        self._told = False
        super().__init__(target, start=view, store=self.timed)
        paint = self.main._on_timer_update
        setattr(self.main, "_on_timer_update", lambda: self._painted(paint))  # noqa: B010 - Textual's own hook

    def on_console_changed(self, event: Console.Changed) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        super().on_console_changed(event)
        self._wall += time.perf_counter() - wall
        self._cpu += time.thread_time() - cpu
        self._told = True

    def _painted(self, paint: Callable[[], None]) -> None:
        wall, cpu = time.perf_counter(), time.thread_time()
        paint()
        if not self._told or len(self.stopwatch.frames_ms) >= MAX_FRAMES:
            return
        self._told = False
        wall_s = time.perf_counter() - wall + self._wall + self.timed.wall
        cpu_s = time.thread_time() - cpu + self._cpu + self.timed.cpu
        self.stopwatch.frames_ms.append(wall_s * 1000)
        self.stopwatch.frames_cpu_ms.append(cpu_s * 1000)
        self._wall = self._cpu = self.timed.wall = self.timed.cpu = 0.0

    def _tick(self) -> None:
        cpu = time.thread_time()
        super()._tick()
        if len(self.stopwatch.ticks_cpu_ms) < MAX_FRAMES:
            self.stopwatch.ticks_cpu_ms.append((time.thread_time() - cpu) * 1000)


def main(path: Path, out: Path, view: str) -> None:
    """Show it until SIGTERM."""
    console = TimedConsole(ServerTarget(socket=path), view)
    console.run()
    out.write_bytes(msgspec.json.encode(console.stopwatch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
