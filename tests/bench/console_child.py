"""The console with a stopwatch in it: `python -m tests.bench.console_child SOCKET OUT VIEW`, on a terminal.

It is the product's own console and driver. A frame is the views told of what changed, and the paint that follows with
the bytes handed to the terminal; taking in a message is timed by itself. The first seconds, when everything is new, do
not count. Ends with SIGTERM, and then writes what it measured to OUT.
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
SETTLE_S = 5.0
"""What does not count."""


class Stopwatch(msgspec.Struct):
    """Milliseconds of every frame, and of every tick of the clock."""

    frames_ms: list[float] = []
    """By the wall."""
    frames_cpu_ms: list[float] = []
    """CPU of the console's own thread: what others on the machine do does not count."""
    ticks_cpu_ms: list[float] = []
    messages_cpu_ms: list[float] = []


class TimedStore(Store):
    """Writes down what taking in a message takes."""

    def __init__(self, note: Callable[[float], None]) -> None:
        super().__init__()
        self._note = note

    def receive(self, message: Message, *, at: float) -> None:
        cpu = time.thread_time()
        super().receive(message, at=at)
        self._note((time.thread_time() - cpu) * 1000)


class TimedConsole(Console):
    """Writes down how long its frames took."""

    CSS_PATH: ClassVar[list[str]] = [str(Path(app.__file__).parent / name) for name in Console.CSS_PATH]

    def __init__(self, target: ServerTarget, view: str) -> None:
        self.stopwatch = Stopwatch()
        self._began = time.monotonic()
        self._wall = self._cpu = 0.0
        self._told = False
        super().__init__(
            target, start=view, store=TimedStore(lambda ms: self._note(self.stopwatch.messages_cpu_ms, ms))
        )
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
        if not self._told:
            return
        self._told = False
        self._note(self.stopwatch.frames_ms, (time.perf_counter() - wall + self._wall) * 1000)
        self._note(self.stopwatch.frames_cpu_ms, (time.thread_time() - cpu + self._cpu) * 1000)
        self._wall = self._cpu = 0.0

    def _tick(self) -> None:
        cpu = time.thread_time()
        super()._tick()
        self._note(self.stopwatch.ticks_cpu_ms, (time.thread_time() - cpu) * 1000)

    def _note(self, values: list[float], ms: float) -> None:
        if time.monotonic() - self._began > SETTLE_S and len(values) < MAX_FRAMES:
            values.append(ms)


def main(path: Path, out: Path, view: str) -> None:
    """Show it until SIGTERM."""
    console = TimedConsole(ServerTarget(socket=path), view)
    console.run()
    out.write_bytes(msgspec.json.encode(console.stopwatch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
