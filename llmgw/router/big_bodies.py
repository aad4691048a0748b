"""Work on a long request body is done beside the streams: no token waits for someone else's prompt."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import trio

from llmgw.router.limits import BIG_BODY_BYTES

P = ParamSpec("P")
T = TypeVar("T")


class BigBodies:
    """Calls work at once for an ordinary body, in a thread for a big one. One at a time: threads share the interpreter,
    and several would only take turns."""

    def __init__(self) -> None:
        self._turn = trio.CapacityLimiter(1)

    async def call(self, body: bytes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(*args, **kwargs)`, which reads or splices `body`; what it raises passes on."""
        if len(body) <= BIG_BODY_BYTES:
            return work(*args, **kwargs)
        return await trio.to_thread.run_sync(lambda: work(*args, **kwargs), limiter=self._turn)
