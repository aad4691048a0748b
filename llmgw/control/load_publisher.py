"""Routers hear what engines say of their work: what changed, once a second at most, and what is not known any more.

A server that does not lead hears of no node: within LOAD_HOLDS_S its routers know no load, and go by what they count.
"""

from collections.abc import Callable

import trio

from llmgw.control.feed import FeedServer
from llmgw.control.loads import LoadBook
from llmgw.core.figures import LOAD_TOLD_EVERY_S
from llmgw.core.routing import ReplicaLoad

PUBLISH_EVERY_S = 1.0
"""Routers are told at most this often."""


class LoadPublisher:
    """Tells routers what changed, once a second at most; and that nothing did, so that they know it still holds."""

    def __init__(self, book: LoadBook, feed: FeedServer, *, wall: Callable[[], float]) -> None:
        """`wall` gives Unix seconds."""
        self._book = book
        self._feed = feed
        self._wall = wall

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Publish for ever."""
        task_status.started()
        published_at = float("-inf")
        while True:
            now = trio.current_time()
            if self._feed.loads.change(self.routed(now)) or now - published_at >= LOAD_TOLD_EVERY_S:
                published_at = now
                self._feed.publish_loads()
            await trio.sleep(PUBLISH_EVERY_S)

    def routed(self, now: float) -> dict[str, ReplicaLoad]:
        """What routers are to know at `now`, by the monotonic clock."""
        offset = self._wall() - now
        return {
            replica_id: ReplicaLoad(
                running=said.load.running,
                waiting=said.load.waiting,
                slots=said.load.slots,
                kv_used=said.load.kv_used,
                at=round(said.at + offset, 1),
            )
            for replica_id, said in self._book.all().items()
        }
