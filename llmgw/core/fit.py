"""How much memory a model needs: weights, KV cache and engine, as figures an operator can check by hand.

The estimate errs to the high side: a replica that was placed must not be killed for memory.
"""

import msgspec

from llmgw.core.catalog import CARD_ENGINES, ModelFacts
from llmgw.core.errors import InvalidInput
from llmgw.core.units import size

LLAMACPP_BASE_BYTES = 150_000_000
"""A llama.cpp server before it has loaded anything, libraries included."""
LLAMACPP_BATCH_TOKENS = 512
"""Tokens of one computation (llama.cpp's default ubatch): its logits and activations are float32."""
LLAMACPP_CONTEXT_STEP = 256
"""llama.cpp rounds each context up to this many tokens."""
SIM_BYTES = 64_000_000
"""The sim engine's process."""
PYTHON_ENGINE_BYTES = 3_000_000_000
"""What vLLM or SGLang take of a card besides weights and KV: CUDA's context, NCCL, captured graphs, workspaces."""
PYTHON_ENGINE_BATCH_TOKENS = 8192
"""Tokens of one computation: their defaults for cards of every size."""
PYTHON_ENGINE_ACTIVATIONS = 20
"""Bytes of activations at the peak, for each token of a batch and each place of the embedding."""
MOST_TP_NAMED = 16
"""Cards of one node, at most, in advice."""
KV_BLOCK_TOKENS = 16
"""A request's cache is whole blocks of so many tokens."""


UNKNOWN_WEIGHTS = "weights and KV, known once they are looked up"
"""Part of the detail while nothing is known of the weights."""


class MemoryNeed(msgspec.Struct, frozen=True, kw_only=True):
    """Memory one replica takes."""

    weights_bytes: int
    kv_bytes: int
    """Key and value cache of all slots, full."""
    overhead_bytes: int
    """Engine and its buffers, on each card."""
    total_bytes: int
    """Over all cards, or of the node for a CPU profile."""
    per_card_bytes: int
    """On each of `tp` cards."""
    detail: str
    """`weights 98 MB + KV 24 MB (4 × 4096 tokens) + engine 150 MB`."""
    refusal: str = ""
    """Why it runs nowhere in this shape, however much memory there is; empty when it may."""


def estimate(facts: ModelFacts, *, engine: str, context_length: int, slots: int, tp: int = 1) -> MemoryNeed:
    """Memory of one replica whose every slot may span `context_length` tokens; raises InvalidInput."""
    if context_length < 1 or slots < 1 or tp < 1:
        raise InvalidInput(f"context {context_length}, slots {slots} and tp {tp} must all be at least 1")
    if engine == "sim":
        return _simulated(facts, context_length=context_length, slots=slots, tp=tp)
    if engine in CARD_ENGINES:
        return _on_cards(facts, engine=engine, context_length=context_length, slots=slots, tp=tp)
    if engine != "llamacpp":
        raise InvalidInput(f"there is no memory estimate for engine {engine!r}", field="engine")
    kv = kv_cache_bytes(facts, context_length=_round_up(context_length, LLAMACPP_CONTEXT_STEP), slots=slots)
    # The widest row a batch computes: the vocabulary's logits, or a few embedding-wide activations.
    width = max(facts.vocabulary, 4 * facts.embedding_length)
    overhead = LLAMACPP_BASE_BYTES + LLAMACPP_BATCH_TOKENS * width * 4
    known = (
        f"weights {size(facts.weights_bytes)}",
        f"KV {size(kv)} ({slots} × {context_length} tokens)",
    )
    parts = (*(known if facts.weights_bytes else (UNKNOWN_WEIGHTS,)), f"engine {size(overhead)}")
    return _need(facts.weights_bytes, kv, overhead, tp, " + ".join(parts))


def _on_cards(facts: ModelFacts, *, engine: str, context_length: int, slots: int, tp: int) -> MemoryNeed:
    """vLLM and SGLang. Their cache is one room for all requests: it holds `slots` of full length, or more shorter ones.

    Cards beyond the number of KV heads hold copies of them, which makes their cards' part of the cache no smaller.
    """
    kv = kv_cache_bytes(facts, context_length=_round_up(context_length, KV_BLOCK_TOKENS), slots=slots)
    copies = -(-tp // facts.kv_heads) if facts.kv_heads else 1
    overhead = PYTHON_ENGINE_BYTES + PYTHON_ENGINE_BATCH_TOKENS * PYTHON_ENGINE_ACTIVATIONS * facts.embedding_length
    known = (
        f"weights {size(facts.weights_bytes)}",
        f"KV {size(kv)} ({slots} × {context_length} tokens{f', {copies} copies' if copies > 1 else ''})",
    )
    parts = (*(known if facts.weights_bytes else (UNKNOWN_WEIGHTS,)), f"{engine} {size(overhead)}")
    need = _need(facts.weights_bytes, kv * copies, overhead, tp, " + ".join(parts))
    return msgspec.structs.replace(need, refusal=_why_not_divided(facts.attention_heads, tp))


def _why_not_divided(heads: int, tp: int) -> str:
    """Every card computes as many attention heads as every other."""
    if not heads or heads % tp == 0:
        return ""
    good = ", ".join(str(n) for n in range(1, min(heads, MOST_TP_NAMED) + 1) if heads % n == 0)
    return f"its {heads} attention heads cannot be divided among {tp} cards; tp may be {good}"


def _simulated(facts: ModelFacts, *, context_length: int, slots: int, tp: int) -> MemoryNeed:
    """What the model it stands for would take, where its source says so; else the sim engine's process alone."""
    kv = facts.kv_bytes_per_token * context_length * slots
    parts = [f"sim engine {size(SIM_BYTES)}"]
    if kv:
        parts.insert(0, f"simulated KV {size(kv)} ({slots} × {context_length} tokens)")
    if facts.weights_bytes:
        parts.insert(0, f"simulated weights {size(facts.weights_bytes)}")
    return _need(facts.weights_bytes, kv, SIM_BYTES, tp, " + ".join(parts))


def kv_cache_bytes(facts: ModelFacts, *, context_length: int, slots: int) -> int:
    """Key and value cache of `slots` requests of `context_length` tokens each.

    Layers that attend to a sliding window keep the window and one batch, however long the request is.
    """
    sliding = facts.sliding_kv_bytes_per_token if facts.sliding_window else 0
    kept = min(context_length, facts.sliding_window + LLAMACPP_BATCH_TOKENS)
    return slots * ((facts.kv_bytes_per_token - sliding) * context_length + sliding * kept)


def _need(weights: int, kv: int, overhead: int, tp: int, detail: str) -> MemoryNeed:
    per_card = -(-weights // tp) + -(-kv // tp) + overhead
    total = weights + kv + overhead * tp
    if tp > 1:
        detail += f", on {tp} cards {size(per_card)} each"
    return MemoryNeed(
        weights_bytes=weights,
        kv_bytes=kv,
        overhead_bytes=overhead,
        total_bytes=total,
        per_card_bytes=per_card,
        detail=detail,
    )


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step
