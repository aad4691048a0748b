"""What a fleet could hold: the fewest cards that are enough and divide the heads, the longest context, or the gap."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.catalog import MIN_CONTEXT, ModelFacts
from llmgw.core.cluster import Node
from llmgw.core.fit import estimate
from llmgw.core.placement import CARD_RESERVE_BYTES
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


@pytest.mark.parametrize("facts", [None, ModelFacts()])
def test_nothing_is_said_while_nothing_is_known(facts: ModelFacts | None) -> None:
    assert suggest(facts, fleet(4), engines=("vllm",), context_length=4096, slots=4) == ()


def test_engines_follow_what_the_source_is() -> None:
    assert engines_for("hf:a/b@c/x.gguf") == ("llamacpp",)
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
