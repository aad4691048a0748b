"""What a fleet could hold: the fewest cards that are enough and divide the heads, the longest context, or the gap."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.catalog import MIN_CONTEXT, ModelFacts
from llmgw.core.cluster import EngineBuild, Node
from llmgw.core.fit import estimate
from llmgw.core.room import CARD_RESERVE_BYTES
from llmgw.core.suggest import engines_for, suggest
from llmgw.core.verdicts import Suggestion
from tests.support.builders import GB, a_card, a_node

GLM = ModelFacts(
    weights_bytes=170 * GB,
    kv_bytes_per_token=160_000,
    trained_context=131_072,
    attention_heads=64,
    kv_heads=8,
    embedding_length=4096,
    vocabulary=151_552,
)


def fleet(cards: int, *, memory: int = 80 * GB) -> tuple[Node, ...]:
    """Two nodes with so many cards each."""
    made = tuple(a_card(i, memory=memory) for i in range(cards))
    return (a_node("n1", cards=made), a_node("n2", cards=made))


def first(facts: ModelFacts, nodes: tuple[Node, ...], *, engine: str = "vllm", context: int = 8192) -> Suggestion:
    """What is offered first."""
    return suggest(facts, nodes, engines=(engine,), context_length=context, slots=4)[0]


def test_the_fewest_cards_that_are_enough_and_divide_the_heads() -> None:
    found = first(GLM, fleet(4))
    need = estimate(GLM, engine="vllm", context_length=8192, slots=4, tp=4)
    assert (found.tp, found.nodes, found.need_bytes) == (4, 2, need.per_card_bytes)
    three = estimate(GLM, engine="vllm", context_length=8192, slots=4, tp=3)
    assert three.per_card_bytes < 80 * GB - CARD_RESERVE_BYTES  # by memory three would do
    assert "vllm on 4 cards of" in found.message
    assert "(tp 4)" in found.message
    assert "on 2 nodes" in found.message


def test_too_few_cards_are_a_gap_with_its_figures() -> None:
    found = first(GLM, fleet(3))
    assert (found.nodes, found.tp) == (0, 2)
    assert found.message.startswith("vllm does not fit 2 cards of")
    assert "are needed on each and" in found.message
    shorter = first(with_changes(GLM, weights_bytes=100 * GB), fleet(2), context=131_072)
    assert shorter.nodes == 0
    assert shorter.longest_context > MIN_CONTEXT
    assert f"up to {shorter.longest_context:,} tokens × 4 it would" in shorter.message


def test_llama_cpp_may_take_any_number_of_cards_or_none() -> None:
    small = ModelFacts(weights_bytes=4 * GB, kv_bytes_per_token=57_344, trained_context=32_768, embedding_length=3584)
    nodes = fleet(1, memory=24 * GB)
    card, cpu = suggest(small, nodes, engines=("llamacpp",), context_length=4096, slots=4)
    assert (card.tp, card.nodes) == (1, 2)
    assert cpu.gpu_class is None
    assert cpu.message.startswith("llamacpp ")


MIXTURE = ModelFacts(
    weights_bytes=60 * GB,
    kv_bytes_per_token=98_304,
    trained_context=32_768,
    attention_heads=32,
    kv_heads=4,
    embedding_length=2048,
    vocabulary=151_936,
    experts=128,
    expert_bytes=(GB,) * 48,
)


def a_workstation(*, memory: int, card: int = 24 * GB, capability: str = "8.9") -> Node:
    return a_node(memory=memory, cards=(a_card(memory=card, compute_capability=capability),))


def test_a_mixture_larger_than_the_card_is_offered_with_as_few_experts_in_memory_as_leave_room() -> None:
    nodes = (a_workstation(memory=64 * GB),)
    found = suggest(MIXTURE, nodes, engines=("llamacpp",), context_length=4096, slots=4)
    mixed = found[0]
    assert (mixed.engine, mixed.nodes, mixed.tp) == ("llamacpp", 1, 1)
    flag, count = mixed.args
    assert flag == "--n-cpu-moe"
    room = 24 * GB - CARD_RESERVE_BYTES

    def on_card(layers: int) -> int:
        args = ("--n-cpu-moe", str(layers))
        return estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=4, args=args).per_card_bytes

    assert on_card(int(count)) <= room < on_card(int(count) - 1)
    assert mixed.need_bytes == on_card(int(count))
    assert mixed.longest_context >= 4096
    assert mixed.message.startswith(f"llamacpp on 1 card of h100-80g with experts in memory (--n-cpu-moe {count}): ")
    assert f" and {mixed.host_bytes / GB:.3g} GB of memory beside it, up to " in mixed.message
    assert [s.nodes for s in found[1:]] == [1, 0]  # in memory alone; on cards alone it does not fit


def test_a_mixture_with_too_little_memory_beside_the_card_says_what_is_missing() -> None:
    found = suggest(MIXTURE, (a_workstation(memory=32 * GB),), engines=("llamacpp",), context_length=4096, slots=4)
    assert not any(s.nodes for s in found)
    assert any("of memory beside it, and the largest node has 31.5 GB" in s.message for s in found)


def test_strata_is_offered_where_it_was_installed() -> None:
    there = a_workstation(memory=64 * GB)
    there = msgspec.structs.replace(there, engines=(*there.engines, EngineBuild(engine="strata", version="0.2.7")))
    nodes = (there, msgspec.structs.replace(a_workstation(memory=64 * GB), name="n2"))
    found = {s.engine: s for s in suggest(MIXTURE, nodes, engines=("llamacpp",), context_length=4096, slots=1)[:2]}
    assert found["strata"].nodes == 1
    assert found["strata"].message == (
        "strata on 1 card of h100-80g with experts in memory: the whole card and 52 GB of memory beside it, on 1 node"
    )
    assert found["llamacpp"].nodes == 2


def test_a_repository_of_a_mixture_is_offered_to_freetoken_where_it_can_compute() -> None:
    facts = msgspec.structs.replace(MIXTURE, expert_bytes=())
    here = suggest(facts, (a_workstation(memory=128 * GB),), engines=("vllm", "sglang"), context_length=4096, slots=4)
    assert (here[0].engine, here[0].nodes, here[0].args) == ("freetoken", 1, ())
    assert here[0].message == (
        "freetoken on 1 card of h100-80g with experts in memory: the whole card and 64 GB of memory beside it, "
        "on 1 node"
    )
    old = (a_workstation(memory=128 * GB, capability="7.5"),)
    for nodes, model in (
        (old, facts),
        ((a_workstation(memory=128 * GB),), msgspec.structs.replace(facts, experts=0)),
        ((a_workstation(memory=128 * GB, card=80 * GB),), facts),
    ):
        found = suggest(model, nodes, engines=("vllm", "sglang"), context_length=4096, slots=4)
        assert "freetoken" not in {s.engine for s in found}


@pytest.mark.parametrize("facts", [None, ModelFacts()])
def test_nothing_is_said_while_nothing_is_known(facts: ModelFacts | None) -> None:
    assert suggest(facts, fleet(4), engines=("vllm",), context_length=4096, slots=4) == ()


def test_engines_follow_what_the_source_is() -> None:
    for named in ("hf:a/b@c/x.gguf", "file:/m/X.GGUF", f"https://h/x.gguf?sig=1#sha256={'a' * 64}"):
        assert engines_for(named) == ("llamacpp",)
    assert engines_for("hf:a/b@c") == ("vllm", "sglang")
    assert engines_for("sim:") == ("sim",)


@given(
    weights=st.integers(1, 400),
    kv=st.integers(0, 400_000),
    cards=st.integers(1, 8),
    slots=st.integers(1, 16),
    trained=st.integers(256, 200_000),
)
def test_what_is_offered_fits_and_one_step_more_does_not(
    weights: int, kv: int, cards: int, slots: int, trained: int
) -> None:
    facts = ModelFacts(
        weights_bytes=weights * GB, kv_bytes_per_token=kv, trained_context=trained, attention_heads=32, kv_heads=8
    )
    found = suggest(facts, fleet(cards), engines=("vllm",), context_length=256, slots=slots)[0]
    room = 80 * GB - CARD_RESERVE_BYTES

    def need(context: int) -> int:
        return estimate(facts, engine="vllm", context_length=context, slots=slots, tp=found.tp).per_card_bytes

    assert bool(found.nodes) == (need(256) <= room and found.tp <= cards)
    if found.nodes:
        assert found.longest_context <= trained
        assert need(found.longest_context) <= room
        longer = found.longest_context + 256
        assert longer > trained or need(longer) > room


def with_changes(facts: ModelFacts, **changes: int) -> ModelFacts:
    """The same facts but for these."""
    return msgspec.structs.replace(facts, **changes)
