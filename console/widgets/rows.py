"""What rows of a table look like: cells and painted lines, kept as long as they read the same."""

from collections.abc import Mapping, Sequence
from typing import Generic, TypeVar

from textual.strip import Strip

from console.signs import sort_mark
from console.text import fit
from console.widgets.columns import Cell, Column, Layout, Seen, lay_out
from console.widgets.paint import Span, spans_width

GUTTER = 2
"""Columns left of a row for the cursor and the mark."""
LOOKS = 8
"""Ways a row is painted: with the cursor or not, marked or not, in a table with the keys or not."""
MAX_CACHED_ROWS = 2000
"""Painted rows kept; more than any screen shows."""

T = TypeVar("T")


class RowCache(Generic[T]):
    """Cells and strips by key, for one layout of columns."""

    def __init__(self) -> None:
        self.layout: Layout[T] = Layout((), ())
        self._room = 0
        """Columns that the layout is for."""
        self._cells: dict[str, list[Cell]] = {}
        self._strips: dict[tuple[str, int], Strip] = {}

    def lay_out(self, columns: Sequence[Column[T]], room: int) -> None:
        """Have the columns that fit into `room`; in another width nothing reads as it did."""
        if room == self._room:
            return
        self._room, self.layout = room, lay_out(columns, room)
        self._cells.clear()
        self._strips.clear()

    def fade(self) -> None:
        """Other colours: nothing looks as it did."""
        self._strips.clear()

    def cells(self, key: str, row: T, seen: Seen) -> list[Cell]:
        """What the row under `key` shows in the columns that fit."""
        cells = self._cells.get(key)
        if cells is None:
            cells = [column.cell(row, seen) for column in self.layout.columns]
            if len(self._cells) > MAX_CACHED_ROWS:
                self._cells.clear()
                self._strips.clear()
            self._cells[key] = cells
        return cells

    def spans(self, key: str, row: T, seen: Seen) -> list[Span]:
        """Those cells as one line."""
        return self.layout.spans(self.cells(key, row, seen))

    def strip(self, key: str, look: int) -> Strip | None:
        """The row as it was painted in a look; none when it was not, or reads differently by now."""
        return self._strips.get((key, look))

    def keep(self, key: str, look: int, strip: Strip) -> None:
        """Remember how a row is painted."""
        self._strips[key, look] = strip

    def outdate(self, keys: set[str], window: Sequence[str], rows: Mapping[str, T], seen: Seen) -> None:
        """Forget what was painted of `keys` where it is out of the `window`'s sight or reads differently."""
        in_sight = {key for key in window if key in keys}
        known = (
            keys & self._cells.keys() if len(keys) > len(self._cells) else {key for key in keys if key in self._cells}
        )
        for key in known:
            before = self._cells.pop(key)
            if key not in in_sight or key not in rows or before != self.cells(key, rows[key], seen):
                self._drop_strips(key)

    def forget(self, key: str) -> None:
        """The row is gone."""
        if self._cells.pop(key, None) is not None:
            self._drop_strips(key)

    def _drop_strips(self, key: str) -> None:
        for look in range(LOOKS):
            self._strips.pop((key, look), None)


def head_spans(layout: Layout[T], sorted_by: str, *, descending: bool) -> list[Span]:
    """The headings, the one that rows are sorted by with its arrow."""
    spans: list[Span] = [(" " * GUTTER, "")]
    for column, room in zip(layout.columns, layout.widths, strict=True):
        title = column.title
        if column.key == sorted_by and column.sort is not None:
            mark = sort_mark(descending)
            # Where both do not fit the arrow stays whole: cut short it would be none.
            title = f"{title[: max(0, room - len(mark))]}{mark}"
        spans += [(fit(title, room, column.align), "head"), (" " * Layout.GAP, "")]
    return spans


def notice_spans(notice: Sequence[list[Span]], y: int, rows: int, columns: int) -> list[Span]:
    """Line `y` of a window that has a notice in place of rows, a third of the way down."""
    top = max(0, (rows - len(notice)) // 3)
    if not top <= y < top + len(notice):
        return []
    line = notice[y - top]
    return [(" " * max(0, (columns - spans_width(line)) // 2), ""), *line]
