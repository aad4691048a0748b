"""One request: why it went as it did, in sentences, where its time went, and its figures."""

from textual.app import ComposeResult
from textual.containers import Vertical

from console.commands import Command
from console.figures import millis, moment, money
from console.places import Place, Subject
from console.screens.view import View, title
from console.signs import signs
from console.text import fit
from console.widgets.columns import Seen
from console.widgets.facts import Fact, fact_lines
from console.widgets.lines import Line, Lines
from console.widgets.text_block import TextBlock
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError
from llmgw.api.request_types import RequestTold
from llmgw.core import why
from llmgw.core.requests import RequestLine

NAME_COLUMNS = 15
LENGTH_COLUMNS = 10
MOST_BAR_COLUMNS = 100
_TONES = {"waited": "warn", "first token": "info", "streaming": "good", "answer": "good"}
"""Of phases; what is none of these went wrong."""


class RequestPage(View):
    """Asked for once: a request that ended stays as it is."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._facts = TextBlock()
        self.lines = Lines(wrap=True)
        self._frame = Vertical(self.lines, classes="panel page-list")
        self._told: RequestTold | None = None

    def compose(self) -> ComposeResult:
        with Vertical(classes="facts"):
            yield self._facts
        yield self._frame

    def show(self, seen: Seen) -> None:
        """Ask."""
        self._frame.border_title = title("why")
        if self._told is None:
            self.lines.set_lines([[(f"asking{signs().ellipsis}", "dim")]])
            self.run_worker(self._load(), exclusive=True, group="request")

    def on_resize(self) -> None:
        """Facts and bars in another number of columns."""
        self._paint()

    def commands(self) -> list[Command]:
        """To its model's page, where it has one."""
        line = self._told.request if self._told is not None else None
        if line is None or line.model not in self.desk.seen().state.models:
            return []
        model = Subject(target=Target.MODEL, key=line.model)
        return [
            Command(
                id="model", label="its model", key="m", group="request", footer=80, run=lambda: self.open_subject(model)
            )
        ]

    def subjects(self) -> tuple[Subject, ...]:
        """A request that ended is nothing that anything could be done to."""
        return ()

    def focus_keys(self) -> None:
        """The text has the keys."""
        self.give_keys(self.lines)

    def copy_text(self) -> str:
        """Its id and the sentences: what one writes to somebody who asked."""
        why_ = self._told.why if self._told is not None else ()
        return "\n".join((self.place.key, *why_))

    async def _load(self) -> None:
        try:
            self._told = await self.desk.admin.call(lambda api: api.request(self.place.key))
        except ClientError as error:
            self.lines.set_lines([[(error.message, "bad")]])
        else:
            self._paint()
            self.desk.refresh_frame()

    def _paint(self) -> None:
        told = self._told
        if told is None:
            return
        columns = max(20, self.size.width - 2)
        self._facts.set_lines(fact_lines(_facts(told.request), columns))
        sentences: list[Line] = [[(text, "" if told.request.well else "warn")] for text in told.why]
        self.lines.set_lines([*sentences, [], *timeline(told.request, columns - 2)])
        self._frame.border_title = title("why", (told.request.end, "bold" if told.request.well else "bold $warning"))


def timeline(line: RequestLine, columns: int) -> list[Line]:
    """A line a phase: its name, how long it took, and when, as a bar under the whole request's time."""
    room = min(MOST_BAR_COLUMNS, max(10, columns - NAME_COLUMNS - LENGTH_COLUMNS - 2))
    whole = line.duration_ms or 1.0
    lines: list[Line] = []
    for phase in why.phases(line):
        start = min(room - 1, round(phase.from_ms / whole * room))
        length = max(1, min(room, round(phase.to_ms / whole * room)) - start)
        tone = _TONES.get(phase.name, "bad")
        lines.append(
            [
                (fit(phase.name, NAME_COLUMNS), "dim"),
                (fit(why.length(phase.to_ms - phase.from_ms), LENGTH_COLUMNS, "right"), "strong"),
                ("  " + signs().empty * start, "dim"),
                (signs().full * length, tone),
                (signs().empty * (room - start - length), "dim"),
            ]
        )
    return lines


def _facts(line: RequestLine) -> list[Fact]:
    cached = f", {line.cached_tokens:,} of them cached" if line.cached_tokens else ""
    tokens = f"{line.input_tokens:,} in{cached}, {line.output_tokens:,} out"
    return [
        ("request", (line.id, "strong")),
        ("ended", [(moment(line.at), ""), (f"  {line.end}", "good" if line.well else "warn")]),
        ("status", (str(line.status), "good" if line.well else "bad")),
        ("model", [(line.model, "strong"), (f"  asked for as {line.asked}" if line.asked else "", "dim")]),
        ("key", [(line.key, ""), (f"  {line.key_id}", "dim")] if line.key_id else ("none", "warn")),
        ("team", [(line.team, ""), (f"  of {line.tenant}" if line.tenant else "", "dim")]),
        ("client", (line.client, "")),
        ("replica", [(line.replica, ""), (f"  on {line.node}" if line.node else "", "dim")]),
        ("took", (millis(line.duration_ms), "")),
        ("tokens", (tokens if line.input_tokens or line.output_tokens else "", "")),
        ("cost", (money(line.cost_micros) if line.cost_micros else "", "")),
        ("error", (line.code, "bad")),
        ("trace", (line.trace, "dim")),
    ]
