"""All about one replica, with the cards it holds."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

from console.figures import age, pair, percent, plural, size, watts
from console.places import Subject
from console.screens.page import Page
from console.screens.replicas import breaker_tone, own_part, progress_cell, queue_spans, standing_cell, unheard_words
from console.signs import signs
from console.state.breakers import sentence_of
from console.state.cards import card_key
from console.state.loads import column
from console.state.unheard import ago
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.facts import Fact
from console.widgets.paint import Span, heat
from llmgw.api.actions import Target
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import CardRow, FiguresRow, NodeRow, ReplicaRow
from llmgw.core import throttle
from llmgw.core.compute import Compute, compute_words
from llmgw.core.text import safe


@dataclass(frozen=True, kw_only=True)
class CardOn:
    """A card, where it is and what it does."""

    node: str
    place: int
    """Its column in the node's figures."""
    card: CardRow
    figures: FiguresRow | None
    stale: bool = False
    """Whether these figures are of a node that no longer speaks."""

    def tone(self, now: str = "") -> str:
        """The tone of a figure: `now`, and dim where it is not of now."""
        return "dim" if self.stale else now

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
    stale = node.state in UNHEARD
    return {
        card_key(node.name, card): CardOn(node=node.name, place=place, card=card, figures=figures, stale=stale)
        for place, card in enumerate(node.cards)
    }


def _holder(on: CardOn, seen: Seen) -> Cell:
    """The model, and what tells its replica from the model's others."""
    if not on.card.replica:
        return ("free", "dim")
    replica = seen.state.replicas.get(on.card.replica)
    return [(replica.model, ""), (f" {own_part(replica)}", "dim")] if replica else (on.card.replica, "")


def _problem(on: CardOn, seen: Seen) -> Cell:
    """How old its figures are where they are, what is wrong with it, what wears out, and what holds it back."""
    card = on.card
    reasons = (column(on.figures.throttle_reasons, on.place) or 0) if on.figures and not on.stale else 0
    held_back = throttle.words(reasons & throttle.HELD_BACK)
    trouble = card.problem or ("" if card.healthy else "not healthy")
    told = ago(seen.state, on.node, seen.now)
    old = f"figures of {told}" if told else ""
    said = [text for text in (old, trouble, *card.wear, *(f"held back: {word}" for word in held_back)) if text]
    return ("  ".join(said), "dim" if card.healthy and said == [card.problem] else "warn")


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
            cell=lambda on, _: (f"{percent(on.work):>4} ", on.tone(heat(on.work))),
        ),
        Column(
            key="busy",
            title="busy",
            width=5,
            align="right",
            priority=3,
            cell=lambda on, _: (
                percent(column(on.figures.utilization_percent, on.place) if on.figures else None),
                on.tone(),
            ),
        ),
        Column(
            key="sm",
            title="SM",
            width=4,
            align="right",
            priority=7,
            cell=lambda on, _: (percent(on.work if on.card.work_from == "sm" else None), "dim"),
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
                on.tone(),
            ),
        ),
        Column(
            key="power",
            title="power",
            width=7,
            align="right",
            priority=1,
            cell=lambda on, _: (watts(on.power), on.tone()),
        ),
        Column(
            key="heat",
            title="heat",
            width=6,
            align="right",
            priority=5,
            cell=lambda on, _: (
                _degrees(column(on.figures.temperature_c, on.place) if on.figures else None),
                on.tone(),
            ),
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
        names = tuple(shard.node for shard in replica.shards) or (replica.node,)
        nodes = [node for name in names if (node := seen.state.nodes.get(name)) is not None]
        held = {key: on for node in nodes for key, on in cards_on(node, seen).items()}
        return {key: on for key, on in held.items() if on.card.replica == replica.id}

    def open_row(self, key: str) -> None:
        """The machine the card is in."""
        self.open_subject(Subject(target=Target.NODE, key=self._rows[key].node))

    def facts(self, seen: Seen) -> list[Fact]:
        """From its agent."""
        replica = seen.state.replicas[self.place.key]
        queue = queue_spans(replica)
        # What it says of its work has a line of its own.
        progress = progress_cell(replica, seen) if replica.state != "ready" or not queue else []
        unheard = unheard_words(replica, seen)
        return [
            ("model", (replica.model, "strong")),
            ("state", [*standing_cell(replica, seen), (f"  for {age(seen.now - replica.since)}", "dim")]),
            ("not heard", (unheard, "warn")),
            ("progress", progress if isinstance(progress, list) else [progress]),
            ("breaker", (sentence_of(seen.state, replica), breaker_tone(replica))),
            ("last word", (replica.message, "bad" if replica.state == "failed" else "")),
            *(_shards(replica) or [("node", (replica.node, "strong"))]),
            ("engine", [(replica.engine, ""), (f"  profile {replica.profile}", "dim")]),
            ("endpoint", (replica.endpoint, "")),
            ("process", (f"pid {replica.pid}" if replica.pid else "", "")),
            ("context", (f"{replica.context_length:,} tokens, {replica.slots} slots", "")),
            ("memory", [(size(replica.memory_bytes), ""), (_beside(replica), "dim")]),
            ("in flight", (f"{replica.in_flight}", "")),
            ("queue", queue),
            ("computes", _computes(replica.compute)),
            ("restarts", (f"{replica.restarts}", "warn" if replica.restarts else "")),
            ("adopted", ("yes: it outlived its agent" if replica.adopted else "", "dim")),
        ]


def _shards(replica: ReplicaRow) -> list[Fact]:
    """A line for each of its parts, where it spans several nodes."""
    return [
        (
            shard.role,
            [
                (shard.node, "strong"),
                (f"  {shard.state}", _TONES.get(shard.state, "")),
                (f"  {plural(len(shard.cards), 'card')}", "dim"),
                (f"  pid {shard.pid}" if shard.pid else "", "dim"),
                (f"  {shard.message}" if shard.message else "", "dim"),
                *_computes(shard.compute),
            ],
        )
        for shard in replica.shards
    ]


def _computes(said: Compute | None) -> list[Span]:
    """Where its engine said that it computes; what it says is outside text."""
    if said is None:
        return []
    spans: list[Span] = [(f"  {safe(compute_words(said))}", "warn" if said.less_than_asked else "")]
    if said.less_than_asked:
        spans.append((f"  less than asked; its log: {safe(said.line)}", "dim"))
    return spans


_TONES = {"ready": "good", "failed": "bad", "stopped": "bad", "unheard": "warn"}


def _beside(replica: ReplicaRow) -> str:
    """What it was promised of its node's memory, where it has cards and needs that too."""
    return f" and {size(replica.host_bytes)} of memory beside its cards" if replica.host_bytes else ""
