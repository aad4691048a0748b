"""What this fleet could hold of a model: for every class of cards the fewest that are enough, and the longest context.

Cards are counted as if nothing ran on them: whether there is room now is what placement says.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

import msgspec

from llmgw.core.capability import too_old
from llmgw.core.catalog import CARD_ENGINES, MAX_CONTEXT, MIN_CONTEXT, MULTI_NODE_ENGINES, OFFERED_ENGINES, ModelFacts
from llmgw.core.cluster import Card, Node, NodeLink
from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.room import CARD_RESERVE_BYTES, NODE_RESERVE_BYTES
from llmgw.core.serving import ends_in_gguf
from llmgw.core.suggest_spanning import over_nodes
from llmgw.core.units import plural, size
from llmgw.core.verdicts import Suggestion

CONTEXT_STEP = 256
"""Contexts are offered in whole steps."""
_BESIDE = {"llamacpp": ("llamacpp", "strata"), **dict.fromkeys(OFFERED_ENGINES, ("freetoken",))}
"""By engine: which ones keep a mixture's experts in memory, of what that one loads."""


def suggest(
    facts: ModelFacts | None, nodes: Sequence[Node], *, engines: Sequence[str], context_length: int, slots: int
) -> tuple[Suggestion, ...]:
    """Ways to run a model, those that fit first and of them the fewest cards; none while nothing is known of it."""
    if facts is None or not facts.weights_bytes:
        return ()
    asked = _Asked(facts=facts, context_length=context_length, slots=slots)
    if nodes and set(engines) <= set(CARD_ENGINES) and all(map(_has_no_card, nodes)):
        return (_nowhere(engines),)
    found = [
        _on_class(asked, nodes, engine, gpu_class)
        for engine in engines
        for gpu_class in sorted({card.gpu_class for node in nodes for card in node.cards if card.gpu_class})
    ]
    found += [_in_memory(asked, nodes, engine) for engine in engines if engine not in CARD_ENGINES and nodes]
    whole = {s.gpu_class for s in found if s.nodes}
    for gpu_class in sorted({s.gpu_class for s in found if s.gpu_class} - whole):
        mixing = _engines_beside(engines)
        found += filter(None, (_beside_card(asked, nodes, engine, gpu_class) for engine in mixing))
        found += filter(None, (_over_nodes(asked, nodes, e, gpu_class) for e in engines if e in MULTI_NODE_ENGINES))
    return tuple(sorted(found, key=lambda suggestion: _order(suggestion, engines)))


def _has_no_card(node: Node) -> bool:
    """Whether it said so: one that was not heard since the control plane began may have any."""
    return node.link is NodeLink.CONNECTED and not any(card.gpu_class for card in node.cards)


def _nowhere(engines: Sequence[str]) -> Suggestion:
    """For a fleet without any card, and a source that only engines on cards load."""
    run = f"{' and '.join(engines)} {'run' if len(engines) > 1 else 'runs'} on cards"
    message = f"{run}, and no node has one: a GGUF file of the model (hf:ORG/REPO@REVISION/FILE.gguf) runs on the CPU"
    return Suggestion(engine=engines[0], message=message)


def _engines_beside(engines: Sequence[str]) -> Sequence[str]:
    """Those that keep experts in memory, each once."""
    return tuple(dict.fromkeys(other for engine in engines for other in _BESIDE.get(engine, ())))


def _may_start(node: Node, engine: str) -> bool:
    """Whether an engine is offered on a node: one that operators alone install only where it is."""
    return engine != "strata" or any(build.engine == engine and build.usable for build in node.engines)


def _order(found: Suggestion, engines: Sequence[str]) -> tuple[bool, bool, bool, int, str, int, str]:
    """What fits first, then cards before memory, cards alone before those with memory beside them, the fewest first.

    Of engines that do it alike the one is first that serves the source where none is named.
    """
    in_memory, gpu_class = found.gpu_class is None, found.gpu_class or ""
    at = engines.index(found.engine) if found.engine in engines else len(engines)
    return (not found.nodes, in_memory, bool(found.host_bytes), found.tp, gpu_class, at, found.engine)


def engines_for(source: str) -> tuple[str, ...]:
    """Engines that load what a source is."""
    if source.startswith("sim:"):
        return ("sim",)
    return ("llamacpp",) if ends_in_gguf(source) else OFFERED_ENGINES


class _Asked(msgspec.Struct, frozen=True, kw_only=True):
    facts: ModelFacts
    context_length: int
    slots: int

    def need(self, engine: str, tp: int, context_length: int = 0, args: Sequence[str] = ()) -> MemoryNeed:
        """Memory at the context that was asked for, or at another."""
        context = context_length or self.context_length
        return estimate(self.facts, engine=engine, context_length=context, slots=self.slots, tp=tp, args=args)


def _cards_of(nodes: Sequence[Node], gpu_class: str) -> list[tuple[Node, Card, int]]:
    """The sound cards of a class, with the node each is in and the room it has for replicas."""
    return [
        (node, card, card.memory_total_bytes - CARD_RESERVE_BYTES)
        for node in nodes
        for card in node.cards
        if card.gpu_class == gpu_class and card.healthy and card.memory_total_bytes is not None
    ]


def _on_class(asked: _Asked, nodes: Sequence[Node], engine: str, gpu_class: str) -> Suggestion:
    cards = _cards_of(nodes, gpu_class)
    counts = Counter(node.name for node, _, _ in cards)
    room = min((room for _, _, room in cards), default=0)
    # Of parts of cards a process sees one.
    most = 1 if any(card.parent for _, card, _ in cards) else max(counts.values(), default=0)
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
            message=f"{engine} does not fit {_cards(tp, gpu_class)}: {size(need.per_card_bytes)} are needed"
            f"{' on each' if tp > 1 else ''} and {size(room)} are there"
            + (f"; up to {longest:,} tokens × {asked.slots} it would" if longest else ""),
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


def _over_nodes(asked: _Asked, nodes: Sequence[Node], engine: str, gpu_class: str) -> Suggestion | None:
    return over_nodes(
        asked.facts,
        nodes,
        engine=engine,
        gpu_class=gpu_class,
        context_length=asked.context_length,
        slots=asked.slots,
    )


def _beside_card(asked: _Asked, nodes: Sequence[Node], engine: str, gpu_class: str) -> Suggestion | None:
    """A mixture of experts that is larger than the cards: experts in memory, the rest on one card; none for others."""
    cards = _cards_of([node for node in nodes if _may_start(node, engine)], gpu_class)
    if not cards or asked.facts.experts < 2:
        return None
    room = min(room for _, _, room in cards)
    args = _fewest_layers(asked, room) if engine == "llamacpp" else ()
    need = asked.need(engine, 1, args=args)
    if need.per_card_bytes > room or not need.host_bytes:
        return None
    if any(too_old(card.compute_capability, need.capability, what=engine) for _, card, _ in cards):
        return None
    memory = {node.name: node.memory_total_bytes - NODE_RESERVE_BYTES for node, _, _ in cards}
    able = [name for name, there in memory.items() if need.host_bytes <= there]
    flags = f" ({' '.join(args)})" if args else ""
    where = f"{engine} on {_cards(1, gpu_class)} with experts in memory{flags}"
    beside = f"{size(need.host_bytes)} of memory beside it"
    longest = _longest(asked, engine, 1, room, args=args) if args and able else 0
    card = "the whole card" if need.whole_card else f"{size(need.per_card_bytes)} of {size(room)}"
    message = f"{where}: {card} and {beside}" + (f", up to {longest:,} tokens × {asked.slots}" if longest else "")
    return Suggestion(
        engine=engine,
        gpu_class=gpu_class,
        nodes=len(able),
        need_bytes=need.per_card_bytes,
        room_bytes=room,
        host_bytes=need.host_bytes,
        args=args,
        longest_context=longest,
        message=f"{message}, on {plural(len(able), 'node')}"
        if able
        else f"{where} needs {beside}, and the largest node has {size(max(0, *memory.values()))}",
    )


def _fewest_layers(asked: _Asked, room: int) -> tuple[str, ...]:
    """The flags that keep as few experts in memory as leave the rest room on one card; all where none do."""
    layers = len(asked.facts.expert_bytes)

    def fits(count: int) -> bool:
        return asked.need("llamacpp", 1, args=("--n-cpu-moe", str(count))).per_card_bytes <= room

    fewest = bisect_left(range(layers), True, key=fits)
    return ("--n-cpu-moe", str(fewest)) if fewest < layers else ("--cpu-moe",)


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


def _longest(
    asked: _Asked, engine: str, tp: int, room: int, *, in_memory: bool = False, args: Sequence[str] = ()
) -> int:
    """The most tokens a request may span with this much room, the model's own context at most; 0 when none fit."""
    most = asked.facts.trained_context or MAX_CONTEXT

    def fits(context: int) -> bool:
        need = asked.need(engine, tp, context, args)
        return (need.total_bytes if in_memory else need.per_card_bytes) <= room

    steps = range(CONTEXT_STEP, most + 1, CONTEXT_STEP)
    longest = CONTEXT_STEP * bisect_left(steps, True, key=lambda context: not fits(context))
    if longest + CONTEXT_STEP > most and fits(most):
        return most
    return longest if longest >= MIN_CONTEXT else 0
