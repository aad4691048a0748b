"""Cards of a node by who holds them, from the feed's rows or from `GET /nodes`. What follows is `llmgw.core.card_use`.

Pure. Columns of the feed are read themselves: it is done for every node that speaks, a thousand of them at times.
"""

from collections.abc import Iterable
from itertools import chain, repeat, zip_longest

from llmgw.api.node_types import CardInfo, NodeInfo
from llmgw.api.rows import FiguresRow, NodeRow
from llmgw.core.card_use import Use, work_of

UNHEARD = ("silent", "lost")
"""States of a node whose figures are old: shown as its last word where it stands alone, and in no sum."""
_UNTOLD = (None, None, None, None)
"""Busy, work, power and rest of a card beyond the end of the columns."""


def uses_of_row(node: NodeRow, figures: FiguresRow | None) -> dict[str, Use]:
    """A node's held cards by replica, with the newest figures there are."""
    uses: dict[str, Use] = {}
    told = node.state not in UNHEARD
    columns = (
        zip_longest(figures.utilization_percent, figures.work_percent, figures.power_w, figures.resting_since)
        if figures
        else ()
    )
    rows = zip(node.cards, chain(columns, repeat(_UNTOLD)), strict=False)
    for place, (card, (busy, work, power, since)) in enumerate(rows):
        if not card.replica:
            continue
        use = uses.get(card.replica)
        if use is None:
            use = uses[card.replica] = Use()
        use.add(
            place,
            busy=busy,
            work=work,
            sm=work if card.work_from == "sm" else None,
            power_w=power,
            limit_w=card.power_limit_w,
            since=since,
            told=told,
        )
    return uses


def uses_of_node(node: NodeInfo) -> dict[str, Use]:
    """The same from a node's document."""
    uses: dict[str, Use] = {}
    told = node.state not in UNHEARD
    for place, card in enumerate(node.cards):
        if card.replica is None:
            continue
        uses.setdefault(card.replica, Use()).add(
            place,
            busy=card.utilization_percent,
            work=card_work(card),
            sm=card.sm_active_percent,
            power_w=card.power_w,
            limit_w=card.power_limit_w,
            told=told,
        )
    return uses


def all_uses(nodes: Iterable[NodeInfo]) -> list[tuple[str, Use]]:
    """Every replica's cards on every node, with the replica's id."""
    return [pair for node in nodes for pair in uses_of_node(node).items()]


def card_work(card: CardInfo) -> float | None:
    """How much of the card works, percent."""
    return work_of(card.sm_active_percent, card.power_w, card.power_limit_w)
