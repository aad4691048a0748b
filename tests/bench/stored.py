"""Bytes of weights as formats store them: of a configuration's matrices, and of the GGUF file llama.cpp makes of them.

llama.cpp's mixed types give some matrices more bits: its own rules (`llama-quant.cpp`), for the types people publish.
Block sizes are of ggml's headers. A row that is no whole number of a type's blocks is stored in the next larger type.
"""

from collections.abc import Callable, Mapping

from llmgw.core.config_keys import EXPERTS, number, string, text_config
from llmgw.core.errors import InvalidInput
from llmgw.core.ggml_types import TENSOR_TYPES
from llmgw.core.parameters import MAX_EXPERTS, Part, Weight, is_tied, weights

TYPES = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q5_0": 6,
    "Q5_1": 7,
    "Q8_0": 8,
    "Q2_K": 10,
    "Q3_K": 11,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
    "MXFP4": 39,
}
_FALLBACK = {"Q2_K": "Q4_0", "Q3_K": "Q4_0", "Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"}
GGUF_TYPES = ("F16", "BF16", "Q8_0", "Q6_K", "Q5_K_M", "Q5_K_S", "Q4_K_M", "Q4_K_S", "Q4_0", "Q3_K_M", "Q2_K", "MXFP4")
HEADER_BYTES_PER_TOKEN = 60
"""A GGUF's header holds the vocabulary and its merges; published ones are 40 to 70 bytes an entry."""
SIXTEEN_BITS = 16.0
_BITS: Mapping[str, float] = {
    "fp8": 8.0,
    "int8": 8.0,
    "bitsandbytes": 4.5,
    "awq": 4.156,
    "gptq": 4.156,
    "int4": 4.156,
    "mxfp4": 4.25,
    "nvfp4": 4.5,
}
"""Bits a weight: four-bit formats have a scale of 16 bits, and awq and gptq four bits of zero point, for each group."""
_EXPERTS_ALONE = ("mxfp4",)
"""Formats of the experts alone; everything else stays at 16 bits."""
_FUSED = ("phi3",)
"""Families with one matrix for queries, keys and values."""
_MIXED = (Part.EXPERTS_UP, Part.EXPERTS_DOWN)
_WHOLE = (Part.EMBEDDING, Part.OUTPUT, Part.KEPT)


def stored_bytes(config: Mapping[str, object], quantization: str) -> int:
    """Bytes of a repository's tensors, its weights stored as its configuration says; 0 where it says too little."""
    bits = _bits(config, quantization)
    alone = quantization in _EXPERTS_ALONE

    def own(weight: Weight) -> float:
        if weight.part in _WHOLE or (alone and weight.part not in _MIXED):
            return SIXTEEN_BITS
        return bits

    return round(sum(weight.elements * own(weight) / 8 for weight in weights(config)))


def _bits(config: Mapping[str, object], quantization: str) -> float:
    """Bits of a quantized weight; a configuration that names its bits and group is taken at its word."""
    if quantization in ("float32", "fp32"):
        return 32.0
    said = config.get("quantization_config")
    count = number(said, "bits", "w_bit", most=16) if isinstance(said, Mapping) else 0
    if not count or not isinstance(said, Mapping):
        return _BITS.get(quantization, SIXTEEN_BITS)
    group = number(said, "group_size", "q_group_size", most=1 << 16)
    return count + (16 + count) / group if group else float(count)


def gguf_bytes(config: Mapping[str, object], kind: str, *, experts_apart: bool = False) -> int:
    """Bytes of the GGUF file of this type, header and all; 0 where the configuration says too little.

    `experts_apart`: of files from before April 2024, with a tensor for each expert, which got no further bits.
    Raises InvalidInput for a type without a rule here.
    """
    if kind not in GGUF_TYPES:
        raise InvalidInput(
            f"there is no rule for GGUF files of type {kind[:40]!r}; there is for {', '.join(GGUF_TYPES)}"
        )
    found = weights(config)
    if not found:
        return 0
    text = text_config(config)
    mix = _Mix(kind, text, layers=1 + max(weight.layer for weight in found), experts_apart=experts_apart)
    tensors = sum(_tensor_bytes(weight, mix.type_of(weight)) for weight in found)
    return tensors + HEADER_BYTES_PER_TOKEN * number(text, "vocab_size", "padded_vocab_size")


def _tensor_bytes(weight: Weight, kind: str) -> int:
    block, size = TENSOR_TYPES[TYPES[kind]]
    if weight.columns % block:
        return _tensor_bytes(weight, _FALLBACK.get(kind, "F16"))
    return weight.elements // block * size


class _Mix:
    """Which type each matrix gets in a file of one type."""

    def __init__(self, kind: str, text: Mapping[str, object], *, layers: int, experts_apart: bool) -> None:
        self._kind = kind
        self._layers = layers
        self._experts_apart = experts_apart
        self._fused = string(text.get("model_type")) in _FUSED
        self._tied = is_tied(text)
        self._eight_experts = number(text, *EXPERTS, most=MAX_EXPERTS) == 8
        heads, kv_heads = number(text, "num_attention_heads"), number(text, "num_key_value_heads")
        self._shared_values = bool(kv_heads) and heads // kv_heads >= 4
        self._base = {"Q5_K_M": "Q5_K", "Q5_K_S": "Q5_K", "Q4_K_M": "Q4_K", "Q4_K_S": "Q4_K", "Q3_K_M": "Q3_K"}.get(
            kind, kind
        )

    def type_of(self, weight: Weight) -> str:
        """Name of the matrix's type."""
        if weight.part is Part.KEPT:
            return "F32"
        if self._kind in ("F16", "BF16", "Q8_0"):
            return self._kind
        if self._kind == "MXFP4":
            return "MXFP4" if weight.part in _MIXED else "Q8_0"
        if weight.part is Part.OUTPUT or (weight.part is Part.EMBEDDING and self._tied):
            return "Q6_K"
        if self._eight_experts and weight.part in (Part.KEY, Part.VALUE):
            return "Q8_0"
        if (
            self._eight_experts
            and weight.part is Part.ATTENTION_OUTPUT
            and self._kind not in ("Q4_0", "Q6_K", "Q5_K_M")
        ):
            return "Q5_K"
        if self._fused and weight.part in (Part.QUERY, Part.KEY, Part.VALUE):
            return {"Q3_K_M": "Q4_K", "Q4_K_M": "Q5_K", "Q5_K_M": "Q6_K"}.get(self._kind, self._base)
        if self._experts_apart and weight.part is Part.EXPERTS_DOWN:
            return self._base
        rules: Mapping[Part, Callable[[int], str]] = {
            Part.VALUE: self._value,
            Part.DOWN: self._down,
            Part.EXPERTS_DOWN: self._down,
            Part.ATTENTION_OUTPUT: lambda _layer: {"Q2_K": "Q3_K", "Q3_K_M": "Q4_K"}.get(self._kind, self._base),
        }
        rule = rules.get(weight.part)
        return rule(weight.layer) if rule is not None else self._base

    def _value(self, layer: int) -> str:
        if self._kind in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if self._has_more(layer) else self._base
        early = {"Q3_K_M": ("Q5_K", 2), "Q4_K_S": ("Q5_K", 4)}.get(self._kind)
        if early is not None and layer < early[1]:
            return early[0]
        return {"Q3_K_M": "Q4_K", "Q2_K": "Q4_K" if self._shared_values else "Q3_K"}.get(self._kind, self._base)

    def _down(self, layer: int) -> str:
        if self._kind in ("Q4_K_M", "Q5_K_M"):
            return "Q6_K" if self._has_more(layer) else self._base
        if self._kind == "Q3_K_M":
            return "Q5_K" if layer < self._layers // 16 else "Q4_K"
        if self._kind == "Q4_K_S":
            return "Q5_K" if layer < self._layers // 8 else "Q4_K"
        return "Q3_K" if self._kind == "Q2_K" else self._base

    def _has_more(self, layer: int) -> bool:
        """The first and last eighth of the layers, and every third between."""
        eighth = self._layers // 8
        return layer < eighth or layer >= 7 * self._layers // 8 or (layer - eighth) % 3 == 2
