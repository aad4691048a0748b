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

from console.text import clip, plain, width

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

    def tone(self, name: str) -> Style:
        """The style of a tone; raises KeyError for one that is not in TONES."""
        return self.get_component_rich_style(f"tone--{name}", partial=True) if name else _PLAIN

    def strip(self, spans: Iterable[Span], columns: int, base: Style | None = None) -> Strip:
        """One line of `columns` columns: what does not fit is cut with an ellipsis, the rest is blank."""
        ground = self.rich_style if base is None else self.rich_style + base
        segments: list[Segment] = []
        left = columns
        for text, tone in spans:
            if left <= 0:
                break
            shown = clip(plain(text), left)
            if shown:
                segments.append(Segment(shown, ground + self.tone(tone) if tone else ground))
                left -= width(shown)
        if left > 0:
            segments.append(Segment(" " * left, ground))
        return Strip(segments, columns)

    def pair(self, left: Sequence[Span], right: Sequence[Span], columns: int, base: Style | None = None) -> Strip:
        """A line with something at each end; the right end is kept whole while both do not fit."""
        room = columns - spans_width(right)
        if room <= 0:
            return self.strip(right, columns, base)
        return Strip.join([self.strip(left, room, base), self.strip(right, columns - room, base)])

    def repaint_spans(self, y: int, before: Sequence[Span] | None, after: Sequence[Span]) -> None:
        """Ask for what of line `y` differs from the spans that are on the screen; none is all of it."""
        self._repaint(y, None if before is None else differing(before, after, _span_width, self.size.width))

    def repaint_strip(self, y: int, before: Strip | None, after: Strip) -> None:
        """Likewise, for a line that is kept as a strip."""
        self._repaint(y, None if before is None else differing([*before], [*after], _segment_width, self.size.width))

    def _repaint(self, y: int, columns: tuple[int, int] | None) -> None:
        start, end = (0, self.size.width) if columns is None else columns
        if end > start:
            self.refresh(Region(start, y, end - start, 1))


def differing(before: Sequence[T], after: Sequence[T], measure: Callable[[T], int], columns: int) -> tuple[int, int]:
    """First column of a line that differs, and the one behind the last, of `columns`; equal ones when none does."""
    least = min(len(before), len(after))
    same = next((place for place in range(least) if before[place] != after[place]), least)
    if same == len(before) == len(after):
        return (0, 0)
    start = sum(map(measure, after[:same]))
    old, new = before[same:], after[same:]
    if sum(map(measure, old)) != sum(map(measure, new)):
        return (min(start, columns), columns)
    least = min(len(old), len(new))
    tail = next((place for place in range(least) if old[-1 - place] != new[-1 - place]), least)
    changed = sum(map(measure, new[: len(new) - tail]))
    return (min(start, columns), min(start + changed, columns))


def _span_width(span: Span) -> int:
    return width(plain(span[0]))


def _segment_width(segment: Segment) -> int:
    return segment.cell_length


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
    from console.signs import signs

    filled = max(0, min(columns, round(share * columns)))
    return [(signs().full * filled, "info"), (signs().empty * (columns - filled), "dim")]
