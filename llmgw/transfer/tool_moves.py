"""Foreign tools that fetch by themselves: they are ended for silence, never for how long what they fetch takes.

That they move is seen at what they write, for a tool whose output nobody looks at says nothing while it downloads.
"""

import contextlib
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import trio


def written_bytes(pid: int) -> int:
    """What a process has written so far, as proc(5)'s `io` has it; 0 where that is not told."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/io").read_text(encoding="ascii").splitlines():
            if line.startswith("wchar:"):
                return int(line.partition(":")[2])
    return 0


async def run_fetching(command: Sequence[str], *, stall_s: float) -> "subprocess.CompletedProcess[bytes]":
    """Run it to its end, with what it said.

    Raises OSError where it cannot be started, and trio.TooSlowError once it has written nothing for `stall_s`.
    """
    outcome: subprocess.CompletedProcess[bytes] | OSError | None = None
    process: trio.Process | None = None

    async def run(*, task_status: trio.TaskStatus[trio.Process | None]) -> None:
        nonlocal outcome
        try:
            outcome = await trio.run_process(
                command, capture_stdout=True, capture_stderr=True, check=False, task_status=task_status
            )
        except OSError as error:
            outcome = error
            if process is None:
                task_status.started(None)
        nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        process = await nursery.start(run)
        if process is not None:
            await until_still(partial(written_bytes, process.pid), stall_s=stall_s)
        nursery.cancel_scope.cancel()
    if outcome is None:
        raise trio.TooSlowError
    if isinstance(outcome, OSError):
        raise outcome
    return outcome


async def until_still(counted: Callable[[], int], *, stall_s: float) -> None:
    """Return once the count has not grown for `stall_s`."""
    before = counted()
    while True:
        await trio.sleep(stall_s)
        now = counted()
        if now <= before:
            return
        before = now
