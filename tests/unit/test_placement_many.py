"""Placing many replicas at once is placing them one by one, and a place is found exactly where the verdict says so."""

import time

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import NodeLink, ShardState
from llmgw.core.placement import Placement, place, place_many
from llmgw.core.snapshot import CatalogEntry, Snapshot
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry

PROFILES = (
    a_profile(name="big", gpu_class="h100-80g", tp=2, priority=3),
    a_profile(name="small", gpu_class="l40s-48g", priority=2),
    a_profile(name="cpu", priority=1),
)


def one_by_one(entry: CatalogEntry, snapshot: Snapshot, count: int) -> list[Placement]:
    found: list[Placement] = []
    for number in range(count):
        decision = place(entry, snapshot)
        assert (decision.placement is not None) == any(verdict.fits for verdict in decision.verdicts)
        if decision.placement is None:
            break
        found.append(decision.placement)
        replica = a_replica(
            entry,
            id=f"p{number}",
            node=decision.placement.node,
            state=ShardState.STARTING,
            cards=decision.placement.cards,
            memory_bytes=decision.placement.memory_bytes,
        )
        snapshot = a_snapshot(nodes=snapshot.nodes, replicas=(*snapshot.replicas, replica))
    return found


@given(
    nodes=st.lists(
        st.tuples(
            st.lists(st.tuples(st.integers(1, 90), st.booleans(), st.booleans()), max_size=4),
            st.integers(1, 40),
            st.sampled_from([NodeLink.CONNECTED, NodeLink.CONNECTED, NodeLink.SILENT]),
            st.booleans(),
        ),
        max_size=5,
    ),
    profiles=st.sets(st.sampled_from(range(3)), min_size=1),
    weights=st.integers(1, 60),
    count=st.integers(0, 8),
)
@settings(max_examples=150, deadline=None)
def test_many_are_placed_as_one_after_the_other(
    nodes: list[tuple[list[tuple[int, bool, bool]], int, NodeLink, bool]], profiles: set[int], weights: int, count: int
) -> None:
    stock = tuple(
        a_node(
            f"n{i}",
            memory=memory * GB,
            link=link,
            cordoned=cordoned,
            cards=tuple(
                a_card(k, node=f"n{i}", memory=size * GB, healthy=healthy, gpu_class=("h100-80g", "l40s-48g")[other])
                for k, (size, healthy, other) in enumerate(cards)
            ),
        )
        for i, (cards, memory, link, cordoned) in enumerate(nodes)
    )
    chosen: tuple[Profile, ...] = tuple(PROFILES[i] for i in sorted(profiles))
    entry = an_entry(a_model(profiles=chosen), facts=ModelFacts(weights_bytes=weights * GB))
    held = (a_replica(an_entry(a_model("other")), node="n0", memory_bytes=3 * GB),) if stock else ()
    snapshot = a_snapshot(nodes=stock, replicas=held)
    assert place_many(entry, snapshot, count) == one_by_one(entry, snapshot, count)


def test_two_hundred_replicas_find_their_places_among_a_thousand_nodes_in_a_moment() -> None:
    """Deciding shares its thread with every agent's stream: what takes seconds here silences the cluster."""
    profile = a_profile(name="gpu", gpu_class="h100-80g")
    entry = an_entry(a_model(replicas=200, profiles=(profile,)), facts=ModelFacts(weights_bytes=60 * GB))
    nodes = tuple(a_node(f"n{i}", cards=tuple(a_card(k, node=f"n{i}") for k in range(8))) for i in range(1000))
    began = time.process_time()
    assert len(place_many(entry, a_snapshot(nodes=nodes), 200)) == 200
    assert time.process_time() - began < 2.0
