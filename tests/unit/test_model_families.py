"""What configurations of many families amount to: parameters and cache as their publishers state them."""

from collections.abc import Iterator, Mapping

import pytest

from llmgw.core.config_facts import config_facts, read_config
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import kv_cache_bytes
from tests.bench.stored import GGUF_TYPES, gguf_bytes, stored_bytes

Config = Mapping[str, object]
DEEPSEEK_V3: Config = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "moe_layer_freq": 1,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "num_nextn_predict_layers": 1,
}
KIMI_K2: Config = {
    **DEEPSEEK_V3,
    "model_type": "kimi_k2",
    "num_attention_heads": 64,
    "n_routed_experts": 384,
    "first_k_dense_replace": 1,
    "vocab_size": 163840,
}
QWEN3_235B: Config = {
    "model_type": "qwen3_moe",
    "hidden_size": 4096,
    "num_hidden_layers": 94,
    "num_attention_heads": 64,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
}
QWEN3_NEXT_80B: Config = {
    "model_type": "qwen3_next",
    "hidden_size": 2048,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "head_dim": 256,
    "intermediate_size": 5120,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts": 512,
    "full_attention_interval": 4,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_conv_kernel_dim": 4,
    "vocab_size": 151936,
}
LLAMA_4_SCOUT: Config = {
    "model_type": "llama4",
    "vision_config": {"num_hidden_layers": 34, "hidden_size": 1408},
    "text_config": {
        "model_type": "llama4_text",
        "hidden_size": 5120,
        "num_hidden_layers": 48,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_local_experts": 16,
        "interleave_moe_layer_step": 1,
        "no_rope_layers": [],
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
    },
}
GPT_OSS_20B: Config = {
    "model_type": "gpt_oss",
    "hidden_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "intermediate_size": 2880,
    "num_local_experts": 32,
    "sliding_window": 128,
    "vocab_size": 201088,
    "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "mxfp4"},
}
JAMBA_MINI: Config = {
    "model_type": "jamba",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "num_experts": 16,
    "expert_layer_period": 2,
    "expert_layer_offset": 1,
    "attn_layer_period": 8,
    "attn_layer_offset": 4,
    "mamba_d_state": 16,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_dt_rank": 256,
    "vocab_size": 65536,
    "tie_word_embeddings": False,
}
GEMMA_3_27B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 5376,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "head_dim": 128,
        "intermediate_size": 21504,
        "sliding_window": 1024,
    },
}
GEMMA_3_4B: Config = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}
MISTRAL_7B_PARAMS: Config = {
    "dim": 4096,
    "n_layers": 32,
    "head_dim": 128,
    "hidden_dim": 14336,
    "n_heads": 32,
    "n_kv_heads": 8,
    "vocab_size": 32768,
}
LLAVA_15_7B: Config = {
    "model_type": "llava",
    "text_config": {"model_type": "llama", "max_position_embeddings": 4096, "vocab_size": 32064},
    "vision_config": {"model_type": "clip_vision_model", "num_hidden_layers": 24},
}
DBRX: Config = {
    "model_type": "dbrx",
    "d_model": 6144,
    "n_heads": 48,
    "n_layers": 40,
    "max_seq_len": 32768,
    "vocab_size": 100352,
    "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}
GLM_4_9B: Config = {
    "model_type": "chatglm",
    "hidden_size": 4096,
    "num_layers": 40,
    "num_attention_heads": 32,
    "multi_query_attention": True,
    "multi_query_group_num": 2,
    "kv_channels": 128,
    "ffn_hidden_size": 13696,
    "padded_vocab_size": 151552,
    "seq_length": 131072,
}
GLM_45: Config = {
    "model_type": "glm4_moe",
    "hidden_size": 5120,
    "num_hidden_layers": 92,
    "num_attention_heads": 96,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 12288,
    "moe_intermediate_size": 1536,
    "n_routed_experts": 160,
    "n_shared_experts": 1,
    "first_k_dense_replace": 3,
    "vocab_size": 151552,
}


MINICPM_3: Config = {
    "model_type": "minicpm3",
    "hidden_size": 2560,
    "num_hidden_layers": 62,
    "num_attention_heads": 40,
    "num_key_value_heads": 40,
    "intermediate_size": 6400,
    "q_lora_rank": 768,
    "kv_lora_rank": 256,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "vocab_size": 73448,
}
BLOOM_176B: Config = {
    "model_type": "bloom",
    "n_embed": 14336,
    "n_layer": 70,
    "num_attention_heads": 112,
    "n_inner": None,
    "vocab_size": 250880,
}
NEMOTRON_H_56B: Config = {
    "model_type": "nemotron_h",
    "hybrid_override_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "hidden_size": 8192,
    "num_hidden_layers": 118,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 32768,
    "ssm_state_size": 256,
    "mamba_num_heads": 256,
    "mamba_head_dim": 64,
    "n_groups": 8,
    "conv_kernel": 4,
    "vocab_size": 131072,
}
FALCON_MAMBA_7B: Config = {
    "model_type": "falcon_mamba",
    "hidden_size": 4096,
    "num_hidden_layers": 64,
    "state_size": 16,
    "intermediate_size": 8192,
    "expand": 16,
    "conv_kernel": 4,
    "time_step_rank": 256,
    "vocab_size": 65024,
    "tie_word_embeddings": False,
}
QWEN2_AUDIO: Config = {
    "model_type": "qwen2_audio",
    "audio_config": {"encoder_layers": 32, "encoder_attention_heads": 20, "d_model": 1280},
    "text_config": {"model_type": "qwen2", "intermediate_size": 11008, "vocab_size": 156032},
}


@pytest.mark.parametrize(
    ("config", "billions", "kv_bytes", "window", "windowed", "state"),
    [
        pytest.param(DEEPSEEK_V3, 671, 70_272, 0, 0, 0, id="latent attention"),
        pytest.param(KIMI_K2, 1026, 70_272, 0, 0, 0, id="latent attention, 384 experts"),
        pytest.param(QWEN3_235B, 235, 192_512, 0, 0, 0, id="experts"),
        pytest.param(QWEN3_NEXT_80B, 80, 24_576, 0, 0, 36 * (2 * 1024**2 + 98_304), id="linear attention"),
        pytest.param(LLAMA_4_SCOUT, 108, 196_608, 8192, 147_456, 0, id="chunks"),
        pytest.param(GPT_OSS_20B, 20.9, 49_152, 128, 24_576, 0, id="window without layer_types"),
        pytest.param(JAMBA_MINI, 51.6, 16_384, 0, 0, 28 * 4 * 19 * 8192, id="mamba"),
        pytest.param(GEMMA_3_27B, 27, 507_904, 1024, 425_984, 0, id="a window in five of six"),
        pytest.param(GEMMA_3_4B, 3.88, 139_264, 1024, 118_784, 0, id="a nest that leaves out its defaults"),
        pytest.param(MISTRAL_7B_PARAMS, 7.25, 131_072, 0, 0, 0, id="params.json"),
        pytest.param(LLAVA_15_7B, 6.74, 524_288, 0, 0, 0, id="a nest that says next to nothing"),
        pytest.param(DBRX, 132, 163_840, 0, 0, 0, id="figures in parts"),
        pytest.param(GLM_4_9B, 9.4, 40_960, 0, 0, 0, id="groups of queries"),
        pytest.param(MINICPM_3, 4.07, 952_320, 0, 0, 0, id="latent attention that is kept as whole heads"),
        pytest.param(BLOOM_176B, 176.2, 4_014_080, 0, 0, 0, id="figures under their oldest names"),
        pytest.param(NEMOTRON_H_56B, 56, 40_960, 0, 0, 54 * 4 * 4_255_744, id="a pattern of 118 letters"),
        pytest.param(FALCON_MAMBA_7B, 7.27, 0, 0, 0, 64 * 4 * 19 * 8192, id="nothing but state spaces"),
        pytest.param(QWEN2_AUDIO, 7.75, 524_288, 0, 0, 0, id="a nest of another family that leaves out its defaults"),
        pytest.param(GLM_45, 355, 376_832, 0, 0, 0, id="dense layers first"),
    ],
)
def test_families_amount_to_what_was_published(
    config: Config, billions: float, kv_bytes: int, window: int, windowed: int, state: int
) -> None:
    found = config_facts(config, 0)
    assert found.parameters == pytest.approx(billions * 1e9, rel=0.01)
    assert (found.kv_bytes_per_token, found.sliding_window) == (kv_bytes, window)
    assert (found.sliding_kv_bytes_per_token, found.state_bytes) == (windowed, state)


PLAIN: Config = {"num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 2, "hidden_size": 512}
LAYER = 2 * 2 * 2 * 64
FULL, SLIDING = "full_attention", "sliding_attention"


@pytest.mark.parametrize(
    ("more", "kv_bytes", "windowed"),
    [
        ({"multi_query": True, "num_kv_heads": 8}, 6 * LAYER // 2, 0),
        ({"multi_query": True, "new_decoder_architecture": True}, 6 * LAYER, 0),
        ({"layer_types": [SLIDING, FULL] * 3, "sliding_window": 64}, 6 * LAYER, 3 * LAYER),
        ({"layer_types": [SLIDING, FULL] * 3 + [FULL], "sliding_window": 64}, 6 * LAYER, 3 * LAYER),
        ({"layer_types": [SLIDING, FULL] * 3, "sliding_window": 64, "num_kv_shared_layers": 2}, 4 * LAYER, 2 * LAYER),
        ({"layer_types": ["something_attention"] * 6}, 6 * LAYER, 0),
        ({"sliding_window": 64, "use_sliding_window": False, "sliding_window_pattern": 2}, 6 * LAYER, 0),
        ({"sliding_window": 64, "sliding_window_pattern": 3}, 6 * LAYER, 4 * LAYER),
        ({"sliding_window": 64, "sliding_window_pattern": "LLG"}, 6 * LAYER, 4 * LAYER),
        ({"hybrid_override_pattern": "M-M*-E", "ssm_state_size": 8}, LAYER, 0),
        ({"attn_type_list": [0, 0, 1, 0, 0, 1]}, 2 * LAYER, 0),
        ({"attn_layer_indices": [0, 3], "mamba_d_state": 8}, 2 * LAYER, 0),
        ({"full_attn_idxs": [2], "conv_L_cache": 3}, LAYER, 0),
        ({"linear_attn_config": {"full_attn_layers": [4], "num_heads": 8, "head_dim": 64}}, LAYER, 0),
        ({"block_types": ["recurrent", "recurrent", "attention"], "attention_window_size": 64}, 2 * LAYER, 2 * LAYER),
        (
            {"hybrid_layer_pattern": [0, 1, 1, 1, 1, 0], "sliding_window": 8, "swa_num_key_value_heads": 4},
            10 * LAYER,
            8 * LAYER,
        ),
        ({"layer_types": [SLIDING, FULL] * 3, "sliding_window": 8, "global_head_dim": 128}, 9 * LAYER, 3 * LAYER),
        ({"block_configs": [{"attention": {"n_heads_in_group": 4}}, {"attention": {"no_op": True}}] * 3}, 3 * LAYER, 0),
        ({"num_key_value_heads": [1, 2, 2, 2, 2, 1]}, 5 * LAYER, 0),
        ({"num_key_value_heads_per_layer": [1, 2, 2, 2, 2, 1], "num_key_value_heads": None}, 5 * LAYER, 0),
        ({"num_key_value_heads": 2.0, "num_hidden_layers": 6.0}, 6 * LAYER, 0),
        ({"layers_block_type": ["mamba", "moe", "attention", "mlp", "mamba", "moe"], "state_size": 8}, LAYER, 0),
        ({"model_type": "mamba2", "state_size": 16}, 0, 0),
        ({"model_type": "falcon_h1", "mamba_d_state": 16}, 6 * LAYER, 0),
        ({"model_type": "longcat_flash"}, 12 * LAYER, 0),
        ({"kv_lora_rank": 512, "qk_rope_head_dim": 64, "index_head_dim": 128}, 6 * (1152 + 132), 0),
    ],
)
def test_what_layers_keep_is_read_in_every_form(more: Config, kv_bytes: int, windowed: int) -> None:
    found = config_facts({**PLAIN, **more}, 0)
    assert (found.kv_bytes_per_token, found.sliding_kv_bytes_per_token) == (kv_bytes, windowed)


def test_a_nest_within_a_nest_is_the_text_models() -> None:
    omni = {"thinker_config": {"text_config": {**PLAIN, "model_type": "omni_text"}, "audio_config": {"d_model": 9}}}
    found = config_facts(omni, 0)
    assert (found.layers, found.architecture, found.kv_bytes_per_token) == (6, "omni_text", 6 * LAYER)


@pytest.mark.parametrize("nest", ["text_config", "lm_config", "decoder_config", "decoder"])
def test_a_language_model_is_found_under_every_name(nest: str) -> None:
    found = config_facts({"model_type": "whole", nest: dict(PLAIN), "encoder": {"num_hidden_layers": 99}}, 0)
    assert (found.layers, found.kv_bytes_per_token) == (6, 6 * LAYER)


def test_layers_that_are_one_thing_each_are_counted_as_that() -> None:
    """By letters or by words, which newer versions write."""
    words = {"M": "mamba", "-": "mlp", "*": "attention"}
    pattern = str(NEMOTRON_H_56B["hybrid_override_pattern"])
    named = {key: value for key, value in NEMOTRON_H_56B.items() if key != "hybrid_override_pattern"}
    by_words = config_facts({**named, "layers_block_type": [words[letter] for letter in pattern]}, 0)
    assert by_words == config_facts(NEMOTRON_H_56B, 0)


@pytest.mark.parametrize(
    "text",
    [b'{"a": [0.0, Infinity]}', b'{"a": -Infinity}', b'{"a": NaN}', b'\xef\xbb\xbf{"a": 1}', b'{"a": 1, "a": 2}'],
)
def test_a_configuration_is_read_as_python_writes_it(text: bytes) -> None:
    assert list(read_config(text)) == ["a"]


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b"<html>", b"[" * 100_000, b'{"a": ' + b"9" * 5000 + b"}", b"\xff\xfe"]
)
def test_what_is_no_configuration_is_a_sentence(text: bytes) -> None:
    with pytest.raises(InvalidInput, match=r"^source: config\.json cannot be read: "):
        read_config(text)


def test_half_a_character_in_a_name_is_a_mark() -> None:
    found = config_facts(read_config(b'{"model_type": "a\\ud800\\u0000b"}'), 0)
    assert found.architecture == "a<U+D800>\u2400b"


class Counted(list[object]):
    """A list that counts what is read of it."""

    read = 0

    def __iter__(self) -> Iterator[object]:
        for item in super().__iter__():
            self.read += 1
            yield item


@pytest.mark.parametrize("key", ["mlp_only_layers", "moe_layers", "layers_block_type", "layer_types"])
def test_long_lists_are_read_a_few_times_and_not_once_a_layer(key: str) -> None:
    layers = 1000
    told = Counted(["moe", "mamba"] * (layers // 2) if key.endswith("type") else range(layers))
    config = {**PLAIN, "num_hidden_layers": layers, "vocab_size": 9, "intermediate_size": 9, "num_experts": 2}
    assert config_facts({**config, key: told}, 0).layers == layers
    assert told.read <= 20 * layers


def test_states_are_counted_once_a_slot_and_not_by_tokens() -> None:
    found = config_facts(QWEN3_NEXT_80B, 0)
    short = kv_cache_bytes(found, context_length=256, slots=3)
    long = kv_cache_bytes(found, context_length=512, slots=3)
    assert long - short == 3 * 256 * found.kv_bytes_per_token
    assert short - 3 * 256 * found.kv_bytes_per_token == 3 * found.state_bytes


def test_a_format_of_experts_leaves_the_rest_at_sixteen_bits() -> None:
    # The repository's own files: 13.76 GB.
    assert stored_bytes(GPT_OSS_20B, "mxfp4") == pytest.approx(13.76e9, rel=0.01)
    assert stored_bytes(QWEN3_235B, "bfloat16") == pytest.approx(470.2e9, rel=0.01)
    assert stored_bytes(PLAIN, "bfloat16") == 0


def test_a_quantized_repository_is_taken_at_its_word() -> None:
    four = {**QWEN3_235B, "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128}}
    eight = {**QWEN3_235B, "quantization_config": {"quant_method": "gptq", "bits": 8, "group_size": 128}}
    # Embedding and output, 1.24 billion, stay at 16 bits.
    assert stored_bytes(four, "gptq") == pytest.approx(233.85e9 * 4.156 / 8 + 2.5e9, rel=0.01)
    assert stored_bytes(eight, "gptq") == pytest.approx(233.85e9 * 8.1875 / 8 + 2.5e9, rel=0.01)


def test_files_of_every_type_are_in_their_order_of_size() -> None:
    sizes = {kind: gguf_bytes(MISTRAL_7B_PARAMS, kind) for kind in GGUF_TYPES if kind != "MXFP4"}
    order = ["Q2_K", "Q3_K_M", "Q4_0", "Q4_K_S", "Q4_K_M", "Q5_K_S", "Q5_K_M", "Q6_K", "Q8_0", "F16"]
    assert [sizes[kind] for kind in order] == sorted(sizes[kind] for kind in order)
    # Published files of Mistral-7B-Instruct-v0.3: 4.37 GB, 5.14 GB and 7.70 GB.
    assert sizes["Q4_K_M"] == pytest.approx(4.37e9, rel=0.01)
    assert sizes["Q5_K_M"] == pytest.approx(5.14e9, rel=0.01)
    assert sizes["Q8_0"] == pytest.approx(7.70e9, rel=0.01)
    assert gguf_bytes(PLAIN, "Q8_0") == 0
    with pytest.raises(InvalidInput, match=r"IQ1_S.*Q4_K_M"):
        gguf_bytes(MISTRAL_7B_PARAMS, "IQ1_S")


def test_a_row_that_is_no_whole_block_is_stored_larger() -> None:
    odd = {**PLAIN, "hidden_size": 576, "intermediate_size": 1536, "vocab_size": 4096, "num_attention_heads": 9}
    even = {**odd, "hidden_size": 512, "num_attention_heads": 8}
    assert (
        gguf_bytes(odd, "Q4_K_S") / config_facts(odd, 0).parameters
        > gguf_bytes(even, "Q4_K_S") / config_facts(even, 0).parameters
    )
