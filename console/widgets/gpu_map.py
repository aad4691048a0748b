"""The work map: a line a node, a cell a card, as many as there are. Drawn by the line, and only lines that differ.

The cursor is on a card, or on a folded group. It belongs to its key and survives every update; where lines move, it
stays where it was on the screen. Figures alone move no line more often than every ARRANGE_S.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.signs import signs
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
from console.widgets.paint import LineWidget, Span, spans_width
from console.widgets.titles import set_title
from llmgw.api.watch import NodeRow

ARRANGE_S = 10.0
"""Lines stay for so long, however their figures change: what moves faster cannot be read or pointed at."""
LEAST_WITH_HEAD = 3


def _all(_: CardAt) -> bool:
    return True


class GpuMap(LineWidget, ScrollView, can_focus=True):
    """Nodes and their cards."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("left,h", "step(-1)", "the card before", show=False),
        Binding("right", "step(1)", "the next card", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "page down", show=False),
        Binding("home,g", "jump(0)", "first line", show=False),
        Binding("end,G", "jump(-1)", "last line", show=False),
        Binding("enter", "open", "open", show=False),
    ]

    class Moved(Message):
        """The cursor is on another card or group."""

    class Opened(Message):
        """Enter or a double click."""

    class Arranged(Message):
        """Other lines are shown."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.mode = Mode.WORK
        self.folds = Folds()
        self.filter = Filter()
        self.notice: list[list[Span]] = []
        """Lines shown while there is no node."""
        self.lines: list[MapLine] = []
        self._state = ClusterState()
        self._history = History()
        self._now = 0.0
        self._arranged_at = 0.0
        self._unarranged = False
        """Whether figures changed since the lines were arranged."""
        self._names: list[str] = []
        self._sorted: tuple[Mapping[str, NodeRow] | None, list[str]] = (None, [])
        """All nodes with cards in their order, and the rows they are of."""
        self._most_cards = 0
        self._layout = RowLayout()
        self._deep = 1
        """Rows of the screen a line takes; the upper of two, where there is room for it, shows each card's past."""
        self._spans: dict[str, list[Span]] = {}
        self._trends: dict[str, list[Span]] = {}
        self._drawn: dict[int, tuple[list[Span], bool]] = {}
        self._cursor = 0
        self._place = 0
        """Place of the cursor's card on its node; kept while it crosses nodes with fewer."""
        self._cursor_key = ""

    # -- what is shown

    def set_title(self, title: Content) -> None:
        """The frame's title; the same one again paints nothing."""
        set_title(self, title)

    def set_subtitle(self, subtitle: Content) -> None:
        """What stands in the lower frame; the same one again paints nothing."""
        set_title(self, subtitle, low=True)

    def set_notice(self, notice: list[list[Span]]) -> None:
        """What stands where nodes will be."""
        if notice != self.notice:
            self.notice = notice
            if not self.lines:
                self.refresh()

    def show(self, seen: Seen, changed: Iterable[str] | None, *, structural: bool) -> None:
        """Show `seen`. `changed` are the nodes that differ, none is all; `structural` when lines may move at once."""
        self._state, self._history, self._now = seen.state, seen.history, seen.now
        self._unarranged = True
        if changed is None:
            self._forget_all()
        else:
            self._forget(frozenset(changed))
        if structural or changed is None or seen.now - self._arranged_at >= ARRANGE_S:
            self._arrange()
        self._refresh_lines()

    def tick(self, seen: Seen) -> None:
        """A second has passed."""
        self._state, self._history, self._now = seen.state, seen.history, seen.now
        if self._unarranged and seen.now - self._arranged_at >= ARRANGE_S:
            self._arrange()
            self._refresh_lines()

    def set_mode(self, mode: Mode) -> None:
        """Cells show another figure."""
        if mode is not self.mode:
            self.mode = mode
            self._redraw()

    def set_folds(self, folds: Folds) -> None:
        """Another arrangement."""
        self.folds = folds
        self._arrange()
        self._redraw()

    def set_filter(self, filter_: Filter) -> None:
        """Nodes with a card that matches; other cards are dots."""
        self.filter = filter_
        self._arrange()
        self._redraw()

    @property
    def folding(self) -> bool:
        """Whether quiet nodes are folded."""
        return self.folds.folds(len(self._names)) and not self.filter

    @property
    def nodes_shown(self) -> int:
        """Nodes that pass the filter."""
        return len(self._names)

    # -- the cursor

    @property
    def card(self) -> CardAt | None:
        """The card under the cursor."""
        line = self.line
        if not isinstance(line, NodeLine):
            return None
        node = self._state.nodes.get(line.node)
        return card_at(self._state, line.node, min(self._place, len(node.cards) - 1)) if node else None

    @property
    def line(self) -> MapLine | None:
        """The line under the cursor."""
        return self.lines[self._cursor] if self._cursor < len(self.lines) else None

    def move_to(self, node: str, place: int = 0) -> bool:
        """Put the cursor on a card; whether its node is shown."""
        found = (n for n, line in enumerate(self.lines) if isinstance(line, NodeLine) and line.node == node)
        at = next((n for n in found if _holds(self.lines[n], place, self._layout.across)), None)
        if at is None:
            return False
        self._go(at, place)
        return True

    def action_move(self, by: int) -> None:
        """Up or down, in the same column."""
        at = max(0, min(self._cursor + by, len(self.lines) - 1))
        self._go(at, self._column_place(at))

    def action_page(self, by: int) -> None:
        """By windows."""
        self.action_move(by * max(1, self._window_rows - 1))

    def action_jump(self, to: int) -> None:
        """The first line, or the last for -1."""
        self.action_move(-len(self.lines) if to >= 0 else len(self.lines))

    def action_step(self, by: int) -> None:
        """The next card, going on to the next line at the end."""
        line = self.line
        if not isinstance(line, NodeLine):
            self.action_move(by)
            return
        cards = len(self._state.nodes[line.node].cards)
        place = min(self._place, max(0, cards - 1)) + by
        if line.first <= place < min(cards, line.first + self._layout.across):
            self._go(self._cursor, place)
        elif 0 <= self._cursor + by < len(self.lines):
            at = self._cursor + by
            self._go(at, self._end_place(at) if by < 0 else self._first_place(at))

    def action_open(self) -> None:
        """What the cursor is on."""
        if self.line is not None:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor, a second one opens."""
        offset = event.get_content_offset(self)
        if offset is None or offset.y < self._head:
            return
        at = self._at(offset.y)
        if at >= len(self.lines):
            return
        line, column = self.lines[at], self._layout.card_at(offset.x)
        self._go(at, line.first + (column or 0) if isinstance(line, NodeLine) else self._place)
        if event.chain == 2:
            self.action_open()

    def _column_place(self, at: int) -> int:
        """The place on line `at` under the column the cursor is in."""
        across = max(1, self._layout.across)
        line = self.lines[at] if at < len(self.lines) else None
        return line.first + self._place % across if isinstance(line, NodeLine) else self._place

    def _first_place(self, at: int) -> int:
        line = self.lines[at]
        return line.first if isinstance(line, NodeLine) else 0

    def _end_place(self, at: int) -> int:
        line = self.lines[at]
        if not isinstance(line, NodeLine):
            return 0
        return max(0, min(len(self._state.nodes[line.node].cards), line.first + self._layout.across) - 1)

    def _go(self, at: int, place: int) -> None:
        before = (self._cursor_key, self._place)
        self._cursor, self._place = max(0, min(at, len(self.lines) - 1)), place
        self._cursor_key = self.lines[self._cursor].key if self.lines else ""
        self._scroll_to_cursor()
        if (self._cursor_key, self._place) != before:
            self._refresh_lines()
            self.post_message(self.Moved())

    # -- the lines

    def _matcher(self) -> Callable[[CardAt], bool]:
        state, filter_ = self._state, self.filter
        if not filter_:
            return _all
        return lambda on: filter_.matches(card_words(state, on), card_facts(state, on))

    def _matching_names(self) -> list[str]:
        state, filter_ = self._state, self.filter
        if self._sorted[0] is not state.nodes:
            names = sorted((name for name, node in state.nodes.items() if node.cards), key=natural)
            self._sorted = (state.nodes, names)
        names = self._sorted[1]
        if not filter_:
            return names
        matches = self._matcher()
        return [name for name in names if any(map(matches, cards_of(state, name)))]

    def _arrange(self) -> None:
        state = self._state
        self._arranged_at, self._unarranged = self._now, False
        self._names = self._matching_names()
        self._most_cards = max((len(state.nodes[name].cards) for name in self._names), default=0)
        layout = lay_out_rows(self.size.width, name_width(self._names), self._most_cards)
        if layout != self._layout:
            self._layout = layout
            self._forget_all()
        folds = Folds(worst_first=self.folds.worst_first, fold=False) if self.filter else self.folds
        lines = arrange(state, self._names, folds, layout.across)
        if lines != self.lines:
            self._put(lines)
        elif any(isinstance(line, GroupLine) for line in lines):
            self.lines = lines
            self._forget_groups()
            self.post_message(self.Arranged())

    def _put(self, lines: list[MapLine]) -> None:
        above = self._cursor - round(self.scroll_y)
        before = self._cursor_key
        self.lines = lines
        self._spans = {line.key: spans for line in lines if (spans := self._spans.get(line.key)) is not None}
        at = next((n for n, line in enumerate(lines) if line.key == before), None)
        if at is None:
            at = max(0, min(self._cursor, len(lines) - 1))
        self._cursor, self._cursor_key = at, lines[at].key if lines else ""
        self._fit_virtual_size()
        if 0 <= above < self._window_rows:
            self.scroll_to(y=max(0, at - above), animate=False)
        self._scroll_to_cursor()
        self.post_message(self.Arranged())
        if self._cursor_key != before:
            self.post_message(self.Moved())

    def _forget(self, nodes: frozenset[str]) -> None:
        """Drop what was laid out of lines about `nodes`; lines out of sight are laid out when they are seen."""
        for line in self.lines:
            # A group's spread is of no use to the second: it is counted anew when lines are arranged.
            if isinstance(line, NodeLine) and line.node in nodes:
                self._spans.pop(line.key, None)
                self._trends.pop(line.key, None)

    def _forget_groups(self) -> None:
        for line in self.lines:
            if isinstance(line, GroupLine):
                self._spans.pop(line.key, None)

    def _forget_all(self) -> None:
        self._spans.clear()
        self._trends.clear()

    def _redraw(self) -> None:
        self._forget_all()
        self._refresh_lines()

    # -- the window

    @property
    def _window_rows(self) -> int:
        return max(1, (self.size.height - self._head) // self._deep)

    @property
    def _head(self) -> int:
        """Rows of the heading; a window of two rows has none to spare."""
        return 1 if self.size.height >= LEAST_WITH_HEAD else 0

    def _at(self, y: int) -> int:
        """The line at row `y` of the window."""
        return (y - self._head) // self._deep + round(self.scroll_y)

    def _fit_virtual_size(self) -> None:
        folded = any(isinstance(line, GroupLine) for line in self.lines)
        deep = 2 if not folded and not signs().ascii and 0 < 2 * len(self.lines) <= self.size.height - self._head else 1
        if deep != self._deep:
            self._deep = deep
            self._drawn.clear()
            self.refresh()
        # Where lines are two rows deep all of them fit: nothing scrolls by half a line.
        self.virtual_size = Size(self.size.width, len(self.lines) * deep + self._head)

    def _scroll_to_cursor(self) -> None:
        top, rows = round(self.scroll_y), self._window_rows
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False)
        elif self._cursor >= top + rows:
            self.scroll_to(y=self._cursor - rows + 1, animate=False)

    def on_resize(self) -> None:
        """Lay out for the new width."""
        self._arrange()
        self._drawn.clear()
        self._fit_virtual_size()
        self._scroll_to_cursor()
        self.refresh()

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor looks different where the keys are."""
        super().watch_has_focus(has_focus)
        self._drawn.clear()
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme."""
        self._drawn.clear()
        super().notify_style_update()

    # -- painting

    def _refresh_lines(self) -> None:
        """Ask for the lines that read differently from what is on the screen, and for no other."""
        regions: list[Region] = []
        for y in range(self.size.height):
            drawn, line = self._drawn.get(y), self._line(y)
            if drawn != line:
                # The cursor's ground is the whole line's.
                before = drawn[0] if drawn is not None and drawn[1] == line[1] else None
                regions += self.span_regions(y, before, line[0])
        self.repaint(regions)

    def render_line(self, y: int) -> Strip:
        """One line of the window."""
        spans, at_cursor = self._drawn[y] = self._line(y)
        base = self.tone("head") if y < self._head and self.lines else None
        if at_cursor:
            base = self.tone("cursor-away") if isinstance(self.line, NodeLine) or not self.has_focus else base
            base = self.tone("cursor") if isinstance(self.line, GroupLine) and self.has_focus else base
        return self.strip(spans, self.size.width, base)

    def _line(self, y: int) -> tuple[list[Span], bool]:
        if not self.lines:
            return self._notice_line(y), False
        if y < self._head:
            return head_spans(self._layout, self.mode, self._most_cards), False
        at = self._at(y)
        if at >= len(self.lines):
            return [], False
        line = self.lines[at]
        at_cursor = at == self._cursor
        if self._deep > 1 and (y - self._head) % self._deep == 0:
            return [(signs().cursor if at_cursor else " ", "accent"), *self._trend_of(line)], at_cursor
        spans: list[Span] = [(signs().cursor if at_cursor else " ", "accent"), *self._spans_of(line)]
        if at_cursor and isinstance(line, NodeLine):
            spans = self._ringed(spans, line)
        return spans, at_cursor

    def _spans_of(self, line: MapLine) -> list[Span]:
        spans = self._spans.get(line.key)
        if spans is None:
            if isinstance(line, GroupLine):
                spans = group_spans(self._state, line, self._layout, self.mode)
            elif line.node in self._state.nodes:
                spans = node_spans(self._state, line, self._layout, self.mode, self._matcher(), self._now)
            else:
                spans = []
            self._spans[line.key] = spans
        return spans

    def _trend_of(self, line: MapLine) -> list[Span]:
        spans = self._trends.get(line.key)
        if spans is None:
            node = self._state.nodes.get(line.node) if isinstance(line, NodeLine) else None
            spans = []
            if node is not None and isinstance(line, NodeLine):
                spans = trend_spans(self._history, line, node, self._layout, self.mode)
            self._trends[line.key] = spans
        return spans

    def _ringed(self, spans: list[Span], line: NodeLine) -> list[Span]:
        """The line with brackets around the cursor's card."""
        node = self._state.nodes.get(line.node)
        if node is None or not node.cards:
            return spans
        place = min(self._place, len(node.cards) - 1) - line.first
        if not 0 <= place < self._layout.across:
            return spans
        wanted, left = self._layout.first_cell + place * STEP, 0
        ringed: list[Span] = []
        for text, tone in spans:
            if left == wanted - 1:
                text, tone = "[", "accent"
            elif left == wanted + CELL and text == " ":
                text, tone = "]", "accent"
            ringed.append((text, tone))
            left += spans_width([(text, tone)])
        return ringed

    def _notice_line(self, y: int) -> list[Span]:
        top = max(0, (self.size.height - len(self.notice)) // 3)
        if not self.notice or not top <= y < top + len(self.notice):
            return []
        line = self.notice[y - top]
        return [(" " * max(0, (self.size.width - spans_width(line)) // 2), ""), *line]


def _holds(line: MapLine, place: int, across: int) -> bool:
    return isinstance(line, NodeLine) and line.first <= place < line.first + max(1, across)
