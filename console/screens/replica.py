"""All about one replica, with the cards it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from console.figures import age, pair, percent, size, watts
from console.places import Subject
from console.screens.page import Page
from console.screens.replicas import own_part, progress_cell
from console.screens.states import state_cell
from console.signs import signs
from console.state.cards import card_key
from console.state.loads import column
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.facts import Fact
from console.widgets.paint import heat
from llmgw.api.actions import Target
from llmgw.api.watch import CardRow, FiguresRow, NodeRow


@dataclass(frozen=True, kw_only=True)
class CardOn:
    """A card, where it is and what it does."""

    node: str
    place: int
    """Its column in the node's figures."""
    card: CardRow
    figures: FiguresRow | None

    @property
    def work(self) -> float | None:
        """Percent."""
        return column(self.figures.work_percent, self.place) if self.figures else None

    @property
    def power(self) -> float | None:
        """Watts."""
        return column(self.figures.power_w, self.place) if self.figures else None


def cards_on(node: NodeRow, seen: Seen) -> dict[str, CardOn]:
    """A node's cards by key."""
    figures = seen.state.figures.get(node.name)
    return {
        card_key(node.name, card): CardOn(node=node.name, place=place, card=card, figures=figures)
        for place, card in enumerate(node.cards)
    }


def _holder(on: CardOn, seen: Seen) -> Cell:
    """The model, and what tells its replica from the model's others."""
    if not on.card.replica:
        return ("free", "dim")
    replica = seen.state.replicas.get(on.card.replica)
    return [(replica.model, ""), (f" {own_part(replica)}", "dim")] if replica else (on.card.replica, "")


def _problem(on: CardOn, _: Seen) -> Cell:
    return (on.card.problem or ("" if on.card.healthy else "not healthy"), "warn")


CARDS: TableSpec[CardOn] = TableSpec(
    columns=(
        Column(key="index", title="card", width=4, align="right", cell=lambda on, _: (str(on.card.index), "strong")),
        Column(key="name", title="name", width=14, grow=1, most=24, priority=6, cell=lambda on, _: (on.card.name, "")),
        Column(key="class", title="class", width=10, priority=4, cell=lambda on, _: (on.card.gpu_class, "dim")),
        Column(
            key="work",
            title="work",
            width=5,
            align="right",
            cell=lambda on, _: (f"{percent(on.work):>4} ", heat(on.work)),
        ),
        Column(
            key="busy",
            title="busy",
            width=5,
            align="right",
            priority=3,
            cell=lambda on, _: (percent(column(on.figures.utilization_percent, on.place) if on.figures else None), ""),
        ),
        Column(
            key="memory",
            title="memory",
            width=13,
            align="right",
            cell=lambda on, _: (
                pair(
                    column(on.figures.memory_used_bytes, on.place) if on.figures else None, on.card.memory_total_bytes
                ),
                "",
            ),
        ),
        Column(
            key="power", title="power", width=7, align="right", priority=1, cell=lambda on, _: (watts(on.power), "")
        ),
        Column(
            key="heat",
            title="heat",
            width=6,
            align="right",
            priority=5,
            cell=lambda on, _: (_degrees(column(on.figures.temperature_c, on.place) if on.figures else None), ""),
        ),
        Column(key="holder", title="held by", width=22, grow=1, most=48, cell=_holder, whole=_holder),
        Column(key="problem", title="last word", width=12, grow=4, priority=2, cell=_problem, whole=_problem),
    ),
    words=lambda on: f"{on.card.name} {on.card.gpu_class} {on.card.uuid} {on.card.problem} {on.card.replica or 'free'}",
    facts=lambda on: {"gpu": on.card.gpu_class, "state": "held" if on.card.replica else "free"},
    markable=False,
)
HELD: TableSpec[CardOn] = replace(CARDS, columns=tuple(each for each in CARDS.columns if each.key != "holder"))
"""Cards of one replica: who holds them is what the page is about."""


def _degrees(value: float | None) -> str:
    return signs().dash if value is None else f"{value:.0f}°"


class ReplicaPage(Page[CardOn]):
    """Where it is, how far it is, and on which cards."""

    NOUN: ClassVar[str] = "cards"
    ROW_TARGET: ClassVar[Target] = Target.NODE
    EMPTY: ClassVar[str] = "no card: it runs on the processors"

    def table_spec(self) -> TableSpec[CardOn]:
        """Cards."""
        return HELD

    def rows(self, seen: Seen) -> Mapping[str, CardOn]:
        """Those it holds."""
        replica = seen.state.replicas[self.place.key]
        node = seen.state.nodes.get(replica.node)
        if node is None:
            return {}
        return {key: on for key, on in cards_on(node, seen).items() if on.card.replica == replica.id}

    def open_row(self, key: str) -> None:
        """The machine the card is in."""
        self.open_subject(Subject(target=Target.NODE, key=self._rows[key].node))

    def facts(self, seen: Seen) -> list[Fact]:
        """From its agent."""
        replica = seen.state.replicas[self.place.key]
        progress = progress_cell(replica, seen)
        return [
            ("model", (replica.model, "strong")),
            ("state", [*state_cell(replica.state), (f"  for {age(seen.now - replica.since)}", "dim")]),
            ("progress", progress if isinstance(progress, list) else [progress]),
            ("last word", (replica.message, "bad" if replica.state == "failed" else "")),
            ("node", (replica.node, "strong")),
            ("engine", [(replica.engine, ""), (f"  profile {replica.profile}", "dim")]),
            ("endpoint", (replica.endpoint, "")),
            ("process", (f"pid {replica.pid}" if replica.pid else "", "")),
            ("context", (f"{replica.context_length:,} tokens, {replica.slots} slots", "")),
            ("memory", (size(replica.memory_bytes), "")),
            ("in flight", (f"{replica.in_flight}", "")),
            ("restarts", (f"{replica.restarts}", "warn" if replica.restarts else "")),
            ("adopted", ("yes: it outlived its agent" if replica.adopted else "", "dim")),
        ]
