"""Engine processes. None is signalled unless its environment bears its shard's mark at that moment, and none is held by
a pid: a descriptor (pidfd) names the process, so a reused pid is never meant.

Engines outlive the agent: each is in its own session, with its output going to a file and no tie to the agent.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

from agent.engines.environment import MARK_VARIABLE, NODE_VARIABLE
from llmgw.core.processes import boot_id, start_time

_ENVIRON_MAX_BYTES = 1024 * 1024
"""Read of an environment at most; the marks are at its beginning."""


@dataclass(frozen=True, kw_only=True)
class ProcessName:
    """Which process is meant, across restarts of the agent and reboots."""

    boot_id: str
    pid: int
    start_time: int
    """Clock ticks after boot."""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a process ended; both none when it was not our child, for then nobody tells."""

    code: int | None = None
    signal: int | None = None

    def __str__(self) -> str:
        if self.signal is not None:
            with contextlib.suppress(ValueError):
                return f"signal {signal.Signals(self.signal).name}"
            return f"signal {self.signal}"
        return "an unknown exit code" if self.code is None else f"exit code {self.code}"


class EngineProcess:
    """A running engine, started by this agent or by one before it. `close()` lets go of it without ending it."""

    def __init__(self, name: ProcessName, pidfd: int, *, mark: str, child: bool) -> None:
        self.name = name
        self.mark = mark
        self._pidfd = pidfd
        self._child = child
        self._exit: Exit | None = None

    @property
    def pid(self) -> int:
        """Its pid, which means it only while it has not ended."""
        return self.name.pid

    async def wait(self) -> Exit:
        """Return when the process has ended; a zombie has ended."""
        while self._exit is None:
            await trio.lowlevel.wait_readable(self._pidfd)
            self._exit = self._reap()
        return self._exit

    def _reap(self) -> Exit | None:
        if not self._child:
            return Exit()
        try:
            result = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        except ChildProcessError:
            return Exit()
        if result is None:
            return None
        if result.si_code == os.CLD_EXITED:
            return Exit(code=result.si_status)
        return Exit(signal=result.si_status)

    async def stop(self, *, grace_s: float) -> Exit:
        """SIGTERM, after `grace_s` SIGKILL, to the engine and whatever it left with its mark. Return when it ended."""
        await trio.to_thread.run_sync(signal_every, self.mark, signal.SIGTERM)
        with trio.move_on_after(max(0.0, grace_s)):
            await self.wait()
        await trio.to_thread.run_sync(signal_every, self.mark, signal.SIGKILL)
        return await self.wait()

    def close(self) -> None:
        """Stop watching; the process goes on."""
        trio.lowlevel.notify_closing(self._pidfd)
        os.close(self._pidfd)


def spawn(argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, output: Path, mark: str) -> EngineProcess:
    """Start an engine in its own session, stdin empty, output appended to a file. Raises OSError.

    `env` is the whole environment and bears `mark`.
    """
    fd = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        child = subprocess.Popen(
            argv,
            env=dict(env),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=fd,
            stderr=fd,
            close_fds=True,
            start_new_session=True,
        )
    finally:
        os.close(fd)
    try:
        pidfd = os.pidfd_open(child.pid)
    except OSError:
        # Out of descriptors: an engine that cannot be watched is not left running.
        child.kill()
        child.wait()
        raise
    # The child is reaped by its pidfd: Popen must neither wait for it nor complain that it lives on.
    child.returncode = 0
    name = ProcessName(boot_id=boot_id(), pid=child.pid, start_time=start_time(child.pid) or 0)
    return EngineProcess(name, pidfd, mark=mark, child=True)


def adopt(name: ProcessName, *, mark: str) -> EngineProcess | None:
    """The process of that name if it lives, bears `mark` and is of this boot; none for any stranger."""
    if name.boot_id != boot_id():
        return None
    try:
        pidfd = os.pidfd_open(name.pid)
    except OSError:
        return None
    # With the descriptor open the pid cannot pass on to another process unnoticed, so what is read now is its own.
    if start_time(name.pid) == name.start_time and marks_of(name.pid).get(MARK_VARIABLE) == mark:
        return EngineProcess(name, pidfd, mark=mark, child=_is_child(name.pid))
    os.close(pidfd)
    return None


def marks_of(pid: int) -> dict[str, str]:
    """`LLMGW_MARK` and `LLMGW_NODE` of a process; empty when it has none, has ended or is not ours to read."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            environ = file.read(_ENVIRON_MAX_BYTES)
    except OSError:
        return {}
    marks: dict[str, str] = {}
    for entry in environ.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        text = name.decode(errors="replace")
        if equals and text in (MARK_VARIABLE, NODE_VARIABLE):
            marks.setdefault(text, value.decode(errors="replace"))
    return marks


def marked_processes() -> Iterator[tuple[int, str, str]]:
    """Every living process with a mark: pid, mark and node. Blocking; a few milliseconds for a thousand processes."""
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            marks = marks_of(int(entry))
            if MARK_VARIABLE in marks:
                yield int(entry), marks[MARK_VARIABLE], marks.get(NODE_VARIABLE, "")


def is_session_leader(pid: int) -> bool:
    """Whether the process is the first of its session, as every engine is and none of its children."""
    try:
        return os.getsid(pid) == pid
    except OSError:
        return False


def name_of(pid: int) -> ProcessName | None:
    """The full name of a living process."""
    started = start_time(pid)
    return None if started is None else ProcessName(boot_id=boot_id(), pid=pid, start_time=started)


def signal_every(mark: str, number: signal.Signals) -> int:
    """Signal every process that bears exactly `mark`; how many there were. Blocking."""
    count = 0
    for pid, found, _ in marked_processes():
        if found != mark:
            continue
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            count += _signal_marked(pid, pidfd, mark, number)
        finally:
            os.close(pidfd)
    return count


def _signal_marked(pid: int, pidfd: int, mark: str, number: signal.Signals) -> bool:
    """Signal the process behind `pidfd` if it still bears the mark now."""
    if marks_of(pid).get(MARK_VARIABLE) != mark:
        return False
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(pidfd, number)
        return True
    return False


def _is_child(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return int(text[text.rindex(")") + 2 :].split()[1]) == os.getpid()
