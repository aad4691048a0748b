"""A running mirror for tests, and waiting for what it does."""

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig
from tests.support.weights import quick

TOKEN = "mt-test"
PATIENCE_S = 60.0


@dataclass
class Running:
    """A mirror, its address, and the changes it told."""

    mirror: Mirror
    url: str = ""
    changes: list[str] = field(default_factory=list)

    async def settled(self, source: str, *, now: bool = False) -> SetStatus:
        """Ask for the set and wait until it is ready or failed."""
        latest = [self.mirror.ensure(source, now=now)]

        def over() -> bool:
            latest.extend(filter(None, [self.mirror.status(source)]))
            return latest[-1].state in (SetState.READY, SetState.FAILED)

        await until_here(over)
        return latest[-1]


async def until_here(condition: Callable[[], bool]) -> None:
    """Return once the condition, of this thread's own state, is true; raises trio.TooSlowError."""
    with trio.fail_after(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - the state tells nobody when it changes
            await trio.sleep(0.005)


@asynccontextmanager
async def running_mirror(
    root: Path,
    *,
    config: MirrorConfig | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Running]:
    """A mirror on `root` and its HTTP API on loopback without TLS, until the block ends."""
    changes: list[str] = []
    mirror = Mirror(root, config=config or MirrorConfig(policy=quick()), on_change=changes.append, clock=clock)
    running = Running(mirror=mirror, changes=changes)
    failure: Exception | None = None

    async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        await serve(mirror, host="127.0.0.1", port=0, ssl_context=None, token=TOKEN, task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        listeners: list[trio.SocketListener] = await nursery.start(api)
        running.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        try:
            yield running
        except Exception as error:  # raised below as it is, without the nursery's group around it
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure
