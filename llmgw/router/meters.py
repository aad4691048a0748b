"""What this router counts and times, from its start on. Recording never allocates a container, waits or raises.

A token's gap costs one search among a few bounds and two additions, made by the stream itself in `Meter.gaps`; all the
rest happens once a request. Names that clients make up never become a meter: only models of the catalog have one.
"""

import os
from bisect import bisect_left
from collections.abc import Callable

from llmgw.core.meters import (
    CHOICES,
    DURATION_S,
    FIRST_TOKEN_S,
    INTER_TOKEN_S,
    LOOKUPS,
    MAX_MODELS,
    NO_MODEL,
    OUTCOMES,
    Histogram,
    MeterReport,
    ModelMeters,
    Queue,
)
from llmgw.core.routing import UsageRow

CLIENT_LEFT = 499
"""Status in a usage row when nobody was there to take the answer."""
TOO_MANY = 429

Cells = list[float]
"""A histogram being filled: a count a class, one for what is beyond the highest, and the sum of all values."""


def new_cells(bounds: tuple[float, ...]) -> Cells:
    """An empty histogram of the classes that end at `bounds`."""
    return [0] * (len(bounds) + 1) + [0.0]


def observe(cells: Cells, bounds: tuple[float, ...], value: float) -> None:
    """Count `value`, which belongs to the first class that ends at it or above."""
    cells[bisect_left(bounds, value)] += 1
    cells[-1] += value


def histogram_of(cells: Cells) -> Histogram:
    """The histogram as it travels."""
    return Histogram(counts=tuple(map(int, cells[:-1])), sum=cells[-1])


class Meter:
    """One model's counts."""

    __slots__ = (
        "breaker_openings",
        "cached_tokens",
        "chosen",
        "duration",
        "fallbacks",
        "first_token",
        "gaps",
        "input_tokens",
        "limits_hit",
        "output_tokens",
        "reported",
        "requests",
        "retries",
        "turned_away",
        "waited",
    )

    def __init__(self) -> None:
        self.requests = dict.fromkeys(OUTCOMES, 0)
        self.limits_hit: dict[str, int] = {}
        self.fallbacks: dict[str, int] = {}
        self.chosen = dict.fromkeys(CHOICES, 0)
        self.input_tokens = self.cached_tokens = self.output_tokens = 0
        self.retries = self.breaker_openings = 0
        self.first_token = new_cells(FIRST_TOKEN_S)
        self.gaps = new_cells(INTER_TOKEN_S)
        """Seconds between reads that brought tokens of one answer; classes INTER_TOKEN_S. The streams' to write."""
        self.duration = new_cells(DURATION_S)
        self.waited: Cells | None = None
        """None until somebody waited."""
        self.turned_away: dict[str, int] = {}
        self.reported: tuple[float, ...] | None = None
        """What `marks` were when the control plane was told last."""

    @property
    def marks(self) -> tuple[float, ...]:
        """Different whenever anything was counted, and cheaper to compare than all that is counted."""
        return (
            sum(self.requests.values()),
            self.gaps[-1],
            self.breaker_openings,
            sum(self.fallbacks.values()) if self.fallbacks else 0,
        )

    def snapshot(self) -> ModelMeters:
        """As of now."""
        return ModelMeters(
            requests={outcome: count for outcome, count in self.requests.items() if count},
            limits_hit=dict(self.limits_hit),
            input_tokens=self.input_tokens,
            cached_tokens=self.cached_tokens,
            output_tokens=self.output_tokens,
            retries=self.retries,
            breaker_openings=self.breaker_openings,
            fallbacks=dict(self.fallbacks),
            chosen={by: count for by, count in self.chosen.items() if count},
            first_token=histogram_of(self.first_token),
            inter_token=histogram_of(self.gaps),
            duration=histogram_of(self.duration),
            waited=histogram_of(self.waited) if self.waited is not None else Histogram(),
            turned_away=dict(self.turned_away),
        )


class Meters:
    """All that one router counts."""

    def __init__(self) -> None:
        self.id = os.urandom(8).hex()
        self.key_lookups = dict.fromkeys(LOOKUPS, 0)
        self.log_lines_dropped = self.spans_dropped = 0
        self._models: dict[str, Meter] = {}
        self.queues: Callable[[], dict[str, Queue]] = dict
        """Who waits now, by model; the data plane says."""

    def of(self, model: str) -> Meter:
        """The meter of a model of the catalog, or of NO_MODEL; past MAX_MODELS models they share that one."""
        meter = self._models.get(model)
        if meter is None:
            if len(self._models) >= MAX_MODELS and model != NO_MODEL:
                return self.of(NO_MODEL)
            meter = self._models[model] = Meter()
        return meter

    def answered(self, row: UsageRow) -> None:
        """A request that reached a model ended as `row` says."""
        meter = self.of(row.model)
        meter.requests[_outcome(row)] += 1
        if row.asked:
            fallbacks = self.of(row.asked).fallbacks
            fallbacks[row.model] = fallbacks.get(row.model, 0) + 1
        meter.input_tokens += row.input_tokens
        meter.cached_tokens += row.cached_tokens
        meter.output_tokens += row.output_tokens
        if row.attempts > 1:
            meter.retries += row.attempts - 1
        if row.first_token_ms is not None:
            observe(meter.first_token, FIRST_TOKEN_S, row.first_token_ms / 1000)
        if row.attempts:  # one for which there was no engine ends at once and says nothing of any
            observe(meter.duration, DURATION_S, row.duration_ms / 1000)

    def refused(self, model: str, status: int, hit: tuple[str, str] | None) -> None:
        """A request for `model` (NO_MODEL where it named none we know) was answered `status` before it was relayed.

        `hit` is the scope's kind and the limit that refused it, if one did.
        """
        meter = self.of(model)
        if hit is not None:
            meter.requests["refused"] += 1
            name = "/".join(hit)
            meter.limits_hit[name] = meter.limits_hit.get(name, 0) + 1
        else:
            meter.requests["unavailable" if status >= 500 else "client_error"] += 1

    def turned_away(self, model: str, band: str, reason: str) -> None:
        """A request of that band was not let in to `model` (NO_MODEL before it named one)."""
        meter = self.of(model)
        name = f"{band}/{reason}"
        meter.turned_away[name] = meter.turned_away.get(name, 0) + 1

    def not_let_in(self, model: str) -> None:
        """A request ended because it was turned away, and leaves no usage row."""
        self.of(model).requests["refused"] += 1

    def waited(self, model: str, seconds: float) -> None:
        """A request was let in after so long."""
        meter = self.of(model)
        if meter.waited is None:
            meter.waited = new_cells(DURATION_S)
        observe(meter.waited, DURATION_S, seconds)

    def left(self, model: str) -> None:
        """The client of a request for `model` left before it was checked."""
        self.of(model).requests["client_left"] += 1

    def begin_anew(self) -> None:
        """Whoever hears the next report knows nothing yet: it names every model."""
        for meter in self._models.values():
            meter.reported = None

    def report(self, *, usage_dropped: int, usage_waiting: int) -> MeterReport:
        """What to tell the control plane: models that changed since the last call."""
        changed: dict[str, ModelMeters] = {}
        for name, meter in self._models.items():
            marks = meter.marks
            if marks != meter.reported:
                meter.reported = marks
                changed[name] = meter.snapshot()
        return MeterReport(
            id=self.id,
            models=changed,
            key_lookups=dict(self.key_lookups),
            usage_dropped=usage_dropped,
            usage_waiting=usage_waiting,
            log_lines_dropped=self.log_lines_dropped,
            spans_dropped=self.spans_dropped,
            queues=self.queues(),
        )


def _outcome(row: UsageRow) -> str:
    if row.status == CLIENT_LEFT:
        return "unavailable" if row.failed else "client_left"
    if row.failed or row.status >= 500:
        return "engine_error" if row.attempts else "unavailable"
    if row.status == TOO_MANY and row.attempts:
        # Not the client's doing: the engine, or the provider behind it, takes no more.
        return "engine_error"
    return "client_error" if row.status >= 400 else "ok"
