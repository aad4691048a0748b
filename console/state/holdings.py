"""What models get from their cards, and which cards are held for nothing.

Counts are kept a node, so that a change costs its node; the lists are made when asked for, at most once a second. What
the figures are is `llmgw.core.card_use`, as everywhere.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from console.state.cluster import ClusterState
from console.state.history import NODE_SAMPLE_S, History
from llmgw.api.card_uses import uses_of_row
from llmgw.core.card_use import Efficiency, Use, best_first, by_model, efficiency, rests

MAX_IDLE = 500
"""Replicas listed as idle; a list longer than this says so by its count."""


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
    draw_w: float | None
    """What the idle ones draw; none while none of them tells."""
    resting_since: float | None = None
    """The server's unix second from which all of them did nothing; none where it does not say."""

    @property
    def key(self) -> str:
        """Unique and stable."""
        return f"{self.replica}\0{self.node}"


class Holdings:
    """Uses of every node's cards. Its one writer calls `update` with each state."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, Use]] = {}
        self._due: set[str] = set()

    def update(self, state: ClusterState, changed: Iterable[str] | None) -> None:
        """Nodes whose row or figures changed, none for all, are counted anew when next asked about."""
        if changed is None:
            self._nodes.clear()
            changed = state.nodes
        self._due.update(changed)

    def count(self, state: ClusterState) -> None:
        """Count what has changed."""
        due, self._due = self._due, set()
        for name in due:
            row = state.nodes.get(name)
            uses = uses_of_row(row, state.figures.get(name)) if row is not None else {}
            if uses:
                self._nodes[name] = uses
            else:
                self._nodes.pop(name, None)

    def efficiency(self, state: ClusterState) -> dict[str, Efficiency]:
        """A line a model that holds cards, the best per card first."""
        self.count(state)
        sums = by_model(
            (replica.model, use)
            for uses in self._nodes.values()
            for id_, use in uses.items()
            if (replica := state.replicas.get(id_)) is not None
        )
        lines = [
            efficiency(model, use, traffic.output_tokens_per_s if (traffic := state.traffic.get(model)) else 0.0)
            for model, use in sums.items()
        ]
        return {line.model: line for line in best_first(lines)}

    def idle(self, state: ClusterState) -> dict[str, IdleHolding]:
        """Replicas with idle cards: the most cards first."""
        self.count(state)
        found = [
            _holding(state, node, id_, use)
            for node, uses in self._nodes.items()
            for id_, use in uses.items()
            if use.idle
        ]
        found.sort(key=lambda holding: (-len(holding.places), holding.model, holding.replica))
        return {holding.key: holding for holding in found[:MAX_IDLE]}


def _holding(state: ClusterState, node: str, id_: str, use: Use) -> IdleHolding:
    replica = state.replicas.get(id_)
    return IdleHolding(
        replica=id_,
        model=replica.model if replica else "",
        state=replica.state if replica else "",
        node=node,
        places=use.idle,
        of=use.cards,
        draw_w=use.idle_w,
        resting_since=use.resting_since,
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
        known = tuple(value if value == value else None for value in (other, seen))
        # An unknown sample ends the run: before it anything may have been.
        if known == (None, None):
            return idle * NODE_SAMPLE_S, True
        if not rests(*known):
            return idle * NODE_SAMPLE_S, False
        idle += 1
    return idle * NODE_SAMPLE_S, True
