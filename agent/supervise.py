"""The node's shards: orders reach them by id, each lives in a task of its own, and one shard's trouble is only its own.

An order for a shard that is known is answered with its state, so orders may be repeated; an order for one that is not
known any more is answered with `stopped`.
"""

import logging
import shutil

import trio

from agent.adoption import end_orphans, take_stock
from agent.journal import file_name, shard_directories
from agent.loads import Serving
from agent.output import rotate_if_long
from agent.shard import Shard
from agent.site import Site
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import DrainShard, RallyShard, ShardState, ShardStatus, StartShard, StopShard

log = logging.getLogger("agent.supervise")

ROTATE_EVERY_S = 5.0
"""How often output files are looked at."""
KEPT_DIRECTORIES = 20
"""Directories of shards that ended, kept for their output."""
MAX_SHARDS = 256
"""Shards a node takes; more are refused."""


class Supervisor:
    """All shards of this node."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._shards: dict[str, Shard] = {}
        self._nursery: trio.Nursery | None = None
        self._stopping = False
        self._changed = trio.Event()
        self.problems: tuple[str, ...] = ()
        """Sentences on what could not be taken over."""

    def statuses(self, *, with_spec: bool = False) -> list[ShardStatus]:
        """Every shard's state, with its spec as Hello wants it."""
        return [shard.status(with_spec=with_spec) for shard in self._shards.values()]

    def serving(self) -> list[Serving]:
        """Every engine that is ready."""
        return [serving for shard in self._shards.values() if (serving := shard.serving()) is not None]

    def report_all(self) -> None:
        """Tell every shard's state anew: what happened while a stream was being opened may have been told to nobody."""
        for status in self.statuses():
            self._site.outbox.shard(status)

    async def take_over(self) -> None:
        """Find what an earlier agent left: take over engines, end orphans, remember what is gone. Before `run()`."""
        site = self._site
        findings = await trio.to_thread.run_sync(
            lambda: take_stock(site.journal, cluster_id=site.cluster_id, node=site.node)
        )
        self.problems = findings.problems
        for survivor in findings.survivors:
            shard = Shard.adopted(site, survivor.entry, survivor.process, key=survivor.key)
            self._shards[shard.id] = shard
            log.info("Taking over shard %s", shard.id, extra={"shard": shard.id, "engine_pid": survivor.process.pid})
        await end_orphans(findings.orphans)
        for casualty in findings.casualties:
            shard = Shard.lost(site, casualty.entry, casualty.why)
            self._shards[shard.id] = shard
            site.journal.remove(shard.id)
            log.warning("Shard %s is lost: %s", shard.id, casualty.why, extra={"shard": shard.id})

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Let all shards live, for ever. Cancelled, it leaves the engines running."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            for shard in list(self._shards.values()):
                nursery.start_soon(self._live, shard)
            nursery.start_soon(self._keep_house)
            task_status.started()
            await trio.sleep_forever()

    def start(self, order: StartShard) -> None:
        """Start a shard; one that is known reports its state instead."""
        spec = order.spec
        if spec is None or self._nursery is None or self._stopping:
            return
        known = self._shards.get(spec.shard_id)
        if known is not None:
            self._site.outbox.shard(known.status())
            return
        try:
            file_name(spec.shard_id)
            if len(self._shards) >= MAX_SHARDS:
                raise InvalidInput(f"this node has {MAX_SHARDS} shards already", field="shard_id")
        except InvalidInput as error:
            status = ShardStatus(shard_id=spec.shard_id[:200], state=ShardState.FAILED, message=error.message)
            self._site.outbox.shard(status)
            return
        shard = Shard(self._site, spec, key=order.engine_key)
        self._shards[shard.id] = shard
        self._site.outbox.shard(shard.status())
        self._nursery.start_soon(self._live, shard)

    def stop(self, order: StopShard) -> None:
        """Stop a shard; one that is not known is reported as stopped."""
        shard = self._shards.get(order.shard_id)
        if shard is None:
            self._site.outbox.shard(ShardStatus(shard_id=order.shard_id, state=ShardState.STOPPED))
        else:
            shard.stop(grace_s=order.grace_s, reason=order.reason)

    def drain(self, order: DrainShard) -> None:
        """Drain a shard; one that is not known is reported as stopped."""
        shard = self._shards.get(order.shard_id)
        if shard is None:
            self._site.outbox.shard(ShardStatus(shard_id=order.shard_id, state=ShardState.STOPPED))
        else:
            shard.drain(deadline_s=order.deadline_s, reason=order.reason)

    def rally(self, order: RallyShard) -> None:
        """Let a shard that waits for the others go on; one that is not known is reported as stopped."""
        shard = self._shards.get(order.shard_id)
        if shard is None:
            self._site.outbox.shard(ShardStatus(shard_id=order.shard_id, state=ShardState.STOPPED))
        else:
            shard.rally(order.head)

    async def stop_all(self, *, grace_s: float, reason: str) -> None:
        """End every engine and return when all have ended. Nothing can be started any more."""
        self._stopping = True
        for shard in self._shards.values():
            shard.stop(grace_s=grace_s, reason=reason)
        while self._shards:
            await self._changed.wait()

    async def _live(self, shard: Shard) -> None:
        await shard.run()
        del self._shards[shard.id]
        self._changed.set()
        self._changed = trio.Event()

    async def _keep_house(self) -> None:
        """Keep output files short and the directories of past shards few."""
        while True:
            await trio.sleep(ROTATE_EVERY_S)
            living = {file_name(shard_id) for shard_id in self._shards}
            await trio.to_thread.run_sync(self._tidy, living)

    def _tidy(self, living: set[str]) -> None:
        directories = list(shard_directories(self._site.layout.shards))
        try:
            for directory in directories:
                rotate_if_long(directory / "output.log")
            past = [directory for directory in directories if directory.name not in living]
            past.sort(key=lambda directory: directory.stat().st_mtime, reverse=True)
            for directory in past[KEPT_DIRECTORIES:]:
                shutil.rmtree(directory, ignore_errors=True)
        except OSError as error:
            log.warning("Output files could not be tidied: %s", error)
