"""The table: virtual, keyed, drawn from cached strips. Cursor, scroll and marks belong to keys and survive updates.

A row is painted when it is first seen and again only when what it shows differs, so that a burst of changes outside
the window, or inside it without a visible difference, writes nothing to the terminal.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar, Generic, TypeVar

from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.signs import signs, sort_mark
from console.state.filter import Filter
from console.text import fit, plain
from console.widgets.columns import Cell, Column, Layout, Seen, TableSpec, lay_out
from console.widgets.order import Order
from console.widgets.paint import LineWidget, Span, spans_width
from console.widgets.scrolling import fit_rows
from console.widgets.titles import set_title

GUTTER = 2
"""Columns left of a row for the cursor and the mark."""
LOOKS = 8
"""Ways a row is painted: with the cursor or not, marked or not, in a table with the keys or not."""
FRESH_S = 1.5
"""Rows told within so long are as fresh as a reader needs: a frame of figures comes every second."""
MAX_CACHED_ROWS = 2000
"""Painted rows kept; more than any screen shows."""

T = TypeVar("T")


class Table(LineWidget, ScrollView, Generic[T], can_focus=True):
    """Rows of `T` by key, as a `TableSpec` shows them."""

    DEFAULT_CSS = """
    Table { overflow-x: hidden; overflow-y: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "up", show=False),
        Binding("down,j", "move(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", "page down", show=False),
        Binding("home,g", "jump(0)", "first row", show=False),
        Binding("end,G", "jump(-1)", "last row", show=False),
        Binding("enter", "open", "open", show=False),
        Binding("space", "mark", "mark", show=False),
        Binding("ctrl+a", "mark_all", "mark all shown", show=False),
        Binding("o", "sort(1)", "sort by the next column", show=False),
        Binding("O", "reverse", "sort the other way", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row, or its row on another key."""

        def __init__(self, table: "Table[T]", key: str | None) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Opened(Message):
        """Enter or a double click on a row."""

        def __init__(self, table: "Table[T]", key: str) -> None:
            super().__init__()
            self.table = table
            self.key = key

    class Arranged(Message):
        """Marks, order or the number of rows shown changed."""

    def __init__(self, spec: TableSpec[T], *, header: bool = True, quiet: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._quiet = quiet
        """Whether the cursor shows only while the table has the keys."""
        self.spec = spec
        self.notice: list[list[Span]] = []
        """Lines shown in place of rows when there are none."""
        self.marked: set[str] = set()
        self._head = 1 if header else 0
        self._rows: Mapping[str, T] = {}
        self._seen: Seen | None = None
        self._told_at = -math.inf
        """When rows were told last."""
        self._order: Order[T] = Order(spec)
        self._layout: Layout[T] = Layout((), ())
        self._cells: dict[str, list[Cell]] = {}
        self._strips: dict[tuple[str, int], Strip] = {}
        self._painted: dict[int, Strip] = {}
        """Line of the window → what the terminal shows there."""
        self._cursor = 0
        self._cursor_key: str | None = None

    # -- what is shown

    @property
    def shown(self) -> list[str]:
        """Keys of the rows that pass the filter, in order."""
        return self._order.keys

    @property
    def total(self) -> int:
        """Rows, shown or not."""
        return len(self._rows)

    @property
    def cursor_key(self) -> str | None:
        """Key of the row the cursor is on."""
        return self._cursor_key

    @property
    def sorted_by(self) -> tuple[str, bool]:
        """Key of the column the rows are sorted by, and whether from high to low."""
        return self._order.column, self._order.descending

    @property
    def filter_text(self) -> str:
        """The filter as it was typed."""
        return self._order.filter.text

    def title_of(self, column: str) -> str:
        """A column's heading."""
        return next((c.title for c in self.spec.columns if c.key == column), column)

    def set_title(self, title: Content) -> None:
        """The frame's title; the same one again paints nothing."""
        set_title(self, title)

    def set_notice(self, notice: list[list[Span]]) -> None:
        """Lines shown while there is no row."""
        if notice != self.notice:
            self.notice = notice
            self._refresh_lines()

    def chosen(self) -> list[str]:
        """The marked rows that are shown, in order; the cursor's when none is."""
        if self.marked:
            return [key for key in self.shown if key in self.marked]
        return [self._cursor_key] if self._cursor_key is not None else []

    def update_rows(self, rows: Mapping[str, T], seen: Seen, changed: Iterable[str] | None = None) -> None:
        """Show `rows`. `changed` are the keys that may differ since the last call, gone ones included; none is all."""
        whole = changed is None
        keys = rows.keys() | self._rows.keys() if changed is None else set(changed)
        self._rows, self._seen, self._told_at = rows, seen, seen.now
        reordered = self._order.update(rows, keys, seen, whole=whole)
        gone = [key for key in keys if key not in rows]
        for key in gone:
            self._forget(key)
        if self.marked and gone:
            self.marked.difference_update(gone)
        self._outdate(keys)
        if reordered:
            self._rearrange()
        self._refresh_lines()

    def tick(self, seen: Seen) -> None:
        """Time has passed: repaint the rows in the window whose ages read differently, and move those that waited."""
        # Figures came with the last frame: those of a moment later would be written twice.
        if self._seen is not None and 0 <= seen.now - self._told_at < FRESH_S:
            seen = replace(self._seen, now=seen.now)
        self._seen = seen
        if self._order.update(self._rows, (), seen, whole=False):
            self._rearrange()
        self._outdate(set(self._window()))
        self._refresh_lines()

    def set_filter(self, filter_: Filter) -> None:
        """Show the rows that match."""
        if self._seen is not None and self._order.set_filter(filter_, self._rows, self._seen):
            self._rearrange()
            self._refresh_lines()
        else:
            self._order.filter = filter_

    def clear_marks(self) -> None:
        """Unmark everything."""
        self.marked = set()
        self._refresh_lines()
        self.post_message(self.Arranged())

    def move_to(self, key: str) -> bool:
        """Put the cursor on a row; whether it is shown."""
        place = self._order.place(key)
        if place is None:
            return False
        self._move(place)
        return True

    # -- keys and mouse

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self._move(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by windows."""
        self._move(self._cursor + by * max(1, self._window_rows - 1))

    def action_jump(self, to: int) -> None:
        """Move to the first row, or to the last for -1."""
        self._move(to if to >= 0 else len(self.shown) - 1)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self._cursor_key is not None:
            self.post_message(self.Opened(self, self._cursor_key))

    def action_mark(self) -> None:
        """Mark or unmark the row under the cursor, and step on."""
        if self._cursor_key is None or not self.spec.markable:
            return
        self.marked ^= {self._cursor_key}
        self._refresh_lines()
        self.post_message(self.Arranged())
        self._move(self._cursor + 1)

    def action_mark_all(self) -> None:
        """Mark every row shown, or none when all are."""
        if self.spec.markable:
            self.marked = set() if len(self.marked) >= len(self.shown) else set(self.shown)
            self._refresh_lines()
            self.post_message(self.Arranged())

    def action_sort(self, by: int) -> None:
        """Sort by another column."""
        self._resort(self._order.step(by))

    def action_reverse(self) -> None:
        """Sort the other way."""
        self._resort((self._order.column, not self._order.descending))

    def on_click(self, event: events.Click) -> None:
        """A click moves the cursor or sorts by a heading; a second one opens."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        if offset.y < self._head:
            column = self._layout.at(offset.x - GUTTER)
            if column is not None:
                same = column == self._order.column
                self._resort((column, not self._order.descending if same else False))
            return
        place = offset.y - self._head + round(self.scroll_y)
        if place < len(self.shown):
            self._move(place)
            if event.chain == 2:
                self.action_open()

    def _resort(self, by: tuple[str, bool]) -> None:
        if self._seen is not None:
            self._order.sort_by(*by, self._rows, self._seen)
            self._rearrange()
            self._refresh_lines()

    # -- the cursor and the window

    @property
    def _window_rows(self) -> int:
        return max(1, self.size.height - self._head)

    def _window(self) -> list[str]:
        first = round(self.scroll_y)
        return self.shown[first : first + self._window_rows]

    def _move(self, place: int) -> None:
        place = max(0, min(place, len(self.shown) - 1))
        key = self.shown[place] if self.shown else None
        before, self._cursor, self._cursor_key = self._cursor_key, place, key
        self._scroll_to_cursor()
        if key != before:
            self._refresh_lines()
            self.post_message(self.Moved(self, key))

    def _scroll_to_cursor(self) -> None:
        top, rows = round(self.scroll_y), self._window_rows
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + rows:
            self.scroll_to(y=self._cursor - rows + 1, animate=False, force=True)

    def _rearrange(self) -> None:
        """The order is another: the cursor stays with its key, and its row where it was on the screen.

        A quiet table that nobody walks shows its first rows, whichever they are.
        """
        if self._quiet and not self.has_focus:
            self._cursor, self._cursor_key = 0, None
        above = self._cursor - round(self.scroll_y)
        place = self._order.place(self._cursor_key) if self._cursor_key is not None else None
        before = self._cursor_key
        if place is None:
            place = max(0, min(self._cursor, len(self.shown) - 1))
            self._cursor_key = self.shown[place] if self.shown else None
        self._cursor = place
        self._fit_virtual_size()
        if 0 <= above < self._window_rows:
            self.scroll_to(y=max(0, place - above), animate=False, force=True)
        self._scroll_to_cursor()
        self.post_message(self.Arranged())
        if self._cursor_key != before:
            self.post_message(self.Moved(self, self._cursor_key))

    def _fit_virtual_size(self) -> None:
        fit_rows(self, len(self.shown) + self._head)

    def on_resize(self) -> None:
        """Lay the columns out for the new width."""
        self._layout = lay_out(self.spec.columns, self.size.width - GUTTER)
        self._cells.clear()
        self._strips.clear()
        self._painted.clear()
        self._fit_virtual_size()
        self._scroll_to_cursor()
        self.refresh()

    def notify_style_update(self) -> None:
        """Another theme: paint everything anew."""
        self._strips.clear()
        super().notify_style_update()

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor looks different in a table that has the keys."""
        super().watch_has_focus(has_focus)
        self._refresh_lines()

    # -- painting

    def _outdate(self, keys: set[str]) -> None:
        """Forget what was painted of `keys` where it is out of sight or reads differently."""
        window = {key for key in self._window() if key in keys}
        stale = (
            keys & self._cells.keys() if len(keys) > len(self._cells) else {key for key in keys if key in self._cells}
        )
        for key in stale:
            before = self._cells.pop(key)
            if key not in window or key not in self._rows or before != self._row_cells(key):
                self._drop_strips(key)

    def _forget(self, key: str) -> None:
        if self._cells.pop(key, None) is not None:
            self._drop_strips(key)

    def _drop_strips(self, key: str) -> None:
        for look in range(LOOKS):
            self._strips.pop((key, look), None)

    def _refresh_lines(self) -> None:
        """Ask for the lines that differ from what is on the screen, and for no other."""
        columns = self.size.width
        regions: list[Region] = []
        for y in range(self.size.height):
            painted = self._painted.get(y)
            line = self._line(y, columns)
            if painted is not line and (painted is None or painted != line):
                regions += self.strip_regions(y, painted, line)
        self.repaint(regions)

    def _row_cells(self, key: str) -> list[Cell]:
        cells = self._cells.get(key)
        if cells is None:
            assert self._seen is not None
            row = self._rows[key]
            cells = [column.cell(row, self._seen) for column in self._layout.columns]
            if len(self._cells) > MAX_CACHED_ROWS:
                self._cells.clear()
                self._strips.clear()
            self._cells[key] = cells
        return cells

    def render_line(self, y: int) -> Strip:
        """One line of the window."""
        strip = self._painted[y] = self._line(y, self.size.width)
        return strip

    def _line(self, y: int, columns: int) -> Strip:
        if y < self._head:
            return self._head_strip(columns)
        place = y - self._head + round(self.scroll_y)
        if place < len(self.shown):
            return self._row_strip(self.shown[place], columns)
        return self._notice_strip(y - self._head, columns)

    def _row_strip(self, key: str, columns: int) -> Strip:
        at_cursor, marked = key == self._cursor_key and (self.has_focus or not self._quiet), key in self.marked
        look = at_cursor + 2 * marked + 4 * self.has_focus
        strip = self._strips.get((key, look))
        if strip is None or strip.cell_length != columns:
            spans: list[Span] = [(signs().cursor if at_cursor else " ", "accent"), self._mark(marked)]
            cells = self._layout.spans(self._row_cells(key))
            # What is faint elsewhere would be lost on the cursor's ground; of sixteen colours only its own ink is sure.
            bare = self.app.has_class("-sixteen")
            spans += [(text, "" if bare or tone == "dim" else tone) for text, tone in cells] if at_cursor else cells
            strip = self._strips[key, look] = self.strip(spans, columns, self._base(at_cursor, marked))
        return strip

    def _mark(self, marked: bool) -> Span:
        return (signs().mark if marked else " ", "accent")

    def _base(self, at_cursor: bool, marked: bool) -> Style | None:
        if at_cursor:
            return self.tone("cursor" if self.has_focus else "cursor-away")
        return self.tone("marked") if marked else None

    def _head_strip(self, columns: int) -> Strip:
        spans: list[Span] = [(" " * GUTTER, "")]
        for column, room in zip(self._layout.columns, self._layout.widths, strict=True):
            title = column.title
            if column.key == self._order.column and column.sort is not None:
                mark = sort_mark(self._order.descending)
                # Where both do not fit the arrow stays whole: cut short it would be none.
                title = f"{title[: max(0, room - len(mark))]}{mark}"
            spans += [(fit(title, room, column.align), "head"), (" " * Layout.GAP, "")]
        return self.strip(spans, columns, self.tone("head"))

    def _notice_strip(self, y: int, columns: int) -> Strip:
        if self.shown or not self.notice:
            return self.strip((), columns)
        top = max(0, (self._window_rows - len(self.notice)) // 3)
        if not top <= y < top + len(self.notice):
            return self.strip((), columns)
        line = self.notice[y - top]
        indent = max(0, (columns - spans_width(line)) // 2)
        return self.strip([(" " * indent, ""), *line], columns)

    def row_text(self, key: str) -> str:
        """What a row shows, for copying."""
        return "  ".join(plain(text) for cell in self._row_cells(key) for text, _ in Column.spans_of(cell))
