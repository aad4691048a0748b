"""Replicas over several nodes: placed on all of them or none, never over-committed, reconciled as one."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import ModelFacts, Profile, check_model
from llmgw.core.cluster import EngineBuild, MachinePart, Node, NodeLink, Replica, Shard, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import estimate
from llmgw.core.placement import Placement, place, place_many
from llmgw.core.reconcile import FAILURE_PAUSE_S, Plan, reconcile
from llmgw.core.room import CARD_RESERVE_BYTES
from llmgw.core.shards import ended, heard, to_stop
from llmgw.core.snapshot import CatalogEntry
from llmgw.core.suggest import suggest
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed

BUILDS = (EngineBuild(engine="vllm", version="0.30.0"), EngineBuild(engine="ray", version="2.55.0"))


def two(**over: Any) -> Profile:
    return a_profile(**{"name": "two", "engine": "vllm", "gpu_class": "h100-80g", "nodes": 2, "tp": 2, "pp": 2, **over})


def wide(profile: Profile | None = None, *, weights: int = 80, **over: Any) -> CatalogEntry:
    facts = ModelFacts(weights_bytes=weights * GB, kv_bytes_per_token=1000, layers=40, attention_heads=8, kv_heads=8)
    return an_entry(a_model(profiles=(profile or two(),), source="hf:o/r@1", **over), facts=facts)


def box(name: str, cards: int = 2, **over: Any) -> Node:
    stock = tuple(a_card(i, node=name) for i in range(cards))
    return a_node(name, cards=stock, **{"engines": BUILDS, "address": f"{name}.lan", **over})


def as_replica(entry: CatalogEntry, where: Placement, *, id: str = "r1", **over: Any) -> Replica:
    """The replica that a placement becomes."""
    state = over.get("state", ShardState.READY)
    shards = tuple(Shard(node=p.node, cards=p.cards, state=state) for p in where.places)
    fields: dict[str, Any] = {
        "node": where.node,
        "cards": where.cards,
        "memory_bytes": where.memory_bytes,
        "shards": shards,
    }
    return a_replica(entry, id=id, **{**fields, **over})


def placed(entry: CatalogEntry, *nodes: Node) -> Placement:
    found = place(entry, a_snapshot(nodes=nodes)).placement
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("over", "field", "words"),
    [
        ({"nodes": 2, "tp": 3, "pp": 1}, "nodes", "3 cards, which 2 nodes cannot have as many of each"),
        ({"gpus_per_node": 4}, "gpus_per_node", "tp 2 × pp 2 are 4 cards, and 2 nodes with 4 cards each have 8"),
        ({"engine": "sglang", "pp": 1}, "nodes", "sglang runs on one node"),
        ({"engine": "sglang", "nodes": 1}, "pp", "sglang runs on one node, and there with tp alone"),
        ({"nodes": 17}, "nodes", "17 is outside 1 to 16"),
        ({"nodes": 1, "tp": 64, "pp": 2}, "nodes", "tp 64 × pp 2 are 128 cards, and a node has at most 64"),
    ],
)
def test_a_shape_that_does_not_add_up_is_refused(over: dict[str, object], field: str, words: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        check_model(a_model(profiles=(two(**over),)))
    assert words in refused.value.message
    assert refused.value.field == f"profiles[0].{field}"


def test_shapes_that_add_up_are_taken() -> None:
    for over, each in (
        ({}, 2),
        ({"gpus_per_node": 2}, 2),
        ({"tp": 4, "pp": 1}, 2),
        ({"nodes": 1, "tp": 1}, 2),
        ({"nodes": 4}, 1),
    ):
        profile = two(**over)
        check_model(a_model(profiles=(profile,)))
        assert profile.cards_per_node == each


def test_a_shape_is_part_of_what_needs_a_restart_and_none_is_no_news() -> None:
    entry = wide()
    assert entry.spec_hash(two()) != entry.spec_hash(two(nodes=4))
    assert entry.spec_hash(two(tp=2, pp=1, nodes=1)) == entry.spec_hash(a_profile(name="x", engine="vllm", tp=2))


def test_stages_hold_whole_layers_and_every_card_is_given_what_the_largest_needs() -> None:
    facts = ModelFacts(weights_bytes=60 * GB, kv_bytes_per_token=60_000, layers=30)
    one = estimate(facts, engine="vllm", context_length=1024, slots=1, tp=1)
    four = estimate(facts, engine="vllm", context_length=1024, slots=1, tp=1, pp=4)
    assert four.per_card_bytes - four.overhead_bytes == -(-(60 * GB * 8) // 30) + 60_000 * 1024 * 8 // 30
    assert four.total_bytes == one.total_bytes + 3 * one.overhead_bytes
    assert "4 cards in 4 stages" in four.detail
    assert "30 layers are too few" in estimate(facts, engine="vllm", context_length=1024, slots=1, pp=31).refusal


def test_it_goes_to_all_its_nodes_or_to_none() -> None:
    entry = wide()
    found = placed(entry, box("n1"), box("n2"), box("n3", cards=1))
    assert [place.node for place in found.places] == ["n1", "n2"]
    assert found.cards == ("GPU-n1-0", "GPU-n1-1", "GPU-n2-0", "GPU-n2-1")
    decision = place(entry, a_snapshot(nodes=(box("n1"), box("n3", cards=1))))
    assert decision.placement is None
    assert "needs 2 nodes with 2 cards of class h100-80g each" in decision.message
    assert "n1 has them; nearest of the others is n3: has 1 card of class h100-80g" in decision.message
    assert [(v.node, v.fits, v.rule) for v in decision.verdicts] == [("n1", False, "nodes"), ("n3", False, "cards")]


def test_a_node_without_the_runtime_takes_no_part() -> None:
    decision = place(wide(), a_snapshot(nodes=(box("n1"), box("n2", engines=BUILDS[:1]))))
    assert decision.placement is None
    assert "engine ray: not installed" in decision.message


def test_parts_of_cards_are_not_taken() -> None:
    part = a_card(1, node="n2", parent="GPU-n2-0")
    node = a_node("n2", cards=(a_card(0, node="n2"), part), engines=BUILDS)
    decision = place(wide(), a_snapshot(nodes=(box("n1"), node)))
    assert decision.placement is None
    assert [c.rule for c in decision.verdicts[1].cards] == ["", "part"]


def test_nodes_with_a_fast_network_between_them_go_first() -> None:
    fast = (MachinePart(kind="infiniband", name="mlx5_0/1", state="active"),)
    down = (MachinePart(kind="infiniband", name="mlx5_0/1", state="down"),)
    nodes = (box("n1", parts=down), box("n2", parts=fast), box("n3"), box("n4", parts=fast))
    assert [p.node for p in placed(wide(), *nodes).places] == ["n2", "n4"]
    assert [p.node for p in placed(wide(), *nodes[:3]).places] == ["n1", "n2"]


@given(
    cards=st.lists(st.lists(st.integers(10, 90), max_size=4), min_size=1, max_size=6),
    weights=st.integers(1, 200),
    nodes=st.integers(2, 3),
    tp=st.integers(1, 2),
    count=st.integers(0, 5),
)
@settings(max_examples=100, deadline=None)
def test_no_card_is_over_committed_and_many_are_placed_as_one_after_the_other(
    cards: list[list[int]], weights: int, nodes: int, tp: int, count: int
) -> None:
    entry = wide(two(nodes=nodes, tp=tp, pp=nodes), weights=weights)
    stock = tuple(
        a_node(
            f"n{i}", engines=BUILDS, cards=tuple(a_card(k, node=f"n{i}", memory=m * GB) for k, m in enumerate(sizes))
        )
        for i, sizes in enumerate(cards)
    )
    replicas: tuple[Replica, ...] = ()
    one_by_one: list[Placement] = []
    while len(one_by_one) < count:
        found = place(entry, a_snapshot(nodes=stock, replicas=replicas)).placement
        if found is None:
            break
        assert len({p.node for p in found.places}) == nodes
        assert all(len(set(p.cards)) == tp for p in found.places)
        one_by_one.append(found)
        replicas += (as_replica(entry, found, id=f"r{len(replicas)}", state=ShardState.STARTING),)
    assert place_many(entry, a_snapshot(nodes=stock), count) == one_by_one
    for card in (card for node in stock for card in node.cards):
        promised = sum(r.memory_bytes for r in replicas if card.uuid in r.cards)
        assert promised == 0 or promised <= (card.memory_total_bytes or 0) - CARD_RESERVE_BYTES


def test_it_starts_on_all_its_nodes_and_is_left_alone_there() -> None:
    entry = wide()
    nodes = (box("n1"), box("n2"))
    (start,) = reconcile(a_snapshot(entries=(entry,), nodes=nodes)).starts
    assert [shard.node for shard in start.placement.shards] == ["n1", "n2"]
    running = as_replica(entry, start.placement)
    assert reconcile(a_snapshot(entries=(entry,), nodes=nodes, replicas=(running,))) == Plan()
    silent = (box("n1"), box("n2", link=NodeLink.SILENT))
    assert reconcile(a_snapshot(entries=(entry,), nodes=silent, replicas=(running,))) == Plan()


def test_when_one_shard_fails_the_others_end_at_once_and_hold_their_cards_until_they_have() -> None:
    entry = changed(wide(), failures=1)
    nodes = (box("n1"), box("n2"))
    running = as_replica(entry, placed(entry, *nodes))
    failed = changed(heard(running, "n2", a_replica(state=ShardState.FAILED, message="exit code 1")), since=1000.0)
    later = a_snapshot(entries=(entry,), nodes=nodes, replicas=(failed,), now=1000.0 + FAILURE_PAUSE_S)
    plan = reconcile(later)
    assert [stop.replica for stop in plan.collapses] == ["r1"]
    assert not plan.stops
    assert not plan.starts
    over = heard(failed, "n1", a_replica(state=ShardState.STOPPED))
    plan = reconcile(changed(later, replicas=(over,)))
    assert not plan.collapses
    assert [stop.replica for stop in plan.stops] == ["r1"]
    assert len(plan.starts) == 1


def test_a_failed_replicas_shard_that_nobody_can_reach_keeps_nobody_waiting() -> None:
    entry = wide()
    nodes = (box("n1"), box("n2", link=NodeLink.SILENT), box("n3"))
    running = as_replica(entry, placed(entry, *(box("n1"), box("n2"))))
    failed = changed(heard(running, "n1", a_replica(state=ShardState.FAILED)), since=900.0)
    plan = reconcile(a_snapshot(entries=(entry,), nodes=nodes, replicas=(failed,)))
    assert [stop.replica for stop in plan.stops] == ["r1"]
    assert [p.node for p in plan.starts[0].placement.places] == ["n1", "n3"]


def test_a_replica_torn_apart_serves_until_a_new_one_does_where_there_is_room_for_both() -> None:
    entry = wide()
    running = as_replica(entry, placed(entry, box("n1"), box("n2")))
    nodes = (box("n1"), box("n2", link=NodeLink.LOST, heard_at=0.0), box("n3"), box("n4"))
    torn = a_snapshot(entries=(entry,), nodes=nodes, replicas=(running,))
    plan = reconcile(torn)
    assert not plan.drains
    assert not plan.stops
    new = as_replica(entry, plan.starts[0].placement, id="r2")
    assert new.nodes == ("n3", "n4")
    assert [d.replica for d in reconcile(changed(torn, replicas=(running, new))).drains] == ["r1"]


def test_a_replica_torn_apart_gives_way_where_there_is_no_room_for_both() -> None:
    entry = wide(weights=170)
    running = as_replica(entry, placed(entry, box("n1"), box("n2")))
    nodes = (box("n1"), box("n2", link=NodeLink.LOST, heard_at=0.0), box("n3"))
    plan = reconcile(a_snapshot(entries=(entry,), nodes=nodes, replicas=(running,)))
    assert [d.replica for d in plan.drains] == ["r1"]
    assert not plan.starts


def test_a_draining_replica_is_told_to_end_until_it_has() -> None:
    entry = wide(stopped=True)
    running = as_replica(entry, placed(entry, box("n1"), box("n2")))
    draining = changed(running, state=ShardState.DRAINING, since=900.0)
    snapshot = a_snapshot(entries=(entry,), nodes=(box("n1"), box("n2")), replicas=(draining,))
    assert [s.replica for s in reconcile(snapshot).stops] == ["r1"]
    half = heard(draining, "n1", a_replica(state=ShardState.STOPPED))
    assert [s.replica for s in reconcile(changed(snapshot, replicas=(half,))).stops] == ["r1"]


def test_what_no_machine_holds_alone_is_offered_over_as_few_as_are_enough() -> None:
    facts = ModelFacts(weights_bytes=400 * GB, kv_bytes_per_token=1000, layers=80, attention_heads=24, kv_heads=8)
    nodes = (*(box(f"n{i}", cards=4) for i in range(3)), box("n3", cards=5), box("n4", cards=8, engines=BUILDS[:1]))
    (found, *_) = suggest(facts, nodes[:4], engines=("vllm",), context_length=4096, slots=4)
    assert (found.spans, found.tp, found.pp, found.nodes) == (2, 4, 2, 4)
    assert "vllm over 2 nodes with 4 cards of h100-80g each (nodes 2, tp 4, pp 2)" in found.message
    entry = an_entry(a_model(profiles=(two(nodes=2, tp=4, pp=2),), context_length=4096), facts=facts)
    assert place(entry, a_snapshot(nodes=nodes)).placement is not None
    without = tuple(changed(node, engines=BUILDS[:1]) for node in nodes[:4])
    assert not suggest(facts, without, engines=("vllm",), context_length=4096, slots=4)[0].nodes
    large = changed(facts, weights_bytes=4000 * GB)
    assert not suggest(large, nodes, engines=("vllm",), context_length=4096, slots=4)[0].nodes


class _World:
    """A cluster whose orders all succeed by the next look, and whose shards and nodes fail as the test says."""

    def __init__(self, entry: CatalogEntry, names: tuple[str, ...]) -> None:
        self.entry = entry
        self.now = 1000.0
        self.links = dict.fromkeys(names, NodeLink.CONNECTED)
        self.replicas: dict[str, Replica] = {}
        self.made = 0

    def nodes(self) -> tuple[Node, ...]:
        return tuple(box(name, link=link, heard_at=0.0) for name, link in self.links.items())

    def reachable(self, node: str) -> bool:
        return self.links[node] is NodeLink.CONNECTED

    def hear(self, id: str, node: str, state: ShardState) -> None:
        before = self.replicas[id]
        up = int(state is ShardState.READY)
        told = a_replica(state=state, endpoint="", prepared=state is ShardState.STARTING, pid=up, runtime_port=up)
        after = heard(before, node, told)
        self.replicas[id] = changed(after, since=self.now if after.state is not before.state else before.since)
        if ended(after) and after.state is not ShardState.FAILED:
            del self.replicas[id]

    def step(self) -> None:
        """A look, and all that follows from it."""
        self.now += 10.0
        replicas = tuple(self.replicas.values())
        plan = reconcile(a_snapshot(now=self.now, entries=(self.entry,), nodes=self.nodes(), replicas=replicas))
        for stop in (*plan.collapses, *plan.stops):
            replica = self.replicas[stop.replica]
            if replica.state is not ShardState.FAILED:
                self.replicas[replica.id] = changed(replica, state=ShardState.DRAINING, since=self.now - 5.0)
            for rank in to_stop(self.replicas[replica.id], self.reachable):
                if replica.id in self.replicas:
                    self.hear(replica.id, replica.nodes[rank], ShardState.STOPPED)
            if replica.state is ShardState.FAILED and stop in plan.stops:
                self.replicas.pop(replica.id, None)
        for drain in plan.drains:
            self.replicas[drain.replica] = changed(
                self.replicas[drain.replica], state=ShardState.DRAINING, since=self.now
            )
        for rally in plan.rallies:
            self.hear(rally.replica, self.replicas[rally.replica].nodes[rally.rank], ShardState.READY)
        for replica in list(self.replicas.values()):
            for shard in replica.shards:
                if shard.state is ShardState.PENDING and replica.id in self.replicas and self.reachable(shard.node):
                    self.hear(replica.id, shard.node, ShardState.STARTING)
        for start in plan.starts:
            self.made += 1
            new = as_replica(self.entry, start.placement, id=f"r{self.made}", state=ShardState.PENDING)
            self.replicas[new.id] = changed(new, since=self.now, started_at=self.now)

    def check(self) -> None:
        """No card that can be reached is promised twice over."""
        for node in self.nodes():
            for card in node.cards:
                holding = [r for r in self.replicas.values() if card.uuid in r.cards and node.name in r.holding]
                assert sum(r.memory_bytes for r in holding) <= (card.memory_total_bytes or 0)


@given(
    events=st.lists(
        st.tuples(st.sampled_from(["fail", "lose", "back", "wait"]), st.integers(0, 9), st.integers(0, 9)), max_size=25
    ),
    weights=st.sampled_from([40, 170]),
    wanted=st.integers(0, 2),
)
@settings(max_examples=150, deadline=None)
def test_whatever_befalls_it_the_cluster_comes_to_be_as_wanted(
    events: list[tuple[str, int, int]], weights: int, wanted: int
) -> None:
    names = ("n1", "n2", "n3", "n4", "n5", "n6", "n7", "n8")
    world = _World(wide(weights=weights, replicas=wanted), names)
    for kind, one, other in events:
        alive = [r for r in world.replicas.values() if r.live]
        if kind == "fail" and alive:
            replica = alive[one % len(alive)]
            shard = replica.shards[other % len(replica.shards)]
            if world.reachable(shard.node) and shard.state is not ShardState.STOPPED:
                world.hear(replica.id, shard.node, ShardState.FAILED)
        elif kind in ("lose", "back"):
            world.links[names[one % len(names)]] = NodeLink.LOST if kind == "lose" else NodeLink.CONNECTED
        world.step()
        world.check()
    world.links = dict.fromkeys(names, NodeLink.CONNECTED)
    for _ in range(60):
        world.step()
        world.check()
    left = list(world.replicas.values())
    assert [r.state for r in left] == [ShardState.READY] * wanted
    assert all(shard.state is ShardState.READY for r in left for shard in r.shards)
