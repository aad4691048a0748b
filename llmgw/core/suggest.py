"""What this fleet could hold of a model: for every class of cards the fewest that are enough, and the longest context.

Cards are counted as if nothing ran on them: whether there is room now is what placement says.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import msgspec

from llmgw.core.catalog import CARD_ENGINES, MAX_CONTEXT, MIN_CONTEXT, ModelFacts
from llmgw.core.cluster import Node
from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.placement import CARD_RESERVE_BYTES, NODE_RESERVE_BYTES
from llmgw.core.units import plural, size
from llmgw.core.verdicts import Suggestion

CONTEXT_STEP = 256
"""Contexts are offered in whole steps."""


def suggest(
    facts: ModelFacts | None, nodes: Sequence[Node], *, engines: Sequence[str], context_length: int, slots: int
) -> tuple[Suggestion, ...]:
    """Ways to run a model, those that fit first and of them the fewest cards; none while nothing is known of it."""
    if facts is None or not facts.weights_bytes:
        return ()
    asked = _Asked(facts=facts, context_length=context_length, slots=slots)
    found = [
        _on_class(asked, nodes, engine, gpu_class)
        for engine in engines
        for gpu_class in sorted({card.gpu_class for node in nodes for card in node.cards if card.gpu_class})
    ]
    found += [_in_memory(asked, nodes, engine) for engine in engines if engine not in CARD_ENGINES and nodes]
    return tuple(sorted(found, key=lambda s: (not s.nodes, s.gpu_class is None, s.tp, s.gpu_class or "", s.engine)))


def engines_for(source: str) -> tuple[str, ...]:
    """Engines that load what a source is."""
    if source.startswith("sim:"):
        return ("sim",)
    return ("llamacpp",) if source.lower().endswith(".gguf") else CARD_ENGINES


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    facts: ModelFacts
    context_length: int
    slots: int

    def need(self, engine: str, tp: int, context_length: int = 0) -> MemoryNeed:
        """Memory at the context that was asked for, or at another."""
        context = context_length or self.context_length
        return estimate(self.facts, engine=engine, context_length=context, slots=self.slots, tp=tp)


def _on_class(asked: _Asked, nodes: Sequence[Node], engine: str, gpu_class: str) -> Suggestion:
    counts: Counter[str] = Counter()
    rooms = []
    for node in nodes:
        for card in node.cards:
            if card.gpu_class == gpu_class and card.healthy and card.memory_total_bytes is not None:
                counts[node.name] += 1
                rooms.append(card.memory_total_bytes - CARD_RESERVE_BYTES)
    room = min(rooms, default=0)
    most = max(counts.values(), default=0)
    shapes = [(tp, need) for tp in range(1, most + 1) if not (need := asked.need(engine, tp)).refusal]
    fitting = next(((tp, need) for tp, need in shapes if need.per_card_bytes <= room), None)
    if fitting is None:
        tp, need = shapes[-1] if shapes else (1, asked.need(engine, 1))
        longest = _longest(asked, engine, tp, room)
        return Suggestion(
            engine=engine,
            gpu_class=gpu_class,
            tp=tp,
            need_bytes=need.per_card_bytes,
            room_bytes=room,
            longest_context=longest,
            message=f"{engine} does not fit {_cards(tp, gpu_class)}: {size(need.per_card_bytes)} are needed on each "
            f"and {size(room)} are there" + (f"; up to {longest:,} tokens × {asked.slots} it would" if longest else ""),
        )
    tp, need = fitting
    able = sum(1 for count in counts.values() if count >= tp)
    longest = _longest(asked, engine, tp, room)
    each = " each" if tp > 1 else ""
    return Suggestion(
        engine=engine,
        gpu_class=gpu_class,
        tp=tp,
        nodes=able,
        need_bytes=need.per_card_bytes,
        room_bytes=room,
        longest_context=longest,
        message=f"{engine} on {_cards(tp, gpu_class)}: {size(need.per_card_bytes)} of {size(room)}{each}, "
        f"up to {longest:,} tokens × {asked.slots}, on {plural(able, 'node')}",
    )


def _cards(count: int, gpu_class: str) -> str:
    return f"{plural(count, 'card')} of {gpu_class}" + (f" (tp {count})" if count > 1 else "")


def _in_memory(asked: _Asked, nodes: Sequence[Node], engine: str) -> Suggestion:
    rooms = [node.memory_total_bytes - NODE_RESERVE_BYTES for node in nodes]
    need = asked.need(engine, 1).total_bytes
    able = [room for room in rooms if need <= room]
    room = max(rooms)
    if not able:
        message = f"does not fit in memory: {size(need)} are needed and the largest node has {size(max(0, room))}"
        return Suggestion(engine=engine, need_bytes=need, room_bytes=room, message=message)
    longest = _longest(asked, engine, 1, room, in_memory=True)
    return Suggestion(
        engine=engine,
        nodes=len(able),
        need_bytes=need,
        room_bytes=room,
        longest_context=longest,
        message=f"{engine} on the CPU: {size(need)} of memory, up to {longest:,} tokens × {asked.slots}, "
        f"on {plural(len(able), 'node')}",
    )


def _longest(asked: _Asked, engine: str, tp: int, room: int, *, in_memory: bool = False) -> int:
    """The most tokens a request may span with this much room, the model's own context at most; 0 when none fit."""
    most = asked.facts.trained_context or MAX_CONTEXT

    def fits(context: int) -> bool:
        need = asked.need(engine, tp, context)
        return (need.total_bytes if in_memory else need.per_card_bytes) <= room

    steps = range(CONTEXT_STEP, most + 1, CONTEXT_STEP)
    longest = CONTEXT_STEP * bisect_left(steps, True, key=lambda context: not fits(context))
    if longest + CONTEXT_STEP > most and fits(most):
        return most
    return longest if longest >= MIN_CONTEXT else 0
