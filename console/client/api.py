"""Single calls to the admin API: the API's own synchronous client, in a few threads, its errors already sentences."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

from console.client.streams import open_lines
from llmgw.api.actions import action
from llmgw.api.paths import fill
from llmgw.api.targets import ServerTarget

if TYPE_CHECKING:
    from llmgw.api.client import AdminClient

MAX_CALLS = 4
"""Calls under way at once; more wait their turn."""
MAX_LOG_LINE_BYTES = 64 * 1024
"""A longer line of a log comes in pieces."""

T = TypeVar("T")


class Admin:
    """One server's admin API for asyncio code."""

    def __init__(self, target: ServerTarget) -> None:
        self.target = target
        self._threads = ThreadPoolExecutor(MAX_CALLS, thread_name_prefix="admin")

    async def call(self, work: "Callable[[AdminClient], T]") -> T:
        """What `work` makes of a client, in a thread; raises ClientError with a sentence."""
        loop = asyncio.get_running_loop()
        # A connection a call: the client is not shared between threads.
        return await loop.run_in_executor(self._threads, lambda: work(self._client()))

    def _client(self) -> "AdminClient":
        # The standard library's HTTP client takes 20 ms to import: the first paint must not wait for it.
        from llmgw.api.client import AdminClient

        return AdminClient(self.target)

    @contextlib.asynccontextmanager
    async def logs(self, target: str, *, tail: int, follow: bool) -> AsyncIterator[AsyncIterator[bytes]]:
        """Lines of a replica's, a node's or the server's log; raises ClientError."""
        path = fill(action("cluster.logs").path, {"target": target})
        query: dict[str, str | int | bool | None] = {"tail": tail, "follow": follow or None}
        async with open_lines(self.target, path, query, max_line_bytes=MAX_LOG_LINE_BYTES) as lines:
            yield lines

    def close(self) -> None:
        """No further calls; those under way end by themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
