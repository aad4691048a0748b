"""An engine that has no page of metrics serves like any other, and what it works on stays unknown."""

import uuid
from pathlib import Path

import pytest

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.sim import Sim
from llmgw.wire.llmgw.v1 import ShardState
from tests.support.agent_node import sim_spec
from tests.support.agent_site import yard


class Silent(Sim):
    """The simulated engine, as one that says nothing of its load."""

    load_metrics = None  # type: ignore[assignment]  # what other adapters declare


@pytest.mark.trio
async def test_an_engine_without_metrics_is_ready_and_never_asked(tmp_path: Path) -> None:
    engines = {**known_engines(AgentConfig(data=str(tmp_path))), "sim": Silent()}
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(sim_spec())
        await node.state("r1/0", ShardState.READY)
        assert node.supervisor.serving() == []
    async with yard(tmp_path / "told", cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(sim_spec())
        await node.state("r1/0", ShardState.READY)
        assert [told.shard_id for told in node.supervisor.serving()] == ["r1/0"]
