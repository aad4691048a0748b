"""The weights a configuration describes, matrix by matrix, before a byte of them is here.

Biases and norms are left out where they are less than a thousandth. What a family does differently and says in no key
stands in a table by its `model_type`.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from llmgw.core.config_keys import (
    EXPERTS,
    HEADS,
    HIDDEN,
    LAYERS,
    MAX_LAYERS,
    VOCABULARY,
    number,
    string,
    text_config,
    whole_numbers,
)
from llmgw.core.config_keys import items as listed
from llmgw.core.layer_caches import NOTHING_BESIDE, Kept, head_dim_of, kv_heads_of, layer_kinds, letters_of, state_space


class Part(Enum):
    """What a matrix is for: formats store some of them finer than others."""

    EMBEDDING = "embedding"
    OUTPUT = "output"
    QUERY = "query"
    KEY = "key"
    VALUE = "value"
    ATTENTION_OUTPUT = "attention output"
    UP = "up"
    DOWN = "down"
    EXPERTS_UP = "experts up"
    EXPERTS_DOWN = "experts down"
    MIXER = "mixer"
    """Projections of a recurrent layer."""
    KEPT = "kept"
    """Routers, convolutions, norms: never quantized."""


class Weight(NamedTuple):
    """Matrices of one purpose in one layer."""

    part: Part
    layer: int
    elements: int
    columns: int
    """Length of a row, which formats cut into blocks."""


MAX_EXPERTS = 65_536
TIED = (
    *("gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "cohere", "cohere2", "gpt2", "falcon", "bloom"),
    *("mpt", "minicpm", "minicpm3"),
)
"""Families whose output is the embedding unless their configuration says otherwise."""
_PLAIN = ("gpt2", "gpt_neox", "gptj", "opt", "falcon", "bloom", "phi", "starcoder2", "gpt_bigcode", "mpt", "nemotron")
"""A feed-forward layer of two matrices instead of three."""
_PLAIN_HYBRID = ("nemotron_h",)
_GATED_ATTENTION = ("qwen3_next",)
_INTERMEDIATE = ("intermediate_size", "ffn_hidden_size", "hidden_dim", "n_inner", "ffn_dim")


def parameters(config: Mapping[str, object]) -> int:
    """Parameters of the language model; 0 where its configuration does not say enough."""
    return sum(weight.elements for weight in weights(config))


def weights(config: Mapping[str, object]) -> list[Weight]:
    """Every matrix of the language model, layer by layer; empty where its configuration does not say enough."""
    text = text_config(config)
    layers = number(text, *LAYERS, most=MAX_LAYERS)
    hidden, vocabulary = number(text, *HIDDEN), number(text, *VOCABULARY)
    enough = _wide(text, hidden) or number(text, "moe_intermediate_size") or state_space(text)[0]
    if not (layers and hidden and vocabulary and enough):
        return []
    found = [Weight(Part.EMBEDDING, 0, vocabulary * hidden, hidden)]
    if not is_tied(text):
        found.append(Weight(Part.OUTPUT, 0, vocabulary * hidden, hidden))
    letters = letters_of(text)
    mixtures = _mixtures(text, layers, letters)
    for layer, kind in enumerate(layer_kinds(text, layers)[:layers]):
        found += _mixing(text, layer, kind, hidden, letters)
        found += _feeding(text, layer, hidden, letters, mixture=layer in mixtures)
    return found


def is_tied(text: Mapping[str, object]) -> bool:
    """Whether the output is the embedding, so that it is there once."""
    said = text.get("tie_word_embeddings")
    return said if isinstance(said, bool) else string(text.get("model_type")) in TIED


def _mixing(text: Mapping[str, object], layer: int, kind: Kept, hidden: int, letters: str) -> Iterator[Weight]:
    only_feeds = bool(letters) and letters[layer : layer + 1] not in ("*", "M")
    if kind in (Kept.STATE, Kept.BOTH):
        yield from _recurrent(text, layer, hidden)
    if kind is not Kept.STATE and not only_feeds:
        yield from _latent(text, layer, hidden) if number(text, "kv_lora_rank") else _heads(text, layer, kind, hidden)


def _heads(text: Mapping[str, object], layer: int, kind: Kept, hidden: int) -> Iterator[Weight]:
    heads, kv_heads, key = number(text, *HEADS), kv_heads_of(text), head_dim_of(text)
    value = number(text, "v_head_dim") or key
    if kind is Kept.WINDOW:
        kv_heads = number(text, "swa_num_key_value_heads") or kv_heads
    elif number(text, "global_head_dim", "num_global_key_value_heads"):
        kv_heads = number(text, "num_global_key_value_heads") or kv_heads
        key = value = number(text, "global_head_dim") or key
    gated = text.get("attn_output_gate") is True or string(text.get("model_type")) in _GATED_ATTENTION
    yield Weight(Part.QUERY, layer, hidden * heads * key * (2 if gated else 1), hidden)
    yield Weight(Part.KEY, layer, hidden * kv_heads * key, hidden)
    yield Weight(Part.VALUE, layer, hidden * kv_heads * value, hidden)
    yield Weight(Part.ATTENTION_OUTPUT, layer, heads * value * hidden, heads * value)


def _latent(text: Mapping[str, object], layer: int, hidden: int) -> Iterator[Weight]:
    """Latent attention: both sides go through a narrow row."""
    heads, latent, rank = number(text, *HEADS), number(text, "kv_lora_rank"), number(text, "q_lora_rank")
    rotary, plain = number(text, "qk_rope_head_dim"), number(text, "qk_nope_head_dim")
    value = number(text, "v_head_dim") or (hidden // heads if heads else 0)
    wide = heads * (plain + rotary)
    yield Weight(Part.QUERY, layer, rank * (hidden + wide) if rank else hidden * wide, rank or hidden)
    yield Weight(Part.KEY, layer, hidden * (latent + rotary) + latent * heads * plain, latent)
    yield Weight(Part.VALUE, layer, latent * heads * value, latent)
    yield Weight(Part.ATTENTION_OUTPUT, layer, heads * value * hidden, heads * value)


def _recurrent(text: Mapping[str, object], layer: int, hidden: int) -> Iterator[Weight]:
    if values := number(text, "linear_num_value_heads"):
        keys = number(text, "linear_num_key_heads") * number(text, "linear_key_head_dim")
        wide = values * number(text, "linear_value_head_dim")
        yield Weight(Part.MIXER, layer, hidden * (2 * keys + 2 * wide + 2 * values) + wide * hidden, hidden)
        return
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping):
        width, wide = number(linear, "head_dim"), number(linear, "num_heads") * number(linear, "head_dim")
        yield Weight(Part.MIXER, layer, 4 * hidden * wide + 2 * width * (hidden + wide), hidden)
        return
    if number(text, "conv_L_cache"):
        yield Weight(Part.MIXER, layer, 4 * hidden * hidden, hidden)
        return
    if listed(text, "attn_type_list"):
        yield Weight(Part.MIXER, layer, 5 * hidden * number(text, *HEADS) * head_dim_of(text), hidden)
        return
    states, inner, groups = state_space(text)
    if groups:
        heads = number(text, "mamba_n_heads", "mamba_num_heads")
        yield Weight(Part.MIXER, layer, hidden * (2 * inner + 2 * groups * states + heads) + inner * hidden, hidden)
    else:
        rank = number(text, "mamba_dt_rank", "time_step_rank") or -(-hidden // 16)
        yield Weight(Part.MIXER, layer, 3 * hidden * inner + inner * (2 * rank + 2 * states), hidden)
        yield Weight(Part.KEPT, layer, inner * (states + 6), states)


def _feeding(text: Mapping[str, object], layer: int, hidden: int, letters: str, *, mixture: bool) -> Iterator[Weight]:
    model_type = string(text.get("model_type"))
    if (letters and letters[layer : layer + 1] in ("*", "M")) or model_type in NOTHING_BESIDE:
        return
    wide, experts = _wide(text, hidden), number(text, *EXPERTS, most=MAX_EXPERTS)
    matrices = 1 if model_type in (*_PLAIN, *_PLAIN_HYBRID) else 2
    if not experts or not mixture:
        wide = number(text, "intermediate_size_mlp") or wide
        yield Weight(Part.UP, layer, matrices * hidden * wide, hidden)
        yield Weight(Part.DOWN, layer, wide * hidden, wide)
        return
    narrow = number(text, "moe_intermediate_size", "moe_ffn_hidden_size", "expert_ffn_hidden_size") or wide
    yield Weight(Part.EXPERTS_UP, layer, experts * matrices * hidden * narrow, hidden)
    yield Weight(Part.EXPERTS_DOWN, layer, experts * narrow * hidden, narrow)
    yield Weight(Part.KEPT, layer, hidden * experts, hidden)
    if shared := _shared_width(text, model_type, narrow):
        yield Weight(Part.UP, layer, matrices * hidden * shared, hidden)
        yield Weight(Part.DOWN, layer, shared * hidden, shared)


def _wide(text: Mapping[str, object], hidden: int) -> int:
    """Width of a feed-forward layer: where the oldest families do not say it, it is four times the embedding's."""
    return number(text, *_INTERMEDIATE) or (4 * hidden if string(text.get("model_type")) in _PLAIN else 0)


def _shared_width(text: Mapping[str, object], model_type: str, narrow: int) -> int:
    """Width of what every token goes through beside its experts."""
    said = number(text, "shared_expert_intermediate_size", "shared_intermediate_size")
    said = said or number(text, "moe_shared_expert_intermediate_size")
    return said or (
        narrow
        if model_type == "llama4_text"
        else narrow * number(text, "n_shared_experts", "num_shared_experts", "moe_num_shared_experts")
    )


def _mixtures(text: Mapping[str, object], layers: int, letters: str) -> frozenset[int]:
    """The layers that have experts, in a model that has some."""
    if letters:
        return frozenset(layer for layer, letter in enumerate(letters) if letter == "E")
    dense = whole_numbers(text, "mlp_only_layers")
    if mixtures := whole_numbers(text, "moe_layers"):
        return mixtures - dense
    if period := number(text, "expert_layer_period", most=MAX_LAYERS):
        offset = number(text, "expert_layer_offset", most=MAX_LAYERS)
        return frozenset(layer for layer in range(layers) if layer % period == offset) - dense
    first = number(text, "first_k_dense_replace", "moe_layer_start_index", "num_dense_layers", most=MAX_LAYERS)
    step = number(text, "decoder_sparse_step", "interleave_moe_layer_step", most=MAX_LAYERS) or 1
    return frozenset(layer for layer in range(first, layers) if (layer + 1) % step == 0) - dense
