"""The row of figures at the top: a name, the figure now, and its last minutes as bars. Drawn in one piece.

Wide and high windows get frames and two rows of bars; small ones the same facts without them.
"""

from dataclasses import dataclass

from textual.geometry import Size
from textual.strip import Strip

from console.figures import spark_rows
from console.signs import signs
from console.text import clip, fit, plain, width
from console.widgets.paint import LineWidget, Span

LEAST_COLUMNS = 19
"""A tile narrower than this says nothing."""
MOST_POINTS = 120
"""Samples a tile can show at most."""


@dataclass(frozen=True, kw_only=True)
class Tile:
    """One tile."""

    name: str
    figure: tuple[Span, ...]
    """What it is now; outside text is allowed."""
    values: tuple[float, ...] = ()
    """Its last minutes, oldest first."""
    top: float | None = None
    """What a full bar is; the highest value when none."""


class Tiles(LineWidget):
    """Tiles side by side, in as many rows as they need."""

    def __init__(self, *, id: str = "tiles") -> None:
        super().__init__(id=id)
        self._tiles: tuple[Tile, ...] = ()
        self._framed = False
        self._painted: dict[int, list[Span]] = {}

    def set_tiles(self, tiles: tuple[Tile, ...]) -> None:
        """Show these."""
        if tiles == self._tiles:
            return
        before, self._tiles = self._tiles, tiles
        if len(before) != len(tiles):
            self.refresh(layout=True)
            return
        if not self.size.width:
            # What is hidden has no columns to compare, and the lines kept from before would be shown again.
            self.refresh()
        for y, line in enumerate(self._lines(self.size.width)):
            if self._painted.get(y) != line:
                self.repaint_spans(y, self._painted.get(y), line)

    def points(self) -> int:
        """Samples a tile shows at its width."""
        return min(MOST_POINTS, max(1, self._tile_columns(self.size.width) - 4))

    def _columns(self, room: int) -> int:
        count = max(1, len(self._tiles))
        for per_row in (count, (count + 1) // 2, (count + 2) // 3):
            if room // per_row >= LEAST_COLUMNS:
                return per_row
        return max(1, room // LEAST_COLUMNS)

    def _tile_columns(self, room: int) -> int:
        return room // self._columns(room)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Rows of tiles, each as high as the window allows."""
        self._framed = self.app.size.height >= 30
        rows = -(-max(1, len(self._tiles)) // self._columns(max(1, width)))
        return rows * (5 if self._framed else 3)

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """All there is."""
        return container.width

    def render_line(self, y: int) -> Strip:
        """One line through the tiles."""
        lines = self._lines(self.size.width)
        spans = self._painted[y] = lines[y] if y < len(lines) else []
        return self.strip(spans, self.size.width)

    def _lines(self, room: int) -> list[list[Span]]:
        if not self._tiles or room <= 0:
            return []
        per_row = self._columns(room)
        lines: list[list[Span]] = []
        for first in range(0, len(self._tiles), per_row):
            row = self._tiles[first : first + per_row]
            wide = [room // per_row + (place < room % per_row) for place in range(len(row))]
            drawn = [self._draw(tile, columns) for tile, columns in zip(row, wide, strict=True)]
            lines += [[span for tile in drawn for span in tile[y]] for y in range(len(drawn[0]))]
        return lines

    def _draw(self, tile: Tile, columns: int) -> list[list[Span]]:
        if not self._framed:
            inner = columns - 2
            edge: Span = (f"{signs().edge}", "spark")
            bars = spark_rows(list(tile.values), inner, 1, top=tile.top)
            return [
                [edge, (fit(tile.name, inner), "dim"), (" ", "")],
                [edge, *_fit_spans(tile.figure, inner), (" ", "")],
                [edge, (bars[0], "spark"), (" ", "")],
            ]
        inner = columns - 4
        name = clip(tile.name, inner - 2)
        corners = ("+", "+", "+", "+", "-", "|") if signs().ascii else ("╭", "╮", "╰", "╯", "─", "│")
        left_top, right_top, left_low, right_low, flat, side = corners
        rest = flat * (inner - width(name) - 1)
        bars = spark_rows(list(tile.values), inner, 2, top=tile.top)
        return [
            [(f"{left_top}{flat}", "rule"), (f" {name} ", "accent"), (f"{rest}{right_top}", "rule")],
            [(f"{side} ", "rule"), *_fit_spans(tile.figure, inner), (f" {side}", "rule")],
            *([(f"{side} ", "rule"), (bar, "spark"), (f" {side}", "rule")] for bar in bars),
            [(f"{left_low}{flat * (inner + 2)}{right_low}", "rule")],
        ]


def _fit_spans(spans: tuple[Span, ...], columns: int) -> list[Span]:
    kept: list[Span] = []
    left = columns
    for place, (text, tone) in enumerate(spans):
        if place and width(plain(text)) > left:
            # A fact that does not fit is left out: half of a figure is another figure.
            break
        shown = clip(plain(text), left)
        left -= width(shown)
        kept.append((shown, tone))
    return [*kept, (" " * left, "")]
