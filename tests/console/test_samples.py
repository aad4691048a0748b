"""What the console keeps of the past, and which replicas are where: cheap at a thousand nodes, and counted right."""

import math

import msgspec

from console.state.cluster import ClusterState
from console.state.history import NODE_SAMPLE_S, NODES_AT_ONCE, SAMPLE_S, SAMPLES, History, Ring
from console.state.index import ReplicaIndex
from console.state.touched import nodes_moved, stirred, touched_nodes
from llmgw.api.watch import ReplicaRow
from tests.console.test_gpus import wide_fleet
from tests.support.fleet_rows import NOW, delta, figures_row, replica_row, small_fleet

NODES = 3 * NODES_AT_ONCE


def fleet(nodes: int = NODES) -> ClusterState:
    return ClusterState().apply(wide_fleet(nodes), at=NOW)[0]


def sampled(history: History, state: ClusterState) -> int:
    return sum(bool(history.node(name, "cpu")) for name in state.nodes)


def test_nodes_are_sampled_a_few_with_each_message_and_each_once_a_round() -> None:
    history, state = History(), fleet()
    counts = []
    for step in range(6):
        history.record(state, NOW + step / 10)
        counts.append(sampled(history, state))
    assert counts == [50, 100, 150, 150, 150, 150]
    for step in range(6):
        history.record(state, NOW + NODE_SAMPLE_S + step / 10)
    assert {len(history.node(name, "cpu")) for name in state.nodes} == {2}


def test_a_node_that_goes_before_its_turn_is_passed_over() -> None:
    history, state = History(), fleet()
    history.record(state, NOW)
    gone = tuple(list(state.nodes)[60:80])
    state, _ = state.apply(delta(gone={"nodes": gone, "figures": gone}), at=NOW)
    for step in range(4):
        history.record(state, NOW + 0.1 + step / 10)
    assert sampled(history, state) == NODES - len(gone)
    assert all(history.node(name, "cpu") == [] for name in gone)


def test_means_of_full_groups_stay_as_they_are_while_the_next_one_fills() -> None:
    ring = Ring(20)
    for value in (1, 2, 3, 4, 5, 11, 12, 13, 14, 15):
        ring.add(value)
    two = [3.0, 13.0]
    assert ring.means(2, 5) == two
    for value in (100, 100, 100, 100):
        ring.add(value)
        assert ring.means(2, 5) == two
    ring.add(math.nan)
    assert ring.means(3, 5) == [*two, 100.0], "what is unknown does not count"
    assert all(math.isnan(mean) for mean in Ring(20).means(4, 5))


def test_means_are_those_of_the_newest_figures_however_often_the_ring_was_filled() -> None:
    ring = Ring(20)
    for number in range(20 * 7 + 5):
        ring.add(float(number))
        if number % 3 == 0:
            ring.means(4, 5)
    assert ring.means(4, 5) == [127.0, 132.0, 137.0, 142.0]
    for number in range(20):
        ring.add(float(number))
    assert ring.means(4, 5) == [2.0, 7.0, 12.0, 17.0], "as many figures later it is under way in the same place"


def test_a_models_means_are_of_whole_groups() -> None:
    history, state = History(), fleet(1).apply(small_fleet(), at=NOW)[0]
    for step in range(11):
        history.record(state, NOW + step * SAMPLE_S)
    means = history.traffic_means("tokens", 90, each=5)
    assert len(means) == SAMPLES // 5 - 1, "the oldest group is half gone"
    assert [mean for mean in means if math.isfinite(mean)] == [state.traffic["*"].output_tokens_per_s] * 2
    assert history.traffic_means("tokens", 90, "no such model", each=5) == []


def test_the_index_agrees_with_one_made_anew() -> None:
    state = fleet(20)
    moved = msgspec.structs.replace(state.replicas["r-1-0"], node="node0002")
    busier = msgspec.structs.replace(state.replicas["r-2-1"], in_flight=9)
    for rows, gone in (({"r-2-1": busier}, ()), ({"r-1-0": moved}, ()), ({}, ("r-3-0",)), ({"new": a_replica()}, ())):
        state, _ = state.apply(delta({"replicas": dict(rows)}, gone={"replicas": gone}, rev=state.rev + 1), at=NOW)
        fresh = ReplicaIndex(state.replicas)
        for name in state.nodes:
            assert state.replicas_on(name) == fresh.on_node(name)
        for model in ("model-0", "model-1", "model-2"):
            assert state.replicas_of(model) == fresh.of_model(model)
    assert state.replicas_on("node0002")[1].in_flight == 0
    assert [row.id for row in state.replicas_on("node0002")] == ["new", "r-1-0", "r-2-0", "r-2-1"]
    assert state.replicas_of("no such model") == ()


def a_replica() -> ReplicaRow:
    return replica_row("new", "model-0", "node0002")


def test_a_change_touches_the_nodes_that_read_differently() -> None:
    before = fleet(10)
    replica = before.replicas["r-1-0"]
    after, diff = before.apply(delta({"replicas": {"r-1-0": msgspec.structs.replace(replica, in_flight=5)}}), at=NOW)
    assert touched_nodes(before, after, diff) == frozenset()
    after, diff = before.apply(
        delta({"replicas": {"r-1-0": msgspec.structs.replace(replica, node="node0003")}}), at=NOW
    )
    assert touched_nodes(before, after, diff) == {"node0001", "node0003"}
    after, diff = before.apply(delta(gone={"replicas": ("r-1-0",)}), at=NOW)
    assert touched_nodes(before, after, diff) == {"node0001"}
    node = before.nodes["node0004"]
    after, diff = before.apply(delta({"figures": {"node0004": figures_row(node, (1.0,) * 8)}}), at=NOW)
    assert touched_nodes(before, after, diff) == {"node0004"}
    assert not nodes_moved(before, after, diff)


def test_what_nobody_should_wait_for() -> None:
    before = fleet(10)
    node = before.nodes["node0004"]
    for rows, gone in (
        ({"node0004": msgspec.structs.replace(node, state="silent")}, ()),
        ({"node9999": msgspec.structs.replace(node, name="node9999")}, ()),
        ({}, ("node0004",)),
    ):
        after, diff = before.apply(delta({"nodes": dict(rows)}, gone={"nodes": gone}), at=NOW)
        assert nodes_moved(before, after, diff)
    after, diff = before.apply(delta({"nodes": {"node0004": msgspec.structs.replace(node, agent_pid=77)}}), at=NOW)
    assert not nodes_moved(before, after, diff)


def test_requests_alone_are_no_news_and_a_last_word_is() -> None:
    before = fleet(10)
    replica = before.replicas["r-1-0"]
    for changes, told in (({"in_flight": 5}, False), ({"message": "out of memory"}, True), ({"state": "failed"}, True)):
        after, diff = before.apply(delta({"replicas": {"r-1-0": msgspec.structs.replace(replica, **changes)}}), at=NOW)
        assert stirred(before, after, diff) is told
    after, diff = before.apply(delta(gone={"replicas": ("r-1-0",)}), at=NOW)
    assert stirred(before, after, diff)
