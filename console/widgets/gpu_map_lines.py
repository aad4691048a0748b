"""What the work map's lines are and how each is laid out. Without a widget: a state, a width, and spans.

A line that was laid out is kept until its node's figures differ; lines out of sight are laid out when they are seen.
"""

from collections.abc import Callable, Mapping

from console.state.cards import CardAt, Mode, card_at, card_facts, card_words, cards_of
from console.state.cluster import ClusterState
from console.state.filter import Filter
from console.state.folding import Folds, GroupLine, MapLine, NodeLine, arrange
from console.state.history import History
from console.widgets.columns import Seen
from console.widgets.gpu_cells import (
    CELL,
    STEP,
    RowLayout,
    group_spans,
    head_spans,
    lay_out_rows,
    name_width,
    node_spans,
    trend_spans,
)
from console.widgets.order import natural
from console.widgets.paint import Span, spans_width
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import NodeRow


def _all(_: CardAt) -> bool:
    return True


class MapLines:
    """The lines, and what of them was laid out. Written by its map alone."""

    def __init__(self) -> None:
        self.mode = Mode.WORK
        self.folds = Folds()
        self.filter = Filter()
        self.every: list[MapLine] = []
        self.layout = RowLayout()
        self.names: list[str] = []
        """Nodes with cards that pass the filter, in their order."""
        self.state = ClusterState()
        self.now = 0.0
        self._history = History()
        self._sorted: tuple[Mapping[str, NodeRow] | None, list[str]] = (None, [])
        """All nodes with cards in their order, and the rows they are of."""
        self._most_cards = 0
        self._spans: dict[str, list[Span]] = {}
        self._trends: dict[str, list[Span]] = {}

    def see(self, seen: Seen) -> None:
        """The newest state and samples."""
        self.state, self._history, self.now = seen.state, seen.history, seen.now

    # -- which lines

    def arrange(self, columns: int) -> list[MapLine]:
        """The lines there should be at that width; `every` is not touched."""
        state = self.state
        self.names = self._matching_names()
        self._most_cards = max((len(state.nodes[name].cards) for name in self.names), default=0)
        layout = lay_out_rows(columns, name_width(self.names), self._most_cards)
        if layout != self.layout:
            self.layout = layout
            self.forget_all()
        folds = Folds(worst_first=self.folds.worst_first, fold=False) if self.filter else self.folds
        return arrange(state, self.names, folds, layout.across)

    def put(self, lines: list[MapLine]) -> None:
        """These are the lines from now on; what was laid out of those that stay is kept."""
        self.every = lines
        self._spans = {line.key: spans for line in lines if (spans := self._spans.get(line.key)) is not None}

    def _matching_names(self) -> list[str]:
        state, filter_ = self.state, self.filter
        if self._sorted[0] is not state.nodes:
            names = sorted((name for name, node in state.nodes.items() if node.cards), key=natural)
            self._sorted = (state.nodes, names)
        names = self._sorted[1]
        if not filter_:
            return names
        matches = self._matcher()
        return [name for name in names if any(map(matches, cards_of(state, name)))]

    def _matcher(self) -> Callable[[CardAt], bool]:
        state, filter_ = self.state, self.filter
        if not filter_:
            return _all
        return lambda on: filter_.matches(card_words(state, on), card_facts(state, on))

    # -- what is not right any more

    def forget(self, nodes: frozenset[str]) -> None:
        """Lines about these nodes."""
        for line in self.every:
            # A group's spread is of no use to the second: it is counted anew when lines are arranged.
            if isinstance(line, NodeLine) and line.node in nodes:
                self._spans.pop(line.key, None)
                self._trends.pop(line.key, None)

    def forget_groups(self) -> None:
        """Groups, which were counted anew."""
        for line in self.every:
            if isinstance(line, GroupLine):
                self._spans.pop(line.key, None)

    def age(self) -> bool:
        """Forget lines of nodes that are not heard, which say for how long; whether one of them was laid out."""
        nodes, kept = self.state.nodes, len(self._spans)
        for line in self.every:
            if isinstance(line, NodeLine) and (node := nodes.get(line.node)) is not None and node.state in UNHEARD:
                self._spans.pop(line.key, None)
        return len(self._spans) < kept

    def forget_all(self) -> None:
        """Another mode, another width."""
        self._spans.clear()
        self._trends.clear()

    # -- how each looks

    def head(self) -> list[Span]:
        """The line over the nodes."""
        return head_spans(self.layout, self.mode, self._most_cards)

    def spans(self, line: MapLine) -> list[Span]:
        """A node's cards, or a group's spread."""
        spans = self._spans.get(line.key)
        if spans is None:
            if isinstance(line, GroupLine):
                spans = group_spans(self.state, line, self.layout, self.mode)
            elif line.node in self.state.nodes:
                spans = node_spans(self.state, line, self.layout, self.mode, self._matcher(), self.now)
            else:
                spans = []
            self._spans[line.key] = spans
        return spans

    def trend(self, line: MapLine) -> list[Span]:
        """The past of each of a node's cards."""
        spans = self._trends.get(line.key)
        if spans is None:
            node = self.state.nodes.get(line.node) if isinstance(line, NodeLine) else None
            spans = []
            if node is not None and isinstance(line, NodeLine):
                spans = trend_spans(self._history, line, node, self.layout, self.mode)
            self._trends[line.key] = spans
        return spans

    # -- cards

    def card(self, line: MapLine | None, place: int) -> CardAt | None:
        """The card in that place of a line's node, its last one where it has fewer."""
        if not isinstance(line, NodeLine):
            return None
        node = self.state.nodes.get(line.node)
        return card_at(self.state, line.node, min(place, len(node.cards) - 1)) if node else None

    def find(self, node: str, place: int) -> int | None:
        """Which line has that card of that node."""
        across = max(1, self.layout.across)
        for at, line in enumerate(self.every):
            if isinstance(line, NodeLine) and line.node == node and line.first <= place < line.first + across:
                return at
        return None

    def column_place(self, at: int, place: int) -> int:
        """The place on line `at` under the column of `place`."""
        line = self.every[at] if at < len(self.every) else None
        return line.first + place % max(1, self.layout.across) if isinstance(line, NodeLine) else place

    def first_place(self, at: int) -> int:
        """The place of line `at`'s first card."""
        line = self.every[at]
        return line.first if isinstance(line, NodeLine) else 0

    def end_place(self, at: int) -> int:
        """The place of its last one."""
        line = self.every[at]
        if not isinstance(line, NodeLine):
            return 0
        return max(0, min(len(self.state.nodes[line.node].cards), line.first + self.layout.across) - 1)

    def bracketed(self, spans: list[Span], line: NodeLine, place: int) -> list[Span]:
        """The line with brackets around the card in that place."""
        node = self.state.nodes.get(line.node)
        if node is None or not node.cards:
            return spans
        place = min(place, len(node.cards) - 1) - line.first
        if not 0 <= place < self.layout.across:
            return spans
        wanted, left = self.layout.first_cell + place * STEP, 0
        found: list[Span] = []
        for text, tone in spans:
            if left == wanted - 1:
                text, tone = "[", "accent"
            elif left == wanted + CELL and text == " ":
                text, tone = "]", "accent"
            found.append((text, tone))
            left += spans_width([(text, tone)])
        return found
