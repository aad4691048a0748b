"""What models get from their cards, and which cards are held for nothing.

Counts are kept a node, so that a change costs its node; the lists are made when asked for, at most once a second.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, repeat, zip_longest

from console.state.cluster import ClusterState
from console.state.history import NODE_SAMPLE_S, History
from console.state.loads import AT_WORK_PERCENT

SECONDS_AN_HOUR = 3600.0
MAX_IDLE = 500
"""Replicas listed as idle; a list longer than this says so by its count."""
_UNTOLD = (None, None, None)
"""Busy, work and power of a card beyond the end of the columns."""


@dataclass(kw_only=True)
class _Tally:
    """One replica's cards on one node."""

    cards: int = 0
    busy: float = 0.0
    busy_known: int = 0
    work: float = 0.0
    work_known: int = 0
    power_w: float = 0.0
    power_known: int = 0
    idle: tuple[int, ...] = ()
    """Places of its cards that do nothing."""
    idle_w: float = 0.0

    def add(self, other: "_Tally") -> None:
        self.cards += other.cards
        self.busy += other.busy
        self.busy_known += other.busy_known
        self.work += other.work
        self.work_known += other.work_known
        self.power_w += other.power_w
        self.power_known += other.power_known


@dataclass(frozen=True, kw_only=True)
class Efficiency:
    """What one model gets from its cards."""

    model: str
    cards: int
    tokens_per_s: float
    """Output tokens."""
    busy: float | None
    """Mean percent over the cards that say; none where none does. So are the next two."""
    work: float | None
    draw_w: float | None

    @property
    def per_card(self) -> float:
        """Output tokens a second from each card."""
        return self.tokens_per_s / self.cards if self.cards else 0.0

    @property
    def tokens_per_wh(self) -> float | None:
        """Output tokens for a watt-hour; none unless both are above zero."""
        if not self.draw_w or self.draw_w <= 0 or self.tokens_per_s <= 0:
            return None
        return self.tokens_per_s * SECONDS_AN_HOUR / self.draw_w


@dataclass(frozen=True, kw_only=True)
class IdleHolding:
    """A replica some of whose cards do nothing."""

    replica: str
    model: str
    state: str
    node: str
    places: tuple[int, ...]
    """Places of those cards on the node."""
    of: int
    """Cards it holds there."""
    draw_w: float
    """What the idle ones draw."""

    @property
    def key(self) -> str:
        """Unique and stable."""
        return f"{self.replica}\0{self.node}"


class Holdings:
    """Tallies of every node. Its one writer calls `update` with each state."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, _Tally]] = {}
        self._due: set[str] = set()

    def update(self, state: ClusterState, changed: Iterable[str] | None) -> None:
        """Nodes whose row or figures changed, none for all, are counted anew when next asked about."""
        if changed is None:
            self._nodes.clear()
            changed = state.nodes
        self._due.update(changed)

    def count(self, state: ClusterState) -> None:
        """Count what has changed. Asked for often, it is never much at once."""
        due, self._due = self._due, set()
        for name in due:
            tallies = _tallies(state, name)
            if tallies:
                self._nodes[name] = tallies
            else:
                self._nodes.pop(name, None)

    def efficiency(self, state: ClusterState) -> dict[str, Efficiency]:
        """A line a model that holds cards, the best per card first."""
        self.count(state)
        sums: dict[str, _Tally] = {}
        for tallies in self._nodes.values():
            for id_, tally in tallies.items():
                replica = state.replicas.get(id_)
                if replica is not None:
                    sums.setdefault(replica.model, _Tally()).add(tally)
        lines = [_efficiency(state, model, tally) for model, tally in sums.items()]
        lines.sort(key=lambda line: (-line.per_card, line.model))
        return {line.model: line for line in lines}

    def idle(self, state: ClusterState) -> dict[str, IdleHolding]:
        """Replicas with idle cards: the most cards first."""
        self.count(state)
        found: list[IdleHolding] = []
        for node, tallies in self._nodes.items():
            for id_, tally in tallies.items():
                if tally.idle:
                    found.append(_holding(state, node, id_, tally))
        found.sort(key=lambda holding: (-len(holding.places), holding.model, holding.replica))
        return {holding.key: holding for holding in found[:MAX_IDLE]}


def _tallies(state: ClusterState, node: str) -> dict[str, _Tally]:
    """By replica. Reads the columns themselves: it is done for every node that speaks."""
    row, figures = state.nodes.get(node), state.figures.get(node)
    tallies: dict[str, _Tally] = {}
    if row is None:
        return tallies
    if figures is None:
        for card in row.cards:
            if card.replica:
                tallies.setdefault(card.replica, _Tally()).cards += 1
        return tallies
    told = row.state not in ("silent", "lost")
    columns = zip_longest(figures.utilization_percent, figures.work_percent, figures.power_w)
    for place, (card, (busy, work, power)) in enumerate(zip(row.cards, chain(columns, repeat(_UNTOLD)), strict=False)):
        if not card.replica:
            continue
        tally = tallies.get(card.replica)
        if tally is None:
            tally = tallies[card.replica] = _Tally()
        tally.cards += 1
        if busy is not None:
            tally.busy, tally.busy_known = tally.busy + busy, tally.busy_known + 1
        if work is not None:
            tally.work, tally.work_known = tally.work + work, tally.work_known + 1
        if power is not None:
            tally.power_w, tally.power_known = tally.power_w + power, tally.power_known + 1
        activity = busy if busy is not None else work
        if told and activity is not None and activity < AT_WORK_PERCENT:
            tally.idle, tally.idle_w = (*tally.idle, place), tally.idle_w + (power or 0.0)
    return tallies


def _efficiency(state: ClusterState, model: str, tally: _Tally) -> Efficiency:
    traffic = state.traffic.get(model)
    return Efficiency(
        model=model,
        cards=tally.cards,
        tokens_per_s=traffic.output_tokens_per_s if traffic else 0.0,
        busy=tally.busy / tally.busy_known if tally.busy_known else None,
        work=tally.work / tally.work_known if tally.work_known else None,
        draw_w=tally.power_w if tally.power_known else None,
    )


def _holding(state: ClusterState, node: str, id_: str, tally: _Tally) -> IdleHolding:
    replica = state.replicas.get(id_)
    return IdleHolding(
        replica=id_,
        model=replica.model if replica else "",
        state=replica.state if replica else "",
        node=node,
        places=tally.idle,
        of=tally.cards,
        draw_w=tally.idle_w,
    )


def idle_for(history: History, node: str, places: Iterable[int], held_s: float = math.inf) -> tuple[float, bool]:
    """Seconds for which all these cards did nothing by the samples there are, and whether it may be longer.

    Whoever holds them has done so for `held_s`: what they did before is not its doing.
    """
    shortest, more = math.inf, True
    for place in places:
        seconds, longer = _idle_card(history, node, place)
        if seconds < shortest:
            shortest, more = seconds, longer
    if shortest == math.inf:
        return (0.0, False)
    return (shortest, more) if shortest < held_s else (max(0.0, held_s), False)


def _idle_card(history: History, node: str, place: int) -> tuple[float, bool]:
    work, busy = history.card(node, place, "work"), history.card(node, place, "busy")
    idle = 0
    for seen, other in zip(reversed(work), reversed(busy), strict=True):
        activity = other if other == other else seen
        # An unknown sample ends the run: before it anything may have been.
        if activity != activity:
            return idle * NODE_SAMPLE_S, True
        if activity >= AT_WORK_PERCENT:
            return idle * NODE_SAMPLE_S, False
        idle += 1
    return idle * NODE_SAMPLE_S, True
