"""What a node's cards do, counted once when its row or its figures change and never again while they rest."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeVar

from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import FiguresRow, NodeRow
from llmgw.core.card_use import rests

T = TypeVar("T")


class NodeLoad(NamedTuple):
    """One node's cards in figures; a cluster's are the sums, field by field."""

    cards: int = 0
    working: int = 0
    """Held by a replica and at work, or not reporting."""
    idle: int = 0
    """Held by a replica and doing nothing."""
    free: int = 0
    """Takes work and is held by nobody; no card of a node that is cordoned, silent or lost does."""
    worn: int = 0
    """Not healthy, or wearing out while it works; held or not."""
    unheard: int = 0
    """Of those that count as working, cards of nodes that are not heard."""
    drawn_w: float = 0.0
    """Sum over the cards that report what they draw."""
    power_cards: int = 0
    """Cards whose draw that is."""
    whole: int = 0
    """Cards that draw power of their own, as MIG instances do not."""
    work_percent: float = 0.0
    """Sum over the cards that report; divide by `reporting`."""
    busy_percent: float = 0.0
    memory_used_bytes: int = 0
    memory_total_bytes: int = 0
    """Of the cards that report what is used of it."""
    reporting: int = 0

    @property
    def power_w(self) -> float | None:
        """What its cards draw, as far as they report it; none where none does."""
        return self.drawn_w if self.power_cards else None

    @property
    def held(self) -> int:
        """Cards a replica holds."""
        return self.working + self.idle

    @property
    def at_work(self) -> int:
        """Cards at work, as far as their nodes are heard."""
        return self.working - self.unheard

    @property
    def mean_work_percent(self) -> float | None:
        """Mean over the cards that report; none where none does."""
        return self.work_percent / self.reporting if self.reporting else None


NO_LOAD = NodeLoad()


def column(values: Sequence[T | None], index: int) -> T | None:
    """A column's figure for one card; none where the column is short."""
    return values[index] if index < len(values) else None


def node_load(node: NodeRow, figures: FiguresRow | None) -> NodeLoad:
    """What `node`'s cards do by its newest figures; what a node that is not heard said last says nothing of now."""
    figures = None if node.state in UNHEARD else figures
    working = idle = free = worn = reporting = used = total = drawing = whole = 0
    power = work_sum = busy_sum = 0.0
    for index, card in enumerate(node.cards):
        work = column(figures.work_percent, index) if figures else None
        busy = column(figures.utilization_percent, index) if figures else None
        if figures:
            if (drawn := column(figures.power_w, index)) is not None:
                power += drawn
                drawing += 1
            if (taken := column(figures.memory_used_bytes, index)) is not None:
                used += taken
                total += card.memory_total_bytes or 0
        whole += not card.parent
        seen = work if work is not None else busy
        if seen is not None:
            reporting += 1
            work_sum += seen
            busy_sum += busy or 0.0
        if card.replica:
            working, idle = (working, idle + 1) if rests(busy, work) else (working + 1, idle)
        elif card.healthy and card.memory_total_bytes is not None and node.state == "connected":
            free += 1
        worn += not card.healthy or bool(card.wear)
    return NodeLoad(
        cards=len(node.cards),
        working=working,
        idle=idle,
        free=free,
        worn=worn,
        unheard=working if node.state in UNHEARD else 0,
        drawn_w=power,
        power_cards=drawing,
        whole=whole,
        work_percent=work_sum,
        busy_percent=busy_sum,
        memory_used_bytes=used,
        memory_total_bytes=total,
        reporting=reporting,
    )


def drawing_words(load: NodeLoad) -> tuple[str, ...]:
    """`  56/64` and ` GPUs`: over how many cards a draw is summed, where it is not over all of them."""
    return (f"  {load.power_cards:,}/{load.whole:,}", " GPUs") if 0 < load.power_cards < load.whole else ()


def total_load(loads: Iterable[NodeLoad]) -> NodeLoad:
    """The sums over `loads`."""
    return NodeLoad(*map(sum, zip(*loads, strict=True)))
