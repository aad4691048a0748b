"""What operators of fleets of different shapes read of a model that is too large, too new, or in the wrong place."""

import pytest

from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import EngineBuild, Node, NodeLink
from llmgw.core.placement import place
from llmgw.core.suggest import engines_for, suggest
from llmgw.core.verdicts import Suggestion
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_snapshot, an_entry, changed

SOURCE = "hf:org/large@1"
VLLM = EngineBuild(engine="vllm", version="0.30.0")
RAY = EngineBuild(engine="ray", version="2.55.0")
LARGE = ModelFacts(
    weights_bytes=900 * GB, kv_bytes_per_token=1000, layers=60, attention_heads=128, kv_heads=8, embedding_length=7168
)
SMALL = changed(LARGE, weights_bytes=40 * GB)


def box(name: str, cards: int = 8, *, gpu_class: str = "h100-80g", engines: tuple[EngineBuild, ...] = (VLLM,)) -> Node:
    stock = tuple(a_card(i, node=name, gpu_class=gpu_class) for i in range(cards))
    return a_node(name, cards=stock, engines=engines, memory=500 * GB)


def told(facts: ModelFacts, *nodes: Node) -> tuple[Suggestion, ...]:
    return suggest(facts, nodes, engines=engines_for(SOURCE), context_length=4096, slots=4)


def refusal(profile: Profile, *nodes: Node, facts: ModelFacts = SMALL) -> str:
    decision = place(an_entry(a_model(profiles=(profile,), source=SOURCE), facts=facts), a_snapshot(nodes=nodes))
    assert decision.placement is None
    return decision.message


def on_cards(gpu_class: str = "h100-80g", **over: int) -> Profile:
    return a_profile(engine="vllm", gpu_class=gpu_class, **over)


def test_the_engine_that_serves_a_source_by_itself_is_offered_before_the_others() -> None:
    assert [found.engine for found in told(SMALL, box("n1"))] == ["vllm", "sglang"]


def test_a_fleet_without_cards_is_told_of_the_form_that_needs_none() -> None:
    (found,) = told(SMALL, a_node("n1"), a_node("n2"))
    assert found.nodes == 0
    assert found.message == (
        "vllm and sglang run on cards, and no node has one: a GGUF file of the model "
        "(hf:ORG/REPO@REVISION/FILE.gguf) runs on the CPU"
    )
    assert told(SMALL) == ()


def test_one_card_is_spoken_of_as_one() -> None:
    (first, *_) = told(LARGE, box("n1", 1))
    assert first.message.startswith("vllm does not fit 1 card of h100-80g: 90")
    assert " are needed and 79.7 GB are there" in first.message
    said = refusal(on_cards(), box("n1", 1), facts=LARGE)
    assert "needs 1 card of class h100-80g with" in said
    assert "free; the one it has cannot give that" in said
    assert "each" not in said


def test_several_nodes_that_would_do_with_the_runtime_are_named_with_what_they_lack() -> None:
    found = told(LARGE, box("n1"), box("n2"))
    assert not any(suggestion.nodes for suggestion in found)
    (over,) = [suggestion for suggestion in found if suggestion.spans > 1]
    assert over.message.endswith("if ray were installed beside vllm: 0 of 2 nodes have ray")
    one = told(LARGE, box("n1", engines=(VLLM, RAY)), box("n2"))
    assert any(suggestion.message.endswith("1 of 2 nodes has ray") for suggestion in one)
    (first, *_) = told(LARGE, box("n1", engines=(VLLM, RAY)), box("n2", engines=(VLLM, RAY)))
    assert (first.spans, first.nodes) == (2, 2)


def test_a_node_without_cards_is_not_called_one_that_lacks_the_engine() -> None:
    assert refusal(on_cards(), a_node("c1", engines=())) == "c1: has no card of class h100-80g, nor any other"
    other = box("n1", 2, gpu_class="l40s-48g", engines=())
    assert refusal(on_cards(), other) == "n1: has no card of class h100-80g; its cards are l40s-48g"


@pytest.mark.parametrize(
    ("over", "words"),
    [
        ({"engines": ()}, "engine vllm: not installed"),
        ({"cordoned": True}, "cordoned; `llmgw ctl node uncordon z1` opens it"),
        ({"link": NodeLink.LOST}, "its agent is lost"),
    ],
)
def test_of_several_reasons_the_one_that_can_be_mended_is_told(over: dict[str, object], words: str) -> None:
    able = changed(box("z1"), **over)
    said = refusal(on_cards(), a_node("c1"), box("n1", gpu_class="l40s-48g"), able)
    assert said.startswith(f"z1: {words}")
    assert said.endswith("; 2 other nodes refused too")


def test_a_node_that_was_not_heard_yet_is_not_said_to_have_no_card() -> None:
    silent = a_node("n1", link=NodeLink.SILENT)
    assert refusal(on_cards(), silent).startswith("n1: its agent is silent")
    assert not any("no node has one" in suggestion.message for suggestion in told(LARGE, silent, box("n2")))
    assert all("no node has" not in suggestion.message for suggestion in told(LARGE, silent))


def test_a_class_that_nobody_has_is_said_though_a_node_is_away() -> None:
    away = changed(box("a1", gpu_class="l40s-48g"), link=NodeLink.LOST)
    said = refusal(on_cards("h100-80"), away, box("n1"))
    assert "has no card of class h100-80; its cards are" in said
