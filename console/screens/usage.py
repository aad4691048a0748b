"""Usage: requests, tokens and cost of a span of time, by key, team, tenant or model."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar

from console.commands import Command
from console.places import Place, Subject
from console.screens.table_view import TableView
from console.screens.usage_rows import SPANS, columns, facts, in_words, key_name, next_of, since, total
from console.screens.view import row_of
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import NOTHING, Diff
from console.widgets.columns import Cell, Seen, TableSpec
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError
from llmgw.api.types import UsageInfo

GROUPS = ("key", "team", "tenant", "model")
"""What rows may be of, in the order a key walks them."""


def _id(row: UsageInfo) -> str:
    return row.key_id or row.team or row.tenant or row.model


def _name(row: UsageInfo, seen: Seen) -> Cell:
    if row.key_id:
        return (key_name(row.key_id, seen.state.keys), "strong")
    return (_id(row), "strong") if _id(row) else ("none", "dim")


SPEC: TableSpec[UsageInfo] = TableSpec(
    columns=columns("name", _name), words=_id, facts=facts, sort="cost", descending=True
)


class Usage(TableView[UsageInfo]):
    """Sums of usage, asked for when one comes and when one asks for others."""

    NOUN: ClassVar[str] = "usage"

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        asked = place.key if place.key in GROUPS else GROUPS[0]
        self._by, self._span = place.turned or (asked, SPANS[0])
        self._found: Mapping[str, UsageInfo] = {}
        self._said: Line = []
        self._answered = False

    def table_spec(self) -> TableSpec[UsageInfo]:
        """Its columns."""
        return SPEC

    def rows(self, state: ClusterState) -> Mapping[str, UsageInfo]:
        """What was answered last."""
        return self._found

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """Names come from the feed; figures do not."""
        return frozenset(self._found) if diff.touches("keys") else NOTHING

    def show(self, seen: Seen) -> None:
        """Ask."""
        super().show(seen)
        self._ask()

    def counted(self) -> bool:
        """Once there was an answer to what is asked."""
        return self._answered

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """Of what, of when, and all of it together."""
        found = in_words(total(self._found.values())) if self._found else ""
        return [(f"by {self._by}", "$accent"), (self._span, "$accent"), (found, "")]

    def subject_of(self, key: str) -> Subject:
        """What the row is of."""
        return Subject(target=Target(self._by), key=key)

    def subjects(self) -> tuple[Subject, ...]:
        """Rows of what is there still."""
        state = self.desk.seen().state
        return tuple(subject for subject in super().subjects() if row_of(state, subject) is not None)

    def commands(self) -> list[Command]:
        """Other sums; what is not there any more leads nowhere."""
        return [
            *(each for each in super().commands() if each.id != "open" or self.subjects()),
            Command(
                id="group",
                label="by other",
                key="b",
                group=self.NOUN,
                footer=85,
                run=self._next_group,
                help=f"by {', '.join(GROUPS)}, in turn",
            ),
            Command(
                id="span",
                label="other days",
                key="p",
                group=self.NOUN,
                footer=84,
                run=self._next_span,
                help=f"usage of {', '.join(SPANS)}, in turn",
            ),
            Command(id="again", label="ask again", key="a", group=self.NOUN, footer=80, run=self._ask),
        ]

    def turned(self) -> tuple[str, ...]:
        """Of what, and of when."""
        return (self._by, self._span)

    def open_cursor(self) -> None:
        """Open what the cursor is on, where it is there still."""
        if self.subjects():
            super().open_cursor()

    def _next_group(self) -> None:
        self._by = next_of(GROUPS, self._by)
        self._found, self._answered = {}, False
        self._ask()

    def _next_span(self) -> None:
        self._span = next_of(SPANS, self._span)
        self._ask()

    def _ask(self) -> None:
        self._said = [(f"asking{signs().ellipsis}", "dim")]
        self.table.clear_marks()
        self._tell()
        # Given as a function: one that is overtaken before it begins leaves nothing behind.
        by, span = self._by, self._span
        work: Callable[[], Awaitable[None]] = partial(self._load, by, span)
        self.run_worker(work, exclusive=True, group="usage")

    async def _load(self, by: str, span: str) -> None:
        first = since(span, self.desk.seen().now)
        try:
            found = await self.desk.admin.call(lambda api: api.usage(by, since=first))
        except ClientError as error:
            self._found, self._answered, self._said = {}, False, [(error.message, "bad")]
        else:
            self._answered = True
            self._found, self._said = {_id(row): row for row in found}, [(f"nothing was used {span}", "dim")]
        self._tell()

    def _tell(self) -> None:
        seen = self.desk.seen()
        self.update(seen, None)
        self.desk.refresh_frame()

    def _say_notice(self, state: ClusterState) -> None:
        if self.table.total or not state.heard:
            super()._say_notice(state)
        else:
            self.table.set_notice([self._said])
