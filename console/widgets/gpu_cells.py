"""The work map's lines as spans: a cell a card, and beside them what the node does. Pure, and the same at any width.

A cell says all it says in signs: a figure, dashes where no replica holds the card, a mark where it wears out, is hot or
is held back. Colour only repeats it.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from console.figures import percent, plural, spark, watts
from console.signs import signs
from console.state.attention import progress
from console.state.cards import HOT_C, CardAt, Mode, cards_of, figures_of, scale, worn
from console.state.cluster import ClusterState
from console.state.folding import GroupLine, NodeLine
from console.state.history import History
from console.state.unheard import unheard_words
from console.text import fit, plain, width
from console.widgets.paint import Span, heat, spans_width
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import NodeRow, ReplicaRow

CELL = 4
"""Columns of a card: three of its figure, and a mark."""
STEP = CELL + 1
"""From one card to the next."""
NAME_MIN, NAME_MAX = 5, 20
CLASS_COLUMNS = 11
TAIL_COLUMNS = 13
"""Mean and held."""
POWER_COLUMNS = 9
LEAST_NOTE, NOTE_COLUMNS = 14, 24
"""Columns for notes that the class and the power leave free."""
WORN_MARK, HOT_MARK, THROTTLE_MARK = "!", "^", "~"
"""Behind a card's figure: it wears out, it is hot, heat or power holds it back; the first that holds is shown."""
SPLIT = "MIG"
"""In place of a figure: the card takes no work, its instances do."""
COMING = ("pending", "fetching", "checking", "starting", "draining")
"""States of a replica that holds cards and asks nothing of them yet, or soon no more."""
AIR = 8 / 7
"""Full height is a bar less than the line, so that bars of two lines do not touch."""
FOREIGN_PERCENT = 15.0
"""A free card at or above this is used by somebody else; a resting one draws up to a tenth of its limit."""
BINS = 20
"""Bars of a folded group's distribution: five percent each."""


def degrees(value: float | None) -> str:
    """`71°`, or `71C` in ASCII."""
    if value is None or not math.isfinite(value):
        return signs().dash
    return f"{value:.0f}{'C' if signs().ascii else '°'}"


def mode_figure(value: float | None, mode: Mode) -> str:
    """`61%`, `71°`."""
    return degrees(value) if mode is Mode.TEMPERATURE else percent(value)


def cell(on: CardAt, mode: Mode, *, matches: bool = True) -> Span:
    """A card in CELL columns."""
    if not matches:
        return (f"  {signs().dot} ", "dim")
    figure = on.figure(mode)
    if figure is not None and not math.isfinite(figure):
        figure = None
    if worn(on.card):
        # Its wear is so still; a figure of a node that is not heard is of before.
        return (_worn(on, figure), "dim" if on.stale and on.held and figure is not None else "worn")
    if on.split and not on.held:
        return (f"{SPLIT:>{CELL - 1}} ", "dim")
    if not on.held:
        return _free(on, mode, figure)
    if figure is None:
        return (f"  {signs().dash} ", "unused")
    if on.stale:
        return (f"{min(999.0, max(0.0, figure)):3.0f} ", "dim")
    hot = mode is Mode.TEMPERATURE and figure >= HOT_C
    mark = HOT_MARK if hot else THROTTLE_MARK if on.held_back else " "
    return (f"{min(999.0, max(0.0, figure)):3.0f}{mark}", "worn" if hot else heat(scale(figure, mode)))


def _worn(on: CardAt, figure: float | None) -> str:
    if not on.held:
        return f" {signs().free}{WORN_MARK}"
    return f"  {signs().dash}{WORN_MARK}" if figure is None else f"{min(999.0, max(0.0, figure)):3.0f}{WORN_MARK}"


def _free(on: CardAt, mode: Mode, figure: float | None) -> Span:
    dash = ":" if signs().ascii else signs().free[0]
    # Somebody else uses a card of ours, or one wants to know how warm it is: the figure stands between the dashes.
    telling = mode is Mode.TEMPERATURE or (figure is not None and figure >= FOREIGN_PERCENT)
    if figure is None or not telling or on.stale:
        return (f" {signs().free} ", "unused")
    return (f"{dash}{min(99.0, max(0.0, figure)):2.0f}{dash}", "unused")


@dataclass(frozen=True, kw_only=True)
class RowLayout:
    """What fits across."""

    columns: int = 80
    name: int = 12
    across: int = 8
    """Cards on a line."""
    shown_class: bool = True
    shown_power: bool = True

    @property
    def first_cell(self) -> int:
        """Column at which the first card begins."""
        return 1 + self.name + 1 + (CLASS_COLUMNS + 1 if self.shown_class else 0) + 1

    def card_at(self, x: int) -> int | None:
        """Which card of a line is at column `x`."""
        place = (x - self.first_cell) // STEP
        return place if 0 <= place < self.across else None


def lay_out_rows(columns: int, longest_name: int, most_cards: int) -> RowLayout:
    """The layout for a map `columns` wide: names shrink first, then the class goes, then cards wrap."""
    name = max(NAME_MIN, min(longest_name, NAME_MAX if columns >= 100 else 12, columns // 5))
    room = columns - (1 + name + 1 + 1)
    fitting = max(1, (room - TAIL_COLUMNS) // STEP)
    across = max(1, min(most_cards, fitting))
    if across < most_cards:
        across = next((step for step in (16, 8, 4, 2) if step <= across), 1)
    left = room - across * STEP - TAIL_COLUMNS
    shown_class = left >= CLASS_COLUMNS + 1 + LEAST_NOTE
    left -= CLASS_COLUMNS + 1 if shown_class else 0
    return RowLayout(
        columns=columns,
        name=name,
        across=across,
        shown_class=shown_class,
        shown_power=left >= POWER_COLUMNS + NOTE_COLUMNS,
    )


def head_spans(layout: RowLayout, mode: Mode, most_cards: int) -> list[Span]:
    """The line over the nodes: which card a column is."""
    spans: list[Span] = [(" " + fit("node", layout.name + 1), "head")]
    spans += [(fit("class", CLASS_COLUMNS + 1), "head")] if layout.shown_class else []
    numbers = "".join(f"{place:>3}  " for place in range(min(layout.across, most_cards)))
    spans.append((" " + numbers.ljust(layout.across * STEP), "head"))
    mean = {Mode.TEMPERATURE: "heat", Mode.MEMORY: "mem"}.get(mode, mode.value)
    spans.append((f"{mean:>5}  {'held':<5} ", "head"))
    spans += [(f"{'power':>7}  ", "head")] if layout.shown_power else []
    return spans


def node_spans(
    state: ClusterState, line: NodeLine, layout: RowLayout, mode: Mode, matches: Callable[[CardAt], bool], now: float
) -> list[Span]:
    """One line of a node: its name, its cards, and on the first line what it does as a whole."""
    node = state.nodes[line.node]
    first = line.first == 0
    spans: list[Span] = [(fit(plain(node.name), layout.name), "strong" if first else "dim"), (" ", "")]
    if layout.shown_class:
        spans += [(fit(plain(_class(node)) if first else "", CLASS_COLUMNS), "dim"), (" ", "")]
    spans.append((" ", ""))
    every = list(cards_of(state, line.node))
    for on in every[line.first : line.first + layout.across]:
        spans += [cell(on, mode, matches=matches(on)), (" ", "")]
    shown = len(every[line.first : line.first + layout.across])
    spans.append((" " * ((layout.across - shown) * STEP), ""))
    return [*spans, *_tail(state, node, every, layout, mode, now)] if first else spans


def _class(node: NodeRow) -> str:
    classes = list(dict.fromkeys(card.gpu_class for card in node.cards))
    return classes[0] + (f" +{len(classes) - 1}" if len(classes) > 1 else "") if classes else "no GPU"


def _tail(
    state: ClusterState, node: NodeRow, cards: list[CardAt], layout: RowLayout, mode: Mode, now: float
) -> list[Span]:
    load = state.node_load(node.name)
    mean = mode_figure(mean_figure(cards, mode), mode)
    spans: list[Span] = [(f"{mean:>5}  ", ""), (f"{f'{load.held}/{load.cards}':<5} ", "dim")]
    spans += [(f"{watts(load.power_w):>7}  ", "dim")] if layout.shown_power else []
    return [*spans, *notes(state, node, cards, now)]


def mean_figure(cards: Iterable[CardAt], mode: Mode) -> float | None:
    """Mean over the cards that report it, of nodes that speak."""
    told = [on.figure(mode) for on in cards if not on.stale]
    known = [figure for figure in told if figure is not None and math.isfinite(figure)]
    return sum(known) / len(known) if known else None


def notes(state: ClusterState, node: NodeRow, cards: Iterable[CardAt], now: float) -> list[Span]:
    """What there is to tell of a node, the worst first, dots between."""
    found: list[Span] = []
    unheard = node.state in UNHEARD
    if unheard:
        found.append((unheard_words(node, state.figures.get(node.name), now), "bad"))
    elif node.state == "cordoned":
        found.append((node.state, "warn"))
    load = state.node_load(node.name)
    if load.worn:
        found.append((f"{load.worn} worn", "warn"))
    replicas = {replica.id: replica for replica in state.replicas_on(node.name)}
    failed = sum(replica.state == "failed" for replica in replicas.values())
    if failed:
        found.append((f"{failed} failed", "bad"))
    coming = next((replica for replica in replicas.values() if replica.state in COMING), None)
    if coming is not None and not unheard:
        found.append((_coming(coming, now), "info"))
    # A card whose replica is still on its way is not idle for want of work.
    waiting = {id_ for id_, replica in replicas.items() if replica.state in COMING}
    idle = sum(on.idle and on.card.replica not in waiting for on in cards) if load.idle else 0
    if idle:
        found.append((f"{idle} idle", "warn"))
    spans: list[Span] = []
    for note in found:
        spans += [(f" {signs().dot} ", "dim")] if spans else []
        spans.append(note)
    return spans


def _coming(replica: ReplicaRow, now: float) -> str:
    step = replica.progress
    if step is not None and step.total_bytes > 0 and replica.state != "starting":
        return f"{replica.state} {100 * step.done_bytes / step.total_bytes:.0f}%"
    return progress(replica, now)


def trend_spans(history: History, line: NodeLine, node: NodeRow, layout: RowLayout, mode: Mode) -> list[Span]:
    """Over a node's cards, the last quarter of an hour of each that is held, in CELL bars."""
    spans: list[Span] = [(" " * (layout.first_cell - 1), "")]
    for place, card in enumerate(node.cards[line.first : line.first + layout.across], line.first):
        samples = history.card(line.node, place, mode.value) if card.replica else []
        spans += [(spark(_means(samples, mode), CELL, top=100.0 * AIR), "spark"), (" ", "")]
    return spans


def _means(samples: list[float], mode: Mode) -> list[float]:
    """CELL means of the samples, oldest first, as percent of the scale."""
    means: list[float] = []
    for part in range(CELL):
        known = [v for v in samples[part * len(samples) // CELL : (part + 1) * len(samples) // CELL] if v == v]
        mean = scale(sum(known) / len(known), mode) if known else None
        means.append(math.nan if mean is None else mean)
    return means


def group_spans(state: ClusterState, line: GroupLine, layout: RowLayout, mode: Mode) -> list[Span]:
    """Nodes folded into a line: how many, and how their cards' figures are spread from 0 to 100."""
    nodes = len(line.nodes)
    cards = nodes * line.cards
    head = f"{plural(nodes, 'node')} {signs().times} {line.cards}"
    spans: list[Span] = [(head, "strong"), (f" {line.gpu_class}  ", "dim")]
    # The spread begins under the first card where the words before it leave that free.
    spans.append((" " * max(0, layout.first_cell - 1 - spans_width(spans)), ""))
    if line.word == "free":
        spans.append((f"{signs().free} {plural(cards, 'card')} free, nothing to tell", "dim"))
    else:
        spans += spread_spans(state, line, mode)
    hint: list[Span] = [("  enter", "key"), (" unfolds", "dim")]
    return [*spans, *hint] if spans_width(spans) + spans_width(hint) <= layout.columns - 1 else spans


def spread_spans(state: ClusterState, line: GroupLine, mode: Mode) -> list[Span]:
    """How a group's cards are spread over the scale, with the mean."""
    bins = [0.0] * BINS
    total, known = 0.0, 0
    for name in line.nodes:
        for figure in figures_of(state, name, mode):
            share = scale(figure, mode)
            if share is not None and math.isfinite(share):
                total, known = total + figure, known + 1
                bins[max(0, min(BINS - 1, int(share * BINS / 100)))] += 1
    mean = mode_figure(total / known if known else None, mode)
    low, high = ("30", "90") if mode is Mode.TEMPERATURE else ("0", "100")
    return [
        (f"all {line.word}", ""),
        (f"  {low} ", "dim"),
        (spark(bins, BINS), "spark"),
        (f" {high}  mean ", "dim"),
        (mean, "strong"),
    ]


def name_width(names: Iterable[str]) -> int:
    """Columns of the longest name."""
    return max((width(plain(name, 40)) for name in names), default=NAME_MIN)
