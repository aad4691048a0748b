"""A window over rows by key, one of them under the cursor: it stays with its key, wherever the rows move.

What the rows are, their order and what they look like is the widget's that is made of it.
"""

from textual.scroll_view import ScrollView

from console.widgets.paint import LineWidget
from console.widgets.scrolling import fit_rows


class RowWindow(LineWidget, ScrollView, can_focus=True):
    """Cursor and scrolling over `shown`."""

    DEFAULT_CSS = """
    RowWindow { overflow-x: hidden; overflow-y: auto; }
    """

    def __init__(self, *, head: int, quiet: bool, id: str | None = None) -> None:
        super().__init__(id=id)
        self.head = head
        """Lines above the rows."""
        self.quiet = quiet
        """Whether the cursor shows only while the widget has the keys."""
        self.cursor_key: str | None = None
        """Key of the row the cursor is on."""
        self._cursor = 0

    # -- what the rows are

    @property
    def shown(self) -> list[str]:
        """Keys of the rows, in order."""
        raise NotImplementedError

    @property
    def stays_first(self) -> bool:
        """Whether the cursor is on the first row, whichever that is: a quiet widget that nobody walks shows those."""
        return self.quiet and not self.has_focus

    def place_of(self, key: str) -> int | None:
        """Where a key is; none when it is not shown."""
        raise NotImplementedError

    def repaint_rows(self) -> None:
        """Paint what looks different."""
        raise NotImplementedError

    def moved(self) -> None:
        """The cursor is on another key."""
        raise NotImplementedError

    def arranged(self) -> None:
        """The order or the number of rows is another."""
        raise NotImplementedError

    @property
    def at_first(self) -> bool:
        """Whether the cursor is on the first row."""
        return self._cursor == 0

    # -- keys

    def action_move(self, by: int) -> None:
        """Move the cursor by rows."""
        self.move(self._cursor + by)

    def action_page(self, by: int) -> None:
        """Move the cursor by windows."""
        self.move(self._cursor + by * max(1, self.window_rows - 1))

    def action_jump(self, to: int) -> None:
        """Move to the first row, or to the last for -1."""
        self.move(to if to >= 0 else len(self.shown) - 1)

    # -- the cursor and the window

    @property
    def window_rows(self) -> int:
        """Rows that are in sight at once."""
        return max(1, self.size.height - self.head)

    def window(self) -> list[str]:
        """Keys of the rows in sight."""
        first = round(self.scroll_y)
        return self.shown[first : first + self.window_rows]

    def move_to(self, key: str) -> bool:
        """Put the cursor on a row; whether it is shown."""
        place = self.place_of(key)
        if place is None:
            return False
        self.move(place)
        return True

    def move(self, place: int) -> None:
        """Put the cursor on the row at `place`, or on the nearest there is."""
        place = max(0, min(place, len(self.shown) - 1))
        key = self.shown[place] if self.shown else None
        before, self._cursor, self.cursor_key = self.cursor_key, place, key
        self._scroll_to_cursor()
        if key != before:
            self.repaint_rows()
            self.moved()

    def rearrange(self) -> None:
        """The order is another: the cursor stays with its key, and its row where it was on the screen.

        A window over the first rows stays there as long as the cursor does: what comes above is in sight. Where one
        has scrolled away from the cursor, by the wheel, the window stays too.
        """
        before = self.cursor_key
        if self.stays_first:
            self._cursor, self.cursor_key = 0, None
        above = self._cursor - round(self.scroll_y)
        place = self.place_of(self.cursor_key) if self.cursor_key is not None else None
        if place is None:
            place = max(0, min(self._cursor, len(self.shown) - 1))
            self.cursor_key = self.shown[place] if self.shown else None
        self._cursor = place
        self._fit_virtual_size()
        if 0 <= above < self.window_rows:
            if round(self.scroll_y):
                self.scroll_to(y=max(0, place - above), animate=False, force=True)
            self._scroll_to_cursor()
        self.arranged()
        if self.cursor_key != before:
            self.moved()

    def fit_window(self) -> None:
        """Another size: the cursor stays in sight."""
        self._fit_virtual_size()
        self._scroll_to_cursor()

    def _scroll_to_cursor(self) -> None:
        top, rows = round(self.scroll_y), self.window_rows
        if self._cursor < top:
            self.scroll_to(y=self._cursor, animate=False, force=True)
        elif self._cursor >= top + rows:
            self.scroll_to(y=self._cursor - rows + 1, animate=False, force=True)

    def _fit_virtual_size(self) -> None:
        fit_rows(self, len(self.shown) + self.head)
