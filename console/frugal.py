"""Bytes for a slow line: of a line that changed in places, those places, and a colour once for all that has it.

Nothing is said twice: the line is named once for all that is written on it, and colours stay while text shares them.
"""

from rich.console import Console as RichConsole
from textual._compositor import ChopsUpdate

from console.pen import Pen


class FrugalUpdate(ChopsUpdate):
    """An update of some spans of the screen. Textual's own begins each at its widget's left edge."""

    def render_segments(self, console: RichConsole) -> str:
        """What to write: for each span where it begins, and its text."""
        pen = Pen(console._color_system)
        written: list[str] = []
        row, column = -1, 0
        for y, left, right in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, left), min(end, right)
                if strip is not None and start < stop:
                    piece = pen.write(strip.crop(start - x, stop - x))
                    written += [_move(y, start) if row != y else _along(column, start), piece]
                    # Letters that a terminal may measure in its own way leave it where only an address helps.
                    row, column = y, stop if piece.isascii() else -1
        written.append(pen.rest())
        return "".join(written)


def _move(y: int, x: int) -> str:
    return f"\x1b[{y + 1};{x + 1}H"


def _along(column: int, x: int) -> str:
    """From `column` of a line to another that is further right."""
    return "" if column == x else f"\x1b[{x + 1}G"
