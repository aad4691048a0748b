"""A view that is one table: its rows are a topic's, its columns a `TableSpec`; everything else is the same everywhere.

A view of this kind says what it shows in class attributes, and nothing about how.
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult

from console.commands import Command
from console.places import Place, Subject
from console.screens.no_match import keys_of, nothing_matches
from console.screens.view import View, counted, row_of, title, waiting_lines
from console.signs import sort_mark
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.filter import parse_filter
from console.widgets.columns import Seen, TableSpec
from console.widgets.note import Note
from console.widgets.paint import Span
from console.widgets.table import Table
from llmgw.api.actions import Target

T = TypeVar("T")


class TableView(View, Generic[T]):
    """One table of rows under keys that actions know."""

    NOUN: ClassVar[str] = "rows"
    TARGET: ClassVar[Target] = Target.MODEL
    TOPIC: ClassVar[str] = ""
    """Topic whose keys are the rows'."""
    ALSO: ClassVar[tuple[str, ...]] = ()
    """Topics with the same keys that its cells look at too."""
    EMPTY: ClassVar[tuple[str, str]] = ("nothing here", "")
    """What stands in an empty table: a sentence, and what to press."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self.table: Table[T] = Table(self.table_spec())
        self._note = Note()
        self._begin_on = place.row
        self.table.set_filter(parse_filter(place.filter))

    def table_spec(self) -> TableSpec[T]:
        """What the table shows."""
        raise NotImplementedError

    def rows(self, state: ClusterState) -> Mapping[str, T]:
        """The rows by key."""
        return state.rows(self.TOPIC)  # type: ignore[return-value]

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """Rows that may read differently after `diff`."""
        return diff.keys(self.TOPIC, *self.ALSO)

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """Facts for the frame's title, with their styles."""
        return []

    def compose(self) -> ComposeResult:
        self.table.add_class("panel")
        yield self.table
        yield self._note

    def show(self, seen: Seen) -> None:
        """Everything anew."""
        self.update(seen, None)

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """Hand the rows that changed to the table."""
        changed = None if diff is None else self.changed_keys(seen.state, diff)
        if changed is None or changed:
            self.table.update_rows(self.rows(seen.state), seen, changed)
        if self._begin_on and self.table.total:
            self.table.move_to(self._begin_on)
            self._begin_on = ""
        self._say_notice(seen.state)
        self._say_title(seen.state)
        self._say_note()

    def tick(self, seen: Seen) -> None:
        """Ages."""
        self.table.tick(seen)
        self._say_notice(seen.state)

    def subjects(self) -> tuple[Subject, ...]:
        """The marked rows, else the cursor's."""
        return tuple(self.subject_of(key) for key in self.table.chosen())

    def subject_of(self, key: str) -> Subject:
        """What the row under `key` is to actions."""
        return Subject(target=self.TARGET, key=key)

    def commands(self) -> list[Command]:
        """Opening and marking, for the footer and the help; the table itself has the keys."""
        if self.table.cursor_key is None:
            return []
        return [
            Command(id="open", label="open", key="enter", group=self.NOUN, footer=90, run=self.open_cursor),
            Command(id="mark", label="mark", key="space", group=self.NOUN, run=self.table.action_mark),
            Command(id="sort", label="sort", key="o", group=self.NOUN, run=lambda: self.table.action_sort(1)),
            Command(id="reverse", label="sort the other way", key="O", group=self.NOUN, run=self.table.action_reverse),
        ]

    def focus_keys(self) -> None:
        """The table has the keys."""
        self.give_keys(self.table)

    def filter_text(self) -> str:
        """The table's filter."""
        return self.table.filter_text

    def set_filter(self, text: str) -> bool:
        """Show the rows that match."""
        self.table.set_filter(parse_filter(text))
        state = self.desk.seen().state
        self._say_notice(state)
        self._say_title(state)
        return True

    def cursor_row(self) -> str:
        """The table's."""
        return self.table.cursor_key or ""

    def escape(self) -> bool:
        """Marks go first, then the filter."""
        if self.table.marked:
            self.table.clear_marks()
            return True
        if self.filter_text():
            return self.set_filter("")
        return False

    def document(self, state: ClusterState) -> tuple[Subject, object] | None:
        """The row under the cursor."""
        key = self.table.cursor_key
        if key is None:
            return None
        subject = self.subject_of(key)
        row = row_of(state, subject)
        return None if row is None else (subject, row)

    def on_table_moved(self) -> None:
        """Another row may allow other actions, and has its own word."""
        self._say_note()
        self.desk.refresh_frame()

    def on_table_arranged(self) -> None:
        """Marks, sorting or the number of rows changed."""
        self._say_note()
        self._say_title(self.desk.seen().state)
        self.desk.refresh_frame()

    def open_cursor(self) -> None:
        """Open what the cursor is on."""
        if self.table.cursor_key is not None:
            self.open_subject(self.subject_of(self.table.cursor_key))

    def on_table_opened(self, event: Table.Opened) -> None:
        """A row was clicked twice."""
        event.stop()
        self.open_subject(self.subject_of(event.key))

    def on_resize(self) -> None:
        """Other columns fit, or none more."""
        self.call_after_refresh(self._say_note)

    def _say_note(self) -> None:
        spec, key, seen = self.table.spec, self.table.cursor_key, self.desk.seen()
        if any(column.whole is not None for column in spec.columns):
            self._note.tell(self.table, spec, None if key is None else self.rows(seen.state).get(key), seen)

    def _say_notice(self, state: ClusterState) -> None:
        if not state.heard:
            notice = waiting_lines(self.desk)
        elif self.table.total and not self.table.shown:
            notice = nothing_matches(self.filter_text(), keys_of(self.rows(state).values(), self.table.spec.facts))
        else:
            sentence, key = self.EMPTY
            notice = [[(sentence, "dim")], _keyed(key)]
        self.table.set_notice(notice)

    def counted(self) -> bool:
        """Whether how many rows there are is known: what could not be asked for is not none."""
        return True

    def _say_title(self, state: ClusterState) -> None:
        table = self.table
        if not state.heard:
            table.set_title(title(self.NOUN))
            return
        shown, total = len(table.shown), table.total
        count = counted(shown, total) if self.counted() else ""
        column, descending = table.sorted_by
        order = f"by {table.title_of(column)}{sort_mark(descending)}" if column else ""
        facts = [
            (count, "bold"),
            (f"/{self.filter_text()}" if self.filter_text() else "", "bold $warning"),
            (f"{len(table.marked)} marked" if table.marked else "", "bold $accent"),
            *self.summary(state),
            (order, "$tone-dim"),
        ]
        table.set_title(title(self.NOUN, *facts))


def _keyed(text: str) -> list[Span]:
    """`s serves one` with its key set off; the first word is the key."""
    key, space, rest = text.partition(" ")
    return [(key, "key"), (space + rest, "dim")] if text else []
