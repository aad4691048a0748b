"""Reads a model repository's `config.json`. Whatever is missing or of the wrong kind reads as "not said"."""

import json
from collections.abc import Mapping

from llmgw.core.catalog import ModelFacts
from llmgw.core.config_keys import (
    CONTEXT,
    EXPERTS,
    HEADS,
    HIDDEN,
    LAYERS,
    MAX_LAYERS,
    VOCABULARY,
    number,
    string,
    text_config,
)
from llmgw.core.config_widths import even_parts
from llmgw.core.errors import InvalidInput
from llmgw.core.layer_caches import all_bytes, kv_heads_of, latent_of, window_of
from llmgw.core.parameters import parameters

_FORMATS = {"nvfp4": "nvfp4", "mxfp4": "mxfp4", "fp8": "fp8", "float-quantized": "fp8"}
"""Words for formats that tools for several of them (ModelOpt, compressed-tensors) name beside themselves."""


def read_config(data: bytes) -> dict[str, object]:
    """The text of a `config.json`; raises InvalidInput.

    Transformers writes `Infinity` and `NaN` into some (the bounds of Mamba's steps), and others begin with a byte order
    mark: strict JSON is neither.
    """
    try:
        config = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"config.json cannot be read: {error}", field="source") from error
    if not isinstance(config, dict):
        raise InvalidInput("config.json cannot be read: it holds no object", field="source")
    return config


def config_facts(config: Mapping[str, object], weights_bytes: int) -> ModelFacts:
    """Facts of a safetensors repository whose weight files sum to `weights_bytes`."""
    text = text_config(config)
    layers = number(text, *LAYERS, most=MAX_LAYERS)
    kv_bytes, windowed, state = all_bytes(text, layers)
    window = window_of(text) if windowed else 0
    quantization = _quantization(config, text)
    return ModelFacts(
        weights_bytes=weights_bytes,
        trained_context=number(text, *CONTEXT),
        kv_bytes_per_token=kv_bytes,
        architecture=string(text.get("model_type")) or string(config.get("model_type")),
        parameters=parameters(config),
        layers=layers,
        attention_heads=number(text, *HEADS),
        kv_heads=1 if latent_of(text) else kv_heads_of(text),
        embedding_length=number(text, *HIDDEN),
        vocabulary=number(text, *VOCABULARY),
        quantization=quantization,
        sliding_window=window,
        sliding_kv_bytes_per_token=windowed if window else 0,
        state_bytes=state,
        experts=number(text, *EXPERTS),
        even_parts=even_parts(config, quantization),
    )


def _quantization(config: Mapping[str, object], text: Mapping[str, object]) -> str:
    """How the weights are stored: a tool's name where it has but one format, else the format."""
    quantized = config.get("quantization_config") or text.get("quantization_config")
    if isinstance(quantized, Mapping):
        method = string(quantized.get("quant_method"))
        told = (string(quantized.get("quant_algo")) or string(quantized.get("format"))).lower()
        return next((name for word, name in _FORMATS.items() if word in told), method)
    return string(text.get("torch_dtype") or text.get("dtype") or config.get("torch_dtype"))
