"""The one way to the database: a function and its arguments go to a thread, in a transaction, and come back or do not.

At most `size` are under way; the rest wait, cancellably. Cancelling a call ends its statement in the database before
the cancellation passes on, and nothing of it is committed unless it was already. A dead database makes calls fail
within seconds and is used again as soon as it is back.
"""

import threading
import time
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar

import msgspec
import psycopg
import trio

from llmgw.core.errors import Unavailable
from llmgw.store import leadership, migrations
from llmgw.store.failures import translate
from llmgw.store.pool import IDLE_IN_TRANSACTION_S, STATEMENT_TIMEOUT_S, Pool, discard, sever, where
from llmgw.store.sql import Conn, execute, load

SIZE = 8
"""Calls at once, and connections."""
CALL_DEADLINE_S = float(STATEMENT_TIMEOUT_S + IDLE_IN_TRANSACTION_S)
"""A call that takes longer than the database would allow one statement has met a database that no longer speaks."""
MIGRATION_DEADLINE_S = 3600.0
"""Migrations may rewrite large tables."""
CANCEL_REPEAT_S = 0.25
"""A cancellation may reach the database between two statements; it is repeated until the call has ended."""
SEVER_AFTER_S = 5.0
"""A cancelled call that has not ended by then loses its connection."""

P = ParamSpec("P")
T = TypeVar("T")

_SQL = load("session")


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """How the database was last found."""

    ok: bool
    message: str = ""
    """Why not, in a sentence."""
    since: float = 0.0
    """Monotonic seconds when it became so."""


class Store:
    """Transactions in threads. Made by `open`, ended by `aclose`."""

    def __init__(self, conninfo: str, *, size: int = SIZE) -> None:
        self._pool = Pool(conninfo)
        self._limiter = trio.CapacityLimiter(size)
        self._threads = trio.CapacityLimiter(size)
        self._cancel_threads = trio.CapacityLimiter(size)
        self._health = Health(ok=True, since=time.monotonic())
        self._size = size
        self._closed = False

    @classmethod
    async def open(cls, conninfo: str, *, size: int = SIZE) -> "Store":
        """A store on that database, which need not be there yet; raises InvalidInput for a malformed string."""
        await trio.lowlevel.checkpoint()
        return cls(conninfo, size=size)

    async def aclose(self) -> None:
        """Refuse new calls, wait for those under way, then close every connection."""
        self._closed = True
        seats = [object() for _ in range(self._size)]
        with trio.CancelScope(shield=True):
            for seat in seats:
                await self._limiter.acquire_on_behalf_of(seat)
        for seat in seats:
            self._limiter.release_on_behalf_of(seat)
        self._pool.close()

    @property
    def health(self) -> Health:
        """How the last call found the database."""
        return self._health

    @property
    def where(self) -> str:
        """Host and database, never a password."""
        return where(self._pool.conninfo)

    async def run(self, fn: Callable[Concatenate[Conn, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`fn(conn, *args, **kwargs)` in a transaction of its own, in a thread; its result once it is committed.

        What `fn` raises rolls back and passes on. Raises Unavailable while the database is away or too slow (after a
        lost connection a commit may have happened), Conflict for a simultaneous change.
        """
        return await self._call(_Call(self._pool, lambda conn: fn(conn, *args, **kwargs)), CALL_DEADLINE_S)

    async def lead(self, epoch: int, fn: Callable[Concatenate[Conn, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """`run` for the leader's writes: refused with StaleLease unless `epoch` is valid until the commit."""

        def fenced(conn: Conn) -> T:
            leadership.fence(conn, epoch)
            return fn(conn, *args, **kwargs)

        return await self._call(_Call(self._pool, fenced), CALL_DEADLINE_S)

    async def migrate(self) -> tuple[int, ...]:
        """Bring the schema up to date (see `migrations.migrate`); answers the versions applied now."""
        return await self._call(_Call(self._pool, migrations.migrate), MIGRATION_DEADLINE_S)

    async def ping(self) -> None:
        """One round trip; raises Unavailable."""
        await self.run(execute, _SQL["ping"])

    async def _call(self, call: "_Call[T]", deadline_s: float) -> T:
        async with self._limiter:
            if self._closed:
                raise Unavailable("the server is stopping: it uses the database no more")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guard, call, deadline_s)
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(call.run, limiter=self._threads)
                call.ended.set()
                nursery.cancel_scope.cancel()
            await trio.lowlevel.checkpoint_if_cancelled()
        self._note(call.error)
        return call.result()

    async def _guard(self, call: "_Call[T]", deadline_s: float) -> None:
        """End the call when it is cancelled, or at its deadline."""
        try:
            await trio.sleep(deadline_s)
        finally:
            if not call.ended.is_set():
                with trio.CancelScope(shield=True):
                    await self._end(call)

    async def _end(self, call: "_Call[T]") -> None:
        begin = trio.current_time()
        while not call.ended.is_set():
            way = call.cancel if trio.current_time() - begin < SEVER_AFTER_S else call.sever
            await trio.to_thread.run_sync(way, limiter=self._cancel_threads)
            with trio.move_on_after(CANCEL_REPEAT_S):
                await call.ended.wait()

    def _note(self, error: BaseException | None) -> None:
        away = error.message if isinstance(error, Unavailable) else ""
        if (away == "") != self._health.ok:
            self._health = Health(ok=away == "", message=away, since=time.monotonic())
        elif away:
            self._health = Health(ok=False, message=away, since=self._health.since)


class _Call(Generic[T]):
    """One function on its way through a thread."""

    def __init__(self, pool: Pool, fn: Callable[[Conn], T]) -> None:
        self.ended = trio.Event()
        self.error: BaseException | None = None
        self._pool = pool
        self._fn = fn
        self._results: list[T] = []
        # Held while the connection is changed or acted upon: a cancellation never meets the next call's statement.
        self._lock = threading.Lock()
        self._conn: Conn | None = None
        self._stopped = False

    def result(self) -> T:
        """What the function returned; raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._results[0]

    def run(self) -> None:
        """In a worker thread: all of it, keeping the outcome."""
        try:
            self._results.append(self._run())
        except (psycopg.Error, UnicodeEncodeError) as error:
            self.error = error
            meaning = translate(error)
            if meaning is not None:
                meaning.__cause__ = error
                self.error = meaning
        except BaseException as error:  # a supervised border: the outcome passes on in the calling task
            self.error = error

    def cancel(self) -> None:
        """In another thread: ask the database to stop the statement."""
        with self._lock:
            self._stopped = True
            if self._conn is not None:
                # Whether or not the request arrives, the caller repeats it and then severs the connection.
                try:
                    self._conn.cancel_safe(timeout=1.0)
                except psycopg.Error:
                    return

    def sever(self) -> None:
        """In another thread: end the connection without asking."""
        with self._lock:
            self._stopped = True
            if self._conn is not None:
                sever(self._conn)

    def _run(self) -> T:
        conn = self._pool.take()
        with self._lock:
            if not self._stopped:
                self._conn = conn
        if self._conn is None:
            self._pool.give(conn)
            raise Unavailable("the call was stopped before it began")
        try:
            with conn.transaction():
                return self._fn(conn)
        finally:
            with self._lock:
                self._conn = None
            if self._stopped:
                discard(conn)
            else:
                self._pool.give(conn)
