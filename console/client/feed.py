"""The live feed: always connecting, connected or about to connect again, and always saying which.

Whatever comes goes into the store; whatever happens to the connection becomes a `Link`. A feed that is silent is lost
after STALE_AFTER_S and given up after GIVE_UP_S; what was heard stays, and the next connection resumes from it.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from console.client.streams import open_lines
from console.state.store import Link, Store
from llmgw.api.actions import action
from llmgw.api.problems import ClientError, Denied, Refused, Unreachable
from llmgw.api.targets import ServerTarget
from llmgw.api.watch import MAX_LINE_BYTES, STALE_AFTER_S, Message, Subscription

GIVE_UP_S = 6.0
"""A connection that says nothing for this long is closed and made anew; the server ticks every second."""
FIRST_RETRY_S = 0.25
LONGEST_RETRY_S = 5.0
"""Waits between attempts double from the first to the longest."""
DENIED_RETRY_S = 15.0
"""A refusal will not change by itself soon."""

_DECODER = msgspec.json.Decoder(Message)


class Feed:
    """Keeps a store up to date from one server. `run` does not end by itself."""

    def __init__(
        self, target: ServerTarget, store: Store, *, woken: Callable[[], None], clock: Callable[[], float] = time.time
    ) -> None:
        self.target = target
        self._store = store
        self._woken = woken
        """Called after the store changed."""
        self._clock = clock
        self._asked_at = 0.0
        self._heard_at = 0.0

    async def run(self) -> None:
        """Follow the feed for ever; cancel it to end."""
        wait_s = FIRST_RETRY_S
        while True:
            began = self._clock()
            try:
                await self._follow()
                error: ClientError = Unreachable(f"{self.target} ended the feed")
            except ClientError as raised:
                error = raised
            self._lost(error.message)
            if self._heard_at > began:
                wait_s = FIRST_RETRY_S
            pause_s = DENIED_RETRY_S if isinstance(error, Denied) else wait_s
            await asyncio.sleep(pause_s * random.uniform(0.75, 1.25))
            wait_s = min(2 * wait_s, LONGEST_RETRY_S)

    async def _follow(self) -> None:
        route = action("cluster.watch")
        self._asked_at = self._clock()
        asked = time.monotonic()
        async with open_lines(self.target, route.path, self._query(), max_line_bytes=MAX_LINE_BYTES) as lines:
            latency_s: float | None = None
            async for line in self._timely(lines):
                if latency_s is None:
                    latency_s = time.monotonic() - asked
                self._receive(line, latency_s)

    def _query(self) -> dict[str, str | int | bool | None]:
        state = self._store.state
        resume = state.heard and bool(state.epoch)
        asked = Subscription(epoch=state.epoch if resume else None, since=state.rev if resume else None)
        return dict(asked.query())

    async def _timely(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The lines, with the link said to be lost while none comes; raises Unreachable after GIVE_UP_S."""
        waiting: asyncio.Future[bytes | None] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(_next(lines))
                done, _ = await asyncio.wait({waiting}, timeout=STALE_AFTER_S)
                if not done:
                    self._lost(f"{self.target} has said nothing for {STALE_AFTER_S:g} s")
                    done, _ = await asyncio.wait({waiting}, timeout=GIVE_UP_S - STALE_AFTER_S)
                if not done:
                    raise Unreachable(f"{self.target} has said nothing for {GIVE_UP_S:g} s")
                line = waiting.result()
                if line is None:
                    return
                yield line
        finally:
            if waiting is not None and not waiting.done():
                waiting.cancel()
                with contextlib.suppress(asyncio.CancelledError, ClientError):
                    await waiting

    def _receive(self, line: bytes, latency_s: float) -> None:
        if not line:
            return
        try:
            message = _DECODER.decode(line)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Refused(f"{self.target} sent a line that is no message of the feed: {str(error)[:200]}") from error
        now = self._clock()
        self._heard_at = now
        self._store.receive(message, at=now)
        if not self._store.link.live:
            self._store.set_link(Link(state="live", since=now, latency_s=latency_s))
        self._woken()

    def _lost(self, reason: str) -> None:
        link = self._store.link
        heard = self._store.state.heard
        since = link.since if link.state == "lost" else self._heard_at or self._asked_at
        self._store.set_link(Link(state="lost" if heard else "connecting", since=since, reason=reason))
        self._woken()


async def _next(lines: AsyncIterator[bytes]) -> bytes | None:
    # A task cannot carry StopAsyncIteration: none is the end.
    return await anext(lines, None)
