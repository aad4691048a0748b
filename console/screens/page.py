"""A page about one thing: its facts, its last quarter of an hour, and a table of what belongs to it.

A page of this kind says which facts, charts and rows; when what it is about is gone, it says that instead.
"""

from collections.abc import Mapping
from typing import ClassVar, Generic, TypeVar

from textual.app import ComposeResult
from textual.containers import Vertical

from console.commands import Command
from console.places import Place, Subject
from console.screens.no_match import keys_of, nothing_matches
from console.screens.view import View, counted, row_of, title, waiting_lines
from console.state.cluster import ClusterState
from console.state.diff import Diff
from console.state.filter import parse_filter
from console.widgets.columns import Seen, TableSpec
from console.widgets.facts import Fact, chart_lines, fact_lines
from console.widgets.lines import Line
from console.widgets.note import Note
from console.widgets.table import Table
from console.widgets.text_block import TextBlock
from llmgw.api.actions import Target

T = TypeVar("T")
Chart = tuple[str, str, list[float], float | None]
"""Name, figure now, samples oldest first, full height."""


class Page(View, Generic[T]):
    """Facts, charts and a table."""

    NOUN: ClassVar[str] = "rows"
    ROW_TARGET: ClassVar[Target] = Target.REPLICA
    """What the table's rows are."""
    EMPTY: ClassVar[str] = "nothing here"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._facts = TextBlock()
        self._charts = TextBlock(id="charts")
        self.table: Table[T] = Table(self.table_spec())
        self._note = Note()
        self._rows: Mapping[str, T] = {}
        self._there = False
        """Whether what it is about is there: nothing can be done about what is gone."""
        self._begin_on = place.row
        self.table.set_filter(parse_filter(place.filter))

    def table_spec(self) -> TableSpec[T]:
        """The table's columns."""
        raise NotImplementedError

    def facts(self, seen: Seen) -> list[Fact]:
        """What is to be known; values may come from outside."""
        raise NotImplementedError

    def charts(self, seen: Seen) -> list[Chart]:
        """Its figures over time."""
        return []

    def middle(self, seen: Seen, columns: int) -> list[Line]:
        """What stands between the facts and the table: the charts."""
        return chart_lines(self.charts(seen), columns)

    def rows(self, seen: Seen) -> Mapping[str, T]:
        """What belongs to it."""
        return {}

    def counted(self) -> bool:
        """Whether how many rows there are is known: what could not be asked for is not none."""
        return True

    def notice(self) -> list[Line]:
        """What stands in an empty table."""
        return [[(self.EMPTY, "dim")]]

    def title_facts(self) -> list[tuple[str, str]]:
        """Facts for the table's title, with their styles."""
        return []

    def compose(self) -> ComposeResult:
        with Vertical(classes="facts"):
            yield self._facts
        yield self._charts
        self.table.add_class("panel", "page-list")
        yield self.table
        yield self._note

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """All of it: a page is small."""
        subject = self.place.subject
        columns = max(20, self.size.width - 2)
        self._there = subject is not None and row_of(seen.state, subject) is not None
        if not self._there:
            self._say_gone(seen.state)
            return
        self._facts.set_lines(fact_lines(self.facts(seen), columns))
        self._charts.set_lines(self.middle(seen, columns))
        rows = self.rows(seen)
        changed = {key for key in rows.keys() | self._rows.keys() if rows.get(key) is not self._rows.get(key)}
        self._rows = rows
        if changed or diff is None:
            self.table.update_rows(rows, seen, None if diff is None else changed)
        else:
            self.table.tick(seen)
        if self._begin_on and rows:
            self.table.move_to(self._begin_on)
            self._begin_on = ""
        self._say_note()
        self._say_matching()

    def _say_matching(self) -> None:
        """How many rows there are, and what stands where there is none."""
        table = self.table
        if table.total and not table.shown:
            table.set_notice(nothing_matches(self.filter_text(), keys_of(self._rows.values(), table.spec.facts)))
        else:
            table.set_notice(self.notice())
        count = counted(len(table.shown), table.total) if self.counted() else ""
        facts = [(count, "bold"), (_filter_note(self.filter_text()), "$warning"), *self.title_facts()]
        table.set_title(title(self.NOUN, *facts))

    def tick(self, seen: Seen) -> None:
        """Ages and samples."""
        self.update(seen, Diff())

    def on_resize(self) -> None:
        """Facts in another number of columns."""
        self.update(self.desk.seen(), None)
        self.call_after_refresh(self._say_note)

    def _say_note(self) -> None:
        key = self.table.cursor_key
        self._note.tell(self.table, self.table.spec, None if key is None else self._rows.get(key), self.desk.seen())

    def _say_gone(self, state: ClusterState) -> None:
        subject = self.place.subject
        if not state.heard or subject is None:
            self._facts.set_lines(waiting_lines(self.desk))
        else:
            gone = [(f"{subject.target} ", ""), (subject.key, "strong"), (" is not there any more. ", "")]
            self._facts.set_lines([[*gone, ("esc", "key"), (" goes back.", "")]])
        self._charts.set_lines([])
        # Rows that stayed would tell of what was.
        self._rows = {}
        self.table.update_rows({}, self.desk.seen())
        self.table.set_notice([])
        self.table.set_title(title(self.NOUN))
        self._say_note()

    # -- keys

    def subjects(self) -> tuple[Subject, ...]:
        """What the page is about; marked rows when there are some."""
        if self.table.marked:
            return tuple(Subject(target=self.ROW_TARGET, key=key) for key in self.table.chosen())
        return super().subjects() if self._there else ()

    def commands(self) -> list[Command]:
        """Opening a row."""
        if self.table.cursor_key is None or not self.leads_on(self.table.cursor_key):
            return []
        return [Command(id="open", label="open", key="enter", group=self.NOUN, footer=90, run=self.open_cursor)]

    def focus_keys(self) -> None:
        """The table has the keys."""
        self.give_keys(self.table)

    def filter_text(self) -> str:
        """The table's filter."""
        return self.table.filter_text

    def set_filter(self, text: str) -> bool:
        """Rows that match."""
        self.table.set_filter(parse_filter(text))
        self._say_matching()
        return True

    def cursor_row(self) -> str:
        """The table's."""
        return self.table.cursor_key or ""

    def escape(self) -> bool:
        """Marks, then the filter."""
        if self.table.marked:
            self.table.clear_marks()
            return True
        return bool(self.filter_text()) and self.set_filter("")

    def document(self, state: ClusterState) -> tuple[Subject, object] | None:
        """What the page is about."""
        subject = self.place.subject
        row = row_of(state, subject) if subject else None
        return (subject, row) if subject and row is not None else None

    def on_table_moved(self) -> None:
        """Another row."""
        self._say_note()
        self.desk.refresh_frame()

    def on_table_arranged(self) -> None:
        """Marks."""
        self.desk.refresh_frame()

    def leads_on(self, key: str) -> bool:
        """Whether there is a page to open from a row."""
        return True

    def open_row(self, key: str) -> None:
        """The row's own page."""
        self.open_subject(Subject(target=self.ROW_TARGET, key=key))

    def open_cursor(self) -> None:
        """Open what the cursor is on."""
        if self.table.cursor_key is not None:
            self._open(self.table.cursor_key)

    def on_table_opened(self, event: Table.Opened) -> None:
        """A row was clicked twice."""
        event.stop()
        self._open(event.key)

    def _open(self, key: str) -> None:
        if self.leads_on(key):
            self.open_row(key)


def _filter_note(text: str) -> str:
    return f"/{text}" if text else ""
