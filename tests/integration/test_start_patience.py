"""How long a start may take: longer for memory that has to be filled, on cards and beside them."""

import uuid
from pathlib import Path

import pytest

from llmgw.wire.llmgw.v1 import ShardState
from tests.support.agent_node import sim_spec
from tests.support.agent_site import yard


@pytest.mark.trio
async def test_memory_beside_cards_is_waited_for_like_memory_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.probing.START_TIMEOUT_S", 0.2)
    monkeypatch.setattr("agent.probing.SLOW_DISK_BYTES_PER_S", 1)
    monkeypatch.setattr("agent.restarts.FIRST_WAIT_S", 0.01)
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(sim_spec(args=("--start-delay", "1.5")))
        impatient = await node.until(lambda status: status.restarts == 1)
        assert "not ready within 0 s" in impatient.message
        node.stop("r1/0")
        await node.state("r1/0", ShardState.STOPPED)
        node.forget()
        patient = sim_spec(args=("--start-delay", "1.5"))
        patient.host_bytes = 60
        node.start(patient)
        ready = await node.state("r1/0", ShardState.READY)
        assert ready.restarts == 0
