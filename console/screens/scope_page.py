"""All about a key, a team or a tenant: how it stands, who above it limits it most, and what it used of each model."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import ClassVar

from console.commands import Command
from console.figures import age, count, moment, money, plural
from console.places import Place
from console.screens.page import Page
from console.screens.quota import LIMIT_WORDS, A, bar_spans, purse_tone, standing_spans
from console.screens.usage_rows import SPANS, by_model, columns, facts, in_words, next_of, since, total
from console.screens.view import row_of
from console.signs import signs
from console.state.diff import Diff
from console.state.scopes import Purse, Row, chain, entry_of, keys_beneath, purses, target_of
from console.text import fit
from console.widgets.columns import Seen, TableSpec
from console.widgets.facts import Fact
from console.widgets.lines import Line, wrap
from console.widgets.paint import Span
from llmgw.api.actions import Target
from llmgw.api.problems import ClientError
from llmgw.api.types import UsageInfo
from llmgw.api.watch import KeyRow, ScopeRow, scope_key
from llmgw.core.limits import ScopeKind, period_end

AGAIN_S = 30.0
"""Usage is asked for again no sooner, however much of it comes."""
WIDE_COLUMNS = 110
"""From here on there is room for what is left of each budget beside it."""
SPEC: TableSpec[UsageInfo] = TableSpec(
    columns=columns("model", lambda row, _: (row.model, "strong")),
    words=lambda row: row.model,
    facts=facts,
    sort="cost",
    descending=True,
    markable=False,
)


class ScopePage(Page[UsageInfo]):
    """A key, a team or a tenant."""

    NOUN: ClassVar[str] = "used by model"
    ROW_TARGET: ClassVar[Target] = Target.MODEL

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._span = next(iter(place.turned), SPANS[0])
        self._used: Mapping[str, UsageInfo] = {}
        self._said: Line = [(f"asking{signs().ellipsis}", "dim")]
        self._answered = False
        self._asked_at = 0.0
        self._asked_of: Row | None = None
        """The row as it was when usage was asked for."""

    def table_spec(self) -> TableSpec[UsageInfo]:
        """Usage."""
        return SPEC

    def rows(self, seen: Seen) -> Mapping[str, UsageInfo]:
        """What it used of each model."""
        return self._used

    def counted(self) -> bool:
        """Once there was an answer."""
        return self._answered

    def leads_on(self, key: str) -> bool:
        """A model that was used may be gone by now."""
        return key in self.desk.seen().state.models

    def notice(self) -> list[Line]:
        """Why there is none."""
        return [self._said]

    def title_facts(self) -> list[tuple[str, str]]:
        """Of which span of time, and all of it together."""
        of_keys = "" if self.place.view == "key" else "by the keys in it"
        found = in_words(total(self._used.values())) if self._used else ""
        return [(self._span, "$accent"), (found, ""), (of_keys, "$tone-dim")]

    def _row(self, seen: Seen) -> Row | None:
        subject = self.place.subject
        row = row_of(seen.state, subject) if subject is not None else None
        return row if isinstance(row, KeyRow | ScopeRow) else None

    # -- usage

    def update(self, seen: Seen, diff: Diff | None) -> None:
        """More may have been used meanwhile."""
        super().update(seen, diff)
        row = self._row(seen)
        if row is not None and row is not self._asked_of and seen.now - self._asked_at >= AGAIN_S:
            self._ask(seen)

    def _ask(self, seen: Seen) -> None:
        row = self._row(seen)
        if row is not None:
            self._asked_at, self._asked_of = seen.now, row
            # Given as a function: one that is overtaken before it begins leaves nothing behind.
            work: Callable[[], Awaitable[None]] = partial(self._load, row, seen)
            self.run_worker(work, exclusive=True, group="usage")

    async def _load(self, row: Row, seen: Seen) -> None:
        first = since(self._span, seen.now)
        own = [row] if isinstance(row, KeyRow) else keys_beneath(seen.state, target_of(row), row.name)
        ids = [key.id for key in own]
        try:
            found = await self.desk.admin.call(lambda api: api.usage("key_model", since=first))
        except ClientError as error:
            self._said = [(error.message, "bad")]
        else:
            self._used, self._answered = by_model(found, ids), True
            self._said = [(f"nothing was used {self._span}", "dim")]
        self.update(self.desk.seen(), Diff())

    def _next_span(self) -> None:
        self._span = next_of(SPANS, self._span)
        self._ask(self.desk.seen())

    def turned(self) -> tuple[str, ...]:
        """Of when its usage is."""
        return (self._span,)

    def commands(self) -> list[Command]:
        """The span of time, and the keys beneath."""
        subject = self.place.subject
        found = [
            *super().commands(),
            Command(
                id="span",
                label="other days",
                key="p",
                group=self.NOUN,
                footer=80,
                run=self._next_span,
                help=f"usage of {', '.join(SPANS)}, in turn",
            ),
        ]
        if subject is not None and subject.target is not Target.KEY:
            found.append(Command(id="keys", label="its keys", key="m", group=self.NOUN, footer=85, run=self._show_keys))
        return found

    def _show_keys(self) -> None:
        subject = self.place.subject
        if subject is not None:
            self.desk.go(Place(view="keys"), filter_=f"{subject.target.value}:{subject.key}")

    # -- what is known

    def facts(self, seen: Seen) -> list[Fact]:
        """From the feed."""
        row = self._row(seen)
        if row is None:
            return []
        entry = entry_of(seen.state, row)
        above = "/".join(name for name in (entry.tenant, entry.team) if name)
        found: list[Fact] = [
            ("name", (row.name, "strong")),
            ("state", standing_spans(entry)),
            ("belongs to", (above or ("no team" if isinstance(row, KeyRow) else ""), "" if above else "dim")),
        ]
        if isinstance(row, KeyRow):
            found += [
                ("models", (", ".join(row.models) if row.models is not None else "all", "")),
                ("band", (row.band or "", "")),
                ("revoked", (moment(row.revoked) if row.revoked is not None else "", "bad")),
            ]
        else:
            found += [("keys", (plural(row.keys, "key"), "")), ("band", (row.band or "", ""))]
        return [*found, ("last minute", _pace(row, seen)), ("spent", _spent(row)), ("asked", _asked(row, seen.now))]

    def middle(self, seen: Seen, columns: int) -> list[Line]:
        """The limits of everything it counts into."""
        row = self._row(seen)
        return chain_lines(chain(seen.state, row), seen.now, columns) if row is not None else []


def _spent(row: Row) -> list[Span]:
    day, month, ever = row.spent_day_micros, row.spent_month_micros, row.cost_micros
    spans: list[Span] = []
    for micros, when in ((day, " today, "), (month, " this month, "), (ever, " ever")):
        spans += [(money(micros), "strong"), (when, "dim")]
    return spans


def _asked(row: Row, now: float) -> list[Span]:
    spans: list[Span] = [(f"{row.requests:,}", "strong"), (f" request{'' if row.requests == 1 else 's'}, ", "dim")]
    spans += [(count(row.input_tokens), ""), (" tokens in, ", "dim"), (count(row.output_tokens), ""), (" out", "dim")]
    if isinstance(row, KeyRow) and row.last_used is not None:
        spans.append((f", {age(now - row.last_used)} ago", "dim"))
    return [*spans, (f"; made {moment(row.created)[:10]}", "dim")]


def _pace(row: Row, seen: Seen) -> Span:
    if not (row.limits.rpm or row.limits.tpm):
        return ("", "")
    topic, key = ("keys", row.id) if isinstance(row, KeyRow) else ("scopes", scope_key(ScopeKind(row.kind), row.name))
    pace = seen.history.rates.pace(topic, key, seen.now)
    return (f"{plural(pace.requests, 'request')}, {plural(pace.tokens, 'token')} answered", "")


def chain_lines(links: tuple[Row, ...], now: float, columns: int) -> list[Line]:
    """A line each, nearest first; what limits most stands out, and the last lines say it in words."""
    wide = columns >= WIDE_COLUMNS
    name_room, room = (28, 12) if wide else (20, 8)
    heads = [fit(words, room, "right") for words in LIMIT_WORDS.values()]
    lines: list[Line] = [[(fit("limits", name_room), "accent"), ("".join(heads), "dim"), ("  budget", "dim")]]
    least = {name: _least(links, name) for name in LIMIT_WORDS}
    for link in links:
        kind = f"{target_of(link).value} "
        line: Line = [(kind, "dim"), (fit(link.name, name_room - len(kind)), "strong")]
        for name in LIMIT_WORDS:
            value: int | None = getattr(link.limits, name)
            tone = "dim" if value is None else "strong" if value == least[name] else ""
            line.append((fit(_figure(value, room), room, "right"), tone))
        found = purses(link)
        lines.append([*line, ("  ", ""), *(_purse(found[0], wide) if found else [(signs().dash, "dim")])])
        indent = name_room + room * len(LIMIT_WORDS) + 2
        lines += [[(" " * indent, ""), *_purse(purse, wide)] for purse in found[1:]]
    return [*lines, *wrap(_verdict(links, now), columns)]


def _figure(value: int | None, room: int) -> str:
    if value is None:
        return signs().dash
    return f"{value:,}" if len(f"{value:,}") < room else count(value)


def _least(links: tuple[Row, ...], name: str) -> int | None:
    values = [value for link in links if (value := getattr(link.limits, name)) is not None]
    return min(values, default=None)


def _purse(purse: Purse, wide: bool) -> list[Span]:
    amount, left = money(purse.budget.amount_micros), money(purse.left_micros)
    spans = [*bar_spans(purse), (f" of {amount} {A[purse.budget.period]}", "")]
    return [*spans, (f", {left} left", purse_tone(purse))] if wide else spans


def _verdict(links: tuple[Row, ...], now: float) -> Line:
    """Who is met first, with which limits, and how much may still be spent."""
    held: dict[str, list[str]] = {}
    for name, words in LIMIT_WORDS.items():
        least = _least(links, name)
        whose = next((link for link in links if least is not None and getattr(link.limits, name) == least), None)
        if whose is not None:
            held.setdefault(_called(whose), []).append(f"{least:,} {words}")
    parts: list[Line] = [[(", ".join(figures), "strong"), (f" by {whose}", "")] for whose, figures in held.items()]
    line: Line = [("held to " if parts else "no limits", "dim")]
    for number, part in enumerate(parts):
        line += [(f" {signs().dot} ", "dim"), *part] if number else part
    found = [(purse, link) for link in links for purse in purses(link)]
    if not found:
        return [*line, ("; no budget", "dim")]
    purse, link = min(found, key=lambda pair: pair[0].left_micros)
    again = f"; the {purse.budget.period} ends in {age(period_end(purse.budget.period, now) - now)}"
    left = (f"{money(purse.left_micros)} left to spend", purse_tone(purse))
    return [*line, ("; ", "dim"), left, (f" by {_called(link)}", ""), (again, "dim")]


def _called(row: Row) -> str:
    return f"{target_of(row).value} {row.name}"
