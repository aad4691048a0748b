"""Memory estimates: checked by hand, against published figures, and never below what was measured."""

import json
import os
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.catalog import ModelFacts
from llmgw.core.config_facts import config_facts
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import MemoryNeed, estimate, kv_cache_bytes
from llmgw.core.units import size

MIB = 1024 * 1024
DATA = Path(os.environ.get("LLMGW_TEST_DATA") or Path(__file__).parents[3] / "shared" / "data")
PUBLISHED = DATA / "models.json"
SMOLLM2 = ModelFacts(
    weights_bytes=98_362_432, trained_context=8192, kv_bytes_per_token=23040, vocabulary=49152, embedding_length=576
)


def test_the_figures_add_up_and_are_told() -> None:
    need = estimate(SMOLLM2, engine="llamacpp", context_length=4096, slots=4)
    assert need.weights_bytes == 98_362_432
    assert need.kv_bytes == 23040 * 4096 * 4
    assert need.total_bytes == need.weights_bytes + need.kv_bytes + need.overhead_bytes == need.per_card_bytes
    assert need.detail == "weights 98.4 MB + KV 377 MB (4 × 4096 tokens) + engine 251 MB"


def test_cards_share_weights_and_cache_but_not_the_engine() -> None:
    one = estimate(SMOLLM2, engine="llamacpp", context_length=4096, slots=4)
    two = estimate(SMOLLM2, engine="llamacpp", context_length=4096, slots=4, tp=2)
    assert two.per_card_bytes == (one.weights_bytes + one.kv_bytes) // 2 + one.overhead_bytes
    assert two.total_bytes == one.total_bytes + one.overhead_bytes
    assert "2 cards" in two.detail


MIXTURE = ModelFacts(
    weights_bytes=18_600_000_000,
    kv_bytes_per_token=98_304,
    experts=128,
    expert_bytes=(0, *(320_000_000,) * 47),
    vocabulary=151_936,
    embedding_length=2048,
)


@pytest.mark.parametrize(
    ("args", "layers"),
    [
        (("--cpu-moe",), 48),
        (("-cmoe",), 48),
        (("--n-cpu-moe", "10"), 10),
        (("--threads", "8", "-ncmoe=10"), 10),
        (("--n-cpu-moe", "999"), 48),
        (("--n-cpu-moe", "4", "--n-cpu-moe", "10"), 10),
    ],
)
def test_experts_in_memory_are_taken_from_the_card_and_nothing_else(args: tuple[str, ...], layers: int) -> None:
    whole = estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=2)
    split = estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=2, args=args)
    kept = 320_000_000 * (layers - 1)
    assert whole.host_bytes == 0
    assert split.per_card_bytes == whole.per_card_bytes - kept + 320_000_000 == split.total_bytes
    assert split.host_bytes == kept + split.overhead_bytes
    of = "all" if layers == 48 else f"{layers} of 48"
    assert split.detail.startswith(whole.detail)
    assert f"; of it the experts of {of} layers in memory, " in split.detail
    assert split.detail.endswith(", and room on the card for one of them, 320 MB")


def test_a_first_layer_without_experts_that_is_kept_in_memory_changes_nothing() -> None:
    whole = estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=2)
    split = estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=2, args=("--n-cpu-moe", "1"))
    assert split.per_card_bytes == whole.per_card_bytes


PLAIN_7B = ModelFacts(
    weights_bytes=14 * 10**9,
    kv_bytes_per_token=1000,
    sliding_kv_bytes_per_token=600,
    sliding_window=1024,
    vocabulary=100_000,
    embedding_length=4096,
    state_bytes=5000,
    quantization="bfloat16",
)


def flagged(args: tuple[str, ...], *, engine: str = "llamacpp", on_cards: bool = True) -> MemoryNeed:
    return estimate(PLAIN_7B, engine=engine, context_length=8192, slots=4, args=args, on_cards=on_cards)


@pytest.mark.parametrize(
    ("args", "kv_bytes", "batch"),
    [
        ((), 4 * (400 * 8192 + 600 * 1536 + 5000), 512),
        (("--swa-full",), 4 * (1000 * 8192 + 5000), 512),
        (("--ubatch-size", "2048"), 4 * (400 * 8192 + 600 * 3072 + 5000), 2048),
        (("-ub=4096", "--batch-size", "1024"), 4 * (400 * 8192 + 600 * 2048 + 5000), 1024),
        (("-ub", "0"), 4 * (400 * 8192 + 600 * 3072 + 5000), 2048),
        (("-ub", "-1", "-b", "1024"), 4 * (400 * 8192 + 600 * 2048 + 5000), 1024),
        (("-b", "0"), 4 * (400 * 8192 + 600 * 1536 + 5000), 512),
        (("-b", "-1", "-ub", "4096"), 4 * (400 * 8192 + 600 * 3072 + 5000), 2048),
        (("--cache-type-k", "f32"), 4 * (800 * 8192 + 1200 * 1536 + 5000), 512),
        (("-ctk", "q8_0", "-ctv", "q8_0"), 4 * (214 * 8192 + 318 * 1536 + 5000), 512),
        # One of the two leaves the other as it was, and which of them is the wider nobody knows.
        (("-ctv", "q4_0"), 4 * (400 * 8192 + 600 * 1536 + 5000), 512),
    ],
)
def test_flags_that_make_llama_cpps_caches_larger_are_counted(args: tuple[str, ...], kv_bytes: int, batch: int) -> None:
    for on_cards in (True, False):
        need = flagged(args, on_cards=on_cards)
        assert (need.kv_bytes, need.overhead_bytes) == (kv_bytes, 150_000_000 + batch * 100_000 * 4)
        assert need.total_bytes == need.weights_bytes + need.kv_bytes + need.overhead_bytes


def test_caches_that_flags_put_into_the_nodes_memory_are_reserved_there() -> None:
    plain = flagged(())
    prompts = flagged(("--cache-ram", "4096"))
    assert (prompts.host_bytes, prompts.per_card_bytes) == (4096 * MIB, plain.per_card_bytes)
    assert "4.29 GB of caches in memory" in prompts.detail
    moved = flagged(("--no-kv-offload",))
    assert moved.host_bytes == plain.kv_bytes
    assert moved.per_card_bytes == moved.total_bytes == plain.per_card_bytes - plain.kv_bytes
    without = flagged(("--cache-ram", "4096", "-nkvo"), on_cards=False)
    assert (without.host_bytes, without.total_bytes) == (0, plain.total_bytes + 4096 * MIB)


AHEAD = 8192 - 1536
"""Tokens of windows that one request keeps of PLAIN_7B while a batch of it is computed, beyond what each keeps."""


@pytest.mark.parametrize(
    ("engine", "args", "weights", "kv_bytes", "tokens"),
    [
        ("vllm", (), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 8192),
        ("vllm", ("--max-num-batched-tokens", "32768"), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 32768),
        ("vllm", ("--max-num-batched-tokens=2048",), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 8192),
        ("vllm", ("--disable-hybrid-kv-cache-manager",), 1, 4 * (1000 * 8192 + 5000), 8192),
        ("vllm", ("--dtype", "float32"), 2, 4 * (800 * 8192 + 1200 * 1536 + 5000) + 1200 * AHEAD, 8192),
        ("sglang", ("--chunked-prefill-size", "16384"), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 16384),
        ("trtllm", ("--max_num_tokens", "16384"), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 16384),
        ("sglang", ("--chunked-prefill-size", "-1"), 1, 4 * (400 * 8192 + 600 * 1536 + 5000) + 600 * AHEAD, 8192),
    ],
)
def test_flags_that_make_engines_on_cards_larger_are_counted(
    engine: str, args: tuple[str, ...], weights: int, kv_bytes: int, tokens: int
) -> None:
    need = flagged(args, engine=engine)
    assert (need.weights_bytes, need.kv_bytes) == (weights * PLAIN_7B.weights_bytes, kv_bytes)
    assert need.overhead_bytes == 3_000_000_000 + tokens * 20 * 4096


GEMMA_3_27B = ModelFacts(
    kv_bytes_per_token=62 * 8192,
    sliding_kv_bytes_per_token=52 * 8192,
    sliding_window=1024,
    kv_heads=16,
    embedding_length=5376,
)


@pytest.mark.parametrize(
    ("args", "windows"),
    [
        ((), 1024 + 8192),
        (("--max-num-batched-tokens", "16384"), 1024 + 16_384),
        (("--max-num-batched-tokens", "32768"), 32_768),
    ],
)
def test_one_request_has_room_for_its_windows_and_a_batch(args: tuple[str, ...], windows: int) -> None:
    """vLLM starts only where one has; what requests compute at once is one batch, however many there are."""
    for slots in (1, 4):
        need = estimate(GEMMA_3_27B, engine="vllm", context_length=32_768, slots=slots, args=args)
        whole, others = 10 * 8192 * 32_768 * slots, (slots - 1) * 52 * 8192 * 1536
        assert need.kv_bytes == whole + others + 52 * 8192 * windows


def test_what_each_of_several_cards_holds_is_told_without_what_is_in_memory() -> None:
    for facts, args in (
        (PLAIN_7B, ("-nkvo",)),
        (MIXTURE, ("--n-cpu-moe", "30")),
        (MIXTURE, ("--cpu-moe", "-nkvo", "--cache-ram", "1024")),
    ):
        whole = estimate(facts, engine="llamacpp", context_length=65_536, slots=4, tp=2)
        need = estimate(facts, engine="llamacpp", context_length=65_536, slots=4, tp=2, args=args)
        assert size(need.per_card_bytes) != size(whole.per_card_bytes)
        assert need.detail.startswith(whole.detail.replace(size(whole.per_card_bytes), size(need.per_card_bytes)) + ";")
        assert need.detail.count("on 2 cards") == 1


def test_experts_stay_where_they_are_on_a_node_without_cards() -> None:
    mixture = msgspec.structs.replace(PLAIN_7B, expert_bytes=(10**9,) * 4)
    plain, flag = (
        estimate(mixture, engine="llamacpp", context_length=512, slots=1, args=args, on_cards=False)
        for args in ((), ("--cpu-moe",))
    )
    assert plain == flag


@pytest.mark.parametrize("args", [(), ("--n-cpu-moe", "0"), ("--n-cpu-moe", "-1"), ("--n-cpu-moe",)])
def test_without_layers_nothing_is_kept_in_memory(args: tuple[str, ...]) -> None:
    assert estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=1, args=args).host_bytes == 0
    assert estimate(SMOLLM2, engine="llamacpp", context_length=4096, slots=1, args=("--cpu-moe",)).host_bytes == 0


@given(layers=st.integers(0, 60), tp=st.integers(1, 8))
def test_several_cards_hold_no_less_than_what_is_not_in_memory(layers: int, tp: int) -> None:
    need = estimate(MIXTURE, engine="llamacpp", context_length=4096, slots=1, tp=tp, args=("--n-cpu-moe", str(layers)))
    kept = sum(MIXTURE.expert_bytes[:layers])
    assert need.per_card_bytes * tp >= MIXTURE.weights_bytes - kept + need.kv_bytes + need.overhead_bytes * tp
    assert need.host_bytes >= kept


def test_freetoken_keeps_a_mixture_in_memory_and_a_dense_model_on_its_card() -> None:
    mixture = estimate(MIXTURE, engine="freetoken", context_length=32_768, slots=4)
    assert (mixture.host_bytes, mixture.per_card_bytes) == (22_600_000_000, 3_000_000_000)
    assert mixture.whole_card
    assert mixture.detail == (
        "weights 18.6 GB in memory + freetoken 3 GB on a card of its own, 22.6 GB of memory beside it"
    )
    dense = estimate(SMOLLM2, engine="freetoken", context_length=32_768, slots=4)
    assert (dense.host_bytes, dense.per_card_bytes) == (4_000_000_000, 98_362_432 + 3_000_000_000)
    unknown = estimate(ModelFacts(), engine="freetoken", context_length=4096, slots=4)
    assert unknown.detail.startswith("weights and KV, known once they are looked up")


def test_strata_keeps_experts_in_memory_and_is_not_held_against_its_card() -> None:
    need = estimate(MIXTURE, engine="strata", context_length=262_144, slots=1)
    assert need.host_bytes == 47 * 320_000_000 + 4_000_000_000
    assert (need.per_card_bytes, need.whole_card) == (8_000_000_000, True)
    assert need.detail == (
        "experts 15 GB in memory + strata on a card of its own of at least 8 GB, 19 GB of memory beside it"
    )
    unknown = estimate(msgspec.structs.replace(MIXTURE, expert_bytes=()), engine="strata", context_length=4096, slots=1)
    assert unknown.host_bytes == 22_600_000_000


def test_a_configuration_says_how_many_experts_and_in_what_format() -> None:
    mixture = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64, "num_experts": 128}
    assert config_facts(mixture, 1).experts == 128
    assert config_facts({"text_config": {**mixture, "num_experts": 8}, "model_type": "vlm"}, 1).experts == 8
    assert config_facts({**mixture, "num_experts": 0, "n_routed_experts": 64}, 1).experts == 64
    for told, format_ in (
        ({"quant_method": "fp8"}, "fp8"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4"),
        ({"quant_method": "compressed-tensors", "format": "float-quantized"}, "fp8"),
        ({"quant_method": "awq"}, "awq"),
    ):
        assert config_facts({**mixture, "quantization_config": told}, 1).quantization == format_


def test_the_sim_engine_needs_next_to_nothing() -> None:
    need = estimate(ModelFacts(), engine="sim", context_length=1_000_000, slots=64)
    assert need.total_bytes < 100_000_000
    assert need.weights_bytes == need.kv_bytes == 0


def test_a_simulated_model_takes_what_its_source_says_and_calls_it_simulated() -> None:
    facts = ModelFacts(weights_bytes=70 * 10**9, kv_bytes_per_token=328_000)
    need = estimate(facts, engine="sim", context_length=1000, slots=10, tp=2)
    assert (need.weights_bytes, need.kv_bytes) == (70 * 10**9, 3_280_000_000)
    assert need.per_card_bytes == 35 * 10**9 + 1_640_000_000 + need.overhead_bytes
    assert need.detail.startswith("simulated weights 70 GB + simulated KV 3.28 GB (10 × 1000 tokens) + sim engine")


def test_an_engine_without_an_estimate_is_named() -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        estimate(SMOLLM2, engine="nowhere", context_length=4096, slots=1)
    with pytest.raises(InvalidInput, match="slots 0"):
        estimate(SMOLLM2, engine="llamacpp", context_length=4096, slots=0)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 1 << 20), st.integers(1, 64), st.integers(0, 1 << 20), st.integers(0, 1 << 20))
def test_more_context_or_slots_never_need_less(context: int, slots: int, full: int, sliding: int) -> None:
    facts = ModelFacts(kv_bytes_per_token=full + sliding, sliding_window=128, sliding_kv_bytes_per_token=sliding)
    here = kv_cache_bytes(facts, context_length=context, slots=slots)
    assert kv_cache_bytes(facts, context_length=context + 1, slots=slots) >= here
    assert kv_cache_bytes(facts, context_length=context, slots=slots + 1) >= here
    assert here <= (full + sliding) * context * slots


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"num_hidden_layers": "many", "hidden_size": None, "num_attention_heads": True},
        {"num_hidden_layers": 1 << 70, "hidden_size": -1},
        {"text_config": [], "layer_types": "x", "quantization_config": 3},
        {"num_hidden_layers": 2, "layer_types": [1, {}], "num_attention_heads": 4, "hidden_size": 64},
    ],
)
def test_a_configuration_of_the_wrong_kinds_says_nothing(config: dict[str, object]) -> None:
    assert config_facts(config, 7).kv_bytes_per_token == 0
    assert config_facts(config, 7).weights_bytes == 7


def test_a_nested_configuration_is_the_text_models() -> None:
    text = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    found = config_facts({"model_type": "vlm", "text_config": text, "vision_config": {"num_hidden_layers": 9}}, 0)
    assert (found.layers, found.kv_bytes_per_token, found.architecture) == (2, 256, "vlm")


def test_latent_attention_and_recurrent_layers_are_counted_for_what_they_keep() -> None:
    mla = {"num_hidden_layers": 61, "num_attention_heads": 128, "hidden_size": 7168}
    found = config_facts({**mla, "kv_lora_rank": 512, "qk_rope_head_dim": 64}, 0)
    assert found.kv_bytes_per_token == 61 * 2 * 576
    hybrid = {"num_hidden_layers": 4, "num_attention_heads": 4, "hidden_size": 64}
    kinds = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
    assert config_facts({**hybrid, "layer_types": kinds}, 0).kv_bytes_per_token == 256


def _published() -> list[dict[str, Any]]:
    if not PUBLISHED.exists():
        pytest.skip("the published model sizes are not here; LLMGW_TEST_DATA names the directory of models.json")
    models: list[dict[str, Any]] = json.loads(PUBLISHED.read_text())
    return models


def _per_token(row: dict[str, Any]) -> float | None:
    """KV bytes a token that a published figure amounts to, if it is one of plain KV cache at 16 bits."""
    factor = {"B": 1, "MiB": MIB, "GiB": 1024 * MIB, "B/token": 1}.get(row["unit"])
    what = row["what"].lower()
    if factor is None or "left" in what or "state" in what or "process" in what or not what.startswith("kv"):
        return None
    if row["dtype"] not in ("f16", "fp16", "bf16"):
        return None
    per = 1 if row["unit"] == "B/token" else row["context"]
    return float(row["value"] * factor / per) if per else None


def test_kv_bytes_agree_with_published_figures() -> None:
    checked = 0
    for model in _published():
        config = model["config"]
        if "hidden_size" not in config:
            config = {"num_attention_heads": 1, "hidden_size": 1, **config}
        found = config_facts(config, 0)
        for row in model["published"]:
            figure = _per_token(row)
            if figure is None:
                continue
            full_only = found.kv_bytes_per_token - found.sliding_kv_bytes_per_token
            expected = full_only if found.sliding_window else found.kv_bytes_per_token
            assert expected == pytest.approx(figure, rel=0.004), (model["name"], row)
            checked += 1
    assert checked >= 8


def test_the_sliding_part_is_the_measured_one() -> None:
    model = next(m for m in _published() if m["name"] == "gpt-oss-120b")
    found = config_facts(model["config"], 0)
    measured = {row["what"]: row["value"] for row in model["published"] if "llama_kv_cache" in row["what"]}
    full, sliding = (value * MIB for value in measured.values())
    assert kv_cache_bytes(found, context_length=2016, slots=1) == pytest.approx(full + sliding, rel=0.005)


def test_the_whole_estimate_covers_a_measured_process_without_waste() -> None:
    model = next(m for m in _published() if m["name"] == "Qwen3-4B")
    rows = {row["what"]: row for row in model["published"]}
    weights = next(row["value"] for what, row in rows.items() if what == "GGUF file")
    measured = next(row["value"] * MIB for what, row in rows.items() if what.startswith("whole process"))
    facts = ModelFacts(weights_bytes=weights, kv_bytes_per_token=147456, vocabulary=151936, embedding_length=2560)
    need = estimate(facts, engine="llamacpp", context_length=8192, slots=4)
    assert measured <= need.total_bytes <= 1.05 * measured


def test_engines_on_cards_hold_their_slots_and_what_they_work_in() -> None:
    facts = ModelFacts(
        weights_bytes=16_000_000_000,
        kv_bytes_per_token=131_072,
        attention_heads=32,
        kv_heads=8,
        embedding_length=4096,
    )
    for engine in ("vllm", "sglang"):
        one = estimate(facts, engine=engine, context_length=8190, slots=4)
        assert one.kv_bytes == 4 * 8192 * 131_072
        assert one.overhead_bytes == 3_000_000_000 + 8192 * 20 * 4096
        assert one.per_card_bytes == one.weights_bytes + one.kv_bytes + one.overhead_bytes
        assert one.detail.startswith("weights 16 GB + KV 4.29 GB (4 × 8190 tokens) + " + engine)
        four = estimate(facts, engine=engine, context_length=8192, slots=4, tp=4)
        assert four.per_card_bytes == 4_000_000_000 + one.kv_bytes // 4 + one.overhead_bytes
        assert four.refusal == ""


def test_more_cards_than_kv_heads_hold_copies() -> None:
    facts = ModelFacts(weights_bytes=1 << 30, kv_bytes_per_token=1024, attention_heads=32, kv_heads=2)
    two = estimate(facts, engine="vllm", context_length=4096, slots=1, tp=2)
    eight = estimate(facts, engine="vllm", context_length=4096, slots=1, tp=8)
    assert two.kv_bytes // 2 == eight.kv_bytes // 8 == 2 * 1024 * 1024
    assert "4 copies" in eight.detail
    latent = config_facts(
        {"num_hidden_layers": 2, "num_attention_heads": 128, "hidden_size": 64, "kv_lora_rank": 512}, 1
    )
    spread = estimate(latent, engine="sglang", context_length=4096, slots=1, tp=8)
    assert spread.kv_bytes // 8 == latent.kv_bytes_per_token * 4096


def test_heads_that_cannot_be_divided_are_said_with_what_can() -> None:
    facts = ModelFacts(weights_bytes=1 << 30, kv_bytes_per_token=1024, attention_heads=28, kv_heads=4)
    need = estimate(facts, engine="vllm", context_length=4096, slots=1, tp=8)
    assert need.refusal == "its 28 attention heads cannot be divided among 8 cards; tp may be 1, 2, 4"
    assert estimate(facts, engine="vllm", context_length=4096, slots=1, tp=4).refusal == ""
    assert estimate(ModelFacts(), engine="vllm", context_length=4096, slots=1, tp=3).refusal == ""
