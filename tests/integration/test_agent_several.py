"""One of several shards on a node: it waits for the others, joins where it is told, and never starts again alone."""

import os
import signal
import uuid
from pathlib import Path

import pytest

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Engine
from agent.process import marked_processes
from agent.shared import shared_directory
from llmgw.wire.llmgw.v1 import RallyShard, ShardPlace, ShardSpec, ShardState
from tests.support import ray_standin
from tests.support.agent_site import Yard, yard

pytestmark = pytest.mark.trio

CARDS = {"GPU-n1-0": 0, "GPU-n1-1": 1}


@pytest.fixture
def engines(tmp_path: Path) -> dict[str, Engine]:
    root = ray_standin.install(tmp_path / "environment")
    return known_engines(AgentConfig(data=str(tmp_path), engine_paths={"vllm": str(root)}))


def shards(tmp_path: Path) -> tuple[ShardSpec, ShardSpec]:
    """A head and its worker, which here are on the same machine."""
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    replica = f"r-{uuid.uuid4().hex[:8]}"
    places = [
        ShardPlace(node=f"n{rank}", address=f"127.0.0.{rank + 1}", card_uuids=[uuid]) for rank, uuid in enumerate(CARDS)
    ]

    def spec(rank: int) -> ShardSpec:
        return ShardSpec(
            shard_id=f"{replica}/{rank}",
            replica_id=replica,
            model="org/m",
            engine="vllm",
            source=f"file:{weights}",
            context_length=1024,
            slots=2,
            tp=1,
            pp=2,
            rank=rank,
            places=places,
            card_uuids=places[rank].card_uuids,
        )

    return spec(0), spec(1)


async def both_ready(node: Yard, head: ShardSpec, worker: ShardSpec) -> tuple[int, int]:
    """Take a replica to where it serves; the pids of its shards."""
    for spec in (head, worker):
        node.start(spec)
    for spec in (head, worker):
        await node.until(lambda s, spec=spec: s.shard_id == spec.shard_id and s.prepared)  # type: ignore[misc]
    node.supervisor.rally(RallyShard(shard_id=head.shard_id))
    up = await node.until(lambda s: s.shard_id == head.shard_id and s.runtime_port > 0)
    node.supervisor.rally(RallyShard(shard_id=worker.shard_id, head=f"127.0.0.1:{up.runtime_port}"))
    first, second = (
        await node.state(head.shard_id, ShardState.READY),
        await node.state(worker.shard_id, ShardState.READY),
    )
    assert first.endpoint
    assert not second.endpoint
    return first.pid, second.pid


async def test_it_waits_until_it_is_told_and_holds_no_port_meanwhile(
    tmp_path: Path, engines: dict[str, Engine]
) -> None:
    head, _ = shards(tmp_path)
    async with yard(tmp_path / "node", cluster_id=uuid.uuid4().hex, engines=engines, card_index=CARDS.get) as node:
        node.start(head)
        waiting = await node.until(lambda s: s.prepared)
        assert (waiting.state, waiting.pid, waiting.endpoint) == (ShardState.STARTING, 0, "")
        assert "waits for the other shards" in waiting.message
        assert node.site.ports_in_use == set()
        node.stop(head.shard_id)
        await node.state(head.shard_id, ShardState.STOPPED)


async def test_shards_that_come_together_serve_and_end_without_a_trace(
    tmp_path: Path, engines: dict[str, Engine]
) -> None:
    head, worker = shards(tmp_path)
    async with yard(tmp_path / "node", cluster_id=uuid.uuid4().hex, engines=engines, card_index=CARDS.get) as node:
        await both_ready(node, head, worker)
        assert [serving.shard_id for serving in node.supervisor.serving()] == [head.shard_id]
        assert shared_directory(head.replica_id).is_dir()
        for spec in (head, worker):
            node.stop(spec.shard_id)
        for spec in (head, worker):
            await node.state(spec.shard_id, ShardState.STOPPED)
        assert not shared_directory(head.replica_id).exists()
        assert not [mark for _, mark, _ in marked_processes() if head.replica_id in mark]
        assert node.site.ports_in_use == set()


async def test_a_worker_that_dies_is_not_started_again_alone(tmp_path: Path, engines: dict[str, Engine]) -> None:
    head, worker = shards(tmp_path)
    async with yard(tmp_path / "node", cluster_id=uuid.uuid4().hex, engines=engines, card_index=CARDS.get) as node:
        _, pid = await both_ready(node, head, worker)
        os.kill(pid, signal.SIGKILL)
        failed = await node.state(worker.shard_id, ShardState.FAILED)
        assert "signal SIGKILL" in failed.message
        assert failed.restarts == 0
        failed = await node.state(head.shard_id, ShardState.FAILED)
        assert "a card is gone" in failed.message
        assert not [mark for _, mark, _ in marked_processes() if head.replica_id in mark]


async def test_a_card_that_is_no_whole_one_is_refused(tmp_path: Path, engines: dict[str, Engine]) -> None:
    head, _ = shards(tmp_path)
    async with yard(tmp_path / "node", cluster_id=uuid.uuid4().hex, engines=engines) as node:
        node.start(head)
        await node.until(lambda s: s.prepared)
        node.supervisor.rally(RallyShard(shard_id=head.shard_id))
        failed = await node.state(head.shard_id, ShardState.FAILED)
        assert "GPU-n1-0 is no whole card of this node" in failed.message
