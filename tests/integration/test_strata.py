"""Strata's launcher over a stand-in of its setup and server: set up once, then served with key, name and card."""

import json
import uuid
from pathlib import Path

import msgspec
import pytest
import trio

from agent.config import AgentConfig
from agent.engines import known_engines
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState
from tests.integration.test_agent_node import ask
from tests.support.agent_site import Yard, yard
from tests.support.strata_stand_in import strata_stand_in


def spec(model: Path, *, shard_id: str = "r1/0", family: str = "qwen", context: int = 32768) -> ShardSpec:
    """One slot of a model in two files."""
    return ShardSpec(
        shard_id=shard_id,
        engine="strata",
        model="flash",
        source=f"file:{model}",
        card_uuids=["GPU-a"],
        memory_bytes=10**9,
        context_length=context,
        slots=1,
        args=["--family", family, "--model=IQ2_XS"],
    )


def calls(root: Path) -> list[dict[str, object]]:
    """What the setup was started with, each time."""
    return [json.loads(line) for line in (root / "calls.jsonl").read_text().splitlines()]


class Told(msgspec.Struct):
    """What the server says of itself, to whoever has its key."""

    config: dict[str, object]
    cards: str
    cwd: str
    path: str


async def told(node: Yard, shard_id: str) -> Told:
    """Ask the server of a shard, once it is ready."""
    status = await node.state(shard_id, ShardState.READY)
    code, answer = await trio.to_thread.run_sync(ask, f"{status.endpoint}/v1/config")
    assert code == 200
    return msgspec.json.decode(answer, type=Told)


@pytest.mark.trio
async def test_it_is_set_up_once_for_a_context_and_serves_on_its_card_with_its_key(tmp_path: Path) -> None:
    root = strata_stand_in(tmp_path / "strata")
    model = tmp_path / "weights" / "m-IQ2_XS-00001-of-00002.gguf"
    model.parent.mkdir()
    model.write_bytes(b"GGUF")
    engines = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"strata": str(root)}))
    async with yard(tmp_path / "data", cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(spec(model))
        found = await told(node, "r1/0")
        assert found.config == {"exe": "x", "args": ["--max-context", "32768"], "model_name": "flash"}
        assert found.cards == "GPU-a"
        assert found.cwd == str(root)
        assert found.path == ""
        (call,) = calls(root)
        assert call["names"] == []
        flags = call["argv"]
        assert isinstance(flags, list)
        assert flags[:4] == ["--setup", "--yes", "--no-start", "--no-browser"]
        assert flags[flags.index("--context") + 1] == "32768"
        assert flags[flags.index("--gguf-dir") + 1] == str(model.parent)
        assert flags[-4:] == ["--family", "qwen", "--model", "IQ2_XS"]
        node.start(spec(model, shard_id="r2/0"))
        await told(node, "r2/0")
        assert len(calls(root)) == 1
        node.start(spec(model, shard_id="r3/0", context=65536))
        assert (await told(node, "r3/0")).config["args"] == ["--max-context", "65536"]
        assert len(calls(root)) == 2


@pytest.mark.trio
async def test_a_setup_that_fails_is_said_in_its_own_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.restarts.FIRST_WAIT_S", 0.01)
    root = strata_stand_in(tmp_path / "strata")
    model = tmp_path / "m.gguf"
    model.write_bytes(b"GGUF")
    engines = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"strata": str(root)}))
    async with yard(tmp_path / "data", cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(spec(model, family="broken"))
        failed = await node.state("r1/0", ShardState.FAILED)
        assert "the engine could not be fetched" in failed.message
        assert "strata's setup ended with exit code 3" in failed.message
