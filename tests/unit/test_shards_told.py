"""What nodes tell of a replica's shards, and what they are told: from orders over the wire into the leader's memory."""

from collections.abc import Iterator
from typing import Any

import pytest
import trio

from llmgw.agents import order_messages, replicas_told
from llmgw.agents.bridge import AgentServer
from llmgw.agents.orders import AgentOrders
from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.reconciler import Reconciler
from llmgw.control.routing import RoutingBuilder
from llmgw.control.wake import Wake
from llmgw.core.cluster import EngineBuild, Replica, Shard, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.routing import Timeouts
from llmgw.core.secrets import new_replica_id, ordered_by_us
from llmgw.core.shards import seat_of
from llmgw.wire.llmgw import v1 as wire
from tests.bench.watch_server import AllWeights, OpenRequests, a_stored_model
from tests.support.builders import a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed

SECRET = b"s" * 32
PROFILE = a_profile(name="two", engine="vllm", gpu_class="h100-80g", nodes=2, pp=2)
ENTRY = an_entry(a_model(profiles=(PROFILE,)))
BUILDS = (EngineBuild(engine="vllm", version="0.30.0"), EngineBuild(engine="ray", version="2.55.0"))
NODES = tuple(
    a_node(f"n{i}", address=f"10.0.0.{i}", cards=(a_card(node=f"n{i}"),), engines=BUILDS, memory_available_bytes=0)
    for i in (1, 2)
)


def ordered_replica() -> Replica:
    shards = tuple(Shard(node=n.name, address=n.address, cards=(n.cards[0].uuid,)) for n in NODES)
    replica = a_replica(
        ENTRY, cards=("GPU-n1-0", "GPU-n2-0"), shards=shards, state=ShardState.PENDING, endpoint="", id=""
    )
    return changed(replica, id=new_replica_id(SECRET, replica.model, seat_of(replica)))


def status(replica: Replica, rank: int, state: wire.ShardState, **over: Any) -> wire.ShardStatus:
    """What the agent of a shard says after it was ordered, its specification as it came over the wire."""
    order = order_messages.start_shard(replica, ENTRY, PROFILE, engine_key="k", rank=rank)
    assert order.start_shard is not None
    assert order.start_shard.spec is not None
    spec = wire.ShardSpec.parse(bytes(order.start_shard.spec))
    endpoint = "" if rank else f"http://{NODES[0].address}:18000"
    return wire.ShardStatus(shard_id=spec.shard_id, state=state, endpoint=endpoint, spec=spec, **over)


def told(replica: Replica, rank: int, state: wire.ShardState, **over: Any) -> Replica:
    return replicas_told.replica_from_status(status(replica, rank, state, **over), node=NODES[rank].name)


@pytest.fixture
def inventory() -> Inventory:
    return Inventory(lambda: 100.0, lambda: None)


def test_a_new_leader_puts_a_replica_together_from_what_each_node_runs(inventory: Inventory) -> None:
    replica = ordered_replica()
    inventory.expect([("n1", False), ("n2", False)])
    inventory.connected(NODES[1], [told(replica, 1, wire.ShardState.READY, pid=8)])
    (half,) = inventory.replicas()
    assert (half.node, half.nodes, half.cards) == ("n1", ("n1", "n2"), ("GPU-n1-0", "GPU-n2-0"))
    assert [shard.heard for shard in half.shards] == [False, True]
    assert not RoutingBuilder("t").build(a_snapshot(entries=(ENTRY,), replicas=(half,)), Timeouts(), {}).replicas
    inventory.connected(NODES[0], [told(replica, 0, wire.ShardState.READY, pid=7)])
    (whole,) = inventory.replicas()
    assert (whole.state, whole.pid, whole.endpoint) == (ShardState.READY, 7, "http://10.0.0.1:18000")
    assert [shard.address for shard in whole.shards] == ["10.0.0.1", "10.0.0.2"]
    routed = RoutingBuilder("t").build(a_snapshot(entries=(ENTRY,), replicas=(whole,)), Timeouts(), {}).replicas
    assert [(r.node, r.endpoint) for r in routed] == [("n1", "http://10.0.0.1:18000")]
    assert ordered_by_us(SECRET, whole.id, whole.model, seat_of(whole))


@pytest.mark.parametrize("first", [0, 1])
def test_a_shard_that_its_node_does_not_name_fails_the_replica(inventory: Inventory, first: int) -> None:
    replica = ordered_replica()
    inventory.connected(NODES[first], [])
    inventory.connected(NODES[1 - first], [told(replica, 1 - first, wire.ShardState.READY)])
    (found,) = inventory.replicas()
    assert found.state is ShardState.FAILED
    assert f"n{first + 1}" in found.message


def test_a_node_that_leaves_the_cluster_takes_its_part_along(inventory: Inventory) -> None:
    replica = ordered_replica()
    inventory.expect([("n1", False), ("n2", False)])
    for rank in (0, 1):
        inventory.connected(NODES[rank], [told(replica, rank, wire.ShardState.READY)])
    inventory.disconnected("n2")
    inventory.expect([("n1", False)])
    (found,) = inventory.replicas()
    assert found.state is ShardState.FAILED
    assert inventory.failures(found.model) == 1


def test_places_that_cannot_be_are_refused() -> None:
    replica = ordered_replica()
    with pytest.raises(InvalidInput, match="none of n2's"):
        replicas_told.replica_from_status(status(replica, 0, wire.ShardState.READY), node="n2")
    beyond = status(replica, 1, wire.ShardState.READY)
    assert beyond.spec is not None
    beyond.spec.places = beyond.spec.places[:1]
    with pytest.raises(InvalidInput, match="none of n2's"):
        replicas_told.replica_from_status(beyond, node="n2")
    twice = status(replica, 0, wire.ShardState.READY)
    assert twice.spec is not None
    twice.spec.places[1].node = "n1"
    with pytest.raises(InvalidInput, match="named twice"):
        replicas_told.replica_from_status(twice, node="n1")
    odd = status(replica, 0, wire.ShardState.READY)
    assert odd.spec is not None
    odd.spec.places[1].address = "10.0.0.2 --head"
    with pytest.raises(InvalidInput, match="neither a host name nor an address"):
        replicas_told.replica_from_status(odd, node="n1")


def test_an_id_is_good_for_its_nodes_in_their_order_only() -> None:
    replica = ordered_replica()
    assert ordered_by_us(SECRET, replica.id, replica.model, seat_of(replica))
    swapped = changed(replica, shards=replica.shards[::-1])
    assert not ordered_by_us(SECRET, replica.id, replica.model, seat_of(swapped))
    assert not ordered_by_us(SECRET, replica.id, replica.model, "n1")


class _Port(AgentServer):
    """The agent port, with nodes that may be away; `sent` is what went to each."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.sent: list[tuple[str, wire.ServerMessage]] = []

    def send(self, node: str, message: wire.ServerMessage) -> bool:
        if node in self.away:
            return False
        self.sent.append((node, message))
        return True

    def take(self) -> Iterator[tuple[str, str]]:
        """Node and order, of all that was sent since."""
        for node, message in self.sent:
            if message.start_shard is not None and message.start_shard.spec is not None:
                yield node, f"start /{message.start_shard.spec.rank}"
            elif message.rally_shard is not None:
                yield node, f"rally {message.rally_shard.head or 'head'}"
            elif message.stop_shard is not None:
                yield node, f"stop {message.stop_shard.shard_id[-2:]}"
            elif message.drain_shard is not None:
                yield node, "drain"
        self.sent.clear()


def test_it_is_ordered_on_all_its_nodes_or_on_none() -> None:
    port = _Port("n2")
    assert not AgentOrders(port, cluster_secret=SECRET).start(ordered_replica(), ENTRY, PROFILE)
    assert list(port.take()) == [("n1", "start /0"), ("n1", "stop /0")]


def _plane() -> tuple[Inventory, Catalog, _Port, Reconciler]:
    """A control plane that wants the model, with both nodes connected."""
    inventory = Inventory(trio.current_time, lambda: None)
    catalog, port = Catalog(lambda: None), _Port()
    reconciler = Reconciler(
        catalog=catalog,
        inventory=inventory,
        weights=AllWeights(),
        orders=AgentOrders(port, cluster_secret=SECRET),
        traffic=OpenRequests(),
        timeouts=Timeouts,
        leading=lambda: True,
        wake=Wake(),
        owner="test",
        new_id=lambda model, seat: new_replica_id(SECRET, model, seat),
    )
    catalog.replace([changed(a_stored_model(0), spec=ENTRY.model)])
    for node in NODES:
        inventory.connected(node, [])
    return inventory, catalog, port, reconciler


@pytest.mark.trio
async def test_orders_follow_what_the_shards_say(autojump_clock: trio.testing.MockClock) -> None:
    inventory, catalog, port, reconciler = _plane()
    reconciler.step()
    assert list(port.take()) == [("n1", "start /0"), ("n2", "start /1")]
    (replica,) = inventory.replicas()

    def say(rank: int, state: wire.ShardState, **over: Any) -> list[tuple[str, str]]:
        inventory.shard_changed(NODES[rank].name, told(replica, rank, state, **over))
        reconciler.step()
        return list(port.take())

    starting = wire.ShardState.STARTING
    assert say(0, starting, prepared=True) == []
    assert say(1, starting, prepared=True) == [("n1", "rally head")]
    assert say(0, starting, pid=7) == []
    assert say(0, starting, pid=7, runtime_port=18001) == [("n2", "rally 10.0.0.1:18001")]
    assert say(1, wire.ShardState.READY, pid=8) == []
    assert say(0, wire.ShardState.READY, pid=7) == []
    assert inventory.replicas()[0].state is ShardState.READY

    catalog.replace([changed(a_stored_model(0), spec=changed(ENTRY.model, stopped=True))])
    reconciler.step()
    assert list(port.take()) == [("n1", "drain")]
    await trio.sleep(5)
    reconciler.step()
    assert list(port.take()) == [("n1", "stop /0")]
    assert say(0, wire.ShardState.STOPPED) == [("n2", "stop /1")]
    assert say(1, wire.ShardState.STOPPED) == []
    assert inventory.replicas() == ()


@pytest.mark.trio
async def test_one_failure_ends_the_others_and_then_it_starts_anew(
    autojump_clock: trio.testing.MockClock,
) -> None:
    inventory, _, port, reconciler = _plane()
    reconciler.step()
    (replica,) = inventory.replicas()
    port.sent.clear()
    for rank in (0, 1):
        inventory.shard_changed(NODES[rank].name, told(replica, rank, wire.ShardState.READY))
    inventory.shard_changed("n2", told(replica, 1, wire.ShardState.FAILED, message="exit code 1"))
    reconciler.step()
    assert list(port.take()) == [("n1", "stop /0"), ("n2", "stop /1")]
    assert inventory.replicas()[0].message == "worker on n2: exit code 1"
    await trio.sleep(10)
    reconciler.step()
    assert list(port.take()) == []
    for rank in (0, 1):
        inventory.shard_changed(NODES[rank].name, told(replica, rank, wire.ShardState.STOPPED))
    reconciler.step()
    assert list(port.take()) == [("n1", "start /0"), ("n2", "start /1")]
    (again,) = inventory.replicas()
    assert again.id != replica.id
