"""The foot of a table: what the row under the cursor says that its cells have no room for, whole.

It takes rows when a row needs them and keeps them while the width stays: a table that is as high as its cursor's row
wants it would be painted anew with every step.
"""

from typing import TypeVar

from console.signs import signs
from console.widgets.columns import Layout, Seen, TableSpec, cut_short, lay_out
from console.widgets.lines import Line, wrap
from console.widgets.rows import GUTTER
from console.widgets.table import Table
from console.widgets.text_block import TextBlock

T = TypeVar("T")
MOST_ROWS = 6
"""Rows it takes; a longer word is told by the row's own page."""
LEAST_SCREEN_ROWS = 12
"""Rows of a screen below which the table needs all there is."""


class Note(TextBlock):
    """Lines below a table."""

    DEFAULT_CSS = """
    Note { height: auto; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__(id="note")
        self._columns = 0
        self._deepest = 0

    def tell(self, table: Table[T], spec: TableSpec[T], row: T | None, seen: Seen) -> None:
        """What the table leaves out of `row`, the one under its cursor; none is no row."""
        columns = table.size.width
        if columns <= GUTTER:
            return
        if columns != self._columns:
            self._columns, self._deepest = columns, 0
        layout: Layout[T] = lay_out(spec.columns, columns - GUTTER)
        untold = row is None or self.app.size.height < LEAST_SCREEN_ROWS
        lines = [] if untold or row is None else _lines(cut_short(spec.columns, layout, row, seen), columns)
        self._deepest = max(self._deepest, len(lines))
        # Said outright: a height that is asked for is not asked again where siblings share what is left of a screen.
        height = self.styles.height
        if height is None or height.is_auto or height.value != self._deepest:
            self.styles.height = self._deepest
        self.set_lines([*lines, *([[]] * (self._deepest - len(lines)))])


def _lines(told: list[tuple[str, Line]], columns: int) -> list[Line]:
    lines = [row for title, spans in told for row in wrap([(f"{title}  ", "dim"), *spans], columns)]
    if len(lines) > MOST_ROWS:
        more: Line = [(f"{signs().ellipsis} ", "dim"), ("enter", "key"), (" tells all", "dim")]
        lines = [*lines[: MOST_ROWS - 1], more]
    return lines
