"""What a profile's flags do to the memory its engine takes, where they are allowed at all.

Whatever makes it larger counts. Of two flags that each make it smaller, only what both of them are sure to leave does.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from llmgw.core.beside import value_of
from llmgw.core.catalog import ModelFacts
from llmgw.core.units import MIB

LLAMACPP_BATCH_TOKENS = 512
"""Tokens of one computation (llama.cpp's default ubatch): its logits and activations are float32."""
LLAMACPP_QUEUED_TOKENS = 2048
"""Its default batch, which no computation is larger than."""
PYTHON_ENGINE_BATCH_TOKENS = 8192
"""Tokens of one computation of vLLM, SGLang and TensorRT-LLM: their defaults for cards of every size."""
_TYPES = {"f32": 128, "q8_0": 34, "q4_0": 18, "q4_1": 20, "iq4_nl": 18, "q5_0": 22, "q5_1": 24}
"""Bytes of 32 figures of a cache of each type; others are stored in 16 bits."""
_PLAIN = 64
"""Of 32 figures in 16 bits, which facts are told in."""
_KEYS, _VALUES = ("--cache-type-k", "-ctk"), ("--cache-type-v", "-ctv")
_CACHE_STAYS = ("--no-kv-offload", "-nkvo")
_COMPUTED = ("--max-num-batched-tokens", "--chunked-prefill-size", "--max-prefill-tokens", "--max_num_tokens")
_WIDE = ("float", "float32")
_STORED_NARROW = ("float16", "bfloat16", "half")


class FlagMemory(NamedTuple):
    """What is other than by default."""

    batch_tokens: int
    """Tokens of one computation."""
    kv_32_figures: int = _PLAIN
    """Bytes of 32 figures of the cache."""
    keeps_windows: bool = True
    """Whether layers with a window keep no more than that."""
    kv_in_memory: bool = False
    """Whether the cache is in the node's memory and not on the cards."""
    host_bytes: int = 0
    """Of the node's memory besides."""
    weights_times: int = 1

    def cached(self, facts: ModelFacts) -> ModelFacts:
        """The facts with what the cache of a token takes under these flags."""
        return msgspec.structs.replace(
            facts,
            kv_bytes_per_token=-(-facts.kv_bytes_per_token * self.kv_32_figures // _PLAIN),
            sliding_kv_bytes_per_token=facts.sliding_kv_bytes_per_token * self.kv_32_figures // _PLAIN,
            sliding_window=facts.sliding_window if self.keeps_windows else 0,
        )


def llamacpp_memory(args: Sequence[str]) -> FlagMemory:
    """llama.cpp's."""
    batch = _number(args, ("--batch-size", "-b"), 0) or LLAMACPP_QUEUED_TOKENS
    key, value = (_TYPES.get(value_of(args, names), _PLAIN) for names in (_KEYS, _VALUES))
    return FlagMemory(
        batch_tokens=min(_computed(args, batch), batch),
        kv_32_figures=max(key, value),
        keeps_windows="--swa-full" not in args,
        kv_in_memory=any(word in _CACHE_STAYS for word in args),
        host_bytes=_number(args, ("--cache-ram", "-cram"), 0) * MIB,
    )


def python_engine_memory(args: Sequence[str], quantization: str) -> FlagMemory:
    """That of vLLM, SGLang and TensorRT-LLM, for weights stored so."""
    wide = value_of(args, ("--dtype",)) in _WIDE
    tokens = (_number(args, (name,), 0) for name in _COMPUTED)
    return FlagMemory(
        batch_tokens=max(PYTHON_ENGINE_BATCH_TOKENS, *tokens),
        kv_32_figures=2 * _PLAIN if wide else _PLAIN,
        keeps_windows="--disable-hybrid-kv-cache-manager" not in args,
        weights_times=2 if wide and quantization in _STORED_NARROW else 1,
    )


def _computed(args: Sequence[str], batch: int) -> int:
    """Tokens of one computation of llama.cpp; a flag that is not over 0 makes it the whole batch."""
    names = ("--ubatch-size", "-ub")
    return (_number(args, names, 0) or batch) if value_of(args, names) else LLAMACPP_BATCH_TOKENS


def _number(args: Sequence[str], names: Sequence[str], absent: int) -> int:
    """A flag's figure; `absent` where there is none, or none that bounds anything."""
    value = value_of(args, names)
    return int(value) if value.isascii() and value.isdigit() else absent
