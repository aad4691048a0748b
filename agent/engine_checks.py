"""Checks of engines on request: one engine at a time, since a help imports as much as a start, and in a thread."""

import logging
from collections.abc import Mapping

import trio

from agent.engines.base import Engine
from agent.engines.check import check
from llmgw.core.engine_checks import EngineCheck
from llmgw.wire.llmgw.v1 import AgentMessage, CheckEngines, EngineChecked

log = logging.getLogger("agent.engine_checks")

MAX_REQUESTS = 4
"""Requests that wait or are answered at once; more are refused."""


class CheckDesk:
    """Answers requests in their order. A new connection ends all of them: whoever asked is on another one."""

    def __init__(self, engines: Mapping[str, Engine], outbound: trio.MemorySendChannel[AgentMessage]) -> None:
        self._engines = engines
        self._outbound = outbound
        self._turn = trio.Lock()
        self._threads = trio.CapacityLimiter(1)
        """Of a request that was given up the help still runs in its thread: the next one waits for that too."""
        self._scopes: set[trio.CancelScope] = set()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests, for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def request(self, order: CheckEngines) -> None:
        """Begin to answer."""
        if self._nursery is None:
            return
        if len(self._scopes) >= MAX_REQUESTS:
            why = f"{MAX_REQUESTS} checks are under way already"
            self._nursery.start_soon(self._refuse, order.request_id, why)
            return
        scope = trio.CancelScope()
        self._scopes.add(scope)
        self._nursery.start_soon(self._answer, order, scope)

    def cancel_all(self) -> None:
        """End every request; a help that runs is left to end by itself."""
        for scope in self._scopes:
            scope.cancel()
        self._scopes.clear()

    async def _answer(self, order: CheckEngines, scope: trio.CancelScope) -> None:
        try:
            with scope:
                if order.engine and order.engine not in self._engines:
                    known = ", ".join(self._engines)
                    await self._refuse(order.request_id, f"{order.engine[:80]!r} is not one of {known}")
                    return
                async with self._turn:
                    await self._check(order)
        finally:
            self._scopes.discard(scope)

    async def _check(self, order: CheckEngines) -> None:
        names = [order.engine] if order.engine else list(self._engines)
        for name in names:
            try:
                found = await trio.to_thread.run_sync(
                    check, self._engines[name], abandon_on_cancel=True, limiter=self._threads
                )
            except Exception as error:
                # A supervised border: what an adapter did not foresee of a foreign engine ends no agent.
                log.exception("An engine could not be checked", extra={"engine": name})
                found = EngineCheck(engine=name, failed=f"{type(error).__name__}: {error}")
            log.info("%s", found.said(), extra={"engine": name})
            message = message_of(found, request_id=order.request_id, end=name == names[-1])
            await self._outbound.send(AgentMessage(engine_checked=message))

    async def _refuse(self, request_id: str, why: str) -> None:
        await self._outbound.send(
            AgentMessage(engine_checked=EngineChecked(request_id=request_id, failed=why, end=True))
        )


def message_of(found: EngineCheck, *, request_id: str, end: bool) -> EngineChecked:
    """What was found, in the protocol's words."""
    return EngineChecked(
        request_id=request_id,
        engine=found.engine,
        version=found.version,
        installed=found.installed,
        written=found.written,
        allowed=found.allowed,
        unknown_written=list(found.unknown_written),
        unknown_allowed=list(found.unknown_allowed),
        failed=found.failed,
        end=end,
    )
