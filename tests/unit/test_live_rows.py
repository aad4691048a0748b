"""Rows of the live feed: moments instead of ages, nothing where nothing is reported, and only touched names."""

import pytest

from llmgw.api.watch import FiguresRow, NodeRow
from llmgw.control import views
from llmgw.control.inventory import Inventory
from llmgw.control.live_index import ReplicaIndex
from llmgw.control.live_rows import Moments, figures_row, models_by_source, node_row, replica_row, work_percent
from llmgw.control.touched import MAX_NAMES, Touched
from llmgw.core.cluster import FetchProgress, ShardState
from llmgw.core.figures import CardFigures, NodeFigures, ReplicaFigures
from tests.support.builders import GB, a_card, a_node, a_replica, changed


class Clock:
    """A clock to set."""

    def __init__(self, now: float = 100.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


def test_a_moment_stays_the_same_while_the_wall_clock_is_calm_and_follows_its_steps() -> None:
    clock, wall = Clock(), Clock(1_900_000_000.0)
    moments = Moments(clock, wall)
    before = moments.unix(90.0)
    clock.now, wall.now = 5000.0, 1_900_000_000.0 + 4900.3
    assert moments.unix(90.0) == before == 1_899_999_990.0
    wall.now += 3600
    assert moments.unix(90.0) == pytest.approx(before + 3600.3)


def test_figures_follow_the_nodes_cards_and_say_nothing_of_what_is_not_reported() -> None:
    clock = Clock()
    inventory = Inventory(clock, lambda: None)
    cards = (a_card(0), a_card(1))
    inventory.connected(a_node("n1", cards=cards), [])
    inventory.sensed("n1", NodeFigures(cpu_percent=12.34, cards={cards[1].uuid: CardFigures(temperature_c=61.24)}))
    node = inventory.node("n1")
    assert node is not None
    row = figures_row(node, inventory.figures, Moments(clock, Clock(1000.0)))
    assert row == FiguresRow(
        heard=1000.0,
        cpu_percent=12.3,
        memory_available_bytes=16 * GB,
        temperature_c=(None, 61.2),
    )


def test_a_full_disk_is_told_from_one_that_was_not_measured() -> None:
    clock = Clock()
    inventory = Inventory(clock, lambda: None)

    def free() -> int | None:
        node = inventory.node("n1")
        assert node is not None
        return figures_row(node, inventory.figures, Moments(clock, Clock(1000.0))).disk_free_bytes

    inventory.connected(a_node("n1", disk_total_bytes=2000 * GB), [])
    assert free() is None
    inventory.sensed("n1", NodeFigures(load_1m=0.0, disk_free_bytes=GB))
    assert free() == GB
    inventory.sensed("n1", NodeFigures(load_1m=0.0, disk_free_bytes=0))
    assert free() == 0
    inventory.connected(a_node("n1"), [])
    inventory.sensed("n1", NodeFigures(load_1m=0.0, disk_free_bytes=0))
    assert free() is None


def test_columns_of_the_profile_and_what_engines_take() -> None:
    clock = Clock()
    inventory = Inventory(clock, lambda: None)
    cards = (a_card(0), a_card(1))
    inventory.connected(a_node("n1", cards=cards), [])
    full = CardFigures(sm_clock_mhz=1980.0, throttle_reasons=5, tensor_active_percent=0.0, memory_temperature_c=50.04)
    engines = {"m-1": ReplicaFigures(cpu_percent=250.0), "m-2": ReplicaFigures(memory_bytes=7)}
    inventory.sensed("n1", NodeFigures(cpu_power_w=210.0, cards={cards[1].uuid: full}, replicas=engines))
    node = inventory.node("n1")
    assert node is not None
    row = figures_row(node, inventory.figures, Moments(clock, Clock(1000.0)), inventory.engines("n1"))
    assert (row.sm_clock_mhz, row.throttle_reasons, row.tensor_active_percent) == ((None, 1980.0), (0, 5), (None, 0.0))
    assert (row.memory_temperature_c, row.dram_active_percent, row.cpu_power_w) == ((None, 50.0), (), 210.0)
    assert (row.engine_cpu_percent, row.engine_memory_bytes) == ({"m-1": 250.0}, {"m-2": 7})


@pytest.mark.parametrize(
    ("card", "work"),
    [
        (CardFigures(sm_active_percent=40.04, power_w=700, power_limit_w=700), 40.0),
        (CardFigures(power_w=350, power_limit_w=700), 50.0),
        (CardFigures(power_w=900, power_limit_w=700), 100.0),
        (CardFigures(power_w=350), None),
        (CardFigures(power_w=0, power_limit_w=700), None),
        (CardFigures(utilization_percent=99), None),
    ],
)
def test_work_is_what_is_active_else_power_against_its_limit(card: CardFigures, work: float | None) -> None:
    assert work_percent(card) == work


def test_a_node_row_says_what_a_card_may_draw_and_what_its_work_is_read_from() -> None:
    touched = Touched()
    inventory = Inventory(Clock(), lambda: None, touched)
    cards = (a_card(0), a_card(1), a_card(2))
    inventory.connected(a_node("n1", cards=cards), [])
    touched.take()

    def sense(**figures: CardFigures) -> None:
        inventory.sensed("n1", NodeFigures(cards={cards[int(name[1:])].uuid: each for name, each in figures.items()}))

    limited = CardFigures(power_w=239.0, power_limit_w=260.04)
    counted = CardFigures(sm_active_percent=12.0, power_w=300.0, power_limit_w=700.0)
    sense(c0=counted, c1=limited)
    # The row is made anew for what lasts, and not for a figure that moves.
    assert touched.take().nodes == {"n1"}
    sense(c0=counted, c1=CardFigures(power_w=251.0, power_limit_w=260.04))
    assert touched.take().nodes == set()
    node = inventory.node("n1")
    assert node is not None
    row = node_row(views.node_info(node, [], 0.0, inventory))
    assert [(card.power_limit_w, card.work_from) for card in row.cards] == [(700.0, "sm"), (260.0, "power"), (None, "")]
    sense(c0=counted, c1=CardFigures(power_w=251.0, power_limit_w=200.0))
    assert touched.take().nodes == {"n1"}


def test_a_node_row_names_who_holds_a_card_and_has_no_figures() -> None:
    inventory = Inventory(Clock(), lambda: None)
    card = a_card()
    replica = a_replica(id="r1", cards=(card.uuid,))
    inventory.connected(a_node("n1", cards=(card,)), [replica], ["disk is slow"])
    node = inventory.node("n1")
    assert node is not None
    row = node_row(views.node_info(node, [replica], 0.0, inventory))
    assert isinstance(row, NodeRow)
    assert (row.state, row.cards[0].replica, row.problems) == ("connected", "r1", ("disk is slow",))


def test_a_replica_row_has_its_download_in_figures_and_its_word_as_it_was_said() -> None:
    replica = a_replica(state=ShardState.FETCHING, message="waits", since=40.0)
    replica = changed(replica, progress=FetchProgress(phase="fetching", done_bytes=1, total_bytes=4))
    row = replica_row(replica, 3, Moments(Clock(), Clock(1000.0)))
    assert (row.message, row.since, row.in_flight) == ("waits", 940.0, 3)
    assert row.progress is not None
    assert (row.progress.done_bytes, row.progress.total_bytes) == (1, 4)


def test_models_by_source() -> None:
    assert models_by_source({"b": "file:/x", "a": "file:/x", "c": "sim:"}) == {"file:/x": ("a", "b"), "sim:": ("c",)}


def test_the_inventory_notes_what_it_touched() -> None:
    touched = Touched()
    clock = Clock()
    inventory = Inventory(clock, lambda: None, touched)
    assert touched.take().everything
    inventory.expect([("n1", False)])
    inventory.connected(a_node("n1"), [a_replica(id="r1")])
    first = touched.take()
    assert (first.nodes, first.figures, first.replicas, first.everything) == ({"n1"}, {"n1"}, {"r1"}, False)
    inventory.expect([("n1", False)])
    inventory.heard("n1")
    assert touched.take() == type(first)(catalog=False, everything=False)
    clock.now += 5
    inventory.heard("n1")
    assert touched.take().figures == {"n1"}
    inventory.sensed("n1", NodeFigures(cpu_percent=1.0))
    inventory.draining("r1", "stop")
    inventory.cordon("n1", True)
    last = touched.take()
    assert (last.figures, last.replicas, last.nodes) == ({"n1"}, {"r1"}, {"n1"})
    inventory.new_term()
    assert touched.take().everything


def test_too_many_names_count_as_everything() -> None:
    touched = Touched()
    touched.take()
    for number in range(MAX_NAMES + 1):
        touched.replica(f"r{number}")
    taken = touched.take()
    assert taken.everything
    assert len(taken.replicas) <= MAX_NAMES


def test_the_index_tells_whose_row_a_replica_changes() -> None:
    index = ReplicaIndex()
    replica = a_replica(id="r1", node="n1")
    assert index.note("r1", replica) == ({"n1"}, {"m"})
    assert index.note("r1", changed(replica, message="another word")) == (set(), {"m"})
    assert index.note("r1", changed(replica, node="n2")) == ({"n1", "n2"}, {"m"})
    assert [r.id for r in index.on_node("n2")] == ["r1"]
    assert list(index.on_node("n1")) == []
    assert index.note("r1", None) == ({"n2"}, {"m"})
    assert index.note("r1", None) == (set(), set())
    assert index.ids() == frozenset()
