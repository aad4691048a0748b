"""Bytes for a slow line: of a line that changed in places, those places, and a colour once for all that has it."""

from rich.console import Console as RichConsole
from textual._compositor import ChopsUpdate
from textual.strip import Strip


class FrugalUpdate(ChopsUpdate):
    """An update of some spans of the screen. Textual's own begins each at its widget's left edge."""

    def render_segments(self, console: RichConsole) -> str:
        """What to write: for each span where it begins, and its text."""
        written: list[str] = []
        for y, left, right in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                start, stop = max(x, left), min(end, right)
                if strip is not None and start < stop:
                    written.append(
                        f"\x1b[{y + 1};{start + 1}H{self._piece(strip, start - x, stop - x).render(console)}"
                    )
        return "".join(written)

    @staticmethod
    def _piece(strip: Strip, start: int, stop: int) -> Strip:
        return strip.crop(start, stop).simplify()
