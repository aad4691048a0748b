"""One reader of the live feed: lines as it takes them, at most so many a second, a tick when nothing happens."""

import time
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

from llmgw.api.watch import TICK_S, Message, Tick
from llmgw.control.live_table import Cursor, LiveTable

_encoder = msgspec.json.Encoder()


class Reader(AsyncIterator[bytes]):
    """Messages as lines of JSON. The next one is made when it is asked for, so none ever waits."""

    def __init__(
        self,
        table: LiveTable,
        cursor: Cursor,
        *,
        interval_s: float,
        actor: str,
        role: str,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._table = table
        self._cursor = cursor
        self._interval_s = interval_s
        self._actor = actor
        self._role = role
        self._wall = wall
        self._began = False
        self._said_at = 0.0
        self._rows_at = 0.0

    async def __anext__(self) -> bytes:
        """The next message and its newline; comes within TICK_S of the one before."""
        await trio.lowlevel.checkpoint()
        message = self._first() if not self._began else await self._next()
        self._said_at = trio.current_time()
        if message is None:
            message = Tick(rev=self._cursor.rev, now=self._now())
        else:
            self._rows_at = self._said_at
        return _encoder.encode(message) + b"\n"

    def _first(self) -> Message:
        self._began = True
        return self._cursor.first(now=self._now(), actor=self._actor, role=self._role)

    async def _next(self) -> Message | None:
        ready_at = self._rows_at + self._interval_s
        if trio.current_time() >= ready_at and (message := self._take()) is not None:
            # Before any waiting: a reader so slow that a tick is due again would else get ticks only.
            return message
        with trio.move_on_at(self._said_at + TICK_S):
            await trio.sleep_until(ready_at)
            while (message := self._take()) is None:
                await self._table.changed.wait()
            return message
        return None

    def _take(self) -> Message | None:
        return self._cursor.take(now=self._now(), actor=self._actor, role=self._role)

    def _now(self) -> float:
        return round(self._wall(), 3)
