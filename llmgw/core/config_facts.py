"""Reads a model repository's `config.json`. Whatever is missing or of the wrong kind reads as "not said"."""

from collections.abc import Mapping, Sequence

from llmgw.core.catalog import ModelFacts

MAX_LAYERS = 4096
"""More layers than any model has; a larger claim is read as not said."""
MAX_FIGURE = 1 << 40
_NESTED = ("text_config", "llm_config", "language_config")
_CACHED_LAYERS = ("full_attention", "attention", "global_attention")
_WINDOWED_LAYERS = ("sliding_attention", "local_attention", "chunked_attention")
_PERIODS = {"gemma2": 2, "gemma3_text": 6, "cohere2": 4}
"""Every n-th layer attends to everything: the model code's rule where `layer_types` is absent."""


def config_facts(config: Mapping[str, object], weights_bytes: int) -> ModelFacts:
    """Facts of a safetensors repository whose weight files sum to `weights_bytes`."""
    text = _text_config(config)
    layers = _number(text, "num_hidden_layers", "n_layer", "num_layers", most=MAX_LAYERS)
    heads = _number(text, "num_attention_heads", "n_head", "num_heads")
    hidden = _number(text, "hidden_size", "n_embd", "d_model")
    kv_heads = _number(text, "num_key_value_heads", "num_kv_heads") or (1 if text.get("multi_query") is True else heads)
    per_layer = _kv_bytes_per_layer(text, heads, kv_heads, hidden)
    full, windowed = _layer_kinds(text, layers)
    window = _number(text, "sliding_window", "attention_chunk_size") if windowed else 0
    return ModelFacts(
        weights_bytes=weights_bytes,
        trained_context=_number(text, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
        kv_bytes_per_token=per_layer * (full + windowed),
        architecture=_string(text.get("model_type")) or _string(config.get("model_type")),
        parameters=0,
        layers=layers,
        attention_heads=heads,
        kv_heads=1 if _number(text, "kv_lora_rank") else kv_heads,
        embedding_length=hidden,
        vocabulary=_number(text, "vocab_size"),
        quantization=_quantization(config, text),
        sliding_window=window,
        sliding_kv_bytes_per_token=per_layer * windowed if window else 0,
    )


def _text_config(config: Mapping[str, object]) -> Mapping[str, object]:
    """The language model's part of a multimodal configuration, or the configuration itself."""
    for key in _NESTED:
        nested = config.get(key)
        if isinstance(nested, Mapping) and "num_hidden_layers" not in config:
            return nested
    return config


def _kv_bytes_per_layer(text: Mapping[str, object], heads: int, kv_heads: int, hidden: int) -> int:
    """Bytes of one token in one layer at 16 bits."""
    latent = _number(text, "kv_lora_rank")
    if latent:
        # Latent attention (DeepSeek) keeps one compressed row and the rotary part, whatever the number of heads.
        return 2 * (latent + _number(text, "qk_rope_head_dim"))
    head_dim = _number(text, "head_dim") or (hidden // heads if heads else 0)
    return 2 * 2 * kv_heads * head_dim


def _layer_kinds(text: Mapping[str, object], layers: int) -> tuple[int, int]:
    """How many layers cache everything, and how many a window; recurrent layers are neither."""
    kinds = text.get("layer_types")
    if isinstance(kinds, Sequence) and not isinstance(kinds, str) and len(kinds) == layers:
        return (
            sum(1 for kind in kinds if kind in _CACHED_LAYERS),
            sum(1 for kind in kinds if kind in _WINDOWED_LAYERS),
        )
    full = _number(text, "full_attention_layers", most=layers)
    interval = _number(text, "full_attention_interval", most=MAX_LAYERS)
    if full or interval > 1:
        return full or layers // interval, 0
    period = _PERIODS.get(_string(text.get("model_type")), 0)
    if period and _number(text, "sliding_window"):
        return layers // period, layers - layers // period
    return layers, 0


def _quantization(config: Mapping[str, object], text: Mapping[str, object]) -> str:
    quantized = config.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantized, Mapping):
        return _string(quantized.get("quant_method"))
    return _string(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype"))


def _number(config: Mapping[str, object], *keys: str, most: int = MAX_FIGURE) -> int:
    """The first of `keys` that is a whole figure in range, else 0."""
    for key in keys:
        value = config.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most:
            return value
    return 0


def _string(value: object) -> str:
    return value[:80] if isinstance(value, str) else ""
