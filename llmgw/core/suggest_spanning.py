"""What a fleet could hold of a model that no machine holds alone: as few of them as are enough, with what each has."""

from collections.abc import Sequence
from typing import NamedTuple

from llmgw.core.catalog import MAX_NODES, ModelFacts
from llmgw.core.cluster import RUNTIME, Card, Node
from llmgw.core.dividing import why_not_divided
from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.room import CARD_RESERVE_BYTES
from llmgw.core.units import plural, size
from llmgw.core.verdicts import Suggestion


class _Shape(NamedTuple):
    """A way to spread a replica out, and how many nodes could take a part."""

    spans: int
    tp: int
    need: MemoryNeed
    room: int
    nodes: int


def over_nodes(
    facts: ModelFacts, nodes: Sequence[Node], *, engine: str, gpu_class: str, context_length: int, slots: int
) -> Suggestion | None:
    """The fewest nodes whose cards are enough together, a stage on each; none where no number of them is.

    Where they would be enough if the runtime were there, that is said, as a suggestion no node can take.
    """
    able = [node for node in nodes if any(build.engine == RUNTIME and build.usable for build in node.engines)]
    shape = _fewest(facts, able, engine, gpu_class, context_length, slots)
    missing = "" if shape is not None else RUNTIME
    shape = shape or _fewest(facts, nodes, engine, gpu_class, context_length, slots)
    if shape is None:
        return None
    where = (
        f"{engine} over {shape.spans} nodes with {plural(shape.tp, 'card')} of {gpu_class} each "
        f"(nodes {shape.spans}, tp {shape.tp}, pp {shape.spans}): {size(shape.need.per_card_bytes)} of "
        f"{size(shape.room)} on every card"
    )
    there = f"{len(able)} of {plural(len(nodes), 'node')} {'has' if len(able) == 1 else 'have'} {missing}"
    return Suggestion(
        engine=engine,
        gpu_class=gpu_class,
        tp=shape.tp,
        pp=shape.spans,
        spans=shape.spans,
        nodes=0 if missing else shape.nodes,
        need_bytes=shape.need.per_card_bytes,
        room_bytes=shape.room,
        message=f"{where}, if {missing} were installed beside {engine}: {there}"
        if missing
        else f"{where}; {plural(shape.nodes, 'node')} could take part",
    )


def _fewest(
    facts: ModelFacts, nodes: Sequence[Node], engine: str, gpu_class: str, context_length: int, slots: int
) -> _Shape | None:
    stock = sorted((cards for node in nodes if (cards := _cards(node, gpu_class))), key=len, reverse=True)
    for spans in range(2, min(len(stock), MAX_NODES) + 1):
        # With as many cards as the smallest of them has, as far as the model can be divided among them.
        each = len(stock[spans - 1])
        tp = next(n for n in range(each, 0, -1) if not why_not_divided(facts, engine, n))
        need = estimate(facts, engine=engine, context_length=context_length, slots=slots, tp=tp, pp=spans)
        room = min(card.memory_total_bytes or 0 for cards in stock for card in cards) - CARD_RESERVE_BYTES
        if not need.refusal and need.per_card_bytes <= room:
            enough = sum(1 for cards in stock if len(cards) >= tp)
            return _Shape(spans=spans, tp=tp, need=need, room=room, nodes=enough)
    return None


def _cards(node: Node, gpu_class: str) -> list[Card]:
    """Its sound whole cards of a class."""
    return [
        card
        for card in node.cards
        if card.gpu_class == gpu_class and card.healthy and card.memory_total_bytes is not None and not card.parent
    ]
