"""How much memory a model needs: weights, KV cache and engine, as figures an operator can check by hand.

The estimate errs to the high side: a replica that was placed must not be killed for memory.
"""

from collections.abc import Mapping, Sequence

import msgspec

from llmgw.core.beside import experts_on_card, layers_in_memory, pinned_bytes
from llmgw.core.capability import Capability, needed_capability
from llmgw.core.catalog import CARD_ENGINES, PICTURE_ENGINES, ModelFacts
from llmgw.core.dividing import why_not_divided
from llmgw.core.errors import InvalidInput
from llmgw.core.memory_flags import LLAMACPP_BATCH_TOKENS, FlagMemory, llamacpp_memory, python_engine_memory
from llmgw.core.units import size

LLAMACPP_BASE_BYTES = 150_000_000
"""A llama.cpp server before it has loaded anything, libraries included."""
LLAMACPP_CONTEXT_STEP = 256
"""llama.cpp rounds each context up to this many tokens."""
SIM_BYTES = 64_000_000
"""The sim engine's process."""
PYTHON_ENGINE_BYTES = 3_000_000_000
"""What vLLM or SGLang take of a card besides weights and KV: CUDA's context, NCCL, captured graphs, workspaces."""
PYTHON_ENGINE_ACTIVATIONS = 20
"""Bytes of activations at the peak, for each token of a batch and each place of the embedding."""
STRATA_CARD_BYTES = 8_000_000_000
"""The smallest card Strata takes; it divides what its card has by itself."""
STRATA_HOST_BYTES = 4_000_000_000
"""What Strata takes of the node's memory besides experts."""
FREETOKEN_HOST_BYTES = 4_000_000_000
"""What FreeToken takes of the node's memory besides weights: its processes, CUDA's part in them, and what it reads."""
COMFYUI_BYTES = 6_000_000_000
"""What ComfyUI takes of its card besides weights: CUDA's context, a picture's latents and activations, its decoding."""
COMFYUI_HOST_BYTES = 4_000_000_000
"""Of the node's memory besides weights, which it keeps there while they are not on the card."""
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
    host_bytes: int = 0
    """Of the node's memory, beside the cards."""
    whole_card: bool = False
    """It sizes its caches by what its card has: it gets one that nobody else holds, whole."""
    capability: Capability | None = None
    """Compute capability a card must have at least; none asks for none."""
    detail: str
    """`weights 98 MB + KV 24 MB (4 × 4096 tokens) + engine 150 MB`."""
    refusal: str = ""
    """Why it runs nowhere in this shape, however much memory there is; empty when it may."""


def estimate(
    facts: ModelFacts,
    *,
    engine: str,
    context_length: int,
    slots: int,
    tp: int = 1,
    pp: int = 1,
    args: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    on_cards: bool = True,
) -> MemoryNeed:
    """Memory of one replica whose every slot may span `context_length` tokens; raises InvalidInput.

    Flags of a profile on cards may leave a part in the node's memory; without cards all of it is there.
    """
    if engine in PICTURE_ENGINES:
        return _pictures(facts, engine)
    if context_length < 1 or slots < 1 or tp < 1:
        raise InvalidInput(f"context {context_length}, slots {slots} and tp {tp} must all be at least 1")
    if engine == "sim":
        return _simulated(facts, context_length=context_length, slots=slots, tp=tp)
    if engine == "freetoken":
        return _freetoken(facts, args, env or {})
    if engine == "strata":
        return _strata(facts)
    if engine in CARD_ENGINES:
        need = _on_cards(facts, engine=engine, context_length=context_length, slots=slots, tp=tp, args=args)
        return _in_stages(facts, need, tp, pp) if pp > 1 else need
    if engine != "llamacpp":
        raise InvalidInput(f"there is no memory estimate for engine {engine!r}", field="engine")
    flags = llamacpp_memory(args)
    kv = kv_cache_bytes(
        flags.cached(facts),
        context_length=_round_up(context_length, LLAMACPP_CONTEXT_STEP),
        slots=slots,
        batch_tokens=flags.batch_tokens,
    )
    # The widest row a batch computes: the vocabulary's logits, or a few embedding-wide activations.
    width = max(facts.vocabulary, 4 * facts.embedding_length)
    overhead = LLAMACPP_BASE_BYTES + flags.batch_tokens * width * 4
    known = (
        f"weights {size(facts.weights_bytes)}",
        f"KV {size(kv)} ({slots} × {context_length} tokens)",
    )
    parts = (*(known if facts.weights_bytes else (UNKNOWN_WEIGHTS,)), f"engine {size(overhead)}")
    need = _need(facts.weights_bytes, kv, overhead, tp, " + ".join(parts))
    layers = layers_in_memory(args, len(facts.expert_bytes)) if on_cards else 0
    need = _with_experts_in_memory(facts, need, layers, tp) if layers else need
    return _with_flags(need, flags, tp, on_cards=on_cards)


def _with_flags(need: MemoryNeed, flags: FlagMemory, tp: int, *, on_cards: bool) -> MemoryNeed:
    """The same with what flags keep in the node's memory: prompts that may come again, and the cache itself."""
    moved = need.kv_bytes if flags.kv_in_memory and on_cards else 0
    if not (host := flags.host_bytes + moved):
        return need
    per_card = need.per_card_bytes - _share(moved, tp)
    return msgspec.structs.replace(
        need,
        total_bytes=need.total_bytes - moved + (0 if on_cards else host),
        per_card_bytes=per_card,
        host_bytes=need.host_bytes + host if on_cards else 0,
        detail=f"{_with_per_card(need, tp, per_card)}; {size(host)} of caches in memory",
    )


def _with_experts_in_memory(facts: ModelFacts, need: MemoryNeed, layers: int, tp: int) -> MemoryNeed:
    """The same with the experts of the first `layers` layers beside the cards.

    llama.cpp deals whole layers out to its cards, so that the last card keeps the most. For a long prompt it copies a
    layer's experts to the card that computes, which needs room for one layer.
    """
    kept = sum(facts.expert_bytes[:layers])
    copied = max(facts.expert_bytes[:layers])
    on_last = sum(facts.expert_bytes[layers:][-_share(len(facts.expert_bytes), tp) :])
    rest = facts.weights_bytes - sum(facts.expert_bytes)
    host = kept + need.overhead_bytes
    per_card = _share(rest, tp) + on_last + _share(need.kv_bytes, tp) + need.overhead_bytes + copied
    of = "all" if layers == len(facts.expert_bytes) else f"{layers} of {len(facts.expert_bytes)}"
    return msgspec.structs.replace(
        need,
        total_bytes=need.total_bytes - kept + copied * tp,
        per_card_bytes=per_card,
        host_bytes=host,
        detail=f"{_with_per_card(need, tp, per_card)}; of it the experts of {of} layers in memory, {size(host)} with "
        f"the engine, and room on the card for one of them, {size(copied)}",
    )


def _freetoken(facts: ModelFacts, args: Sequence[str], env: Mapping[str, str]) -> MemoryNeed:
    """FreeToken gives its card's memory to what it computes with, and to as many experts and tokens as have room.

    A mixture's experts lie in the node's memory, all of them, locked; a dense model has to be on the card.
    """
    overhead = PYTHON_ENGINE_BYTES
    in_memory = facts.experts > 1 and not experts_on_card(args)
    on_card = 0 if in_memory else facts.weights_bytes
    kept = max(facts.weights_bytes - on_card, pinned_bytes(env))
    weights = f"weights {size(facts.weights_bytes)} {'in memory' if in_memory else 'on its card'}"
    known = weights if facts.weights_bytes else UNKNOWN_WEIGHTS
    host = kept + FREETOKEN_HOST_BYTES
    return MemoryNeed(
        weights_bytes=facts.weights_bytes,
        kv_bytes=0,
        overhead_bytes=overhead,
        total_bytes=on_card + overhead,
        per_card_bytes=on_card + overhead,
        host_bytes=host,
        whole_card=True,
        capability=needed_capability("freetoken", facts.quantization),
        detail=f"{known} + freetoken {size(overhead)} on a card of its own, {size(host)} of memory beside it",
    )


def _pictures(facts: ModelFacts, engine: str) -> MemoryNeed:
    """ComfyUI moves weights between memory and its card as workflows need them, by how much of the card is free.

    It knows no bound, so it gets a card for itself: one that holds all its weights at once, so that none has to move.
    """
    on_card, host = facts.weights_bytes + COMFYUI_BYTES, facts.weights_bytes + COMFYUI_HOST_BYTES
    known = f"weights {size(facts.weights_bytes)}" if facts.weights_bytes else UNKNOWN_WEIGHTS
    return MemoryNeed(
        weights_bytes=facts.weights_bytes,
        kv_bytes=0,
        overhead_bytes=COMFYUI_BYTES,
        total_bytes=on_card,
        per_card_bytes=on_card,
        host_bytes=host,
        whole_card=True,
        detail=f"{known} + {engine} {size(COMFYUI_BYTES)} on a card of its own, {size(host)} of memory beside it",
    )


def _strata(facts: ModelFacts) -> MemoryNeed:
    """Strata keeps every expert in the node's memory, and of the rest on its card what has room there."""
    experts = sum(facts.expert_bytes) or facts.weights_bytes
    host = experts + STRATA_HOST_BYTES
    known = f"experts {size(experts)} in memory" if facts.weights_bytes else UNKNOWN_WEIGHTS
    return MemoryNeed(
        weights_bytes=facts.weights_bytes,
        kv_bytes=0,
        overhead_bytes=STRATA_CARD_BYTES,
        total_bytes=STRATA_CARD_BYTES,
        per_card_bytes=STRATA_CARD_BYTES,
        host_bytes=host,
        whole_card=True,
        detail=f"{known} + strata on a card of its own of at least {size(STRATA_CARD_BYTES)}, "
        f"{size(host)} of memory beside it",
    )


def _on_cards(
    facts: ModelFacts, *, engine: str, context_length: int, slots: int, tp: int, args: Sequence[str]
) -> MemoryNeed:
    """vLLM and SGLang. Their cache is one room for all requests: it holds `slots` of full length, or more shorter ones.

    Cards beyond the number of KV heads hold copies of them, which makes their cards' part of the cache no smaller.
    """
    flags = python_engine_memory(args, facts.quantization)
    length = _round_up(context_length, KV_BLOCK_TOKENS)
    cached = flags.cached(facts)
    kv = kv_cache_bytes(cached, context_length=length, slots=slots) + _beyond_windows(
        cached, length, flags.batch_tokens
    )
    weights = facts.weights_bytes * flags.weights_times
    copies = -(-tp // facts.kv_heads) if facts.kv_heads else 1
    overhead = PYTHON_ENGINE_BYTES + flags.batch_tokens * PYTHON_ENGINE_ACTIVATIONS * facts.embedding_length
    known = (
        f"weights {size(weights)}",
        f"KV {size(kv)} ({slots} × {context_length} tokens{f', {copies} copies' if copies > 1 else ''})",
    )
    parts = (*(known if facts.weights_bytes else (UNKNOWN_WEIGHTS,)), f"{engine} {size(overhead)}")
    need = _need(weights, kv * copies, overhead, tp, " + ".join(parts))
    return msgspec.structs.replace(need, refusal=why_not_divided(facts, engine, tp, args))


def _beyond_windows(facts: ModelFacts, length: int, batch_tokens: int) -> int:
    """What one request keeps of its windows' layers while a batch of it is computed, more than `kv_cache_bytes` has.

    vLLM starts only where one request has room for that. Requests share a batch, so it is counted once.
    """
    if not facts.sliding_window:
        return 0
    kept = min(length, facts.sliding_window + LLAMACPP_BATCH_TOKENS)
    return facts.sliding_kv_bytes_per_token * (min(length, facts.sliding_window + batch_tokens) - kept)


def _in_stages(facts: ModelFacts, need: MemoryNeed, tp: int, pp: int) -> MemoryNeed:
    """The same with the layers dealt out to `pp` stages: what the cards of the largest need, which every card is given.

    Layers that do not divide evenly leave one stage with more of them, and the words' own matrices lie at the ends.
    """
    layers = facts.layers or pp
    most = _share(layers, pp)
    ends = 2 * facts.vocabulary * facts.embedding_length
    weights = min(need.weights_bytes, _share(need.weights_bytes * most, layers) + ends)
    per_card = _share(weights, tp) + _share(_share(need.kv_bytes * most, layers), tp) + need.overhead_bytes
    why_not = f"its {layers} layers are too few for {pp} stages; pp may be 1 to {layers}" if pp > layers else ""
    detail, _, _ = need.detail.partition(", on ")
    return msgspec.structs.replace(
        need,
        per_card_bytes=per_card,
        total_bytes=need.weights_bytes + need.kv_bytes + need.overhead_bytes * tp * pp,
        detail=f"{detail}, on {tp * pp} cards in {pp} stages, {size(per_card)} each at most",
        refusal=need.refusal or why_not,
    )


def _simulated(facts: ModelFacts, *, context_length: int, slots: int, tp: int) -> MemoryNeed:
    """What the model it stands for would take, where its source says so; else the sim engine's process alone."""
    kv = facts.kv_bytes_per_token * context_length * slots
    parts = [f"sim engine {size(SIM_BYTES)}"]
    if kv:
        parts.insert(0, f"simulated KV {size(kv)} ({slots} × {context_length} tokens)")
    if facts.weights_bytes:
        parts.insert(0, f"simulated weights {size(facts.weights_bytes)}")
    return _need(facts.weights_bytes, kv, SIM_BYTES, tp, " + ".join(parts))


def kv_cache_bytes(
    facts: ModelFacts, *, context_length: int, slots: int, batch_tokens: int = LLAMACPP_BATCH_TOKENS
) -> int:
    """Key and value cache of `slots` requests of `context_length` tokens each.

    Layers that attend to a sliding window keep the window and one batch, however long the request is; recurrent ones a
    state of one size.
    """
    sliding = facts.sliding_kv_bytes_per_token if facts.sliding_window else 0
    kept = min(context_length, facts.sliding_window + batch_tokens)
    return slots * ((facts.kv_bytes_per_token - sliding) * context_length + sliding * kept + facts.state_bytes)


def _need(weights: int, kv: int, overhead: int, tp: int, detail: str) -> MemoryNeed:
    per_card = _share(weights, tp) + _share(kv, tp) + overhead
    total = weights + kv + overhead * tp
    if tp > 1:
        detail += _on_each(tp, per_card)
    return MemoryNeed(
        weights_bytes=weights,
        kv_bytes=kv,
        overhead_bytes=overhead,
        total_bytes=total,
        per_card_bytes=per_card,
        detail=detail,
    )


def _on_each(tp: int, per_card: int) -> str:
    return f", on {tp} cards {size(per_card)} each"


def _with_per_card(need: MemoryNeed, tp: int, per_card: int) -> str:
    """The detail with another figure for each of several cards."""
    return need.detail.replace(_on_each(tp, need.per_card_bytes), _on_each(tp, per_card))


def _round_up(value: int, step: int) -> int:
    return -(-value // step) * step


def _share(whole: int, tp: int) -> int:
    return -(-whole // tp)
