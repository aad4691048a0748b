"""Requests as they end, in seconds and in five-second points: how much now, and how it went for a quarter of an hour.

Memory is bounded by the models of the catalog that were used lately; a batch that comes twice counts once. Rows count
for the second in which their request ended, so a replayed backlog makes no spike. The newest seconds are left out of
every mean, for routers report with a delay.
"""

import math
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import trio

from llmgw.api.watch import ALL_MODELS, History, TrafficRow
from llmgw.control.pace import NO_GAPS, Gaps
from llmgw.core.meters import Queue
from llmgw.core.routing import UsageRow

LAG_S = 2
"""A router reports a request within this time of its end."""
RATE_S = 10
"""Rates are means over this long."""
WINDOW_S = 60
"""First tokens are looked at over this long."""
STEP_S = 5
"""Seconds a point of the history spans."""
POINTS = 15 * 60 // STEP_S
MAX_BATCHES = 1024
"""Batches remembered, so that one sent again is known."""
LONGEST_MS = 3_600_000.0
"""A first token that took longer counts as one that took this long."""
_GROWTH = 1.1
_BINS = 1 + math.ceil(math.log(LONGEST_MS) / math.log(_GROWTH))
"""Bins of first-token times, each a tenth wider than the one before."""


class Point(NamedTuple):
    """Means over STEP_S, and a minute's first tokens."""

    requests_per_s: float = 0.0
    errors_per_s: float = 0.0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    first_token_p50_ms: float | None = None
    first_token_p95_ms: float | None = None
    open_requests: int = 0


REST = Point()


@dataclass(slots=True)
class _Second:
    requests: int = 0
    errors: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    bins: dict[int, int] = field(default_factory=dict)
    fell_back: dict[str, int] = field(default_factory=dict)
    """By who answered, of requests that are not counted here otherwise."""
    answered_for: dict[str, int] = field(default_factory=dict)
    """By what was asked for."""


class _Series:
    """One model's last WINDOW_S seconds and its points."""

    __slots__ = ("bins", "points", "seconds", "timed")

    def __init__(self) -> None:
        self.seconds: dict[int, _Second] = {}
        self.bins = [0] * _BINS
        self.timed = 0
        self.points: deque[Point] = deque(maxlen=POINTS)

    def passed_on(self, second: int, row: UsageRow) -> None:
        """Another model answered what was asked of this one."""
        held = self.seconds.setdefault(second, _Second())
        held.fell_back[row.model] = held.fell_back.get(row.model, 0) + 1

    def count(self, second: int, row: UsageRow) -> None:
        held = self.seconds.setdefault(second, _Second())
        if row.asked:
            held.answered_for[row.asked] = held.answered_for.get(row.asked, 0) + 1
        held.requests += 1
        held.errors += row.failed
        held.input_tokens += row.input_tokens
        held.output_tokens += row.output_tokens
        if row.first_token_ms is not None and row.first_token_ms >= 0:
            index = _bin(row.first_token_ms)
            held.bins[index] = held.bins.get(index, 0) + 1
            self.bins[index] += 1
            self.timed += 1

    def expire(self, now: int) -> None:
        """Forget seconds that are too old, or that the clock went back from."""
        for second in [s for s in self.seconds if not now - WINDOW_S <= s <= now]:
            for index, count in self.seconds.pop(second).bins.items():
                self.bins[index] -= count
                self.timed -= count

    def mean(self, begin: int, span: int) -> tuple[float, float, float, float]:
        """Requests, errors, input and output tokens a second over `span` seconds from `begin` on."""
        found = [held for s in range(begin, begin + span) if (held := self.seconds.get(s)) is not None]
        return (
            round(sum(s.requests for s in found) / span, 2),
            round(sum(s.errors for s in found) / span, 2),
            round(sum(s.input_tokens for s in found) / span, 1),
            round(sum(s.output_tokens for s in found) / span, 1),
        )

    def fallbacks(self) -> tuple[dict[str, int], dict[str, int]]:
        """Of the window's seconds: what fell back, by who answered, and what was answered, by what was asked for."""
        away, for_others = Counter[str](), Counter[str]()
        for held in self.seconds.values():
            away.update(held.fell_back)
            for_others.update(held.answered_for)
        return dict(away), dict(for_others)

    def quantile(self, share: float) -> float | None:
        """First-token milliseconds that `share` of the window's requests stayed within, to about 5%."""
        if self.timed <= 0:
            return None
        left = share * self.timed
        for index, count in enumerate(self.bins):
            left -= count
            if left <= 0 and count:
                return _middle(index)
        return None


class TrafficMeter:
    """Counts usage rows. `wall` is Unix seconds; `known` says whether a name is a model of the catalog.

    `gaps` says how tokens came lately, of a model or of ALL_MODELS: routers tell of answers that have not ended.
    `queues` says who waits in routers now, by model.
    """

    def __init__(
        self,
        *,
        known: Callable[[str], bool],
        wall: Callable[[], float] = time.time,
        gaps: Callable[[str], Gaps] = lambda model: NO_GAPS,
        queues: Callable[[], Mapping[str, Queue]] = dict,
    ) -> None:
        self._known = known
        self._wall = wall
        self._gaps = gaps
        self._queues = queues
        self._series: dict[str, _Series] = {ALL_MODELS: _Series()}
        self._batches: dict[str, None] = {}
        self._step = self._complete(wall())

    def count(self, rows: Sequence[UsageRow]) -> None:
        """Take in a batch as routers deliver it; the same batch again is ignored."""
        if not rows or rows[0].id in self._batches:
            return
        self._batches[rows[0].id] = None
        if len(self._batches) > MAX_BATCHES:
            del self._batches[next(iter(self._batches))]
        now = int(self._wall())
        for row in rows:
            second = min(int(row.at), now) if math.isfinite(row.at) else now
            if now - second >= WINDOW_S:
                continue
            self._series[ALL_MODELS].count(second, row)
            if (series := self._of(row.model)) is not None:
                series.count(second, row)
            if row.asked and (series := self._of(row.asked)) is not None:
                series.passed_on(second, row)

    def rows(self, open_requests: Mapping[str, int], total_open: int) -> dict[str, TrafficRow]:
        """`traffic` as of now for all models together and for those used lately; `open_requests` is by model."""
        now = int(self._wall())
        self._roll(now, open_requests, total_open)
        begin = now - LAG_S - RATE_S
        rows: dict[str, TrafficRow] = {}
        queues = self._queues()
        asked = {n for n, count in open_requests.items() if count} | queues.keys()
        for name in self._series.keys() | {n for n in asked if self._known(n)}:
            series = self._series.get(name) or _Series()
            requests, errors, given, made = series.mean(begin, RATE_S)
            gaps = self._gaps(name)
            fell_back, answered_for = ({}, {}) if name == ALL_MODELS else series.fallbacks()
            lines = queues.values() if name == ALL_MODELS else [queues[name]] if name in queues else ()
            rows[name] = TrafficRow(
                requests_per_s=requests,
                errors_per_s=errors,
                input_tokens_per_s=given,
                output_tokens_per_s=made,
                first_token_p50_ms=series.quantile(0.5),
                first_token_p95_ms=series.quantile(0.95),
                inter_token_p50_ms=gaps.p50_ms,
                inter_token_p95_ms=gaps.p95_ms,
                inter_token_p99_ms=gaps.p99_ms,
                open_requests=total_open if name == ALL_MODELS else open_requests.get(name, 0),
                queued=sum(sum(line.waiting.values()) for line in lines),
                queued_oldest_s=round(max((line.oldest_s for line in lines), default=0.0), 1),
                fell_back=fell_back,
                answered_for=answered_for,
            )
        return rows

    def history(self, model: str) -> History:
        """The last quarter of an hour of a model, or of `*`; zeros where nothing happened."""
        series = self._series.get(model) or _Series()
        points = [REST] * (POINTS - len(series.points)) + list(series.points)
        return History(
            model=model,
            step_s=float(STEP_S),
            end=float(self._step * STEP_S),
            requests_per_s=tuple(p.requests_per_s for p in points),
            errors_per_s=tuple(p.errors_per_s for p in points),
            input_tokens_per_s=tuple(p.input_tokens_per_s for p in points),
            output_tokens_per_s=tuple(p.output_tokens_per_s for p in points),
            first_token_p50_ms=tuple(p.first_token_p50_ms for p in points),
            first_token_p95_ms=tuple(p.first_token_p95_ms for p in points),
            open_requests=tuple(p.open_requests for p in points),
        )

    async def run(
        self,
        open_now: Callable[[], tuple[Mapping[str, int], int]],
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Keep the history while nobody looks. `open_now` gives open requests by model, and of all."""
        task_status.started()
        while True:
            await trio.sleep(STEP_S)
            by_model, total = open_now()
            self._roll(int(self._wall()), by_model, total)

    def _of(self, model: str) -> _Series | None:
        series = self._series.get(model)
        if series is None and self._known(model):
            series = self._series[model] = _Series()
        return series

    def _roll(self, now: int, open_requests: Mapping[str, int], total_open: int) -> None:
        """Complete the points that are due and forget what is too old."""
        complete = self._complete(now)
        for step in range(max(self._step, complete - POINTS), complete):
            for name, series in self._series.items():
                open_now = total_open if name == ALL_MODELS else open_requests.get(name, 0)
                series.points.append(_point(series, step, open_now))
        self._step = complete
        for series in self._series.values():
            series.expire(now)
        for name in [n for n, s in self._series.items() if n != ALL_MODELS and (not self._known(n) or _rests(s))]:
            del self._series[name]

    @staticmethod
    def _complete(now: float) -> int:
        """Points that have ended by now, counted from the Unix epoch."""
        return (int(now) - LAG_S) // STEP_S


def _point(series: _Series, step: int, open_requests: int) -> Point:
    point = Point(
        *series.mean(step * STEP_S, STEP_S),
        first_token_p50_ms=series.quantile(0.5),
        first_token_p95_ms=series.quantile(0.95),
        open_requests=open_requests,
    )
    return REST if point == REST else point


def _rests(series: _Series) -> bool:
    return not series.seconds and all(point is REST for point in series.points)


def by_model(in_flight: Mapping[str, int], model_of: Callable[[str], str | None]) -> dict[str, int]:
    """Open requests by model, from those by replica."""
    found: dict[str, int] = {}
    for replica, count in in_flight.items():
        if (model := model_of(replica)) is not None:
            found[model] = found.get(model, 0) + count
    return found


def _bin(milliseconds: float) -> int:
    return int(math.log(min(max(1.0, milliseconds), LONGEST_MS)) / math.log(_GROWTH))


def _middle(index: int) -> float:
    value = _GROWTH ** (index + 0.5)
    return round(value, 1) if value < 100 else float(round(value))
