"""Whether a router process is there and serves: it answers with the socket it listens on, or it is ended."""

import contextlib
import logging
import signal
import socket

import trio

from llmgw.control.router_process import RouterProcess, find_router
from llmgw.core.layout import ServerLayout
from llmgw.router.handover import ask_router, forget_record, read_record

ADOPT_S = 5.0
"""A living router that does not hand over its socket within this time hangs and is replaced."""
READY_S = 15.0
"""A new router that does not answer within this time is killed."""
LOOK_S = 0.05
"""How often a starting router is asked whether it answers."""
PROBE_S = 10.0
"""How often, and how long, a router is asked whether its loop turns."""
PROBES_MISSED = 3
"""A router is killed after this many unanswered probes."""

_log = logging.getLogger(__name__)


async def adopt(layout: ServerLayout, index: int) -> tuple[RouterProcess, socket.socket] | None:
    """The living router `index` with its socket; none when it is dead, or hung and therefore killed."""
    record = read_record(layout, index)
    process = find_router(record) if record is not None else None
    if record is None or process is None:
        forget(layout, index)
        return None
    try:
        return process, await _answer(layout, process, ADOPT_S)
    except OSError as error:
        _log.error("router %d (pid %d) hangs and is killed: %s", index, process.pid, error)
        process.signal(signal.SIGKILL)
        await process.ended()
        forget_record(layout, record)
        return None


async def serves(layout: ServerLayout, process: RouterProcess) -> bool:
    """Whether a process that was just started answers; one that does not is killed, and its end is the caller's."""
    answered = False
    async with trio.open_nursery() as either:

        async def watch_end() -> None:
            await process.ended()
            either.cancel_scope.cancel()

        either.start_soon(watch_end)
        try:
            (await _answer(layout, process, READY_S)).close()
            answered = True
        except OSError as error:
            _log.error("router %d (pid %d) does not answer and is killed: %s", process.index, process.pid, error)
            process.signal(signal.SIGKILL)
        either.cancel_scope.cancel()
    return answered


async def watch(layout: ServerLayout, process: RouterProcess) -> None:
    """Return when `process` has ended; one whose loop does not turn is ended."""
    missed = 0
    while missed < PROBES_MISSED:
        with trio.move_on_after(PROBE_S):
            await process.ended()
            return
        try:
            (await _answer(layout, process, PROBE_S)).close()
            missed = 0
        except OSError as error:
            missed += 1
            _log.warning("router %d (pid %d) does not answer: %s", process.index, process.pid, error)
    process.signal(signal.SIGKILL)
    await process.ended()


def forget(layout: ServerLayout, index: int) -> None:
    """Remove what a router that ended left in `run`."""
    for path in (layout.router_state(index), layout.router_socket(index)):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


async def _answer(layout: ServerLayout, process: RouterProcess, timeout_s: float) -> socket.socket:
    """The listening socket as `process` hands it over; OSError when it does not within `timeout_s`."""
    path = layout.router_socket(process.index)
    trouble: OSError = TimeoutError(f"{path} gave no answer within {timeout_s:g} s")
    with trio.move_on_after(timeout_s):
        while True:
            try:
                record, listener = await ask_router(path, timeout_s=timeout_s)
                if record.pid == process.pid:
                    return listener
                listener.close()
                trouble = OSError(f"{path} is answered by process {record.pid}")
            except (FileNotFoundError, ConnectionRefusedError) as error:
                trouble = error
            await trio.sleep(LOOK_S)
    raise trouble
