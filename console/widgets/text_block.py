"""A few lines of spans that only repaint when they read differently."""

from textual.geometry import Size
from textual.strip import Strip

from console.widgets.lines import Line, wrap
from console.widgets.paint import LineWidget


class TextBlock(LineWidget):
    """Lines as high as they are, cut at the right edge or wrapped."""

    def __init__(self, lines: list[Line] | None = None, *, wrapped: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self._given: list[Line] = lines or []
        self._wrapped = wrapped

    def set_lines(self, lines: list[Line]) -> None:
        """Show these lines."""
        if lines == self._given:
            return
        before, self._given = self._given, lines
        if self._wrapped or len(before) != len(lines):
            self.refresh(layout=True)
            return
        for y, (old, new) in enumerate(zip(before, lines, strict=True)):
            if old != new:
                self.repaint_spans(y, old, new)

    def _rows(self, columns: int) -> list[Line]:
        if not self._wrapped:
            return self._given
        return [row for line in self._given for row in (wrap(line, columns) if line else [line])]

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As many rows as the lines take."""
        return len(self._rows(max(1, width)))

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """All there is."""
        return container.width

    def render_line(self, y: int) -> Strip:
        """One line."""
        rows = self._rows(max(1, self.size.width))
        return self.strip(rows[y] if y < len(rows) else (), self.size.width)
