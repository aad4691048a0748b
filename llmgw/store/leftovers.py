"""PostgreSQL processes a killed server left behind: known by the directory they work in, never by a pid file.

A pid in `postmaster.pid` may have been given to a stranger since; a stranger is never signalled.
"""

import contextlib
import os
import signal
from pathlib import Path

import trio

from llmgw.core.errors import Unavailable

POLL_S = 0.02
"""How often the process table is read again while a leftover is ending."""
STAGES: tuple[tuple[signal.Signals, float], ...] = (
    (signal.SIGINT, 10.0),
    (signal.SIGQUIT, 5.0),
    (signal.SIGKILL, 5.0),
)
"""PostgreSQL's fast shutdown, its immediate one, and the kernel's; each with the seconds it is given."""


def processes_on(directory: Path) -> list[int]:
    """Pids of PostgreSQL processes working in `directory`, lowest first."""
    try:
        wanted = directory.stat()
    except FileNotFoundError:
        return []
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit() and _works_in(int(name), wanted))


async def end_leftovers(directory: Path) -> None:
    """Wait until no PostgreSQL works in `directory`, ending what lingers; drop a pid file that names a stranger.

    The caller holds the data directory's lock, so whatever runs there has lost its server. Raises Unavailable.
    """
    for number, allowed_s in STAGES:
        pids = processes_on(directory)
        if not pids:
            break
        postmaster = _recorded_pid(directory)
        for pid in [postmaster] if postmaster in pids else pids:
            _signal(pid, number, directory)
        with trio.move_on_after(allowed_s):
            while processes_on(directory):  # noqa: ASYNC110 - the kernel tells of no other process's child ending
                await trio.sleep(POLL_S)
    else:
        left = processes_on(directory)
        if left:
            raise Unavailable(f"PostgreSQL (pid {left[0]}) still runs on {directory} and does not end when killed")
    _drop_stale_pid_file(directory)


def _works_in(pid: int, wanted: os.stat_result) -> bool:
    # A process may end, or belong to somebody we may not look at: neither is ours.
    with contextlib.suppress(OSError):
        if os.path.samestat(os.stat(f"/proc/{pid}/cwd"), wanted):
            program = os.readlink(f"/proc/{pid}/exe").removesuffix(" (deleted)")
            return os.path.basename(program) == "postgres"
    return False


def _signal(pid: int, number: signal.Signals, directory: Path) -> None:
    """Signal the process through its descriptor, having looked again that it is the one meant."""
    with contextlib.suppress(OSError):
        descriptor = os.pidfd_open(pid)
        try:
            if _works_in(pid, directory.stat()):
                signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def _recorded_pid(directory: Path) -> int | None:
    try:
        return int((directory / "postmaster.pid").read_text().split("\n", 1)[0])
    except (OSError, ValueError):
        return None


def _drop_stale_pid_file(directory: Path) -> None:
    """PostgreSQL refuses to start while the recorded pid lives, even as another program (after a reboot, say)."""
    pid = _recorded_pid(directory)
    if pid is None or not Path(f"/proc/{pid}").exists():
        return
    for name in ("postmaster.pid", ".s.PGSQL.5432.lock"):
        (directory / name).unlink(missing_ok=True)
