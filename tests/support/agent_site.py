"""Shards inside the test's own trio run: real engines and files, no control plane."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import trio

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Engine
from agent.fetches import Fetches
from agent.journal import Journal
from agent.site import Site
from agent.state import Outbox
from agent.supervise import Supervisor
from llmgw.core.cluster import FetchProgress as CacheProgress
from llmgw.core.errors import LlmgwError
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    FetchProgress,
    ShardSpec,
    ShardState,
    ShardStatus,
    StartShard,
    StopShard,
)
from tests.support.agent_node import KEY, end_marked, free_ports

DEADLINE_S = 60.0


@dataclass(frozen=True, kw_only=True)
class FilesHere:
    """Weights that are a path on this machine."""

    path: Path


@dataclass(kw_only=True)
class LocalCache:
    """A cache whose sources are paths here; `refusal` makes every fetch fail with it."""

    refusal: LlmgwError | None = None
    phases: tuple[str, ...] = ("fetching", "checking")

    async def fetch(self, source: str, progress: Callable[[CacheProgress], None]) -> FilesHere:
        """The path after `file:`."""
        for phase in self.phases:
            progress(CacheProgress(phase=phase, done_bytes=1, total_bytes=2))
            await trio.lowlevel.checkpoint()
        if self.refusal is not None:
            raise self.refusal
        return FilesHere(path=Path(source.removeprefix("file:")))


@dataclass(kw_only=True)
class Yard:
    """A supervisor and all it said."""

    site: Site
    supervisor: Supervisor
    history: list[ShardStatus] = field(default_factory=list)
    progress: list[FetchProgress] = field(default_factory=list)
    heard: trio.Event = field(default_factory=trio.Event)

    def start(self, spec: ShardSpec, *, key: str = KEY) -> None:
        """Order a shard."""
        self.supervisor.start(StartShard(spec=spec, engine_key=key))

    def stop(self, shard_id: str, *, grace_s: float = 5.0) -> None:
        """Order its end."""
        self.supervisor.stop(StopShard(shard_id=shard_id, grace_s=grace_s, reason="test"))

    async def until(self, condition: Callable[[ShardStatus], bool]) -> ShardStatus:
        """The first thing said, now or later, that fulfils `condition`."""
        with trio.fail_after(DEADLINE_S):
            while True:
                for status in self.history:
                    if condition(status):
                        return status
                await self.heard.wait()

    async def state(self, shard_id: str, state: ShardState) -> ShardStatus:
        """The first time the shard said it was in `state`."""
        return await self.until(lambda status: status.shard_id == shard_id and status.state == state)

    def forget(self) -> None:
        """Look only at what is said from here on."""
        self.history.clear()

    async def hear(self, inbox: trio.MemoryReceiveChannel[AgentMessage], *, task_status: trio.TaskStatus[None]) -> None:
        """Take in what is said, for ever."""
        task_status.started()
        async for message in inbox:
            if message.shard_status is not None:
                self.history.append(message.shard_status)
            if message.fetch_progress is not None:
                self.progress.append(message.fetch_progress)
            self.heard.set()
            self.heard = trio.Event()


@contextlib.asynccontextmanager
async def yard(
    data: Path,
    *,
    cluster_id: str = "test-cluster",
    cache: LocalCache | None = None,
    ports: range | None = None,
    engines: Mapping[str, Engine] | None = None,
    keep_engines: bool = False,
    card_index: Callable[[str], int | None] = lambda _uuid: None,
    host: str = "127.0.0.1",
) -> AsyncIterator[Yard]:
    """A supervisor over `data`, which takes over what is there. Engines left at the end are killed unless kept.

    `host` is this node's address, at which engines listen.
    """
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox = Outbox(send)
    first, _, last = free_ports(60).partition("-")
    layout = AgentLayout(data=data)
    site = Site(
        layout=layout,
        cluster_id=cluster_id,
        node="n1",
        address=host,
        host=host,
        ports=ports or range(int(first), int(last) + 1),
        cpus=2,
        operator_env={},
        engines=engines or known_engines(AgentConfig(data=str(data))),
        fetches=Fetches(cache or LocalCache(), outbox),
        journal=Journal(layout.journal),
        outbox=outbox,
        card_index=card_index,
    )
    made = Yard(site=site, supervisor=Supervisor(site))
    try:
        await made.supervisor.take_over()
        async with trio.open_nursery() as nursery:
            await nursery.start(made.hear, inbox)
            await nursery.start(_run, outbox)
            await nursery.start(_run, made.supervisor)
            yield made
            nursery.cancel_scope.cancel()
    finally:
        if not keep_engines:
            end_marked(cluster_id)


async def _run(service: Outbox | Supervisor, *, task_status: trio.TaskStatus[None]) -> None:
    await service.run(task_status=task_status)
