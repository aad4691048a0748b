"""The work map: a line a node, a cell a card, as many as there are. Drawn by the line, and only lines that differ.

The cursor is on a card, or on a folded group. It belongs to its key and survives every update; where lines move, it
stays where it was on the screen. Figures alone move no line more often than every ARRANGE_S.
"""

from collections.abc import Iterable
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.signs import signs
from console.state.cards import CardAt, Mode
from console.state.filter import Filter
from console.state.folding import Folds, GroupLine, MapLine, NodeLine
from console.widgets.columns import Seen
from console.widgets.gpu_map_lines import MapLines
from console.widgets.paint import LineWidget, Span, spans_width
from console.widgets.scrolling import fit_rows
from console.widgets.titles import set_title

ARRANGE_S = 10.0
"""Lines stay for so long, however their figures change: what moves faster cannot be read or pointed at."""
LEAST_WITH_HEAD = 3


class GpuMap(LineWidget, ScrollView, can_focus=True):
    """Nodes and their cards."""

    DEFAULT_CSS = """
    GpuMap { overflow-x: hidden; overflow-y: auto; }
    """
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
        self.notice: list[list[Span]] = []
        """Lines shown while there is no node."""
        self._book = MapLines()
        self._arranged_at = 0.0
        self._unarranged = False
        """Whether figures changed since the lines were arranged."""
        self._deep = 1
        """Rows of the screen a line takes; the upper of two, where there is room for it, shows each card's past."""
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
        """Show `seen`. `changed` are the nodes that differ, none is all; `structural` when lines may move at once.

        Otherwise they move with a tick of the clock, so that the same frame does not draw the figures too.
        """
        self._book.see(seen)
        self._unarranged = True
        if changed is None:
            self._book.forget_all()
        else:
            self._book.forget(frozenset(changed))
        if structural or changed is None:
            self._arrange()
        self._refresh_lines()

    def tick(self, seen: Seen) -> None:
        """A second has passed."""
        self._book.see(seen)
        aged = self._book.age()
        if self._unarranged and seen.now - self._arranged_at >= ARRANGE_S:
            self._arrange()
            self._refresh_lines()
        elif aged:
            self._refresh_lines()

    def set_mode(self, mode: Mode) -> None:
        """Cells show another figure."""
        if mode is not self.mode:
            self._book.mode = mode
            self._redraw()

    def set_folds(self, folds: Folds) -> None:
        """Another arrangement."""
        self._book.folds = folds
        self._arrange()
        self._redraw()

    def set_filter(self, filter_: Filter) -> None:
        """Nodes with a card that matches; other cards are dots."""
        self._book.filter = filter_
        self._arrange()
        self._redraw()

    @property
    def mode(self) -> Mode:
        """What cells show."""
        return self._book.mode

    @property
    def folds(self) -> Folds:
        """How the lines are arranged."""
        return self._book.folds

    @property
    def filter(self) -> Filter:
        """Which cards are looked for."""
        return self._book.filter

    @property
    def lines(self) -> list[MapLine]:
        """From top to bottom."""
        return self._book.every

    @property
    def folding(self) -> bool:
        """Whether quiet nodes are folded."""
        return self.folds.folds(len(self._book.names)) and not self.filter

    @property
    def nodes_shown(self) -> int:
        """Nodes that pass the filter."""
        return len(self._book.names)

    # -- the cursor

    @property
    def card(self) -> CardAt | None:
        """The card under the cursor."""
        return self._book.card(self.line, self._place)

    @property
    def line(self) -> MapLine | None:
        """The line under the cursor."""
        return self.lines[self._cursor] if self._cursor < len(self.lines) else None

    def move_to(self, node: str, place: int = 0) -> bool:
        """Put the cursor on a card; whether its node is shown."""
        at = self._book.find(node, place)
        if at is None:
            return False
        self._go(at, place)
        return True

    def action_move(self, by: int) -> None:
        """Up or down, in the same column."""
        at = max(0, min(self._cursor + by, len(self.lines) - 1))
        self._go(at, self._book.column_place(at, self._place))

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
        cards = len(self._book.state.nodes[line.node].cards)
        place = min(self._place, max(0, cards - 1)) + by
        if line.first <= place < min(cards, line.first + self._book.layout.across):
            self._go(self._cursor, place)
        elif 0 <= self._cursor + by < len(self.lines):
            at = self._cursor + by
            self._go(at, self._book.end_place(at) if by < 0 else self._book.first_place(at))

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
        line, column = self.lines[at], self._book.layout.card_at(offset.x)
        self._go(at, line.first + (column or 0) if isinstance(line, NodeLine) else self._place)
        if event.chain == 2:
            self.action_open()

    def _go(self, at: int, place: int) -> None:
        before = (self._cursor_key, self._place)
        self._cursor, self._place = max(0, min(at, len(self.lines) - 1)), place
        self._cursor_key = self.lines[self._cursor].key if self.lines else ""
        self._scroll_to_cursor()
        if (self._cursor_key, self._place) != before:
            self._refresh_lines()
            self.post_message(self.Moved())

    # -- the lines

    def _arrange(self) -> None:
        self._arranged_at, self._unarranged = self._book.now, False
        lines = self._book.arrange(self.size.width)
        if lines != self.lines:
            self._put(lines)
        elif any(isinstance(line, GroupLine) for line in lines):
            self._book.put(lines)
            self._book.forget_groups()
            self.post_message(self.Arranged())

    def _put(self, lines: list[MapLine]) -> None:
        above = self._cursor - round(self.scroll_y)
        before = self._cursor_key
        self._book.put(lines)
        at = next((n for n, line in enumerate(lines) if line.key == before), None)
        if at is None:
            at = max(0, min(self._cursor, len(lines) - 1))
        self._cursor, self._cursor_key = at, lines[at].key if lines else ""
        self._fit_virtual_size()
        if 0 <= above < self._window_rows:
            self.scroll_to(y=max(0, at - above), animate=False, force=True)
        self._scroll_to_cursor()
        self.post_message(self.Arranged())
        if self._cursor_key != before:
            self.post_message(self.Moved())

    def _redraw(self) -> None:
        self._book.forget_all()
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
        fit_rows(self, len(self.lines) * deep + self._head)

    def _scroll_to_cursor(self) -> None:
        top, rows = round(self.scroll_y), self._window_rows
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + rows:
            self.scroll_to(y=self._cursor - rows + 1, animate=False, force=True)

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
        columns, lines = self.size
        regions: list[Region] = []
        for y in range(lines):
            drawn, line = self._drawn.get(y), self._line(y)
            if drawn != line:
                # The cursor's ground is the whole line's.
                before = drawn[0] if drawn is not None and drawn[1] == line[1] else None
                regions += self.span_regions(y, before, line[0], columns)
        self.repaint(regions)

    def render_line(self, y: int) -> Strip:
        """One line of the window."""
        spans, at_cursor = self._drawn[y] = self._line(y)
        base = self.tone("head") if y < self._head and self.lines else None
        if at_cursor:
            base = self.tone("cursor-away") if isinstance(self.line, NodeLine) or not self.has_focus else base
            base = self.tone("cursor") if isinstance(self.line, GroupLine) and self.has_focus else base
        return self.strip(spans, self.scrollable_size.width, base)  # the scrollbar would hide where it is cut

    def _line(self, y: int) -> tuple[list[Span], bool]:
        if not self.lines:
            return self._notice_line(y), False
        if y < self._head:
            return self._book.head(), False
        at = self._at(y)
        if at >= len(self.lines):
            return [], False
        line = self.lines[at]
        at_cursor = at == self._cursor
        if self._deep > 1 and (y - self._head) % self._deep == 0:
            return [(signs().cursor if at_cursor else " ", "accent"), *self._book.trend(line)], at_cursor
        spans: list[Span] = [(signs().cursor if at_cursor else " ", "accent"), *self._book.spans(line)]
        if at_cursor and isinstance(line, NodeLine):
            spans = self._book.bracketed(spans, line, self._place)
        return spans, at_cursor

    def _notice_line(self, y: int) -> list[Span]:
        top = max(0, (self.size.height - len(self.notice)) // 3)
        if not self.notice or not top <= y < top + len(self.notice):
            return []
        line = self.notice[y - top]
        return [(" " * max(0, (self.size.width - spans_width(line)) // 2), ""), *line]
