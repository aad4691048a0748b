"""Simulated nodes on a real agent port: they join, carry out orders, answer behind one listener, and fall silent."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.identity import load_identity
from agent.link import LinkTimes
from llmgw.agents.bridge import Limits
from llmgw.agents.replicas_told import replica_from_status
from llmgw.agents.sessions import NodeConnected, NodeDisconnected, NodeMessage
from llmgw.core.cluster import ShardState as State
from llmgw.sim.fleet import node as fleet_node
from llmgw.sim.fleet import service
from llmgw.sim.fleet.enrol import Enroller, FleetError, Tokens, node_layout
from llmgw.sim.fleet.hall import Hall
from llmgw.sim.fleet.options import FleetOptions
from llmgw.sim.fleet.roster import NodePlan, roster
from llmgw.sim.fleet.service import Fleet
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    DrainShard,
    EngineLoads,
    LogRequest,
    ServerMessage,
    ShardSpec,
    ShardStatus,
    StartShard,
    StopShard,
    TakeSample,
)
from tests.support.agentport import Port, make_port, running
from tests.support.waiting import DEADLINE_S, until

pytestmark = pytest.mark.trio

QUIET_S = 1.5
"""A control plane's patience in place of its 15 s."""


@dataclass(kw_only=True)
class Running:
    """A fleet on a port, with what its nodes said so far."""

    port: Port
    fleet: Fleet
    hall: Hall
    connected: dict[str, NodeConnected]

    async def message(self, node: str) -> AgentMessage:
        """The node's next message within 10 s; other nodes' are dropped."""
        while True:
            event = await self.port.next_event()
            if isinstance(event, NodeMessage) and event.node == node:
                return event.message

    async def status(self, node: str, state: State) -> ShardStatus:
        """The node's next status with that state, as the control plane would take it."""
        with trio.fail_after(20):
            while True:
                status = (await self.message(node)).shard_status
                if status is not None and replica_from_status(status, node=node).state is state:
                    return status
        raise AssertionError

    def order(self, node: str, **body: Any) -> None:
        """Send an order."""
        assert self.port.server.send(node, ServerMessage(**body))


@contextlib.asynccontextmanager
async def running_fleet(
    directory: Path, *, nodes: int, steady: bool = True, limits: Limits | None = None
) -> AsyncIterator[Running]:
    port = make_port(directory, limits=limits or Limits())
    async with running(port):
        plain = FleetOptions(nodes=nodes, cards=2, data=directory / "fleet", steady=steady)
        tokens = [((await port.enrolment.new_token(by="test"))[0], port.address) for _ in range(nodes)]
        async with up(plain, port, tokens) as fleet:
            yield fleet


@contextlib.asynccontextmanager
async def up(options: FleetOptions, port: Port, tokens: list[tuple[str, str]]) -> AsyncIterator[Running]:
    hall = Hall(options.host, 0)
    fleet = Fleet(options, hall)
    enroller = Enroller(options.data, Tokens(None, tokens), cluster_id=port.authority.cluster_id, say=lambda _: None)
    async with trio.open_nursery() as nursery:
        await nursery.start(hall.run)
        nursery.start_soon(fleet.run, enroller)
        connected: dict[str, NodeConnected] = {}
        while len(connected) < options.nodes:
            event = await port.next_event()
            if isinstance(event, NodeConnected):
                connected[event.node] = event
        yield Running(port=port, fleet=fleet, hall=hall, connected=connected)
        nursery.cancel_scope.cancel()


def spec(replica: str, source: str = "sim:m", **more: Any) -> ShardSpec:
    fields: dict[str, Any] = {"context_length": 512, "slots": 2, **more}
    return ShardSpec(
        shard_id=f"{replica}/0", replica_id=replica, model="m", profile="p", engine="sim", source=source, **fields
    )


async def get(hall: Hall, target: str, key: str = "") -> tuple[int, bytes]:
    """One request to the fleet's listener."""
    async with await trio.open_tcp_stream("127.0.0.1", int(hall.url.rpartition(":")[2])) as stream:
        authorization = f"Authorization: Bearer {key}\r\n" if key else ""
        await stream.send_all(f"GET {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{authorization}\r\n".encode())
        data = b""
        with trio.fail_after(60):
            while part := await stream.receive_some(65536):
                data += part
    return int(data.split(b" ", 2)[1]), data


async def test_nodes_join_once_and_say_that_they_are_simulated(tmp_path: Path) -> None:
    options = FleetOptions(nodes=3, cards=2, data=tmp_path / "fleet")
    plans = roster(options)
    async with running_fleet(tmp_path, nodes=3) as running:
        assert sorted(running.connected) == sorted(plan.name for plan in plans)
        for event in running.connected.values():
            assert event.hello.simulated
            assert event.hello.inventory is not None
            assert [card.name.endswith("(simulated)") for card in event.hello.inventory.cards] == [True, True]
        # The same directory again, without a token: nobody joins anew.
        certificates = [node_layout(options.data, plan).certificate.read_bytes() for plan in plans]
        port = running.port
    async with running_again(port), up(options, port, []):
        assert [node_layout(options.data, plan).certificate.read_bytes() for plan in plans] == certificates


@contextlib.asynccontextmanager
async def running_again(port: Port) -> AsyncIterator[Port]:
    """The same authority and the same port."""
    again = make_port(port.authority.directory.parent, limits=Limits(), port=port.port)
    async with running(again):
        port.server, port.serials = again.server, again.serials
        yield port


async def test_nodes_of_another_cluster_are_told_from_ours(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, nodes=1):
        pass
    options = FleetOptions(nodes=1, cards=2, data=tmp_path / "fleet", steady=True)
    cluster = load_identity(node_layout(options.data, roster(options)[0])).cluster_id
    enroller = Enroller(options.data, Tokens(None), cluster_id="another", say=lambda _: None)
    send, _ = trio.open_memory_channel[NodePlan](1)
    with pytest.raises(FleetError, match=f"belong to cluster {cluster}.*--data"):
        await enroller.run(roster(options), send)


async def test_a_replica_lives_behind_its_path_until_it_is_stopped(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, nodes=1) as running:
        (node,) = running.connected
        running.order(node, start_shard=StartShard(spec=spec("m-1", "sim:m,weights-gb=0.5"), engine_key="ek-secret"))
        assert (await running.status(node, State.FETCHING)).spec is None
        ready = await running.status(node, State.READY)
        assert ready.endpoint == f"{running.hall.url}/r/m-1"
        assert (await get(running.hall, "/r/m-1/v1/models"))[0] == 401
        assert (await get(running.hall, "/r/m-1/v1/models", "ek-secret"))[0] == 200
        assert (await get(running.hall, "/r/other/v1/models", "ek-secret"))[0] == 503
        assert (await get(running.hall, "/v1/models", "ek-secret"))[0] == 503
        # Orders are idempotent: the same start reports the state, no second engine comes up.
        running.order(node, start_shard=StartShard(spec=spec("m-1"), engine_key="other"))
        await running.status(node, State.READY)
        assert (await get(running.hall, "/r/m-1/v1/models", "ek-secret"))[0] == 200
        running.order(node, drain_shard=DrainShard(shard_id="m-1/0", reason="moved", deadline_s=60))
        assert "moved" in (await running.status(node, State.DRAINING)).message
        running.order(node, stop_shard=StopShard(shard_id="m-1/0", reason="drained", grace_s=1))
        await running.status(node, State.STOPPED)
        assert (await get(running.hall, "/r/m-1/v1/models", "ek-secret"))[0] == 503
        running.order(node, stop_shard=StopShard(shard_id="never/0", reason="x", grace_s=1))
        assert (await running.status(node, State.STOPPED)).shard_id == "never/0"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (spec("bad", "hf:org/repo"), "sim"),
        (spec("bad", "sim:m", args=["--rate", "fast"]), "rate"),
        (spec("bad", "sim:m", args=["--crash-on-start"]), "exit code 1"),
    ],
    ids=["source", "flag", "crash"],
)
async def test_what_no_engine_takes_fails_with_a_sentence_and_can_be_cleared(
    tmp_path: Path, given: ShardSpec, why: str
) -> None:
    async with running_fleet(tmp_path, nodes=1) as running:
        (node,) = running.connected
        running.order(node, start_shard=StartShard(spec=given, engine_key="k"))
        assert why in (await running.status(node, State.FAILED)).message
        running.order(node, stop_shard=StopShard(shard_id="bad/0", reason="it failed", grace_s=1))
        await running.status(node, State.STOPPED)


async def test_a_log_is_followed_to_the_end_of_its_replica(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, nodes=1) as running:
        (node,) = running.connected
        running.order(node, start_shard=StartShard(spec=spec("m-1"), engine_key="k"))
        await running.status(node, State.READY)
        running.order(node, log_request=LogRequest(request_id="q", shard_id="m-1/0", tail_lines=50, follow=True))
        running.order(node, stop_shard=StopShard(shard_id="m-1/0", reason="enough", grace_s=1))
        lines: list[str] = []
        while True:
            told = (await running.message(node)).log_lines
            if told is not None:
                lines += told.lines
                if told.end:
                    break
        assert any("ready" in line for line in lines)
        assert any("stopping: enough" in line for line in lines)


async def test_a_slow_node_tells_late_and_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw.sim.fleet.node.SLOW_TELLING_S", 0.5)
    async with running_fleet(tmp_path, nodes=2, steady=False) as running:
        node = next(name for name in running.connected if name.endswith("-02"))
        began = trio.current_time()
        running.order(node, start_shard=StartShard(spec=spec("m-1"), engine_key="k"))
        await running.status(node, State.READY)
        assert trio.current_time() - began >= 0.5
        running.order(node, stop_shard=StopShard(shard_id="m-1/0", reason="enough", grace_s=1))
        await running.status(node, State.STOPPED)


async def test_a_silent_node_keeps_its_stream_until_the_control_plane_ends_it_and_comes_back_with_what_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "FIRST_SILENCE_S", 4.0)
    monkeypatch.setattr(service, "SILENCE_S", 4.0)
    monkeypatch.setattr(fleet_node, "TIMES", LinkTimes(heartbeat_s=0.1, silent_s=60.0))
    monkeypatch.setattr(fleet_node, "LinkTimes", lambda: LinkTimes(heartbeat_s=0.1))
    async with running_fleet(tmp_path, nodes=3, steady=False, limits=Limits(silent_s=QUIET_S, check_s=0.05)) as running:
        node = next(name for name in running.connected if name.endswith("-03"))
        link = next(each.link for each in running.fleet.nodes if each.plan.name == node)
        running.order(node, start_shard=StartShard(spec=spec("m-1"), engine_key="k"))
        await running.status(node, State.READY)
        lost = back = None
        while back is None:
            event = await running.port.next_event()
            if isinstance(event, NodeDisconnected) and event.node == node:
                lost = event
                beats = running.port.beats.count(node)
            elif isinstance(event, NodeConnected) and event.node == node:
                back = event
        assert lost is not None
        assert lost.node == back.node == node
        # Not the machine hung up: nothing was heard of it on a stream that was there.
        assert lost.reason == f"the agent was silent for {QUIET_S:g} s"
        assert beats > 1
        (shard,) = back.hello.shards
        assert replica_from_status(shard, node=node).state is State.READY
        assert (await get(running.hall, "/r/m-1/v1/models", "k"))[0] == 200
        await until(lambda: link.connected and running.port.beats.count(node) > beats)


async def test_orders_reach_a_hushed_node_and_its_answers_are_lost(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, nodes=1) as running:
        (name,) = running.connected
        (node,) = running.fleet.nodes
        node.link.hush()
        running.order(name, start_shard=StartShard(spec=spec("m-1"), engine_key="k"))
        await until(lambda: node.replicas == 1)
        assert running.port.server.nodes == [name]
        assert node.link.connected
        node.link.speak()
        running.order(name, stop_shard=StopShard(shard_id="m-1/0", reason="enough", grace_s=1))
        states: list[State] = []
        while State.STOPPED not in states:
            told = (await running.message(name)).shard_status
            states += [] if told is None else [replica_from_status(told, node=name).state]
        # What was said in the silence is lost, its first word too.
        assert State.PENDING not in states


async def test_sensors_come_in_columns_when_they_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "SENSE_EVERY_S", 0.05)
    async with running_fleet(tmp_path, nodes=1) as running:
        (node,) = running.connected
        first = (await running.message(node)).sensors
        assert first is not None
        assert len(first.uuids) == len(first.power_w) == len(first.sm_active_percent) == 2
        held = spec("m-1", card_uuids=[first.uuids[0]], memory_bytes=40 * 10**9)
        running.order(node, start_shard=StartShard(spec=held, engine_key="k"))
        while True:
            sensors = (await running.message(node)).sensors
            if sensors is not None and sensors.memory_used_bytes[0] > 0:
                break
        # Whose figures they are was said once.
        assert sensors.uuids == []
        assert sensors.memory_used_bytes[0] >= 40 * 10**9
        assert sensors.memory_used_bytes[1] == 0


async def test_a_simulated_node_measures_for_whoever_looks_though_nothing_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "SENSE_EVERY_S", 3600.0)
    async with running_fleet(tmp_path, nodes=1) as running:
        ((node, connected),) = running.connected.items()
        assert connected.hello.takes_samples
        by_itself, told = 1, 0
        while told <= by_itself + 3:
            running.order(node, take_sample=TakeSample())
            while (await running.message(node)).sensors is None:
                pass
            told += 1


async def test_a_simulated_engine_says_what_it_works_on(tmp_path: Path) -> None:
    async with running_fleet(tmp_path, nodes=1) as running:
        [node] = running.connected
        running.order(node, start_shard=StartShard(spec=spec("r1", args=["--rate", "5"]), engine_key="ek"))
        idle = await _load(running, node, running_requests=0)
        assert (idle.waiting, idle.slots, idle.kv_used, idle.failures) == ([0], [2], [0], [])
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(3):
                await clients.enter_async_context(_asked(running.hall))
            busy = await _load(running, node, running_requests=2)
            while not any(busy.waiting):
                busy = await _load(running, node, running_requests=2)
            assert (busy.shard_ids, busy.waiting) == (["r1/0"], [1])
        await _load(running, node, running_requests=0)


async def _load(running: Running, node: str, *, running_requests: int) -> EngineLoads:
    """The next loads in which the one engine works on so many requests."""
    with trio.fail_after(DEADLINE_S):
        while True:
            loads = (await running.message(node)).engine_loads
            if loads is not None and loads.running == [running_requests]:
                return loads
    raise AssertionError


@contextlib.asynccontextmanager
async def _asked(hall: Hall) -> AsyncIterator[None]:
    """A long answer is asked of r1 while the block runs."""
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":400,"stream":true}'
    async with await trio.open_tcp_stream("127.0.0.1", int(hall.url.rpartition(":")[2])) as stream:
        head = "POST /r/r1/v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ek\r\n"
        length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        await stream.send_all((head + length).encode() + body)
        yield
