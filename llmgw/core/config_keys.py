"""A `config.json` or `params.json` under the names its families use. What is missing or of the wrong kind is not said.

Transformers writes of a nested configuration only what differs from its class's defaults, so that a multimodal model
may name neither heads nor vocabulary: what is absent there is filled in from `DEFAULTS`, the defaults of those classes.
"""

from collections.abc import Mapping, Sequence

from llmgw.core.text import safe

MAX_LAYERS = 4096
"""More layers than any model has; a larger claim is read as not said."""
MAX_FIGURE = 1 << 40
MAX_NESTS = 3
"""Deepest known: a speech model's thinker, and its text model within."""
NESTS = ("text_config", "llm_config", "language_config", "thinker_config", "lm_config", "decoder_config", "decoder")
LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers", "num_transformer_layers")
HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
KV_HEADS = (
    "num_key_value_heads",
    "n_kv_heads",
    "num_kv_heads",
    "n_head_kv",
    "kv_n_heads",
    "multi_query_group_num",
    "num_attention_groups",
    "num_key_value_heads_per_layer",
)
HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")
HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "dim", "model_dim")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length", "model_max_length", "max_seq_length")
VOCABULARY = ("vocab_size", "padded_vocab_size")
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
"""What model families call the experts a layer chooses from."""
_INSIDE = ("attn_config", "ffn_config", "moe")
"""Parts in which some families keep figures that others have beside the rest."""

_LLAMA = {
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "intermediate_size": 11008,
    "vocab_size": 32000,
}
DEFAULTS: Mapping[str, Mapping[str, object]] = {
    "llama": _LLAMA,
    "mistral": {**_LLAMA, "num_key_value_heads": 8, "intermediate_size": 14336},
    "qwen2": {**_LLAMA, "intermediate_size": 22016, "vocab_size": 151936},
    "qwen3": {**_LLAMA, "head_dim": 128, "intermediate_size": 22016, "vocab_size": 151936},
    "gemma": {"num_attention_heads": 16, "head_dim": 256, "vocab_size": 256000},
    "gemma2": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "sliding_window": 4096,
        "vocab_size": 256000,
    },
    "gemma3_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "head_dim": 256,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
        "vocab_size": 262208,
    },
    "gemma3n_text": {
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "num_kv_shared_layers": 15,
        "sliding_window": 512,
        "vocab_size": 262400,
    },
    "llama4_text": {
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "attention_chunk_size": 8192,
        "vocab_size": 202048,
    },
}


def text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The language model's part of a multimodal configuration, or all of it; its own nested parts beside the rest."""
    for _ in range(MAX_NESTS):
        nested = next((part for key in NESTS if isinstance(part := config.get(key), Mapping)), None)
        if nested is None or any(key in config for key in LAYERS):
            break
        config = nested
    defaults = DEFAULTS.get(string(config.get("model_type")), {})
    inside = [part for key in _INSIDE if isinstance(part := config.get(key), Mapping)]
    merged: dict[str, object] = {**defaults}
    for part in inside:
        merged.update(part)
    merged.update(config)
    return merged


def number(config: Mapping[str, object], *keys: str, most: int = MAX_FIGURE) -> int:
    """The first of `keys` that is a whole figure in range, else 0."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most:
            return value
    return 0


def items(config: Mapping[str, object], key: str) -> Sequence[object]:
    """A list under `key`, of as many items as there can be layers; empty when there is none."""
    value = config.get(key)
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return ()
    return value if len(value) <= MAX_LAYERS else value[:MAX_LAYERS]


def whole_numbers(config: Mapping[str, object], key: str) -> frozenset[int]:
    """The whole figures of a list under `key`, 0 included."""
    return frozenset(i for i in items(config, key) if isinstance(i, int) and not isinstance(i, bool))


def string(value: object) -> str:
    """A short string, empty for anything else. JSON can write half a character: that becomes a mark."""
    return safe(value[:80]) if isinstance(value, str) else ""
