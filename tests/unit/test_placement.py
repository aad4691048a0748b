"""Placement: never more promised than there is, and every refusal names its rule and its figure."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import ModelFacts
from llmgw.core.cluster import EngineBuild, NodeLink, ShardState
from llmgw.core.placement import place
from llmgw.core.room import CARD_RESERVE_BYTES, NODE_RESERVE_BYTES, card_room, node_room
from tests.support.builders import (
    GB,
    a_card,
    a_model,
    a_node,
    a_profile,
    a_replica,
    a_snapshot,
    an_entry,
)


def test_without_a_node_the_next_step_is_named() -> None:
    decision = place(an_entry(), a_snapshot())
    assert decision.placement is None
    assert "join-token" in decision.message


def test_a_cpu_model_goes_to_the_node_with_fewest_copies_of_it() -> None:
    entry = an_entry()
    snapshot = a_snapshot(nodes=(a_node("n1"), a_node("n2", memory=8 * GB)), replicas=(a_replica(entry, node="n1"),))
    decision = place(entry, snapshot)
    assert decision.placement is not None
    assert decision.placement.node == "n2"


def test_too_little_memory_is_refused_with_the_missing_bytes() -> None:
    entry = an_entry(facts=ModelFacts(weights_bytes=20 * GB))
    decision = place(entry, a_snapshot(nodes=(a_node(memory=16 * GB),)))
    (verdict,) = decision.verdicts
    assert decision.placement is None
    assert verdict.rule == "memory"
    assert decision.need is not None
    assert verdict.missing_bytes == decision.need.total_bytes - (16 * GB - NODE_RESERVE_BYTES)
    assert "missing" in decision.message


def test_min_memory_of_the_profile_counts_when_it_is_more() -> None:
    entry = an_entry(a_model(profiles=(a_profile(min_memory_gb=30),)))
    decision = place(entry, a_snapshot(nodes=(a_node(memory=16 * GB),)))
    assert decision.verdicts[0].rule == "memory"


def test_each_node_rule_names_itself() -> None:
    entry = an_entry()
    nodes = (
        a_node("silent", link=NodeLink.SILENT, heard_at=960.0),
        a_node("shut", cordoned=True),
        a_node("bare", engines=(EngineBuild(engine="llamacpp", version="1", usable=False, why_not="no AVX2"),)),
    )
    decision = place(entry, a_snapshot(nodes=nodes))
    rules = {v.node: (v.rule, v.message) for v in decision.verdicts}
    assert rules["silent"][0] == "link"
    assert "40 s ago" in rules["silent"][1]
    assert rules["shut"][0] == "cordoned"
    assert rules["bare"] == ("engine", "engine llamacpp: no AVX2")


def test_cards_of_the_class_with_room_are_taken_tightest_first() -> None:
    profile = a_profile(name="gpu", gpu_class="h100-80g", tp=1)
    cards = (a_card(0), a_card(1, memory_used_bytes=40 * GB), a_card(2, gpu_class="a100-80g"))
    decision = place(an_entry(a_model(profiles=(profile,))), a_snapshot(nodes=(a_node(cards=cards),)))
    assert decision.placement is not None
    assert decision.placement.cards == ("GPU-n1-1",)


def test_a_card_that_does_not_report_its_memory_is_never_used() -> None:
    profile = a_profile(name="gpu", gpu_class="h100-80g")
    cards = (a_card(0, memory_total_bytes=None), a_card(1, healthy=False, problem="XID 79: fell off the bus"))
    decision = place(an_entry(a_model(profiles=(profile,))), a_snapshot(nodes=(a_node(cards=cards),)))
    assert decision.placement is None
    assert [c.rule for c in decision.verdicts[0].cards] == ["unreadable", "unhealthy"]
    assert "fell off the bus" in decision.verdicts[0].cards[1].message


def test_a_card_held_by_a_stranger_is_refused_with_the_missing_bytes() -> None:
    """Memory that an orphan or another program holds is not ours to promise."""
    profile = a_profile(name="gpu", gpu_class="h100-80g")
    cards = (a_card(0, memory_used_bytes=79 * GB),)
    decision = place(an_entry(a_model(profiles=(profile,))), a_snapshot(nodes=(a_node(cards=cards),)))
    assert decision.placement is None
    assert decision.verdicts[0].missing_bytes > 0


def test_profiles_are_tried_from_the_highest_priority_down() -> None:
    profiles = (a_profile(name="cpu", priority=1), a_profile(name="gpu", gpu_class="h100-80g", priority=10))
    entry = an_entry(a_model(profiles=profiles))
    with_card = place(entry, a_snapshot(nodes=(a_node(cards=(a_card(),)),)))
    without = place(entry, a_snapshot(nodes=(a_node(),)))
    assert with_card.placement is not None
    assert with_card.placement.profile.name == "gpu"
    assert without.placement is not None
    assert without.placement.profile.name == "cpu"
    assert [(v.profile, v.fits) for v in without.verdicts] == [("gpu", False), ("cpu", True)]


@given(
    cards=st.lists(st.integers(1, 90), min_size=1, max_size=6),
    used=st.lists(st.integers(0, 90), min_size=6, max_size=6),
    weights=st.integers(1, 120),
    tp=st.integers(1, 4),
    wanted=st.integers(1, 12),
)
@settings(max_examples=150, deadline=None)
def test_no_card_is_ever_over_committed(cards: list[int], used: list[int], weights: int, tp: int, wanted: int) -> None:
    profile = a_profile(name="gpu", gpu_class="h100-80g", tp=tp)
    entry = an_entry(a_model(profiles=(profile,)), facts=ModelFacts(weights_bytes=weights * GB))
    stock = tuple(
        a_card(i, memory=m * GB, memory_used_bytes=min(u, m) * GB)
        for i, (m, u) in enumerate(zip(cards, used, strict=False))
    )
    snapshot = a_snapshot(nodes=(a_node(cards=stock),))
    for i in range(wanted):
        decision = place(entry, snapshot)
        if decision.placement is None:
            break
        assert len(set(decision.placement.cards)) == tp
        replica = a_replica(
            entry,
            id=f"r{i}",
            cards=decision.placement.cards,
            memory_bytes=decision.placement.memory_bytes,
            state=ShardState.STARTING,
        )
        snapshot = a_snapshot(nodes=snapshot.nodes, replicas=(*snapshot.replicas, replica))
    for card in stock:
        promised = sum(r.memory_bytes for r in snapshot.replicas if card.uuid in r.cards)
        assert card.memory_total_bytes is not None
        assert promised == 0 or promised <= card.memory_total_bytes - CARD_RESERVE_BYTES


def test_memory_of_a_unified_card_and_of_its_node_is_promised_once() -> None:
    card = a_card(memory=120 * GB, gpu_class="gb10", unified=True)
    node = a_node(memory=120 * GB, cards=(card,))
    on_cpu = a_replica(id="c", memory_bytes=70 * GB, cards=())
    on_card = a_replica(id="g", memory_bytes=90 * GB, cards=(card.uuid,))
    assert card_room(card, (on_cpu,)) == 50 * GB - CARD_RESERVE_BYTES
    assert node_room(node, (on_card,)) == 30 * GB - NODE_RESERVE_BYTES
    own = a_card(memory=120 * GB)
    assert card_room(own, (on_cpu,)) == 120 * GB - CARD_RESERVE_BYTES
    assert node_room(a_node(memory=120 * GB, cards=(own,)), (on_card,)) == 120 * GB - NODE_RESERVE_BYTES


def test_a_model_whose_heads_cannot_be_divided_is_refused_everywhere_with_what_can() -> None:
    facts = ModelFacts(weights_bytes=GB, kv_bytes_per_token=1024, attention_heads=28, kv_heads=4)
    cards = tuple(a_card(i) for i in range(8))
    engines = (EngineBuild(engine="vllm", version="0.30.0"),)
    snapshot = a_snapshot(nodes=(a_node(cards=cards, engines=engines),))
    profile = a_profile(engine="vllm", gpu_class=cards[0].gpu_class, tp=8)
    decision = place(an_entry(a_model(profiles=(profile,)), facts=facts), snapshot)
    assert decision.placement is None
    assert decision.verdicts[0].rule == "shape"
    assert "28 attention heads cannot be divided among 8 cards" in decision.message
    profile = a_profile(engine="vllm", gpu_class=cards[0].gpu_class, tp=4)
    decision = place(an_entry(a_model(profiles=(profile,)), facts=facts), snapshot)
    assert decision.placement is not None
    assert len(decision.placement.cards) == 4
