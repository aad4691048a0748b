"""Engines' loads on their way: from a real agent's engine to a router, over real sockets."""

import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.agents.bridge import Limits
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.load_publisher import LoadPublisher
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.core.cluster import ShardState
from llmgw.core.figures import LOAD_HOLDS_S
from llmgw.core.routing import ReplicaLoad
from llmgw.router.state import FollowerState
from llmgw.wire.llmgw.v1 import ServerMessage, StartShard, StopShard
from tests.integration.test_feed_follow import ROUTING, Cluster, cluster, follower
from tests.support.agent_node import DEADLINE_S, KEY, Node, end_marked, free_ports, sim_spec
from tests.support.agentport import Port, enrolled, make_port, running
from tests.support.builders import a_replica
from tests.support.waiting import until

__all__ = ["cluster"]

pytestmark = pytest.mark.trio

LOADS = {"r1": ReplicaLoad(running=4, waiting=2, slots=8, kv_used=0.61, at=1000.0)}


async def known(state: FollowerState, *replicas: str) -> None:
    """Wait until the router knows the loads of exactly these."""
    await until(lambda: state.loads.keys() == set(replicas))


async def test_a_router_is_told_all_when_it_connects_and_then_what_changes(cluster: Cluster) -> None:
    async with cluster.up() as feed:
        feed.loads.change(LOADS)
        feed.publish_loads()
        async with follower(cluster.layout) as (state, _):
            await known(state, "r1")
            assert state.loads == LOADS
            feed.loads.change({**LOADS, "r2": ReplicaLoad(waiting=0, at=1001.0)})
            feed.publish_loads()
            await known(state, "r1", "r2")
            assert (state.loads["r2"].running, state.loads["r2"].waiting) == (None, 0)
            feed.loads.change({"r2": ReplicaLoad(waiting=1, at=1002.0)})
            feed.publish_loads()
            await known(state, "r2")
            assert state.loads["r2"].waiting == 1


async def test_a_router_that_loses_its_control_plane_knows_no_load_and_is_told_all_again(cluster: Cluster) -> None:
    async with follower(cluster.layout) as (state, _):
        async with cluster.up() as feed:
            feed.loads.change(LOADS)
            feed.publish_loads()
            await known(state, "r1")
        await known(state)
        assert state.routes.replicas("m"), "routes outlive the control plane, loads do not"
        async with cluster.up() as feed:
            feed.loads.change(LOADS)
            feed.publish_loads()
            await known(state, "r1")


async def test_a_control_plane_that_says_nothing_more_is_not_believed_for_ever(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.router.feed.LOAD_HOLDS_S", 0.2)
    async with cluster.up() as feed, follower(cluster.layout) as (state, _):
        await until(lambda: state.routes.ready)
        seen: list[set[str]] = []
        state.on_loads = lambda: seen.append(set(state.loads))
        feed.loads.change(LOADS)
        feed.publish_loads()
        await until(lambda: seen == [{"r1"}, set()])
        assert feed.routers()[0].connected, "the connection is there, only nothing comes over it"


async def test_a_router_that_knows_no_loads_is_sent_none(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    async with cluster.up() as feed, follower(cluster.layout, loads=False) as (state, _):
        await until(lambda: state.routes.ready)
        feed.loads.change(LOADS)
        feed.publish_loads()
        # What is published before a routing travels no later than it.
        for routing in (msgspec.structs.replace(ROUTING, revision=revision) for revision in ("a/2", "a/3")):
            feed.publish(routing)
            with trio.fail_after(DEADLINE_S):
                while state.routes.routing != routing:  # noqa: ASYNC110 - what is waited for has no event
                    await trio.sleep(0.01)
        assert state.loads == {}
        assert "not understood" not in caplog.text


@contextlib.asynccontextmanager
async def control(port: Port, cluster: Cluster) -> AsyncIterator[Inventory]:
    """A leader as its services put it together: what the agent port hears, routers are told."""
    inventory = Inventory(trio.current_time, lambda: None)
    logs = LogService(layout=cluster.layout, inventory=inventory, orders=AgentLogOrders(port.server))
    checks = EngineCheckService(inventory=inventory, orders=AgentCheckOrders(port.server))
    samples = SampleService(inventory=inventory, orders=AgentSampleOrders(port.server), clock=trio.current_time)
    sessions = SessionLoop(
        server=port.server, inventory=inventory, logs=logs, checks=checks, samples=samples, ordered=lambda _: True
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(sessions.run)
        await nursery.start(LoadPublisher(inventory.loads, cluster.feed, wall=time.time).run)
        yield inventory
        nursery.cancel_scope.cancel()


@contextlib.asynccontextmanager
async def agent(port: Port, directory: Path) -> AsyncIterator[Node]:
    """A real agent process of node n1."""
    enrolled(port, directory, "n1")
    node = Node(port=port, directory=directory, name="n1", ports=free_ports())
    node.start()
    try:
        yield node
    finally:
        node.end()
        end_marked(port.authority.cluster_id)


async def test_what_an_engine_says_reaches_the_router_and_goes_with_its_engine(
    cluster: Cluster, tmp_path: Path
) -> None:
    port = make_port(tmp_path / "server", limits=Limits())
    async with (
        cluster.up(),
        running(port),
        control(port, cluster) as inventory,
        follower(cluster.layout) as (state, _),
        agent(port, tmp_path / "n1"),
    ):
        await until(lambda: inventory.is_connected("n1"))
        inventory.ordered(a_replica(id="r1", node="n1", state=ShardState.PENDING))
        spec = sim_spec(source="sim:rate=5,prefill-ms=0")
        assert port.server.send("n1", ServerMessage(start_shard=StartShard(spec=spec, engine_key=KEY)))
        await known(state, "r1")
        idle = state.loads["r1"]
        assert (idle.running, idle.waiting, idle.slots, idle.kv_used) == (0, 0, 4, 0.0)
        assert abs(idle.at - time.time()) < LOAD_HOLDS_S
        replica = inventory.replica("r1")
        assert replica is not None
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(7):
                await clients.enter_async_context(asked(replica.endpoint))
            await until(lambda: (state.loads["r1"].running, state.loads["r1"].waiting) == (4, 3))
        await until(lambda: state.loads["r1"].running == 0)
        assert inventory.loads.failures("r1") == 0
        stop = StopShard(shard_id="r1/0", grace_s=5.0, reason="test")
        assert port.server.send("n1", ServerMessage(stop_shard=stop))
        await known(state)


@contextlib.asynccontextmanager
async def asked(endpoint: str) -> AsyncIterator[None]:
    """A long answer is asked for while the block runs."""
    host, _, port = endpoint.removeprefix("http://").partition(":")
    body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true}'
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
    with trio.fail_after(DEADLINE_S):
        async with await trio.open_tcp_stream(host, int(port)) as client:
            length = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
            await client.send_all((head + length).encode() + body)
            yield
