"""What each layer of a configuration keeps of a request: every token, a window of them, or a state of fixed size.

Where a configuration says nothing of its layers, the model code's own rule stands here; a kind nobody knows counts as
attention to everything, so that an estimate errs to the high side.
"""

from collections.abc import Mapping, Sequence
from enum import Enum

from llmgw.core.config_keys import HEAD_DIM, HEADS, HIDDEN, KV_HEADS, MAX_LAYERS, items, number, string, whole_numbers


class Kept(Enum):
    """What a layer keeps."""

    ALL = "all"
    WINDOW = "window"
    STATE = "state"
    BOTH = "both"
    """Attention to everything beside a state."""
    NOTHING = "nothing"


STATE_BYTES = 4
"""Of one figure of a recurrent state: llama.cpp keeps them as float32, others in half of it or the same."""
_PERIODS = {"gemma2": 2, "gemma3_text": 6, "gemma3n_text": 5, "cohere2": 4, "gpt_oss": 2, "llama4_text": 4}
"""Every n-th layer attends to everything: the model code's rule where the configuration names no layers."""
_RECURRENT = ("mamba", "mamba2", "falcon_mamba", "rwkv")
NOTHING_BESIDE = ("mamba", "mamba2", "falcon_mamba")
"""Of these every layer is a state space and nothing else, and what they call intermediate is its channels."""
_BESIDE = ("falcon_h1",)
"""Every layer has attention and a state."""
_TWICE = ("longcat_flash",)
"""Two attentions a layer."""
_LETTERS = {"*": Kept.ALL, "M": Kept.STATE}
"""Of `letters_of`; the others are feed-forward layers."""
_BLOCKS = {"attention": "*", "mamba": "M", "moe": "E"}
_EXPANDED = ("minicpm3",)
"""Latent attention whose cache engines keep as whole heads, the value as wide as the key."""


def layer_kinds(text: Mapping[str, object], layers: int) -> tuple[Kept, ...]:
    """What each layer keeps."""
    kinds = _named(text, layers) or _by_rule(text, layers) or [Kept.ALL] * layers
    # The last ones read the cache of a layer before them.
    shared = number(text, "num_kv_shared_layers", most=layers)
    kinds = [*kinds[: layers - shared], *[Kept.NOTHING] * shared]
    return tuple(kinds * 2 if string(text.get("model_type")) in _TWICE else kinds)


def window_of(text: Mapping[str, object]) -> int:
    """Tokens that windowed layers look back."""
    window = number(text, "sliding_window", "attention_chunk_size", "attention_window_size", "sliding_window_size")
    return 0 if text.get("use_sliding_window") is False else window


def _named(text: Mapping[str, object], layers: int) -> list[Kept]:
    """From a list with an entry a layer; empty when there is none."""
    for key in ("layer_types", "layers_block_type"):
        if len(named := items(text, key)) >= layers > 0:
            return [_kind(name) for name in named[:layers]]
    letters = letters_of(text)
    if len(letters) == layers > 0:
        return [_LETTERS.get(letter, Kept.NOTHING) for letter in letters]
    if len(marks := items(text, "hybrid_layer_pattern")) == layers > 0:
        return [Kept.WINDOW if mark == 1 else Kept.ALL for mark in marks]
    if len(marks := items(text, "attn_type_list")) >= layers > 0:
        return [Kept.STATE if mark == 0 else Kept.ALL for mark in marks[:layers]]
    if window_of(text) and len(marks := items(text, "no_rope_layers")) == layers > 0:
        return [Kept.WINDOW if mark == 1 else Kept.ALL for mark in marks]
    if len(pattern := items(text, "block_types")) > 0 and all(isinstance(name, str) for name in pattern):
        windowed = {Kept.ALL: Kept.WINDOW} if window_of(text) else {}
        found = [_kind(pattern[i % len(pattern)]) for i in range(layers)]
        return [windowed.get(kind, kind) for kind in found]
    return []


def letters_of(text: Mapping[str, object]) -> str:
    """Of hybrids whose layers are one thing each a letter a layer: `*`, `M`, `E` or `-`; empty for all others."""
    pattern = text.get("hybrid_override_pattern")
    if isinstance(pattern, str):
        return pattern[:MAX_LAYERS]
    names = [string(name) for name in items(text, "layers_block_type")]
    return "".join(_BLOCKS.get(name, "-") for name in names) if {"mlp", "moe"} & set(names) else ""


def latent_of(text: Mapping[str, object]) -> int:
    """Width of the one compressed row that a token leaves in the cache; 0 where it leaves whole heads."""
    return 0 if string(text.get("model_type")) in _EXPANDED else number(text, "kv_lora_rank")


def _kind(name: object) -> Kept:
    word = string(name)
    if any(part in word for part in ("sliding", "local", "chunked")):
        return Kept.WINDOW
    if any(part in word for part in ("linear", "mamba", "conv", "recurrent")):
        return Kept.STATE
    if word == "hybrid":
        return Kept.BOTH
    return Kept.ALL if "attention" in word or word == "full" else Kept.NOTHING


def _by_rule(text: Mapping[str, object], layers: int) -> list[Kept]:
    """From which layers attend to everything; empty when nothing says it."""
    model_type = string(text.get("model_type"))
    if model_type in (*_RECURRENT, *_BESIDE):
        return [Kept.BOTH if model_type in _BESIDE else Kept.STATE] * layers
    linear = text.get("linear_attn_config")
    full = whole_numbers(linear, "full_attn_layers") if isinstance(linear, Mapping) else frozenset()
    if full:
        return _full_at({i - 1 for i in full}, layers, Kept.STATE)
    full = whole_numbers(text, "attn_layer_indices") or whole_numbers(text, "full_attn_idxs")
    if full:
        return _full_at(full, layers, Kept.STATE)
    if period := number(text, "attn_layer_period", most=layers):
        offset = number(text, "attn_layer_offset", most=layers)
        return _full_at({i for i in range(layers) if i % period == offset}, layers, Kept.STATE)
    if count := number(text, "full_attention_layers", most=layers):
        return _full_at(set(range(count)), layers, Kept.STATE)
    interval = number(text, "full_attention_interval", most=layers)
    if interval > 1:
        return _full_at(set(range(interval - 1, layers, interval)), layers, Kept.STATE)
    return _windowed(text, model_type, layers)


def _windowed(text: Mapping[str, object], model_type: str, layers: int) -> list[Kept]:
    if not window_of(text):
        return []
    pattern = text.get("sliding_window_pattern")
    if isinstance(pattern, str) and pattern and set(pattern) <= {"L", "G"}:
        letters = [pattern[i % len(pattern)] for i in range(layers)]
        return [Kept.ALL if letter == "G" else Kept.WINDOW for letter in letters]
    period = number(text, "sliding_window_pattern", most=layers) or _PERIODS.get(model_type, 0)
    return _full_at(set(range(period - 1, layers, period)), layers, Kept.WINDOW) if period else []


def _full_at(full: "set[int] | frozenset[int]", layers: int, others: Kept) -> list[Kept]:
    return [Kept.ALL if i in full else others for i in range(layers)]


def kv_heads_of(text: Mapping[str, object]) -> int:
    """Heads of keys and values in a layer that attends to everything."""
    if text.get("multi_query") is True and text.get("new_decoder_architecture") is not True:
        return 1  # Falcon names all its heads beside it
    return number(text, *KV_HEADS) or number(text, *HEADS)


def head_dim_of(text: Mapping[str, object]) -> int:
    """Width of one head."""
    heads = number(text, *HEADS)
    if string(text.get("model_type")) in _EXPANDED:
        return number(text, "qk_nope_head_dim") + number(text, "qk_rope_head_dim")
    return number(text, *HEAD_DIM) or (number(text, *HIDDEN) // heads if heads else 0)


def kv_bytes_per_layer(text: Mapping[str, object], kind: Kept, layer: int) -> int:
    """Bytes of one token in one layer at 16 bits; 0 for one that keeps no tokens."""
    if kind in (Kept.STATE, Kept.NOTHING):
        return 0
    if latent := latent_of(text):
        # Latent attention keeps one compressed row and the rotary part, whatever the number of heads; sparse attention
        # an index beside it, a byte each with a scale for every 128.
        index = number(text, "index_head_dim")
        return 2 * (latent + number(text, "qk_rope_head_dim")) + index + 4 * (index // 128)
    heads, key = kv_heads_of(text), head_dim_of(text)
    value = number(text, "v_head_dim") or key
    if kind is Kept.WINDOW:
        heads = number(text, "swa_num_key_value_heads") or heads
        value = number(text, "swa_v_head_dim") or (number(text, "swa_head_dim") or value)
        key = number(text, "swa_head_dim") or key
    elif number(text, "global_head_dim", "num_global_key_value_heads"):
        heads = number(text, "num_global_key_value_heads") or heads
        key = value = number(text, "global_head_dim") or key
    return 2 * _own_heads(text, layer, heads) * (key + value)


def _own_heads(text: Mapping[str, object], layer: int, heads: int) -> int:
    """KV heads of one layer where each has its own number: as a list, or as blocks whose attention may be left out."""
    blocks = items(text, "block_configs")
    if layer < len(blocks) and isinstance(block := blocks[layer], Mapping):
        attention = block.get("attention")
        if not isinstance(attention, Mapping):
            return heads
        group = number(attention, "n_heads_in_group")
        return number(text, *HEADS) // group if group else number(attention, "num_key_value_heads")
    for key in KV_HEADS:
        each = items(text, key)
        if layer < len(each) and isinstance(own := each[layer], int):
            return max(0, own)
    return heads


def state_bytes_per_layer(text: Mapping[str, object]) -> int:
    """Bytes a recurrent layer keeps of a request, however long it is: its state and its convolution's last inputs."""
    return STATE_BYTES * (_state_figures(text) or 0)


def _state_figures(text: Mapping[str, object]) -> int:
    if values := number(text, "linear_num_value_heads"):
        keys = number(text, "linear_num_key_heads")
        key, value = number(text, "linear_key_head_dim"), number(text, "linear_value_head_dim")
        taps = number(text, "linear_conv_kernel_dim") or 4
        return values * key * value + (taps - 1) * (2 * keys * key + values * value)
    linear = text.get("linear_attn_config")
    if isinstance(linear, Mapping):
        heads, width = number(linear, "num_heads"), number(linear, "head_dim")
        return heads * width * width + 3 * (number(linear, "short_conv_kernel_size", most=64) - 1) * heads * width
    hidden = number(text, *HIDDEN)
    if taps := number(text, "conv_L_cache"):
        return (taps - 1) * hidden
    if width := number(text, "lru_width"):
        return width * (number(text, "conv1d_width") or 1)
    if items(text, "attn_type_list"):
        return number(text, *HEADS) * head_dim_of(text) ** 2
    states, inner, groups = state_space(text)
    taps = number(text, "mamba_d_conv", "conv_kernel", "mamba_conv_kernel") or 4
    return states * inner + (taps - 1) * (inner + 2 * groups * states) if states else 0


def state_space(text: Mapping[str, object]) -> tuple[int, int, int]:
    """Of Mamba layers: figures of state a channel, channels, and groups (0 for the first Mamba, which has none)."""
    states = number(text, "mamba_d_state", "ssm_state_size", "state_size")
    heads = number(text, "mamba_n_heads", "mamba_num_heads")
    width = number(text, "mamba_d_head", "mamba_head_dim")
    inner = number(text, "mamba_d_ssm") or heads * width or number(text, "mamba_intermediate_size")
    if string(text.get("model_type")) in NOTHING_BESIDE:
        inner = inner or number(text, "intermediate_size")
    expand = number(text, "mamba_expand", "expand") or 2
    inner = inner or expand * number(text, *HIDDEN)
    groups = number(text, "mamba_n_groups", "mamba_num_groups", "n_groups") or (1 if heads else 0)
    return states, inner, groups


def all_bytes(text: Mapping[str, object], layers: int) -> tuple[int, int, int]:
    """Bytes of a token in all layers, the windowed ones' part of them, and bytes of state a request."""
    kinds: Sequence[Kept] = layer_kinds(text, layers)
    each = [kv_bytes_per_layer(text, kind, i) for i, kind in enumerate(kinds)]
    windowed = sum(size for size, kind in zip(each, kinds, strict=True) if kind is Kept.WINDOW)
    stateful = sum(kind in (Kept.STATE, Kept.BOTH) for kind in kinds)
    return sum(each), windowed, stateful * state_bytes_per_layer(text) if stateful else 0
