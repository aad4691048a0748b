"""`keys`, `scopes` and `audit` of the live feed, from the store: read when a change is told, and by time meanwhile."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

import msgspec
import trio

from llmgw.control.live_rows import audit_rows, key_rows, scope_rows
from llmgw.control.live_table import LiveTable
from llmgw.core.errors import LlmgwError
from llmgw.store import audit as stored_audit
from llmgw.store import keys as stored_keys
from llmgw.store import scopes as stored_scopes
from llmgw.store.sql import Conn
from llmgw.store.store import Store

AUDIT_ROWS = 200
"""Newest entries shown."""
POLL_S = 5.0
"""Read again this often: sums of usage move without a word, and a notification may be lost."""
GAP_S = 0.3
"""Least time between two readings of a topic."""
PATIENCE_S = 1.0
"""A new reader waits this long for the first reading; what comes later comes as a delta."""

log = logging.getLogger(__name__)


class StoredRows:
    """Keeps the stored topics of a table equal to the store."""

    def __init__(self, store: Store, table: LiveTable) -> None:
        self._store = store
        self._table = table
        self._readers: Counter[str] = Counter()
        self._wake: dict[str, trio.Event] = {topic: trio.Event() for topic in LOADERS}
        self._loaded: dict[str, trio.Event] = {topic: trio.Event() for topic in LOADERS}

    def changed(self) -> None:
        """Something was written, here or by another server."""
        for event in self._wake.values():
            event.set()

    async def begin(self, topics: Iterable[str]) -> None:
        """A reader comes: its stored topics are read, or PATIENCE_S was waited for it. Count it out with `end`."""
        mine = [topic for topic in topics if topic in LOADERS]
        for topic in mine:
            self._readers[topic] += 1
            self._wake[topic].set()
        with trio.move_on_after(PATIENCE_S):
            for topic in mine:
                await self._loaded[topic].wait()

    def end(self, topics: Iterable[str]) -> None:
        """A reader that began is gone."""
        for topic in topics:
            if topic in LOADERS:
                self._readers[topic] -= 1
                if not self._readers[topic]:
                    self._loaded[topic] = trio.Event()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read what is read by somebody, until cancelled."""
        async with trio.open_nursery() as nursery:
            for topic in LOADERS:
                nursery.start_soon(self._follow, topic)
            task_status.started()

    async def _follow(self, topic: str) -> None:
        while True:
            if self._readers[topic]:
                await self._read(topic)
                await trio.sleep(GAP_S)
            with trio.move_on_after(POLL_S if self._readers[topic] else math.inf):
                await self._wake[topic].wait()
            self._wake[topic] = trio.Event()

    async def _read(self, topic: str) -> None:
        loaded = self._loaded[topic]
        try:
            rows = await self._store.run(LOADERS[topic])
        except LlmgwError as error:
            # The store's state is a problem of the cluster row; the rows stay as they were.
            log.debug("%s could not be read for the live feed: %s", topic, error.message)
            return
        self._table.publish(topic, rows)
        self._table.announce()
        loaded.set()


def _load_keys(conn: Conn) -> Mapping[str, msgspec.Struct]:
    return key_rows(stored_keys.list_keys(conn))


def _load_scopes(conn: Conn) -> Mapping[str, msgspec.Struct]:
    return scope_rows(stored_scopes.list_scopes(conn))


def _load_audit(conn: Conn) -> Mapping[str, msgspec.Struct]:
    return audit_rows(stored_audit.entries(conn, limit=AUDIT_ROWS))


LOADERS: dict[str, Callable[[Conn], Mapping[str, msgspec.Struct]]] = {
    "keys": _load_keys,
    "scopes": _load_scopes,
    "audit": _load_audit,
}
"""Topic → its rows; runs in the store's thread."""
