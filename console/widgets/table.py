"""The table: virtual, keyed, drawn from cached strips. Order, filter and marks belong to keys and survive updates.

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
from textual.strip import Strip

from console.signs import signs
from console.state.filter import Filter
from console.text import plain
from console.widgets.columns import Column, Seen, TableSpec
from console.widgets.order import Order
from console.widgets.paint import Span
from console.widgets.row_window import RowWindow
from console.widgets.rows import GUTTER, RowCache, head_spans, notice_spans
from console.widgets.titles import set_title

FRESH_S = 1.5
"""Rows told within so long are as fresh as a reader needs: a frame of figures comes every second."""

T = TypeVar("T")


class Table(RowWindow, Generic[T]):
    """Rows of `T` by key, as a `TableSpec` shows them."""

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
        super().__init__(head=1 if header else 0, quiet=quiet, id=id)
        self.spec = spec
        self.notice: list[list[Span]] = []
        """Lines shown in place of rows when there are none."""
        self.marked: set[str] = set()
        self._rows: Mapping[str, T] = {}
        self._seen: Seen | None = None
        self._told_at = -math.inf
        """When rows were told last."""
        self._order: Order[T] = Order(spec)
        self._cache: RowCache[T] = RowCache()
        self._painted: dict[int, Strip] = {}
        """Line of the window → what the terminal shows there."""

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
            self.repaint_rows()

    def chosen(self) -> list[str]:
        """The marked rows that are shown, in order; the cursor's when none is."""
        if self.marked:
            return [key for key in self.shown if key in self.marked]
        return [self.cursor_key] if self.cursor_key is not None else []

    def update_rows(self, rows: Mapping[str, T], seen: Seen, changed: Iterable[str] | None = None) -> None:
        """Show `rows`. `changed` are the keys that may differ since the last call, gone ones included; none is all."""
        whole = changed is None
        keys = rows.keys() | self._rows.keys() if changed is None else set(changed)
        self._rows, self._seen, self._told_at = rows, seen, seen.now
        reordered = self._order.update(rows, keys, seen, whole=whole)
        gone = [key for key in keys if key not in rows]
        for key in gone:
            self._cache.forget(key)
        if self.marked and gone:
            self.marked.difference_update(gone)
        self._cache.outdate(keys, self.window(), rows, seen)
        if reordered:
            self.rearrange()
        self.repaint_rows()

    def tick(self, seen: Seen) -> None:
        """Time has passed: repaint the rows in the window whose ages read differently, and move those that waited."""
        # Figures came with the last frame: those of a moment later would be written twice.
        if self._seen is not None and 0 <= seen.now - self._told_at < FRESH_S:
            seen = replace(self._seen, now=seen.now)
        self._seen = seen
        if self._order.update(self._rows, (), seen, whole=False):
            self.rearrange()
        window = self.window()
        self._cache.outdate(set(window), window, self._rows, seen)
        self.repaint_rows()

    def set_filter(self, filter_: Filter) -> None:
        """Show the rows that match."""
        if self._seen is not None and self._order.set_filter(filter_, self._rows, self._seen):
            self.rearrange()
            self.repaint_rows()
        else:
            self._order.filter = filter_

    def clear_marks(self) -> None:
        """Unmark everything."""
        self.marked = set()
        self.repaint_rows()
        self.post_message(self.Arranged())

    @property
    def stays_first(self) -> bool:
        """Also while rows arrive at the top and the cursor was never taken off it."""
        newest_first = self.sorted_by == (self.spec.sort, self.spec.descending)
        return super().stays_first or (self.spec.arriving and newest_first and self.at_first)

    def place_of(self, key: str) -> int | None:
        """Where a key is; none when it is not shown."""
        return self._order.place(key)

    def moved(self) -> None:
        """Tell of the cursor."""
        self.post_message(self.Moved(self, self.cursor_key))

    def arranged(self) -> None:
        """Tell of the rows."""
        self.post_message(self.Arranged())

    # -- keys and mouse

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.cursor_key is not None:
            self.post_message(self.Opened(self, self.cursor_key))

    def action_mark(self) -> None:
        """Mark or unmark the row under the cursor, and step on."""
        if self.cursor_key is None or not self.spec.markable:
            return
        self.marked ^= {self.cursor_key}
        self.repaint_rows()
        self.arranged()
        self.move(self._cursor + 1)

    def action_mark_all(self) -> None:
        """Mark every row shown, or none when all are."""
        if self.spec.markable:
            self.marked = set() if len(self.marked) >= len(self.shown) else set(self.shown)
            self.repaint_rows()
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
        if offset.y < self.head:
            column = self._cache.layout.at(offset.x - GUTTER)
            if column is not None:
                same = column == self._order.column
                self._resort((column, not self._order.descending if same else False))
            return
        place = offset.y - self.head + round(self.scroll_y)
        if place < len(self.shown):
            self.move(place)
            if event.chain == 2:
                self.action_open()

    def _resort(self, by: tuple[str, bool]) -> None:
        if self._seen is not None:
            self._order.sort_by(*by, self._rows, self._seen)
            self.rearrange()
            self.repaint_rows()

    # -- painting

    def on_resize(self) -> None:
        """Another window."""
        self._fit_columns()
        self._painted.clear()
        self.fit_window()
        self.refresh()

    def _fit_columns(self) -> None:
        # Asked before anything is drawn: a widget that first comes in sight while another scrolls is told of no size.
        self._cache.lay_out(self.spec.columns, self.size.width - GUTTER)

    def notify_style_update(self) -> None:
        """Another theme: paint everything anew."""
        self._cache.fade()
        super().notify_style_update()

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor looks different in a table that has the keys."""
        super().watch_has_focus(has_focus)
        self.repaint_rows()

    def repaint_rows(self) -> None:
        """Ask for the lines that differ from what is on the screen, and for no other."""
        self._fit_columns()
        columns, lines = self.size
        regions: list[Region] = []
        for y in range(lines):
            painted = self._painted.get(y)
            line = self._line(y, columns)
            if painted is not line and (painted is None or painted != line):
                regions += self.strip_regions(y, painted, line, columns)
        self.repaint(regions)

    def render_line(self, y: int) -> Strip:
        """One line of the window."""
        self._fit_columns()
        strip = self._painted[y] = self._line(y, self.size.width)
        return strip

    def _line(self, y: int, columns: int) -> Strip:
        if y < self.head:
            spans = head_spans(self._cache.layout, self._order.column, descending=self._order.descending)
            return self.strip(spans, columns, self.tone("head"))
        place = y - self.head + round(self.scroll_y)
        if place < len(self.shown):
            return self._row_strip(self.shown[place], columns)
        notice = [] if self.shown else self.notice
        return self.strip(notice_spans(notice, y - self.head, self.window_rows, columns), columns)

    def _row_strip(self, key: str, columns: int) -> Strip:
        at_cursor, marked = key == self.cursor_key and (self.has_focus or not self.quiet), key in self.marked
        look = at_cursor + 2 * marked + 4 * self.has_focus
        strip = self._cache.strip(key, look)
        if strip is None or strip.cell_length != columns:
            assert self._seen is not None
            spans: list[Span] = [(signs().cursor if at_cursor else " ", "accent"), self._mark(marked)]
            cells = self._cache.spans(key, self._rows[key], self._seen)
            # What is faint elsewhere would be lost on the cursor's ground; of sixteen colours only its own ink is sure.
            bare = self.app.has_class("-sixteen")
            spans += [(text, "" if bare or tone == "dim" else tone) for text, tone in cells] if at_cursor else cells
            strip = self.strip(spans, columns, self._base(at_cursor, marked))
            self._cache.keep(key, look, strip)
        return strip

    def _mark(self, marked: bool) -> Span:
        return (signs().mark if marked else " ", "accent")

    def _base(self, at_cursor: bool, marked: bool) -> Style | None:
        if at_cursor:
            return self.tone("cursor" if self.has_focus else "cursor-away")
        return self.tone("marked") if marked else None

    def row_text(self, key: str) -> str:
        """What a row shows, for copying."""
        if self._seen is None:
            return ""
        cells = self._cache.cells(key, self._rows[key], self._seen)
        return "  ".join(plain(text) for cell in cells for text, _ in Column.spans_of(cell))
