"""Orders from the control plane, each handed to the service that carries it out; none of them waits here."""

import logging
from collections.abc import Callable

import trio

from agent.engine_checks import CheckDesk
from agent.fetches import Fetches
from agent.logs import LogDesk
from agent.provision.service import Provisions
from agent.supervise import Supervisor
from llmgw.wire.llmgw.v1 import ServerMessage

log = logging.getLogger("agent.orders")

MAX_PREFETCHES = 16
"""Sources fetched ahead of need at one time; more orders are dropped, and shards fetch what they need anyway."""


class Orders:
    """Reads the link's inbound channel."""

    def __init__(
        self,
        inbound: trio.MemoryReceiveChannel[ServerMessage],
        *,
        supervisor: Supervisor,
        logs: LogDesk,
        checks: CheckDesk,
        fetches: Fetches,
        provisions: Provisions,
        welcomed: Callable[[], None],
        sample_soon: Callable[[], None],
    ) -> None:
        """`welcomed` is called whenever a new stream is open, `sample_soon` when somebody looks at the node."""
        self._inbound = inbound
        self._supervisor = supervisor
        self._logs = logs
        self._checks = checks
        self._fetches = fetches
        self._provisions = provisions
        self._welcomed = welcomed
        self._sample_soon = sample_soon
        self._prefetching: set[str] = set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Carry out orders, for ever."""
        async with trio.open_nursery() as nursery:
            task_status.started()
            async for message in self._inbound:
                self._carry_out(message, nursery)
            await trio.sleep_forever()

    def _carry_out(self, message: ServerMessage, nursery: trio.Nursery) -> None:
        if message.welcome is not None:
            self._logs.cancel_all()
            self._checks.cancel_all()
            self._supervisor.report_all()
            self._welcomed()
        elif message.start_shard is not None:
            self._supervisor.start(message.start_shard)
        elif message.stop_shard is not None:
            self._supervisor.stop(message.stop_shard)
        elif message.drain_shard is not None:
            self._supervisor.drain(message.drain_shard)
        elif message.rally_shard is not None:
            self._supervisor.rally(message.rally_shard)
        elif message.log_request is not None:
            self._logs.request(message.log_request)
        elif message.log_cancel is not None:
            self._logs.cancel(message.log_cancel)
        elif message.check_engines is not None:
            self._checks.request(message.check_engines)
        elif message.set_builds is not None:
            self._provisions.ask({build.engine: build.version for build in message.set_builds.builds})
        elif message.take_sample is not None:
            self._sample_soon()
        elif message.fetch_source is not None:
            self._prefetch(message.fetch_source.source, nursery)
        else:
            log.info("An order this version does not know is left alone")

    def _prefetch(self, source: str, nursery: trio.Nursery) -> None:
        if source and source not in self._prefetching and len(self._prefetching) < MAX_PREFETCHES:
            self._prefetching.add(source)
            nursery.start_soon(self._fetch_ahead, source)

    async def _fetch_ahead(self, source: str) -> None:
        try:
            await self._fetches.prefetch(source)
        finally:
            self._prefetching.discard(source)
