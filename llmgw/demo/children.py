"""The demo's children run under their ordinary command lines, and end when the demo does, however it does."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import trio

from llmgw.core.config import LISTEN_VARIABLES

RESTART_PAUSE_S = 0.3
"""Pause before a child that ended is started again; within a second it is back."""
RESTART_PAUSE_MAX_S = 10.0
"""Longest pause, for a child that cannot stay up."""
QUICK_DEATH_S = 2.0
"""A child that lived no longer than this waits longer each time."""
STOP_S = 45.0
"""A child has this long to end by itself: draining, engines, database."""
LISTENS_S = 15.0
"""A child that just started hears SIGTERM within this; sooner, the signal would end it with its work undone."""
LISTENS_POLL_S = 0.02
TIDY_CODES = frozenset({0, 2})
"""Exit codes of a child that left nothing running: it ended in order, or refused its configuration."""
_PR_SET_PDEATHSIG = 1


def command(*arguments: str) -> list[str]:
    """The command line of an `llmgw` subcommand with this very installation."""
    script = Path(sys.executable).with_name("llmgw")
    if script.exists():
        return [str(script), *arguments]
    found = shutil.which("llmgw")
    return [found, *arguments] if found else [sys.executable, "-m", "llmgw.cli.main", *arguments]


class ChildFailed(Exception):
    """A child ended at once with a usage or configuration error: starting it again would not help."""


class Child:
    """One supervised child."""

    def __init__(
        self, name: str, argv: Sequence[str], output: Path, say: Callable[[str], None] = lambda _: None
    ) -> None:
        """`say` is told in a sentence of a child that cannot stay up."""
        self.name = name
        self._say = say
        self.pid = 0
        self._argv = list(argv)
        self._output = output
        self._stopping = False
        self._process: subprocess.Popen[bytes] | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the child running until `stop`; raises ChildFailed when it refuses its configuration."""
        pause_s = RESTART_PAUSE_S
        started = False
        while True:
            begun = trio.current_time()
            self._process = self._spawn()
            self.pid = self._process.pid
            if not started:
                started = True
                task_status.started()
            code = await _wait(self._process)
            if self._stopping:
                return
            if code == 2:
                raise ChildFailed(f"the {self.name} refused its configuration: {last_line(self._output)}")
            quick = trio.current_time() - begun < QUICK_DEATH_S
            if code > 0:
                self._say(f"the {self.name} ended and is started again: {last_line(self._output)}")
            await trio.sleep(pause_s)
            pause_s = min(pause_s * 2, RESTART_PAUSE_MAX_S) if quick else RESTART_PAUSE_S

    async def stop(self) -> None:
        """End the child. One that was killed left its own behind: a successor takes that over, to end it too.

        To be called once `run` is over, which would start another.
        """
        self._stopping = True
        if self._process is not None and await _end(self._process) not in TIDY_CODES:
            self._process = self._spawn()
            await _end(self._process)

    def _spawn(self) -> subprocess.Popen[bytes]:
        """In the main thread, since the parent-death signal follows the thread that forked.

        Variables that stand in for addresses are another server's: the demo wrote its own into the file.
        """
        assert threading.current_thread() is threading.main_thread()
        parent = os.getpid()
        libc = ctypes.CDLL(None, use_errno=True)

        def die_with_parent() -> None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
            if os.getppid() != parent:
                os._exit(1)

        with self._output.open("ab") as output:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                preexec_fn=die_with_parent,
                env={name: value for name, value in os.environ.items() if name not in LISTEN_VARIABLES.values()},
            )


async def _end(process: subprocess.Popen[bytes]) -> int:
    """SIGTERM as soon as the process hears it, SIGKILL when it is still there after STOP_S; its exit code."""
    with trio.move_on_after(LISTENS_S):
        while process.poll() is None and not _hears_sigterm(process.pid):  # noqa: ASYNC110 - nothing tells of it
            await trio.sleep(LISTENS_POLL_S)
    if process.poll() is None:
        process.terminate()
        with trio.move_on_after(STOP_S):
            return await _wait(process)
        process.kill()
    return await _wait(process)


def _hears_sigterm(pid: int) -> bool:
    """Whether the process has a handler for SIGTERM (the mask of caught signals, proc_pid_status(5))."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    caught = next((line.split()[1] for line in status.splitlines() if line.startswith("SigCgt:")), "0")
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


async def _wait(process: subprocess.Popen[bytes]) -> int:
    """Exit code of the process, without a thread."""
    if process.poll() is None:
        descriptor = os.pidfd_open(process.pid)
        try:
            await trio.lowlevel.wait_readable(descriptor)
        finally:
            os.close(descriptor)
    return process.wait()


def last_line(path: Path, *, at_most: int = 400) -> str:
    """The last line of a log that says something."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "no output"
    return next((line.strip() for line in reversed(lines) if line.strip()), "no output")[:at_most]
