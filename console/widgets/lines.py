"""Text to read: logs, YAML, explanations, help. Bounded in number and length; searched, followed, wrapped.

Lines are kept as they came and made harmless when drawn; what is off the screen costs nothing to draw.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from console.text import head, plain, width
from console.widgets.paint import LineWidget, Span
from console.widgets.scrolling import fit_rows

MAX_LINES = 20_000
"""Lines kept; the oldest go first."""
MAX_LINE_CHARS = 8192
"""Longer lines are cut: a megabyte on one line is nothing to read."""

Line = list[Span]


class Lines(LineWidget, ScrollView, can_focus=True):
    """Lines of spans; new ones come at the end."""

    DEFAULT_CSS = """
    Lines { overflow-x: hidden; overflow-y: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "scroll(-1)", "up", show=False),
        Binding("down,j", "scroll(1)", "down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", "page up", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", "page down", show=False),
        Binding("home,g", "top", "beginning", show=False),
        Binding("end,G", "bottom", "end", show=False),
        Binding("n", "find(1)", "next match", show=False),
        Binding("N", "find(-1)", "match before", show=False),
    ]

    class Changed(Message):
        """Following, wrapping, the search or the number of lines changed."""

    def __init__(self, *, follow: bool = False, wrap: bool = True, id: str | None = None) -> None:
        super().__init__(id=id)
        self.following = follow
        self.wrapped = wrap
        self.search = ""
        self.dropped = 0
        """Lines that were there and are no longer kept."""
        self._lines: deque[Line] = deque(maxlen=MAX_LINES)
        self._hits: deque[bool] = deque(maxlen=MAX_LINES)
        """Line by line, whether the search is in it."""
        self._found: int | None = None
        """Line the search is at, counted from the first that ever came."""
        self._rows: list[tuple[int, int]] = []
        """Screen row → (number of its line since the beginning, row within that line)."""
        self._wraps: dict[int, list[Line]] = {}

    @property
    def count(self) -> int:
        """Lines kept."""
        return len(self._lines)

    @property
    def matches(self) -> int:
        """Lines the search is in."""
        return sum(self._hits)

    @property
    def match(self) -> int:
        """Which of them it is at, from 1; 0 for none."""
        if self._found is None or self._found < self.dropped:
            return 0
        return sum(islice(self._hits, self._found - self.dropped + 1))

    def set_lines(self, lines: Iterable[Line]) -> None:
        """Show these lines in place of what is there."""
        fresh = [_cut(line) for line in lines]
        if fresh == list(self._lines):
            return
        found = -1 if self._found is None else self._found - self.dropped
        self._lines.clear()
        self._hits.clear()
        self.dropped = 0
        self._append(fresh)
        # The same text told anew, as a row's document is: the search stays where it was.
        self._found = found if 0 <= found < len(self._hits) and self._hits[found] else None
        self._lay_out()

    def add_lines(self, lines: Iterable[Line]) -> None:
        """Add lines at the end; the window goes along when it follows."""
        self._append([_cut(line) for line in lines])
        self._lay_out()

    def replace_tail(self, start: int, lines: Iterable[Line]) -> None:
        """Have the lines from number `start` on read as `lines`; above the first that differs nothing is repainted."""
        before = list(islice(self._lines, start, None))
        fresh = [_cut(line) for line in lines][: MAX_LINES - start]
        pairs = enumerate(zip(before, fresh, strict=False))
        same = next((place for place, (old, new) in pairs if old != new), min(len(before), len(fresh)))
        if same == len(before) == len(fresh):
            return
        for _ in before[same:]:
            self._lines.pop()
            self._hits.pop()
        self._append(fresh[same:])
        self._lay_out(start + same)

    def _append(self, lines: list[Line]) -> None:
        self.dropped += max(0, len(self._lines) + len(lines) - MAX_LINES)
        self._lines.extend(lines)
        self._hits.extend(map(self._hit, lines))

    def _hit(self, line: Line) -> bool:
        return bool(self.search) and self.search.casefold() in _plain_of(line).casefold()

    def text(self) -> str:
        """All lines as plain text."""
        return "\n".join("".join(plain(text, MAX_LINE_CHARS) for text, _ in line) for line in self._lines)

    def set_search(self, text: str) -> None:
        """Mark `text` wherever it is, and go to the next place; to the last one before where there is none."""
        self.search, self._found = text, None
        self._hits = deque(map(self._hit, self._lines), maxlen=MAX_LINES)
        self.refresh()
        if text:
            self.action_find(1, from_here=True)
        self.post_message(self.Changed())

    def toggle_wrap(self) -> None:
        """Wrap long lines, or cut them at the edge."""
        self.wrapped = not self.wrapped
        self._lay_out()

    def set_following(self, following: bool) -> None:
        """Keep the newest line in sight, or stay."""
        self.following = following
        if following:
            self.scroll_to(y=self.max_scroll_y, animate=False, force=True)
        self.post_message(self.Changed())

    def action_scroll(self, by: int) -> None:
        """Scroll by rows; going up stops following."""
        self._go(round(self.scroll_y) + by)

    def action_page(self, by: int) -> None:
        """Scroll by windows."""
        self._go(round(self.scroll_y) + by * max(1, self.size.height - 1))

    def action_top(self) -> None:
        """Go to the first line."""
        self._go(0)

    def action_bottom(self) -> None:
        """Go to the last line."""
        self._go(len(self._rows))

    def action_find(self, by: int, from_here: bool = False) -> None:
        """Go to the next line the search is in, or to the one before; behind the last comes the first."""
        hits = [number for number, hit in enumerate(self._hits) if hit]
        if not hits or not self._rows:
            return
        top = min(round(self.scroll_y), len(self._rows) - 1)
        first, last = self._rows[top][0], self._rows[min(top + self.size.height, len(self._rows)) - 1][0]
        here = -1 if self._found is None else self._found - self.dropped
        if not first <= here <= last:
            # Where one has scrolled to, or begins: what is in sight comes first.
            here = first - 1 if by > 0 else first
        if by > 0:
            number = next((hit for hit in hits if hit > here), hits[-1] if from_here else hits[0])
        else:
            number = next((hit for hit in reversed(hits) if hit < here), hits[-1])
        self._found = number + self.dropped
        self._go(bisect_left(self._rows, (number, 0)))
        self.post_message(self.Changed())

    def _go(self, row: int) -> None:
        last = max(0, len(self._rows) - self.size.height)
        row = max(0, min(row, last))
        before, self.following = self.following, self.following and row >= last
        self.scroll_to(y=row, animate=False, force=True)
        if before != self.following:
            self.post_message(self.Changed())

    def on_resize(self) -> None:
        """Wrap for the new width."""
        self._lay_out()

    def _lay_out(self, first: int = 0) -> None:
        """Rows of the lines from number `first` on; those above are as they were."""
        # The size does not know of the scrollbar, which comes when the rows are too many.
        columns = max(1, self.size.width - self.styles.scrollbar_size_vertical)
        rows = self._rows[: bisect_left(self._rows, (first, 0))]
        kept = len(rows)
        for number in [number for number in self._wraps if number >= first]:
            del self._wraps[number]
        for number, line in enumerate(islice(self._lines, first, None), first):
            parts = 1
            if self.wrapped:
                length = sum(len(text) for text, _ in line)
                # Harmless text may be longer than what came, and wide text wider: only short ASCII is surely one row.
                if length > columns or any(not text.isascii() or not text.isprintable() for text, _ in line):
                    self._wraps[number] = wrap(line, columns)
                    parts = len(self._wraps[number])
            rows.extend((number, part) for part in range(parts))
        self._rows = rows
        fit_rows(self, len(rows))
        if self.following:
            self.scroll_to(y=max(0, len(rows) - self.size.height), animate=False, force=True)
        top = max(0, kept - round(self.scroll_y))
        if top < self.size.height:
            self.refresh(Region(0, top, self.size.width, self.size.height - top))
        self.post_message(self.Changed())

    def render_line(self, y: int) -> Strip:
        """One row of the window."""
        row = y + round(self.scroll_y)
        if row >= len(self._rows):
            return self.strip((), self.size.width)
        number, part = self._rows[row]
        line = self._wraps[number][part] if number in self._wraps else self._lines[number]
        bar = self.styles.scrollbar_size_vertical if len(self._rows) > self.size.height else 0
        # What does not fit is cut in front of the scrollbar, which would hide the sign that something is cut.
        return Strip.join([self.strip(self._marked(line), max(0, self.size.width - bar)), Strip.blank(bar)])

    def _marked(self, line: Line) -> Line:
        if not self.search:
            return line
        wanted, marked = self.search.casefold(), list[Span]()
        for text, tone in line:
            text = plain(text, MAX_LINE_CHARS)
            folded = text.casefold()
            if len(folded) != len(text):
                folded = text.lower() if len(text.lower()) == len(text) else text
            start = 0
            while (found := folded.find(wanted, start)) >= 0:
                marked += [(text[start:found], tone), (text[found : found + len(wanted)], "match")]
                start = found + len(wanted)
            marked.append((text[start:], tone))
        return marked


def _plain_of(line: Line) -> str:
    return "".join(plain(text, MAX_LINE_CHARS) for text, _ in line)


def _cut(line: Line) -> Line:
    return (
        [(text[:MAX_LINE_CHARS], tone) for text, tone in line]
        if any(len(t) > MAX_LINE_CHARS for t, _ in line)
        else line
    )


def wrap(line: Line, columns: int) -> list[Line]:
    """The line in rows of at most `columns` columns, broken after a space where there is one near the end."""
    rows: list[Line] = [[]]
    left = columns
    for text, tone in line:
        text = plain(text, MAX_LINE_CHARS)
        while text:
            part = head(text, left)
            if part == text:
                rows[-1].append((part, tone))
                left -= width(part)
                break
            space = part.rfind(" ")
            if space >= len(part) // 2 or (space >= 0 and left < columns):
                part = part[: space + 1]
            elif left < columns:
                # A word that begins near the edge goes to the next row whole.
                part = ""
            elif not part and left == columns:
                part = text[0]
            rows[-1].append((part, tone))
            rows.append([])
            text, left = text[len(part) :], columns
    return rows
