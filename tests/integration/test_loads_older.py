"""Loads between versions: an agent or a control plane that never heard of them goes on with one that has."""

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from llmgw.core.cluster import ShardState
from llmgw.core.routing import LoadTable
from llmgw.core.wire_limits import decode
from llmgw.wire.llmgw import v1 as wire
from tests.integration.test_feed_follow import Cluster, cluster, follower
from tests.integration.test_loads_feed import control
from tests.support.agent_node import ROOT
from tests.support.agentport import enrolled, linked, make_port, running
from tests.support.builders import a_replica
from tests.support.waiting import DEADLINE_S, until

__all__ = ["cluster"]


@pytest.mark.trio
async def test_an_older_agent_says_nothing_of_loads_and_nothing_is_made_up(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what agents said before there were loads, and one thing more that nobody here knows."""
    port = make_port(tmp_path / "server")
    monkeypatch.setattr("llmgw.control.load_publisher.PUBLISH_EVERY_S", 0.01)
    monkeypatch.setattr("llmgw.control.load_publisher.LOAD_TOLD_EVERY_S", 0.01)
    async with (
        cluster.up(),
        running(port),
        control(port, cluster) as inventory,
        follower(cluster.layout) as (state, _),
        linked(enrolled(port, tmp_path / "n1")) as agent,
    ):
        tables: list[LoadTable] = []
        monkeypatch.setattr(state, "apply_loads", tables.append)
        await until(lambda: inventory.is_connected("n1"))
        inventory.ordered(a_replica(id="r1", node="n1", state=ShardState.PENDING))
        status = wire.ShardStatus(shard_id="r1/0", state=wire.ShardState.READY, endpoint="http://127.0.0.1:9")
        await agent.say.send(wire.AgentMessage())
        await agent.say.send(wire.AgentMessage(sensors=wire.Sensors(cpu_percent=3.0)))
        await agent.say.send(wire.AgentMessage(shard_status=status))
        await until(lambda: (r := inventory.replica("r1")) is not None and r.state is ShardState.READY)
        tables.clear()
        with trio.fail_after(DEADLINE_S):
            await until(lambda: len(tables) >= 3)
        assert {len(table.loads) for table in tables} == {0}
        assert inventory.loads.of("r1").silent
        assert inventory.loads.failures("r1") is None
        assert agent.link.connected


def test_an_older_control_plane_takes_the_message_for_none_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its code is made from the protocol as it was: without the message and its place among the bodies."""
    proto = (ROOT / "proto/llmgw/v1/agent.proto").read_text()
    before, _, rest = proto.partition("message EngineLoads {")
    older = (before + rest.partition("\n}\n")[2]).replace("    EngineLoads engine_loads = 9;\n", "")
    assert "EngineLoads" not in older
    source = tmp_path / "proto/older/v1/agent.proto"
    source.parent.mkdir(parents=True)
    source.write_text(older.replace("package llmgw.v1;", "package older.v1;"))
    made = tmp_path / "made" / "older_wire"
    made.mkdir(parents=True)
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(tmp_path / "proto"), str(source)]
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin"}
    subprocess.run([*command, f"--python_betterproto2_out={made}"], check=True, env=environment, timeout=60)
    monkeypatch.syspath_prepend(str(made.parent))
    older_wire = importlib.import_module("older_wire.older.v1")
    loads = wire.EngineLoads(shard_ids=["r1/0"], running=[4.0], age_s=[0.0])
    message = decode(older_wire.AgentMessage, bytes(wire.AgentMessage(engine_loads=loads)))
    bodies = [name for name in vars(wire.AgentMessage()) if not name.startswith("_") and name != "engine_loads"]
    assert len(bodies) >= 8
    assert [name for name in bodies if getattr(message, name) is not None] == []
