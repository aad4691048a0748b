"""Requests that ended on the server's machine, the newest first, followed as they end; all, or a model's or a key's."""

import asyncio
from collections.abc import Mapping
from typing import ClassVar

import msgspec

from console.commands import Command
from console.figures import millis, plural, short_age
from console.places import Place, Subject
from console.screens.table_view import TableView
from console.screens.usage_rows import key_name
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.diff import NOTHING, Diff
from console.widgets.columns import Cell, Column, Seen, TableSpec
from console.widgets.lines import Line
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError
from llmgw.api.request_types import RequestPage, RequestQuery
from llmgw.core import why
from llmgw.core.requests import RequestLine

FIRST = 300
"""Requests asked for at first."""
KEPT = 2_000
"""Requests kept; of more, the oldest go."""
ASK_S = 1.0
"""How often those that ended since are asked for."""
OVERLAP_S = 5.0
"""Routers write in turns of half a second, so that a request may appear behind one that ended later."""
MOST = 1_000
"""Requests asked for at once."""


def _status(line: RequestLine, _: Seen) -> Cell:
    tone = "good" if line.well else "warn" if line.status < 500 and line.end != "lost" else "bad"
    return [(f"{signs().good if line.well else signs().broken} ", tone), (str(line.status), tone)]


def _model(line: RequestLine, _: Seen) -> Cell:
    if line.fallback:
        return [(line.model, "strong"), (f" for {line.asked}", "warn")]
    return (line.model or line.asked, "strong" if line.model else "dim")


def _whose(line: RequestLine, seen: Seen) -> Cell:
    if line.key_id:
        return (line.key or key_name(line.key_id, seen.state.keys), "")
    return (line.client, "dim")


def _first(line: RequestLine, _: Seen) -> Cell:
    return (millis(line.first_token_ms) if line.first_token_ms is not None and line.stream else "", "")


def _tokens(line: RequestLine, _: Seen) -> Cell:
    return (f"{line.input_tokens:,}+{line.output_tokens:,}" if line.input_tokens or line.output_tokens else "", "dim")


def _waited(line: RequestLine, _: Seen) -> Cell:
    return (millis(line.waited_ms) if line.waited_ms >= why.NOTICED_MS else "", "warn")


def _word(line: RequestLine, _: Seen) -> Cell:
    return (why.headline(line), "warn")


SPEC: TableSpec[RequestLine] = TableSpec(
    columns=(
        Column(
            key="at",
            title="when",
            width=5,
            align="right",
            descending=True,
            cell=lambda line, seen: (short_age(seen.now - line.at), "dim"),
            sort=lambda line, _: line.at,
        ),
        Column(key="status", title="status", width=6, cell=_status, sort=lambda line, _: line.status),
        Column(
            key="model",
            title="model",
            width=14,
            grow=2,
            most=32,
            cell=_model,
            sort=lambda line, _: line.model.casefold(),
        ),
        Column(
            key="key",
            title="key",
            width=10,
            grow=1,
            most=24,
            priority=3,
            cell=_whose,
            sort=lambda line, _: line.key.casefold(),
        ),
        Column(
            key="waited",
            title="waited",
            width=7,
            align="right",
            descending=True,
            priority=4,
            cell=_waited,
            sort=lambda line, _: line.waited_ms,
        ),
        Column(
            key="first",
            title="first",
            width=7,
            align="right",
            descending=True,
            priority=2,
            cell=_first,
            sort=lambda line, _: line.first_token_ms if line.stream else None,
        ),
        Column(
            key="took",
            title="took",
            width=7,
            align="right",
            descending=True,
            cell=lambda line, _: (millis(line.duration_ms), ""),
            sort=lambda line, _: line.duration_ms,
        ),
        Column(key="tokens", title="tokens", width=12, align="right", priority=5, cell=_tokens),
        Column(
            key="replica",
            title="by",
            width=12,
            grow=1,
            most=28,
            priority=6,
            cell=lambda line, _: (line.replica, "dim"),
        ),
        Column(key="id", title="request", width=12, grow=1, most=28, priority=7, cell=lambda line, _: (line.id, "dim")),
        Column(key="word", title="last word", width=14, grow=5, priority=1, cell=_word, whole=_word),
    ),
    words=lambda line: f"{line.id} {line.model} {line.asked} {line.key} {line.key_id} {line.replica} {line.code}",
    facts=lambda line: {
        "state": line.end,
        "status": str(line.status),
        "model": line.model,
        "key": line.key or line.key_id,
        "team": line.team,
        "node": line.node,
        "band": line.band,
    },
    sort="at",
    descending=True,
    markable=False,
    arriving=True,
)


class Requests(TableView[RequestLine]):
    """Asked for when one comes, and every ASK_S while it is followed."""

    NOUN: ClassVar[str] = "requests"
    TARGET: ClassVar[Target] = Target.REQUEST

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._found: dict[str, RequestLine] = {}
        self._following = True
        self._said: Line = []
        self._trouble = ""
        """Why newer ones are not known."""
        self._query = _query_of(place)

    def table_spec(self) -> TableSpec[RequestLine]:
        """Its columns."""
        return SPEC

    def rows(self, state: ClusterState) -> Mapping[str, RequestLine]:
        """What is known."""
        return self._found

    def changed_keys(self, state: ClusterState, diff: Diff) -> frozenset[str]:
        """The feed has none of it."""
        return NOTHING

    def show(self, seen: Seen) -> None:
        """Begin."""
        self._said = [(f"asking{signs().ellipsis}", "dim")]
        super().show(seen)
        self.run_worker(self._run(), exclusive=True, group="requests")

    def summary(self, state: ClusterState) -> list[tuple[str, str]]:
        """Whose they are, how many went wrong, and whether more come."""
        subject = self.place.subject
        failed = sum(not line.well for line in self._found.values())
        whose = ""
        if subject is not None:
            name = key_name(subject.key, state.keys) if subject.target is Target.KEY else subject.key
            whose = f"of {subject.target} {name}"
        return [
            (whose, "$accent"),
            (plural(failed, "went wrong", "went wrong") if failed else "", "$warning"),
            ("following" if self._following else "not following", "$success" if self._following else "$warning"),
            (self._trouble if self._found else "", "$error"),
        ]

    def commands(self) -> list[Command]:
        """Following."""
        follow = Command(
            id="follow",
            label="stop following" if self._following else "follow",
            key="f",
            group=self.NOUN,
            footer=88,
            run=self._turn,
        )
        return [*super().commands(), follow]

    def open_subject(self, subject: Subject, *, row: str = "") -> None:
        """Why."""
        self.desk.go(Place(view="request", subject=subject))

    def copy_text(self) -> str:
        """The id."""
        return self.table.cursor_key or ""

    def _turn(self) -> None:
        self._following = not self._following
        self._tell()

    async def _run(self) -> None:
        query, most, heard = msgspec.structs.replace(self._query, limit=FIRST), FIRST, False
        while True:
            began = self.desk.seen().now
            if (self._following or not heard) and await self._ask(query, most):
                heard, most = True, KEPT
                newest = max((line.at for line in self._found.values()), default=began)
                query = msgspec.structs.replace(self._query, limit=MOST, since=max(newest, began) - OVERLAP_S)
            await asyncio.sleep(ASK_S)

    async def _ask(self, query: RequestQuery, most: int) -> bool:
        """Ask for the newest `most`, page by page; whether all of them were heard."""
        heard = 0
        while (page := await self._page(query)) is not None:
            fresh = any(line.id not in self._found for line in page.requests)
            self._found.update((line.id, line) for line in page.requests)
            heard += len(page.requests)
            if page.cursor is None or heard >= most:
                self._say([("no request of these has ended on this machine yet", "dim")], fresh=fresh)
                return True
            self._say(self._said, fresh=fresh)
            query = msgspec.structs.replace(query, cursor=page.cursor)
        return False

    async def _page(self, query: RequestQuery) -> RequestPage | None:
        """One page; none where nobody answers, which is said."""
        try:
            return await self.desk.admin.call(lambda api: api.requests(query))
        except ClientError as error:
            self._say([(error.message, "bad")], trouble=error.message)
            return None

    def _say(self, said: Line, *, fresh: bool = False, trouble: str = "") -> None:
        """Show what is new: requests, or another word where there are none."""
        if fresh or said != self._said:
            self._said, self._trouble = said, trouble
            self._forget()
            self._tell()

    def _forget(self) -> None:
        if len(self._found) > KEPT:
            newest = sorted(self._found.values(), key=lambda line: -line.at)[:KEPT]
            self._found = {line.id: line for line in newest}

    def _tell(self) -> None:
        self.update(self.desk.seen(), None)
        self.desk.refresh_frame()

    def _say_notice(self, state: ClusterState) -> None:
        if self.table.total or not state.heard:
            super()._say_notice(state)
        else:
            self.table.set_notice([self._said])


def _query_of(place: Place) -> RequestQuery:
    subject = place.subject
    if subject is None:
        return RequestQuery()
    return RequestQuery(
        model=subject.key if subject.target is Target.MODEL else None,
        key=subject.key if subject.target is Target.KEY else None,
        team=subject.key if subject.target is Target.TEAM else None,
    )
