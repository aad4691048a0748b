"""Series for whoever asks: from this server's book, and from the operator's metrics store what is older.

Names are checked against what there is and refused with what there would be. When the store cannot be read the answer
is what the book has, and it says so.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import trio

from llmgw.api.series import (
    DEFAULT_POINTS,
    MAX_POINTS,
    MAX_SERIES,
    OWN_SPAN_S,
    Figure,
    Of,
    Scope,
    Series,
    SeriesAnswer,
    check_figure,
)
from llmgw.control.history.book import MB, Book, step_of
from llmgw.control.history.rings import EACH, LONG_S, SHORT_S, SHORT_STEPS
from llmgw.core.cluster import Node
from llmgw.core.errors import InvalidInput, LlmgwError, NotFound

LONGEST_SPAN_S = 400 * 24 * 3600.0
"""Nobody's metrics store keeps more."""
MAX_NAMED = 8
"""Names a refusal lists."""
SHORT_SPAN_S = float((SHORT_STEPS - 1) * SHORT_S)
HOTTEST = frozenset(("temperature", "memory_temperature"))
"""Of several cards: the highest. Power is the sum, everything else the mean."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A question, its names checked."""

    figures: tuple[Figure, ...]
    of: tuple["Found", ...]
    start: float
    end: float
    step_s: float
    base_s: int
    """Seconds between two points of the book that is fine enough and reaches back far enough."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Something there is: as it was asked for, the name it has, and the cards it is made of."""

    of: Of
    name: str
    cards: tuple[str, ...] = ()
    node: str = ""
    index: int = 0
    """Of a card: where it is."""


class MetricsStore(Protocol):
    """The operator's own."""

    @property
    def configured(self) -> bool:
        """Whether there is one."""
        ...

    @property
    def where(self) -> str:
        """Its address, without secrets."""
        ...

    async def read(self, wanted: Wanted) -> tuple[Series, ...]:
        """Every series of `wanted`, a point a step; raises LlmgwError saying why it cannot be read."""
        ...


class Library(Protocol):
    """What there is to ask about."""

    def node_names(self) -> frozenset[str]:
        """Names of all nodes."""
        ...

    def node(self, name: str) -> Node | None:
        """One node."""
        ...


class SeriesService:
    """Answers `GET /api/v1/series`."""

    def __init__(
        self,
        *,
        book: Book,
        nodes: Library,
        model: Callable[[str], str],
        store: MetricsStore,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`model` is the catalog's name for a name or alias; it raises NotFound."""
        self._book = book
        self._nodes = nodes
        self._model = model
        self._store = store
        self._wall = wall

    async def answer(
        self, figures: Sequence[str], of: Sequence[Of], start: float | None, end: float | None, step_s: float | None
    ) -> SeriesAnswer:
        """Series of every figure and everything named; raises InvalidInput or NotFound."""
        wanted = self._checked(figures, of, start, end, step_s)
        oldest = self._oldest()
        if wanted.base_s == SHORT_S or wanted.start >= oldest:
            return await self._own(wanted)
        day_ago = self._wall() - OWN_SPAN_S
        last_day, shown = wanted, "what this server saw itself"
        if wanted.end <= day_ago:
            shown = "nothing: this server keeps 24 h"
        elif wanted.start < day_ago - wanted.step_s:
            last_day, shown = self._checked(figures, of, day_ago, end, step_s), "the last 24 h"
        if not self._store.configured:
            older = wanted.start < day_ago - wanted.step_s or wanted.end <= day_ago
            return await self._own(last_day, f"{_UNSET}; showing {shown}" if older else "")
        try:
            series = await self._store.read(wanted)
        except LlmgwError as error:
            why = f"the metrics store at {self._store.where} cannot be read: {error.message}; showing {shown}"
            return await self._own(last_day, why)
        return SeriesAnswer(
            start=wanted.start, step_s=wanted.step_s, since=self._since(), source="metrics", series=series
        )

    def _oldest(self) -> float:
        """From when on this server knows everything itself."""
        since = self._since()
        kept = self._wall() - OWN_SPAN_S - LONG_S
        return max(kept, since - LONG_S) if since is not None else self._wall()

    def _since(self) -> float | None:
        return None if self._book.since is None else float(self._book.since * SHORT_S)

    # -- what is asked

    def _checked(
        self, names: Sequence[str], of: Sequence[Of], start: float | None, end: float | None, step_s: float | None
    ) -> Wanted:
        if not names:
            raise InvalidInput("name at least one", field="figure")
        scopes = tuple(dict.fromkeys(each.scope for each in of))
        figures = tuple(check_figure(name, scopes) for name in dict.fromkeys(names))
        if len(figures) * len(of) > MAX_SERIES:
            raise InvalidInput(f"{len(figures)} figures of {len(of)} are more than {MAX_SERIES} series", field="of")
        now = self._wall()
        until = now if end is None else min(end, now)
        begin = until - SHORT_SPAN_S if start is None else start
        if not 0 < until - begin <= LONGEST_SPAN_S:
            raise InvalidInput("is not before `to`, or more than 400 days before it", field="from")
        base = SHORT_S if begin >= now - SHORT_SPAN_S - SHORT_S else LONG_S
        step = _step(until - begin, base, step_s)
        return Wanted(
            figures=figures,
            of=tuple(map(self._found, dict.fromkeys(of))),
            start=begin - begin % step,
            end=until,
            step_s=step,
            base_s=base,
        )

    def _found(self, of: Of) -> Found:
        if of.scope is Scope.CLUSTER:
            return Found(of=of, name="")
        if of.scope is Scope.MODEL:
            return Found(of=of, name=self._model(of.name))
        if of.scope is Scope.CARD:
            return self._card(of)
        node = self._nodes.node(of.name)
        if node is None:
            raise NotFound(f"there is no node {of.name[:80]!r}; {_named(self._nodes.node_names(), 'node')}")
        return Found(of=of, name=node.name, cards=tuple(card.uuid for card in node.cards))

    def _card(self, of: Of) -> Found:
        place, _, index = of.name.rpartition("/")
        for name in (place,) if place in self._nodes.node_names() else sorted(self._nodes.node_names()):
            node = self._nodes.node(name)
            for card in node.cards if node is not None else ():
                if of.name == card.uuid or (place == name and index == str(card.index)):
                    return Found(of=of, name=card.uuid, cards=(card.uuid,), node=name, index=card.index)
        there = self._nodes.node(place)
        cards = _named([f"{place}/{card.index}" for card in there.cards], "card") if there is not None else ""
        raise NotFound(f"there is no card {of.name[:80]!r}; {cards or 'write card:UUID or card:NODE/INDEX'}")

    # -- from the book

    async def _own(self, wanted: Wanted, note: str = "") -> SeriesAnswer:
        """What the book has of it."""
        base, unit = wanted.base_s, EACH if wanted.base_s == LONG_S else 1
        each = round(wanted.step_s / base)
        newest = step_of(wanted.end)
        if newest == self._book.last + 1:
            # Its sample is about to be taken.
            newest -= 1
        first, last = int(wanted.start // base), newest // unit
        none_kept = wanted.end <= self._wall() - OWN_SPAN_S - LONG_S
        series: list[Series] = []
        for found in wanted.of:
            for figure in wanted.figures:
                points: tuple[float | None, ...]
                if none_kept:  # a year of minutes need not be looked for
                    points = (None,) * -(-(last + 1 - first) // each)
                else:
                    values = [self._value(found, figure.name, step, unit) for step in range(first, last + 1)]
                    points = tuple(_mean(values[at : at + each]) for at in range(0, len(values), each))
                series.append(Series(of=str(found.of), figure=figure.name, unit=figure.unit, points=points))
                await trio.lowlevel.checkpoint()
        return SeriesAnswer(
            start=wanted.start,
            step_s=wanted.step_s,
            since=self._since(),
            note=" ".join(part for part in (note, self._refused(wanted)) if part),
            series=tuple(series),
        )

    def _value(self, found: Found, figure: str, step: int, unit: int) -> float | None:
        scope = found.of.scope
        if figure == "tokens_per_wh":
            made = self._value(found, "output_tokens", step, unit)
            drawn = self._value(found, "power", step, unit)
            return 3600 * made / drawn if made and drawn else None
        sheet = self._book.sheets[scope]
        if scope is Scope.NODE and figure not in sheet.packings:
            cards = self._book.sheets[Scope.CARD]
            of_card = "power" if figure == "power_cards" else figure
            return _together(figure, [cards.value(uuid, of_card, step, each=unit) for uuid in found.cards])
        return sheet.value(found.name, figure, step, each=unit)

    def _refused(self, wanted: Wanted) -> str:
        """Figures that are not kept for want of memory."""
        if not self._book.limit_bytes:
            return "nothing is kept: history.memory_mb in server.yaml is 0"
        kinds = {found.of.scope for found in wanted.of}
        kinds |= {Scope.CARD} if Scope.NODE in kinds else set()
        gone = {name for kind in kinds for name in self._book.sheets[kind].refused}
        named = [figure.name for figure in wanted.figures if figure.name in gone]
        if not named:
            return ""
        return (
            f"{', '.join(named)}: not kept, for all of this size there is no room in {self._book.limit_bytes // MB} MB "
            "(history.memory_mb in server.yaml)"
        )


_UNSET = "no metrics store is set (monitor.prometheus.url)"


def _step(span: float, base: int, asked: float | None) -> float:
    """Seconds a point spans: what was asked for, but no more than the span, rounded up to what is kept."""
    step = span / DEFAULT_POINTS if asked is None else min(asked, span)
    step = float(base * max(1, -(-step // base)))
    if span / step > MAX_POINTS:
        raise InvalidInput(f"{span / step:.0f} points are more than {MAX_POINTS}", field="step")
    return step


def _together(figure: str, values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    if figure == "power_cards":
        return len(known)
    if figure in HOTTEST:
        return max(known)
    return sum(known) if figure == "power" else sum(known) / len(known)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def _named(names: Iterable[str], what: str) -> str:
    found = sorted(names)
    if not found:
        return f"there is no {what} at all"
    more = f" and {len(found) - MAX_NAMED} more" if len(found) > MAX_NAMED else ""
    return f"known are {', '.join(found[:MAX_NAMED])}{more}"
