"""One router process as its supervisor holds it: by pidfd, child or not, so that no other process is ever signalled."""

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import trio

import llmgw
from llmgw.core.layout import ServerLayout
from llmgw.core.processes import boot_id, start_time
from llmgw.router.handover import RouterRecord, write_record

OUTPUT_BYTES = 1024 * 1024
"""What routers printed, longer than this when one starts, becomes `router-N.err.1`; one such is kept."""
_PASSED_ON = ("PATH", "HOME", "LANG", "TZ", "TMPDIR", "VIRTUAL_ENV")
"""Variables a router gets; the server's others may hold its database's password."""

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class RouterProcess:
    """A process known by descriptor. `alive` is false once `ended` returned."""

    pid: int
    pidfd: int
    index: int
    version: str
    alive: bool = True

    @classmethod
    def open(cls, pid: int, *, index: int, version: str) -> "RouterProcess | None":
        """The process `pid` as it is at this moment; none when there is none."""
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            return None
        return cls(pid=pid, pidfd=pidfd, index=index, version=version)

    async def ended(self) -> None:
        """Return when it has ended; a child is reaped. One task at a time."""
        if self.alive:
            await trio.lowlevel.wait_readable(self.pidfd)
            self.alive = False
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG)  # noqa: ASYNC222 - it does not wait

    def signal(self, number: signal.Signals) -> None:
        """Send a signal, if it still lives."""
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self.pidfd, number)

    def close(self) -> None:
        """Let go of it, alive or not. Twice is harmless."""
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def find_router(record: RouterRecord) -> RouterProcess | None:
    """The living process that wrote `record`; none when it ended, whoever has its pid now."""
    if record.boot_id != boot_id():
        return None
    process = RouterProcess.open(record.pid, index=record.index, version=record.version)
    if process is not None and start_time(record.pid) != record.start_time:
        process.close()
        return None
    return process


def default_command() -> list[str]:
    """How our router is started, with this interpreter."""
    return [sys.executable, "-m", "llmgw.router.process"]


async def spawn_router(
    layout: ServerLayout, index: int, listener: socket.socket, command: Sequence[str], *, version: str
) -> RouterProcess:
    """Start router `index` on `listener`, in a session of its own. Raises OSError.

    It logs to a file of its own; what it prints beside that (a crash's last words) goes to `router-N.err`.
    It is on record in `run` at once, so that a server killed this moment leaves no router that the next cannot find.
    """
    descriptor = listener.fileno()
    arguments = [*command, "--index", str(index), "--data", str(layout.data.absolute()), "--fd", str(descriptor)]

    def spawn() -> int:
        with open(_rotated(layout.log / f"router-{index}.err"), "ab") as output:
            child = subprocess.Popen(
                arguments,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(descriptor,),
                start_new_session=True,
                env=_environment(),
            )
        # It is watched and reaped through its pidfd, and may outlive this object.
        child.returncode = 0
        return child.pid

    # Not abandoned when cancelled: a process that was started is a process that is known.
    pid = await trio.to_thread.run_sync(spawn)
    try:
        process = RouterProcess(pid=pid, pidfd=os.pidfd_open(pid), index=index, version=version)
    except OSError:
        # Our own child, not yet reaped: the pid is its own.
        os.kill(pid, signal.SIGKILL)
        raise
    began = start_time(pid)
    if began is not None:
        port = listener.getsockname()[1]
        record = RouterRecord(pid=pid, start_time=began, boot_id=boot_id(), port=port, version=version, index=index)
        try:
            write_record(layout, record)
        except OSError as error:
            # It serves all the same; on a full disk only the next server would not find it at once.
            _log.error("router %d cannot be put on record: %s", index, error)
    return process


def _environment() -> dict[str, str]:
    kept = {
        name: value
        for name, value in os.environ.items()
        if name in _PASSED_ON or name.startswith(("LC_", "PYTHON", "LLMGW_ROUTER_"))
    }
    root = str(Path(llmgw.__file__).parents[1])
    if root != sysconfig.get_path("purelib"):
        # Run from a checkout: the router finds the same code wherever it is started.
        kept["PYTHONPATH"] = os.pathsep.join(filter(None, [root, kept.get("PYTHONPATH", "")]))
    # Few threads, briefly used: without this each would keep a heap of its own.
    kept.setdefault("MALLOC_ARENA_MAX", "2")
    return kept


def _rotated(path: Path) -> Path:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > OUTPUT_BYTES:
            path.replace(path.with_name(f"{path.name}.1"))
    return path
