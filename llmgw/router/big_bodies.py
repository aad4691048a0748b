"""Work on a long request body is done beside the streams: no token waits for someone else's prompt."""

from collections.abc import Callable, Sized
from typing import ParamSpec, TypeVar

import trio

from llmgw.router.limits import BIG_BODY_BYTES
from llmgw.router.ports import Refusal

P = ParamSpec("P")
T = TypeVar("T")


def is_big(body: Sized) -> bool:
    """Whether work on this body would keep tokens waiting."""
    return len(body) > BIG_BODY_BYTES


class BigBodies:
    """Calls work at once for an ordinary body, in a thread for a big one. One at a time: threads share the interpreter,
    and several would only take turns."""

    def __init__(self) -> None:
        self._turn = trio.CapacityLimiter(1)

    async def call(self, body: Sized, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`work(*args, **kwargs)`, which reads or splices `body`; what it raises passes on.

        What every request does asks `is_big` first and does without the coroutine.
        """
        if not is_big(body):
            return work(*args, **kwargs)

        def beside() -> T | Refusal:
            try:
                return work(*args, **kwargs)
            except Refusal as refusal:
                # Raised through trio's thread it would stand in a circle with frames that hold the body, of which
                # hundreds could pile up until the collector looks.
                refusal.__traceback__ = refusal.__context__ = None
                return refusal

        found = await trio.to_thread.run_sync(beside, limiter=self._turn)
        if isinstance(found, Refusal):
            try:
                raise found
            finally:
                del found
        return found
