"""Blocking calls in a thread, one after the other, while their caller goes on: what came is written as more comes."""

from collections.abc import Callable

import trio


class Behind:
    """At most one call runs. Its failure is raised by the next `start` or `settle`."""

    def __init__(self) -> None:
        self._over: trio.Event | None = None
        self._result: Callable[[], object] | None = None

    async def start(self, call: Callable[[], object]) -> None:
        """Wait for the call before, raise what it raised, and begin this one."""
        await self.settle()
        over, token = trio.Event(), trio.lowlevel.current_trio_token()

        def deliver(result: Callable[[], object]) -> None:
            self._result = result
            token.run_sync_soon(over.set)

        self._over = over
        trio.lowlevel.start_thread_soon(call, lambda came: deliver(came.unwrap))

    async def idle(self) -> None:
        """Wait until nothing runs, even when cancelled: the call uses what its caller may close next."""
        if self._over is not None:
            with trio.CancelScope(shield=True):
                await self._over.wait()

    async def settle(self) -> None:
        """Wait until nothing runs, and raise what the call raised."""
        await self.idle()
        result, self._over, self._result = self._result, None, None
        if result is not None:
            result()
