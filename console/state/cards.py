"""One card at a time: what it does, in which words, and how much of the scale each of the map's four modes fills.

A figure nobody reported is none, never zero.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from console.state.cluster import ClusterState
from console.state.loads import column
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import CardRow, FiguresRow, NodeRow
from llmgw.core import throttle
from llmgw.core.card_use import load_of, rests

COOL_C = 30.0
"""Bottom of the temperature scale: a card in a cold room that rests."""
HOT_C = 85.0
"""Cards slow themselves down from about here; also where the scale is nearly full."""
TOP_C = 90.0


class Mode(StrEnum):
    """What the map's cells show."""

    WORK = "work"
    """SMs active where read, power against its limit elsewhere."""
    BUSY = "busy"
    """Share of time any kernel ran."""
    MEMORY = "memory"
    TEMPERATURE = "temperature"


@dataclass(frozen=True, kw_only=True)
class CardAt:
    """A card, where it is, and its newest figures."""

    node: NodeRow
    place: int
    """Its column in the node's figures."""
    card: CardRow
    figures: FiguresRow | None

    @property
    def work(self) -> float | None:
        """Percent of the chip at work."""
        return column(self.figures.work_percent, self.place) if self.figures else None

    @property
    def busy(self) -> float | None:
        """Percent of time any kernel ran."""
        return column(self.figures.utilization_percent, self.place) if self.figures else None

    @property
    def memory_used_bytes(self) -> int | None:
        """Bytes in use, by whomever."""
        return column(self.figures.memory_used_bytes, self.place) if self.figures else None

    @property
    def memory(self) -> float | None:
        """Percent of its memory in use."""
        used, total = self.memory_used_bytes, self.card.memory_total_bytes
        return 100 * used / total if used is not None and total else None

    @property
    def temperature(self) -> float | None:
        """Degrees Celsius."""
        return column(self.figures.temperature_c, self.place) if self.figures else None

    @property
    def power(self) -> float | None:
        """Watts."""
        return column(self.figures.power_w, self.place) if self.figures else None

    @property
    def load(self) -> float | None:
        """Power against its limit, percent."""
        return load_of(self.power, self.card.power_limit_w)

    @property
    def memory_temperature(self) -> float | None:
        """Degrees Celsius of its memory."""
        return column(self.figures.memory_temperature_c, self.place) if self.figures else None

    @property
    def clock_mhz(self) -> float | None:
        """Clock of its multiprocessors."""
        return column(self.figures.sm_clock_mhz, self.place) if self.figures else None

    @property
    def sm(self) -> float | None:
        """Percent of its multiprocessors active, where they are counted."""
        return self.work if self.card.work_from == "sm" else None

    @property
    def occupancy(self) -> float | None:
        """Percent of the warps there is room for."""
        return column(self.figures.sm_occupancy_percent, self.place) if self.figures else None

    @property
    def tensor(self) -> float | None:
        """Percent of time in which tensor cores worked."""
        return column(self.figures.tensor_active_percent, self.place) if self.figures else None

    @property
    def dram(self) -> float | None:
        """Memory traffic, percent of the most there could be."""
        return column(self.figures.dram_active_percent, self.place) if self.figures else None

    @property
    def throttle(self) -> int:
        """Why its clocks are lower than they could be, as a mask; 0 is not reported."""
        return (column(self.figures.throttle_reasons, self.place) or 0) if self.figures else 0

    @property
    def held_back(self) -> bool:
        """Whether heat or power costs it speed now; nobody knows that of a card whose node does not speak."""
        return not self.stale and throttle.throttled(self.throttle) is True

    @property
    def held(self) -> bool:
        """Whether a replica has it."""
        return bool(self.card.replica)

    @property
    def split(self) -> bool:
        """Whether it takes no work because its MIG instances do."""
        return any(other.parent == self.card.uuid for other in self.node.cards)

    @property
    def idle(self) -> bool:
        """Held, and doing nothing; nobody knows that of a card whose node does not speak."""
        return self.held and not self.stale and rests(self.busy, self.work)

    @property
    def stale(self) -> bool:
        """Whether its figures are of a node that no longer speaks."""
        return self.node.state in UNHEARD

    @property
    def words(self) -> str:
        """Its states in the words of the filter."""
        held = ("idle" if self.idle else "at work") + " held" if self.held else "split" if self.split else "free"
        found = [held] if self.card.healthy and not self.card.wear else [held, "worn wearing out"]
        return " ".join([*found, "throttled held back"] if self.held_back else found)

    def figure(self, mode: Mode) -> float | None:
        """What a mode shows: percent, or degrees."""
        if mode is Mode.WORK:
            return self.work
        if mode is Mode.BUSY:
            return self.busy
        return self.memory if mode is Mode.MEMORY else self.temperature


def card_key(node: str, card: CardRow) -> str:
    """Key of a card's row in the table of its node's cards."""
    return f"{node}:{card.index}:{card.uuid}"


def card_at(state: ClusterState, node: str, place: int) -> CardAt | None:
    """The card in that place of that node; none when there is no such card."""
    row = state.nodes.get(node)
    if row is None or not 0 <= place < len(row.cards):
        return None
    return CardAt(node=row, place=place, card=row.cards[place], figures=state.figures.get(node))


def cards_of(state: ClusterState, node: str) -> Iterator[CardAt]:
    """A node's cards in their order."""
    row = state.nodes.get(node)
    if row is None:
        return
    figures = state.figures.get(node)
    for place, card in enumerate(row.cards):
        yield CardAt(node=row, place=place, card=card, figures=figures)


def heard_figures(state: ClusterState) -> Iterator[FiguresRow]:
    """Figures of the nodes that speak."""
    for name, row in state.figures.items():
        node = state.nodes.get(name)
        if node is not None and node.state not in UNHEARD:
            yield row


def figures_of(state: ClusterState, node: str, mode: Mode) -> list[float]:
    """What a mode shows of those of a node's cards that report it. Reads the columns: it is done for whole clusters."""
    figures, row = state.figures.get(node), state.nodes.get(node)
    if figures is None or row is None or row.state in UNHEARD:
        return []
    if mode is Mode.MEMORY:
        pairs = zip(figures.memory_used_bytes, (card.memory_total_bytes for card in row.cards), strict=False)
        return [100 * used / total for used, total in pairs if used is not None and total]
    told = {
        Mode.WORK: figures.work_percent,
        Mode.BUSY: figures.utilization_percent,
        Mode.TEMPERATURE: figures.temperature_c,
    }[mode]
    return [figure for figure in told[: len(row.cards)] if figure is not None]


def scale(figure: float | None, mode: Mode) -> float | None:
    """A mode's figure as percent of its scale."""
    if figure is None or mode is not Mode.TEMPERATURE:
        return figure
    return max(0.0, min(100.0, 100 * (figure - COOL_C) / (TOP_C - COOL_C)))


def card_words(state: ClusterState, on: CardAt) -> str:
    """What `/` looks for its words in."""
    replica = state.replicas.get(on.card.replica or "")
    node, card = on.node, on.card
    model = f"{replica.model} {replica.state}" if replica else ""
    return f"{node.name} {node.state} {card.gpu_class} {card.name} {card.uuid} {card.replica or ''} {model} {on.words}"


def card_facts(state: ClusterState, on: CardAt) -> dict[str, str]:
    """What `/gpu:h100` and `/model:chat` look at."""
    replica = state.replicas.get(on.card.replica or "")
    return {
        "node": on.node.name,
        "gpu": on.card.gpu_class,
        "class": on.card.gpu_class,
        "model": replica.model if replica else "",
        "replica": on.card.replica or "",
        "state": _standing(on),
    }


def worn(card: CardRow) -> bool:
    """Whether somebody should do something about it: it takes no work, or wears out while it works."""
    return not card.healthy or bool(card.wear)


def _standing(on: CardAt) -> str:
    if worn(on.card):
        return "worn"
    if on.held:
        return "idle" if on.idle else "work"
    return "split" if on.split else "free"
