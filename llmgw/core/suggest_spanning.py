"""What a fleet could hold of a model that no machine holds alone: as few of them as are enough, with what each has."""

from collections.abc import Sequence

from llmgw.core.catalog import MAX_NODES, ModelFacts
from llmgw.core.cluster import RUNTIME, Card, Node
from llmgw.core.fit import estimate
from llmgw.core.room import CARD_RESERVE_BYTES
from llmgw.core.units import plural, size
from llmgw.core.verdicts import Suggestion


def over_nodes(
    facts: ModelFacts, nodes: Sequence[Node], *, engine: str, gpu_class: str, context_length: int, slots: int
) -> Suggestion | None:
    """The fewest nodes whose cards are enough together, a stage on each; none where no number of them is."""
    able = [node for node in nodes if any(build.engine == RUNTIME and build.usable for build in node.engines)]
    stock = sorted((cards for node in able if (cards := _cards(node, gpu_class))), key=len, reverse=True)
    for spans in range(2, min(len(stock), MAX_NODES) + 1):
        # With a card for as many as the smallest of them has, by which the heads can be divided.
        each = len(stock[spans - 1])
        tp = next(n for n in range(each, 0, -1) if facts.attention_heads % n == 0)
        need = estimate(facts, engine=engine, context_length=context_length, slots=slots, tp=tp, pp=spans)
        room = min(card.memory_total_bytes or 0 for cards in stock for card in cards) - CARD_RESERVE_BYTES
        if not need.refusal and need.per_card_bytes <= room:
            enough = sum(1 for cards in stock if len(cards) >= tp)
            return Suggestion(
                engine=engine,
                gpu_class=gpu_class,
                tp=tp,
                pp=spans,
                spans=spans,
                nodes=enough,
                need_bytes=need.per_card_bytes,
                room_bytes=room,
                message=f"{engine} over {spans} nodes with {plural(tp, 'card')} of {gpu_class} each "
                f"(nodes {spans}, tp {tp}, pp {spans}): {size(need.per_card_bytes)} of {size(room)} on every card; "
                f"{plural(enough, 'node')} could take part",
            )
    return None


def _cards(node: Node, gpu_class: str) -> list[Card]:
    """Its sound whole cards of a class."""
    return [
        card
        for card in node.cards
        if card.gpu_class == gpu_class and card.healthy and card.memory_total_bytes is not None and not card.parent
    ]
