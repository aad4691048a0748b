"""Memory beside cards: it is counted on its node like everything else there, and what is missing is said in bytes."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import Card, EngineBuild, ShardState
from llmgw.core.fit import FREETOKEN_HOST_BYTES, PYTHON_ENGINE_BYTES
from llmgw.core.placement import Decision, place, place_many
from llmgw.core.room import CARD_RESERVE_BYTES, NODE_RESERVE_BYTES, node_room
from llmgw.core.snapshot import CatalogEntry, Snapshot
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed

MIXTURE = ModelFacts(
    weights_bytes=52 * GB,
    kv_bytes_per_token=98_304,
    trained_context=32_768,
    experts=128,
    expert_bytes=(GB,) * 48,
    embedding_length=2048,
    vocabulary=151_936,
)
ENGINES = (EngineBuild(engine="llamacpp", version="1"), EngineBuild(engine="freetoken", version="0.2.1"))


def entry(profile: Profile, facts: ModelFacts = MIXTURE) -> CatalogEntry:
    return an_entry(a_model(profiles=(profile,)), facts=facts)


def mixed(*args: str, **over: object) -> Profile:
    """llama.cpp on one 24 GB card."""
    return a_profile(name="mix", gpu_class="rtx4090-24g", args=args, **over)


def alone(**over: object) -> Profile:
    """FreeToken on the same."""
    return a_profile(name="ft", engine="freetoken", gpu_class="rtx4090-24g", **over)


def a_small_card(index: int = 0, **over: Any) -> Card:
    return a_card(index, memory=24 * GB, **{"gpu_class": "rtx4090-24g", "compute_capability": "8.9", **over})


def on_node(wanted: CatalogEntry, *cards: Card, memory: int = 64 * GB) -> Decision:
    return place(wanted, snapshot(*cards, memory=memory))


def snapshot(*cards: Card, memory: int = 64 * GB) -> Snapshot:
    return a_snapshot(nodes=(a_node(memory=memory, cards=cards or (a_small_card(),), engines=ENGINES),))


def test_a_mixture_larger_than_its_card_goes_there_with_its_experts_in_memory() -> None:
    whole = on_node(entry(mixed()))
    assert whole.placement is None
    assert whole.verdicts[0].rule == "memory"
    found = on_node(entry(mixed("--cpu-moe")))
    assert found.placement is not None
    assert found.need is not None
    assert found.placement.memory_bytes == found.need.per_card_bytes < 10 * GB
    assert found.placement.host_bytes == found.need.host_bytes == 48 * GB + found.need.overhead_bytes
    assert found.verdicts[0].message == ("fits: 7.07 GB on card 0, 48.5 GB of 63.5 GB free memory beside the card")


def test_too_little_memory_beside_the_card_is_said_with_both_figures() -> None:
    decision = on_node(entry(mixed("--cpu-moe")), memory=32 * GB)
    assert decision.placement is None
    (verdict,) = decision.verdicts
    assert verdict.rule == "memory"
    assert verdict.message == "needs 48.5 GB of memory beside the card, has 31.5 GB free, 17 GB missing"
    assert verdict.missing_bytes == 48 * GB + decision.need.overhead_bytes - (32 * GB - NODE_RESERVE_BYTES)  # type: ignore[union-attr]
    assert [card.fits for card in verdict.cards] == [True]


def test_memory_promised_beside_a_card_is_gone_for_everybody_on_the_node() -> None:
    node = a_node(memory=64 * GB, cards=(a_small_card(),), engines=ENGINES)
    beside = a_replica(id="b", memory_bytes=20 * GB, host_bytes=40 * GB, cards=("GPU-n1-0",))
    assert node_room(node, (beside,)) == 24 * GB - NODE_RESERVE_BYTES
    starting = a_replica(id="s", memory_bytes=GB, host_bytes=10 * GB, cards=("GPU-n1-1",), state=ShardState.STARTING)
    assert node_room(node, (beside, starting)) == 14 * GB - NODE_RESERVE_BYTES
    on_cpu = an_entry(a_model("other"), facts=ModelFacts(weights_bytes=30 * GB))
    decision = place(on_cpu, a_snapshot(nodes=(node,), replicas=(beside,)))
    assert decision.verdicts[0].message.startswith("needs 30.")
    assert "23.5 GB free" in decision.verdicts[0].message


def test_the_least_memory_a_profile_asks_for_holds_beside_cards_too() -> None:
    wanted = entry(mixed("--cpu-moe", min_memory_gb=70))
    assert on_node(wanted).verdicts[0].message.startswith("needs 70 GB of memory beside the card, has 63.5 GB free")
    assert on_node(wanted, memory=80 * GB).placement is not None
    small = ModelFacts(weights_bytes=GB)
    assert on_node(entry(mixed(min_memory_gb=16), small), memory=15 * GB).placement is None


def test_card_and_memory_of_a_unified_machine_are_one() -> None:
    unified = a_small_card(gpu_class="gb10", memory_total_bytes=60 * GB, unified=True)
    profile = a_profile(gpu_class="gb10", args=("--cpu-moe",))
    assert on_node(entry(profile), unified, memory=60 * GB).placement is not None
    less = a_small_card(gpu_class="gb10", memory_total_bytes=53 * GB, unified=True)
    assert on_node(entry(profile), less, memory=53 * GB).placement is None


def test_freetoken_gets_a_card_of_its_own_whole_and_its_weights_in_memory() -> None:
    held = a_replica(id="h", memory_bytes=GB, cards=("GPU-n1-0",))
    one, two = a_small_card(0), a_small_card(1)
    here = snapshot(one, two)
    decision = place(entry(alone()), a_snapshot(nodes=here.nodes, replicas=(held,)))
    assert decision.placement is not None
    assert decision.placement.cards == ("GPU-n1-1",)
    assert decision.placement.memory_bytes == 24 * GB - CARD_RESERVE_BYTES
    assert decision.placement.host_bytes == 52 * GB + FREETOKEN_HOST_BYTES
    assert decision.verdicts[0].cards[0].message == "a replica holds it, and freetoken needs one for itself"
    assert decision.verdicts[0].message == "fits: card 1 for itself, 56 GB of 63.5 GB free memory beside the card"
    only = place(entry(alone()), a_snapshot(nodes=snapshot(one).nodes, replicas=(held,)))
    assert only.placement is None
    assert "nobody else on it; the one it has cannot give that" in only.message
    with_it = a_replica(id="f", cards=("GPU-n1-0",), memory_bytes=24 * GB - CARD_RESERVE_BYTES)
    other = place(
        an_entry(a_model("o", profiles=(mixed(),))), a_snapshot(nodes=snapshot(one).nodes, replicas=(with_it,))
    )
    assert other.placement is None


def test_freetoken_is_not_refused_for_weights_larger_than_the_card_unless_the_card_must_hold_them() -> None:
    assert on_node(entry(alone())).placement is not None
    resident = on_node(entry(alone(args=("--moe-strategy=fused",))))
    assert resident.verdicts[0].rule == "memory"
    dense = ModelFacts(weights_bytes=22 * GB)
    assert on_node(entry(alone(), dense)).placement is None
    fits = on_node(entry(alone(), ModelFacts(weights_bytes=20 * GB)))
    assert fits.placement is not None
    assert fits.placement.host_bytes == FREETOKEN_HOST_BYTES
    assert fits.need is not None
    assert fits.need.per_card_bytes == 20 * GB + PYTHON_ENGINE_BYTES


def test_memory_freetoken_may_lock_is_reserved() -> None:
    profile = alone(env={"FREETOKEN_PIN_BUDGET_GB": "58"})
    found = on_node(entry(profile), memory=128 * GB)
    assert found.placement is not None
    assert found.placement.host_bytes == 58 * 1024**3 + FREETOKEN_HOST_BYTES


def test_a_card_that_cannot_compute_with_the_weights_is_refused_with_what_could() -> None:
    ampere, ada, turing = ((a_small_card(compute_capability=told)) for told in ("8.0", "8.9", "7.5"))
    assert on_node(entry(alone()), ampere).placement is not None
    old = on_node(entry(alone()), turing)
    assert old.placement is None
    assert old.verdicts[0].cards[0].rule == "capability"
    assert old.verdicts[0].message == (
        "its cards of class rtx4090-24g: compute capability 7.5, and freetoken with these weights needs 8.0"
    )
    fp8 = entry(alone(), ModelFacts(weights_bytes=10 * GB, quantization="fp8"))
    assert on_node(fp8, ampere).placement is None
    assert on_node(fp8, ada).placement is not None
    nvfp4 = entry(alone(), ModelFacts(weights_bytes=10 * GB, quantization="nvfp4"))
    assert "8.9, and freetoken with these weights needs 12.0" in on_node(nvfp4, ada).message
    assert on_node(fp8, a_small_card(compute_capability="")).placement is not None
    assert on_node(entry(mixed("--cpu-moe")), turing).placement is not None


@given(
    cards=st.lists(st.integers(4, 40), min_size=1, max_size=4),
    memory=st.integers(4, 200),
    experts=st.integers(0, 40),
    layers=st.integers(1, 6),
    least=st.integers(0, 30),
    kind=st.sampled_from(["llamacpp", "freetoken"]),
    unified=st.booleans(),
    wanted=st.integers(1, 8),
)
@settings(max_examples=200, deadline=None)
def test_neither_a_card_nor_the_memory_beside_it_is_over_committed(
    cards: list[int], memory: int, experts: int, layers: int, least: int, kind: str, unified: bool, wanted: int
) -> None:
    facts = ModelFacts(
        weights_bytes=(experts * layers // 2 + 3) * GB, experts=2, expert_bytes=(experts * GB // 2,) * layers
    )
    args = ("--n-cpu-moe", str(layers // 2)) if kind == "llamacpp" else ()
    profile = a_profile(engine=kind, gpu_class="c-1g", args=args, min_memory_gb=least)
    stock = tuple(a_card(i, memory=size * GB, gpu_class="c-1g") for i, size in enumerate(cards))
    if unified:
        stock = (a_card(0, memory=memory * GB, gpu_class="c-1g", unified=True),)
    node = a_node(memory=memory * GB, cards=stock, engines=ENGINES)
    model = entry(profile, facts)
    found = place_many(model, a_snapshot(nodes=(node,)), wanted)
    one = place(model, a_snapshot(nodes=(node,)))
    assert bool(found) == (one.placement is not None) == any(verdict.fits for verdict in one.verdicts)
    assert sum(place.host_bytes for place in found) <= max(0, memory * GB - NODE_RESERVE_BYTES)
    for card in stock:
        on_it = [place for place in found if card.uuid in place.cards]
        taken = sum(place.memory_bytes + (place.host_bytes if unified else 0) for place in on_it)
        assert not on_it or taken <= (card.memory_total_bytes or 0) - CARD_RESERVE_BYTES
        assert kind == "llamacpp" or len(on_it) <= 1


def test_a_card_given_away_whole_takes_nobody_when_a_stranger_left_it() -> None:
    crowded = on_node(entry(alone()), a_small_card(memory_used_bytes=10 * GB)).placement
    assert crowded is not None
    owner = a_replica(id="o", engine="freetoken", memory_bytes=crowded.memory_bytes, host_bytes=GB, cards=crowded.cards)
    wanted = entry(mixed(), ModelFacts(weights_bytes=GB))
    decision = place(wanted, changed(snapshot(a_small_card()), replicas=(owner,)))
    assert decision.placement is None
    (card,) = decision.verdicts[0].cards
    assert (card.rule, card.message) == ("taken", "freetoken holds it for itself")
    assert place_many(wanted, changed(snapshot(a_small_card()), replicas=(owner,)), 1) == []


def test_a_node_short_of_memory_takes_what_needs_none_beside_its_cards() -> None:
    wanted = entry(mixed(), ModelFacts(weights_bytes=GB))
    node = a_node(
        memory=64 * GB, memory_available_bytes=NODE_RESERVE_BYTES // 2, cards=(a_small_card(),), engines=ENGINES
    )
    decision = place(wanted, a_snapshot(nodes=(node,)))
    assert decision.placement is not None
    assert decision.verdicts[0].fits
