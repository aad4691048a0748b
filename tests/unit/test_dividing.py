"""Among how many cards a model can be divided: what engines would end at is refused before anything is fetched."""

from collections.abc import Mapping

import pytest

from llmgw.core.catalog import ModelFacts
from llmgw.core.cluster import EngineBuild
from llmgw.core.config_facts import config_facts
from llmgw.core.dividing import why_not_divided
from llmgw.core.placement import place
from llmgw.core.room import CARD_RESERVE_BYTES
from llmgw.core.suggest import suggest
from tests.support.builders import GB, a_card, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed

VLLM = (EngineBuild(engine="vllm", version="0.30.0"),)
RAY = EngineBuild(engine="ray", version="2.55.0")
GLM = {
    "model_type": "glm4_moe",
    "num_hidden_layers": 46,
    "hidden_size": 4096,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 10944,
    "vocab_size": 151552,
    "max_position_embeddings": 131072,
}
QWEN = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
}
MIXTURE = {
    "model_type": "qwen3_moe",
    "num_hidden_layers": 48,
    "hidden_size": 2048,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_experts": 128,
    "vocab_size": 151936,
}
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}


def refusal(config: Mapping[str, object], tp: int, *, engine: str = "vllm", args: tuple[str, ...] = ()) -> str:
    return why_not_divided(config_facts(config, GB), engine, tp, args)


@pytest.mark.case("C15")
@pytest.mark.parametrize("vision", [{}, {"num_heads": 16}, {"num_attention_heads": 16}, {"num_attention_heads": 1}])
def test_a_model_of_2_3_cards_gets_four_and_with_three_free_it_is_refused_before_any_start(
    vision: dict[str, int],
) -> None:
    config = {"text_config": GLM, "vision_config": vision, "model_type": "glm4v"} if vision else GLM
    facts = changed(config_facts(config, 170 * GB), kv_bytes_per_token=1000)
    stock = tuple(a_card(i) for i in range(4))
    node = a_node(cards=stock, engines=VLLM)
    (found, *_) = suggest(facts, (node,), engines=("vllm",), context_length=8192, slots=1)
    assert (found.tp, found.nodes) == (4, 1)
    entry = an_entry(
        a_model(profiles=(a_profile(engine="vllm", gpu_class="h100-80g", tp=3),), context_length=8192), facts=facts
    )
    refused = place(entry, a_snapshot(nodes=(node,)))
    assert refused.placement is None
    words = "its 64 attention heads cannot be divided among 3 cards; tp may be 1, 2, 4, 8, 16"
    assert words in refused.message
    four = an_entry(
        a_model(profiles=(a_profile(engine="vllm", gpu_class="h100-80g", tp=4),), context_length=8192), facts=facts
    )
    assert place(four, a_snapshot(nodes=(node,))).placement is not None
    busy = a_replica(four, node="n1", cards=(stock[3].uuid,), memory_bytes=70 * GB)
    left = place(four, a_snapshot(nodes=(node,), replicas=(busy,)))
    assert left.placement is None
    assert "needs 4 cards of class h100-80g" in left.message
    assert "3 of its 4 can give that" in left.message
    three = a_node(cards=stock[:3], engines=VLLM)
    few = place(four, a_snapshot(nodes=(three,)))
    assert few.message == "n1: has 3 cards of class h100-80g, and 4 are needed"


@pytest.mark.case("C15")
def test_kv_heads_are_divided_or_copied_as_often_on_every_card() -> None:
    assert refusal(QWEN, 7) == ("its 4 KV heads, or copies of them, cannot be divided among 7 cards; tp may be 1, 2, 4")
    eight = {**QWEN, "num_attention_heads": 32, "head_dim": 128}
    assert refusal(eight, 8) == ""
    latent = {**GLM, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
    assert refusal(latent, 16) == ""


@pytest.mark.case("C15")
@pytest.mark.parametrize(("engine", "refused"), [("vllm", True), ("sglang", True), ("trtllm", False)])
def test_a_vocabulary_is_divided_as_it_is_rounded_up(engine: str, refused: bool) -> None:
    config = {**QWEN, "num_attention_heads": 24, "num_key_value_heads": 24, "intermediate_size": 18432}
    # 151,655 words are rounded up to 151,680, which is 64 × 2370 and three times something.
    assert refusal({**config, "vocab_size": 151655}, 3, engine=engine) == ""
    said = refusal({**config, "vocab_size": 151552}, 3, engine=engine)
    assert said.startswith("its vocabulary of 151,552 words cannot be divided among 3 cards") is refused


@pytest.mark.case("C15")
def test_every_card_takes_as_many_columns_of_every_layer() -> None:
    odd = {**QWEN, "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 18948}
    assert refusal(odd, 8) == (
        "its 18,948 columns of its feed-forward layers cannot be divided among 8 cards; tp may be 1, 2, 4"
    )
    assert refusal(MIXTURE, 8) == ""
    narrow = {**MIXTURE, "moe_intermediate_size": 772}
    assert "its 772 columns of each expert cannot be divided among 8 cards" in refusal(narrow, 8)
    for args in (("--enable-expert-parallel",), ("-ep",)):
        assert refusal(narrow, 8, args=args) == ""
    assert refusal(narrow, 8, engine="sglang", args=("--ep-size", "8")) == ""
    assert refusal(narrow, 8, engine="sglang", args=("--ep-size=1",))


@pytest.mark.case("C15")
@pytest.mark.parametrize(
    ("config", "tp", "words"),
    [
        # 768 columns are 6 blocks: each of 8 cards would have three quarters of one.
        ({**MIXTURE, **FP8}, 8, "its 6 blocks of 128 columns of each expert"),
        (
            {**QWEN, "num_attention_heads": 64, "num_key_value_heads": 8, "intermediate_size": 29568}
            | {"quantization_config": {"quant_method": "awq", "group_size": 128}},
            2,
            "its 231 blocks of 128 columns of its feed-forward layers",
        ),
        (
            {**MIXTURE, "quantization_config": {"config_groups": {"group_0": {"weights": {"group_size": 128}}}}},
            4,
            "its 6 blocks of 128 columns of each expert",
        ),
    ],
)
def test_no_block_of_quantized_weights_is_on_two_cards(config: dict[str, object], tp: int, words: str) -> None:
    assert refusal(config, tp).startswith(f"{words} cannot be divided among {tp} cards; tp may be 1")
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    assert refusal(plain, tp) == ""


def test_experts_that_engines_pad_constrain_nothing() -> None:
    config = {**MIXTURE, "moe_intermediate_size": 2884, "quantization_config": {"quant_method": "mxfp4"}}
    assert refusal(config, 8) == ""


def test_recurrent_layers_have_heads_of_their_own() -> None:
    config = {
        **MIXTURE,
        "linear_num_value_heads": 32,
        "linear_num_key_heads": 12,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
    }
    assert refusal(config, 8).startswith("its 12 key heads of its linear attention cannot be divided among 8 cards")
    assert refusal(config, 4) == ""


@pytest.mark.parametrize("damaged", [7, "x", [], {"weight_block_size": "128"}, {"weight_block_size": [True, -5, None]}])
def test_a_quantization_that_says_nothing_is_none(damaged: object) -> None:
    assert refusal({**MIXTURE, "quantization_config": damaged}, 8) == ""


def test_of_what_nothing_is_known_nothing_is_refused() -> None:
    assert why_not_divided(ModelFacts(), "vllm", 3) == ""


@pytest.mark.case("C15")
@pytest.mark.parametrize("engine", ["vllm", "llamacpp"])
def test_a_replica_on_parts_of_cards_takes_one_of_them(engine: str) -> None:
    parts = tuple(
        a_card(i, memory=40 * GB, parent="GPU-n1-whole", gpu_class="h100-80g-3g.40gb", mig_profile="3g.40gb")
        for i in range(4)
    )
    node = a_node(cards=parts, engines=(EngineBuild(engine=engine, version="1"),))
    facts = ModelFacts(weights_bytes=60 * GB, kv_bytes_per_token=1000, attention_heads=64, kv_heads=8)
    two = a_profile(engine=engine, gpu_class="h100-80g-3g.40gb", tp=2)
    decision = place(an_entry(a_model(profiles=(two,)), facts=facts), a_snapshot(nodes=(node,)))
    assert decision.placement is None
    assert "a process sees only one part: a replica on parts of cards has tp 1" in decision.message
    (found, *_) = suggest(facts, (node,), engines=(engine,), context_length=4096, slots=1)
    assert found.nodes == 0
    small = changed(facts, weights_bytes=20 * GB)
    (found, *_) = suggest(small, (node,), engines=(engine,), context_length=4096, slots=1)
    assert (found.tp, found.nodes) == (1, 1)
    assert found.room_bytes == 40 * GB - CARD_RESERVE_BYTES


@pytest.mark.case("C15")
def test_cards_of_different_models_are_not_one_anothers() -> None:
    stock = (*(a_card(i) for i in range(2)), *(a_card(i, gpu_class="a100-80g") for i in (2, 3)))
    node = a_node(cards=stock, engines=VLLM)
    entry = an_entry(a_model(profiles=(a_profile(engine="vllm", gpu_class="h100-80g", tp=4),)))
    decision = place(entry, a_snapshot(nodes=(node,)))
    assert decision.message == "n1: has 2 cards of class h100-80g, and 4 are needed"


@pytest.mark.case("C15")
def test_stages_hold_whole_layers_however_they_divide() -> None:
    nodes = tuple(
        a_node(f"n{n}", cards=tuple(a_card(i, node=f"n{n}") for i in range(2)), engines=(*VLLM, RAY)) for n in (1, 2, 3)
    )
    facts = changed(config_facts(GLM, 100 * GB), layers=2)
    shape = a_profile(engine="vllm", gpu_class="h100-80g", tp=2, pp=3, nodes=3)
    decision = place(an_entry(a_model(profiles=(shape,)), facts=facts), a_snapshot(nodes=nodes))
    assert "its 2 layers are too few for 3 stages; pp may be 1 to 2" in decision.message
    uneven = changed(facts, layers=46)
    assert place(an_entry(a_model(profiles=(shape,)), facts=uneven), a_snapshot(nodes=nodes)).placement is not None
