"""Drawing by the line: spans of plain text, each with a tone, become a strip. A tone is a style of the theme, by name.

Text passes `plain` here, so that no caller can forget it.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, TypeVar

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from console.signs import signs
from console.text import MAX_CELL_CHARS, cut, fitted, plain, width

T = TypeVar("T")
Span = tuple[str, str]
"""Text and its tone; the empty tone is the line's own."""

HEAT = 9
"""Steps of the heat scale, `heat0` the coldest."""
TONES = (
    "strong",
    "dim",
    "good",
    "warn",
    "bad",
    "info",
    "accent",
    "key",
    "head",
    "rule",
    "cursor",
    "cursor-away",
    "marked",
    "match",
    "chip",
    "tab",
    "spark",
    "unused",
    "worn",
    *(f"heat{step}" for step in range(HEAT)),
)
"""Every tone; `styles/tones.tcss` says what it looks like in a theme's colours."""
_PLAIN = Style.null()


class LineWidget(Widget):
    """A widget drawn by `render_line`."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {f"tone--{name}" for name in TONES}

    def __init__(self, *children: Widget, id: str | None = None, classes: str | None = None) -> None:
        # Textual forgets these with every refresh, and finding them takes longer than drawing a line.
        self._tones: dict[str, Style] = {}
        self._own_style: Style | None = None
        self._mixed: dict[Style | None, dict[str, Style]] = {}
        """By what a line stands on and by tone, the two in one."""
        super().__init__(*children, id=id, classes=classes)

    def tone(self, name: str) -> Style:
        """The style of a tone; raises KeyError for one that is not in TONES."""
        if not name:
            return _PLAIN
        style = self._tones.get(name)
        if style is None:
            style = self._tones[name] = self.get_component_rich_style(f"tone--{name}", partial=True)
        return style

    def notify_style_update(self) -> None:
        """Another theme, or another class here or above."""
        self._tones.clear()
        self._own_style = None
        self._mixed.clear()
        super().notify_style_update()

    def strip(self, spans: Iterable[Span], columns: int, base: Style | None = None) -> Strip:
        """One line of `columns` columns: what does not fit is cut with an ellipsis, the rest is blank."""
        if self._own_style is None:
            self._own_style = self.rich_style
        styles = self._mixed.get(base)
        if styles is None:
            styles = self._mixed[base] = {"": self._own_style if base is None else self._own_style + base}
        segments: list[Segment] = []
        left = columns
        for text, tone in spans:
            if left <= 0:
                if segments and text.strip():
                    segments[-1] = Segment(cut(segments[-1].text), segments[-1].style)
                    break
                continue
            shown, taken = fitted(text, left)
            if shown:
                style = styles.get(tone)
                if style is None:
                    style = styles[tone] = styles[""] + self.tone(tone)
                segments.append(Segment(shown, style))
                left -= taken
        if left > 0:
            segments.append(Segment(" " * left, styles[""]))
        return Strip(segments, columns)

    def pair(self, left: Sequence[Span], right: Sequence[Span], columns: int, base: Style | None = None) -> Strip:
        """A line with something at each end; the right end is kept whole while both do not fit."""
        room = columns - spans_width(right)
        if room <= 0:
            return self.strip(right, columns, base)
        return Strip.join([self.strip(left, room, base), self.strip(right, columns - room, base)])

    def repaint_spans(self, y: int, before: Sequence[Span] | None, after: Sequence[Span]) -> None:
        """Ask for what of line `y` differs from the spans that are on the screen; none is all of it."""
        self.repaint(self.span_regions(y, before, after, self.size.width))

    def repaint(self, regions: Sequence[Region]) -> None:
        """Ask for these parts; one asking for all of them costs less than one for each."""
        if regions:
            self.refresh(*regions)
        elif not self.size.width:
            # What is hidden has no columns to compare, and the lines kept from before would be shown again.
            self.refresh()

    @staticmethod
    def span_regions(y: int, before: Sequence[Span] | None, after: Sequence[Span], columns: int) -> list[Region]:
        """What of line `y`, of `columns`, differs from the spans that are on the screen; none is all of it."""
        return _regions(y, columns, None if before is None else differing(before, after, _span_width, columns))

    @staticmethod
    def strip_regions(y: int, before: Strip | None, after: Strip, columns: int) -> list[Region]:
        """Likewise, for a line that is kept as a strip."""
        if before is None:
            return _regions(y, columns, None)
        return _regions(y, columns, differing([*before], [*after], _segment_width, columns))


def _regions(y: int, columns: int, stretches: Sequence[tuple[int, int]] | None) -> list[Region]:
    whole = [(0, columns)] if columns else []
    return [Region(start, y, end - start, 1) for start, end in (whole if stretches is None else stretches)]


def differing(
    before: Sequence[T], after: Sequence[T], measure: Callable[[T], int], columns: int
) -> list[tuple[int, int]]:
    """Where a line of `columns` columns differs: the first column of each stretch, and the one behind its last."""
    found: list[tuple[int, int]] = []
    start = place = 0
    for old, new in zip(before, after, strict=False):
        room = measure(new)
        if old != new:
            if measure(old) != room:
                # From here on nothing stands where it stood, unless it moves back.
                break
            _reach(found, start, min(start + room, columns))
        start, place = start + room, place + 1
    for first, end in _moved(before[place:], after[place:], measure):
        _reach(found, min(start + first, columns), min(start + end, columns))
    return found


def _moved(before: Sequence[T], after: Sequence[T], measure: Callable[[T], int]) -> Iterable[tuple[int, int]]:
    """Stretches of `after` that did not stand in the same columns before, and what a shorter line leaves behind."""
    known: dict[int, T] = {}
    old = new = 0
    for item in before:
        known[old] = item
        old += measure(item)
    for item in after:
        start, new = new, new + measure(item)
        if known.get(start) != item:
            yield (start, new)
    if old != new:
        yield (min(old, new), max(old, new))


def _reach(stretches: list[tuple[int, int]], start: int, end: int) -> None:
    """Add a stretch to those before it; one that begins where the last ends prolongs it."""
    if end <= start:
        return
    if stretches and stretches[-1][1] >= start:
        start = stretches.pop()[0]
    stretches.append((start, end))


def _span_width(span: Span) -> int:
    return fitted(span[0], MAX_CELL_CHARS)[1]


def _segment_width(segment: Segment) -> int:
    return width(segment.text)


def spans_width(spans: Iterable[Span]) -> int:
    """Columns the spans take."""
    return sum(width(plain(text)) for text, _ in spans)


def heat(percent: float | None) -> str:
    """The heat scale's tone for a percentage; none is unused."""
    if percent is None or percent != percent:
        return "unused"
    return f"heat{max(0, min(HEAT - 1, int(percent * HEAT / 100)))}"


def progress_spans(share: float, columns: int) -> list[Span]:
    """A bar of `columns` columns, `share` (0 to 1) of it filled."""
    filled = max(0, min(columns, round(share * columns)))
    return [(signs().full * filled, "info"), (signs().empty * (columns - filled), "dim")]
