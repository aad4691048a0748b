"""The inventory: what agents say is taken in once, transitions are told from progress, and nothing stale survives."""

from llmgw.control.inventory import ROUTING_HOLD_S, SETTLE_S, Inventory
from llmgw.control.live_rows import Moments, figures_row
from llmgw.control.views import node_info
from llmgw.core.cluster import LOST_AFTER_S, FetchProgress, NodeLink, ShardState
from llmgw.core.figures import CardFigures, NodeFigures, ReplicaFigures
from llmgw.core.wear import CardWear
from tests.support.builders import GB, a_card, a_node, a_replica, changed


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def _inventory() -> tuple[Inventory, _Clock, list[int]]:
    clock = _Clock()
    wakes: list[int] = []
    return Inventory(clock, lambda: wakes.append(1)), clock, wakes


def test_wear_and_machine_figures_are_of_ones_own_cards_and_have_no_last_word() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1", cards=(a_card(),)), [])
    mine = a_card().uuid
    inventory.worn("n1", {mine: CardWear(pcie_replays=3), "made-up": CardWear(pcie_replays=9)})
    inventory.worn("nobody", {mine: CardWear(pcie_replays=9)})
    assert inventory.wear(mine) == CardWear(pcie_replays=3)
    assert inventory.wear("made-up") is None
    assert inventory.complaints("n1") == ()
    inventory.worn("n1", {mine: CardWear(remap_pending=True)})
    assert inventory.complaints("n1")[0].startswith("card 0: A bad memory row waits")
    engine = ReplicaFigures(cpu_percent=50.0)
    inventory.sensed("n1", NodeFigures(cpu_power_w=200.0, cpu_percent=5.0, replicas={"m-1": engine}))
    assert inventory.engines("n1") == {"m-1": engine}
    inventory.sensed("n1", NodeFigures())
    node = inventory.node("n1")
    assert node is not None
    assert (node.cpu_percent, node.cpu_power_w, dict(inventory.engines("n1"))) == (5.0, None, {})


def test_a_known_node_is_silent_then_lost_until_it_speaks() -> None:
    inventory, clock, _ = _inventory()
    inventory.expect([("n1", False)])
    assert inventory.nodes()[0].link is NodeLink.SILENT
    assert not inventory.settled()
    clock.now += LOST_AFTER_S
    assert inventory.nodes()[0].link is NodeLink.LOST
    inventory.connected(a_node("n1"), [])
    assert inventory.nodes()[0].link is NodeLink.CONNECTED
    assert inventory.settled()


def test_routers_are_told_nothing_new_until_the_nodes_spoke_or_had_their_time() -> None:
    inventory, clock, _ = _inventory()
    assert inventory.worth_routing_by()
    inventory.expect([("n1", False), ("n2", False)])
    inventory.connected(a_node("n1"), [])
    assert not inventory.worth_routing_by()
    clock.now += ROUTING_HOLD_S
    assert inventory.worth_routing_by()
    inventory, _, _ = _inventory()
    inventory.expect([("n1", False)])
    inventory.connected(a_node("n1"), [])
    assert inventory.worth_routing_by()


def test_waiting_for_nodes_ends_by_time() -> None:
    inventory, clock, _ = _inventory()
    inventory.expect([("n1", False), ("n2", False)])
    inventory.connected(a_node("n1"), [])
    assert not inventory.settled()
    clock.now += SETTLE_S
    assert inventory.settled()


def test_a_hello_is_all_a_node_runs() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1"), a_replica(id="r2")])
    inventory.connected(a_node("n1"), [a_replica(id="r2")])
    assert [r.id for r in inventory.replicas()] == ["r2"]


def test_a_lost_stream_leaves_the_replicas() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1")])
    inventory.disconnected("n1")
    assert [r.state for r in inventory.replicas()] == [ShardState.READY]
    assert not inventory.is_connected("n1")


def test_since_moves_with_the_state_and_a_transition_clears_the_download() -> None:
    inventory, clock, _ = _inventory()
    fetching = a_replica(id="r1", state=ShardState.FETCHING)
    inventory.connected(a_node("n1"), [fetching])
    clock.now += 5
    inventory.progressed("n1", ["r1", "gone"], FetchProgress(phase="fetching", done_bytes=1, total_bytes=2))
    replica = inventory.replica("r1")
    assert replica is not None
    assert (replica.state, replica.since) == (ShardState.FETCHING, 100.0)
    assert replica.progress is not None
    clock.now += 5
    inventory.shard_changed("n1", changed(fetching, state=ShardState.STARTING))
    moved = inventory.replica("r1")
    assert moved is not None
    assert (moved.state, moved.since, moved.progress) == (ShardState.STARTING, 110.0, None)


def test_progress_for_a_replica_that_is_gone_is_ignored() -> None:
    inventory, _, _ = _inventory()
    inventory.progressed("n1", ["gone"], FetchProgress(phase="fetching", done_bytes=1))
    assert inventory.replicas() == ()


def test_another_nodes_word_about_a_replica_is_not_taken() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1")])
    inventory.connected(a_node("n2"), [])
    inventory.shard_changed("n2", a_replica(id="r1", node="n2", state=ShardState.STOPPED))
    inventory.progressed("n2", ["r1"], FetchProgress(phase="fetching"))
    (replica,) = inventory.replicas()
    assert replica.state is ShardState.READY
    assert replica.progress is None


def test_a_hello_cannot_take_over_another_nodes_replica() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1")])
    inventory.connected(a_node("n2"), [a_replica(id="r1", node="n2", endpoint="http://10.0.0.9:1")])
    (replica,) = inventory.replicas()
    assert (replica.node, replica.endpoint) == ("n1", "http://127.0.0.1:18000")


def test_draining_is_not_undone_by_a_late_ready() -> None:
    inventory, _, _ = _inventory()
    ready = a_replica(id="r1")
    inventory.connected(a_node("n1"), [ready])
    inventory.draining("r1", "stopped")
    inventory.shard_changed("n1", ready)
    replica = inventory.replica("r1")
    assert replica is not None
    assert replica.state is ShardState.DRAINING


def test_failures_in_a_row_are_counted_once_each_and_forgiven_when_it_serves() -> None:
    inventory, _, _ = _inventory()
    replica = a_replica(id="r1", state=ShardState.STARTING)
    inventory.connected(a_node("n1"), [replica])
    failed = changed(replica, state=ShardState.FAILED)
    inventory.shard_changed("n1", failed)
    inventory.shard_changed("n1", failed)
    assert inventory.failures("m") == 1
    inventory.shard_changed("n1", changed(replica, state=ShardState.READY))
    assert inventory.failures("m") == 0


def test_a_stopped_replica_is_gone() -> None:
    inventory, _, wakes = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1")])
    before = len(wakes)
    inventory.shard_changed("n1", a_replica(id="r1", state=ShardState.STOPPED))
    assert inventory.replicas() == ()
    assert len(wakes) == before + 1


def test_a_new_term_starts_with_nothing_heard() -> None:
    inventory, _, _ = _inventory()
    inventory.expect([("n1", True)])
    inventory.connected(a_node("n1"), [a_replica(id="r1")])
    inventory.new_term()
    assert inventory.replicas() == ()
    assert not inventory.settled()
    assert inventory.nodes()[0].cordoned


def test_sensors_update_cards_and_leave_what_was_not_said() -> None:
    inventory, _, wakes = _inventory()
    card = a_card()
    inventory.connected(a_node("n1", cards=(card,), cpu_percent=5.0), [])
    before = len(wakes)
    inventory.sensed("n1", NodeFigures(load_1m=1.5, cards={card.uuid: CardFigures(memory_used_bytes=7 * GB)}))
    (node,) = inventory.nodes()
    assert (node.load_1m, node.cpu_percent, node.cards[0].memory_used_bytes) == (1.5, 5.0, 7 * GB)
    assert len(wakes) == before


def test_an_evicted_node_is_forgotten_with_its_replicas() -> None:
    inventory, _, _ = _inventory()
    inventory.expect([("n1", False), ("n2", False)])
    inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1")])
    inventory.disconnected("n1")
    inventory.expect([("n2", False)])
    assert [n.name for n in inventory.nodes()] == ["n2"]
    assert inventory.replicas() == ()


def test_what_was_ordered_to_go_does_not_come_back() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1"), [a_replica(id="r1", state=ShardState.STARTING)])
    inventory.draining("r1", "more replicas than wanted")
    for late in (ShardState.FETCHING, ShardState.STARTING, ShardState.READY):
        inventory.shard_changed("n1", a_replica(id="r1", state=late))
        assert [r.state for r in inventory.replicas()] == [ShardState.DRAINING]
    inventory.shard_changed("n1", a_replica(id="r1", state=ShardState.FAILED))
    assert [r.state for r in inventory.replicas()] == [ShardState.FAILED]


def test_readings_of_cards_a_node_does_not_have_are_not_kept() -> None:
    inventory, _, _ = _inventory()
    inventory.connected(a_node("n1", cards=(a_card(0, node="n1"),)), [])
    inventory.connected(a_node("n2", cards=(a_card(0, node="n2"),)), [])
    mine, others = a_card(0, node="n1").uuid, a_card(0, node="n2").uuid
    lies = {mine: CardFigures(power_w=100.0), others: CardFigures(power_w=1.0), "made-up": CardFigures(power_w=2.0)}
    inventory.sensed("n1", NodeFigures(cards=lies))
    assert inventory.figures(mine).power_w == 100.0
    assert inventory.figures(others) == inventory.figures("made-up") == CardFigures()


def test_a_card_that_its_node_is_silent_about_has_no_figures_any_more() -> None:
    """It fell off the bus: it stays listed, and the others go on."""
    inventory, clock, _ = _inventory()
    lost, other = a_card(0), a_card(1)
    inventory.connected(a_node("n1", cards=(lost, other)), [])
    reading = CardFigures(power_w=300.0, utilization_percent=0.0, memory_used_bytes=7 * GB)
    inventory.sensed("n1", NodeFigures(cards={lost.uuid: reading, other.uuid: reading}))
    assert inventory.resting_since(lost.uuid) is not None
    clock.now += 5.0
    inventory.sensed("n1", NodeFigures(cards={other.uuid: reading}))
    assert inventory.figures(lost.uuid) == CardFigures()
    assert inventory.resting_since(lost.uuid) is None
    assert inventory.figures(other.uuid) == reading
    node = inventory.node("n1")
    assert node is not None
    shown = {card.uuid: card for card in node_info(node, (), clock.now, inventory).cards}
    row = figures_row(node, inventory.figures, Moments(clock, clock))
    assert (shown[lost.uuid].power_w, shown[lost.uuid].memory_used_bytes) == (None, None)
    assert (row.power_w, row.memory_used_bytes) == ((None, 300.0), (None, 7 * GB))
    # Placement goes on by what was last seen on it: less may be free than was told, never more.
    assert node.cards[0].memory_used_bytes == 7 * GB


def test_readings_of_a_card_that_is_gone_are_forgotten() -> None:
    inventory, _, _ = _inventory()
    for index in range(3):
        node = a_node("n1", cards=(a_card(index, node="n1"),))
        inventory.connected(node, []) if index < 2 else inventory.inventory_changed(node)
        inventory.sensed("n1", NodeFigures(cards={a_card(index, node="n1").uuid: CardFigures(power_w=5.0)}))
    kept = [inventory.figures(a_card(index, node="n1").uuid).power_w for index in range(3)]
    assert kept == [None, None, 5.0]
