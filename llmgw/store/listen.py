"""Notifications wake; they are never the only way to learn of something. After every gap comes a `resync`.

What is not yet taken is kept once a name, and as a single `resync` when there is too much of it: a slow consumer costs
bounded memory and misses nothing.
"""

import random
from collections.abc import Callable

import psycopg
import trio

from llmgw.store import pool
from llmgw.store.failures import describe
from llmgw.store.notify import RESYNC, Change, parse
from llmgw.store.sql import Conn, execute, load

BACKOFF_FIRST_S = 0.25
"""First wait after a lost connection; doubled each time, with jitter."""
BACKOFF_MAX_S = 15.0
"""Longest wait between attempts."""
MAX_PENDING = 256
"""Different changes kept for the consumer."""

_SQL = load("session")


class Listener:
    """A connection of its own that hears of changes. One task runs it, one task takes from it."""

    def __init__(self, conninfo: str, *, on_problem: Callable[[str], None] = lambda _: None) -> None:
        """`on_problem` is told in a sentence of every lost or refused connection."""
        self._conninfo = pool.with_defaults(conninfo)
        self._on_problem = on_problem
        self._pending: dict[Change, None] = {}
        self._wake = trio.Event()

    async def changes(self) -> frozenset[Change]:
        """What changed since the last call; waits until there is something."""
        while not self._pending:
            self._wake = trio.Event()
            await self._wake.wait()
        taken, self._pending = frozenset(self._pending), {}
        await trio.lowlevel.checkpoint()
        return taken

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen for ever. Started at once, whether or not the database is there: the consumer polls anyway."""
        task_status.started()
        failures = 0
        while True:
            try:
                conn = await trio.to_thread.run_sync(_connect, self._conninfo)
                try:
                    failures = 0
                    self._add(Change(topic=RESYNC))
                    await self._hear(conn)
                finally:
                    pool.discard(conn)
            except psycopg.Error as error:
                self._on_problem(f"listening for changes: the database is away: {describe(error)}")
            await trio.sleep(min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2**failures) * random.uniform(0.5, 1.0))
            failures = min(failures + 1, 10)

    async def _hear(self, conn: Conn) -> None:
        """Take notifications until the connection fails with psycopg.OperationalError."""
        while True:
            # Before waiting: a notification may have come along with an earlier answer.
            for notification in conn.notifies(timeout=0):
                self._add(parse(notification.payload))
            await trio.lowlevel.wait_readable(conn.fileno())

    def _add(self, change: Change) -> None:
        self._pending[change] = None
        if len(self._pending) > MAX_PENDING:
            self._pending = {Change(topic=RESYNC): None}
        self._wake.set()


def _connect(conninfo: str) -> Conn:
    conn = pool.connect(conninfo)
    try:
        execute(conn, _SQL["listen"])
    except BaseException:
        pool.discard(conn)
        raise
    return conn
