"""What this machine's routers measured, all together: a sum that never goes back, whoever comes and goes.

A router's counts are kept under its report's id, so one that reconnects, here or to the next server, is counted once,
and one that was killed keeps its share. A server that starts knows what living routers tell it: their whole lives.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from llmgw.control.pace import Pace
from llmgw.core.meters import (
    MAX_MODELS,
    NO_MODEL,
    MeterReport,
    ModelMeters,
    Queue,
    added,
    added_counts,
    added_queues,
    comparable,
)

KEPT_GONE = 16
"""Routers that left and might come back are kept apart, this many; older ones are only part of the sum."""


@dataclass(slots=True)
class Totals:
    """All routers' counts."""

    models: dict[str, ModelMeters] = field(default_factory=dict)
    key_lookups: dict[str, int] = field(default_factory=dict)
    usage_dropped: int = 0
    log_lines_dropped: int = 0
    spans_dropped: int = 0
    usage_waiting: int | None = None
    """Rows waiting now, of routers that are connected; none when no router is."""
    queues: dict[str, Queue] = field(default_factory=dict)
    """Requests waiting now by model, of routers that are connected."""

    def add(self, other: "Totals") -> None:
        """Take in another's counts; what waits there is not counted."""
        for name, meters in other.models.items():
            place = name if name in self.models or len(self.models) < MAX_MODELS else NO_MODEL
            self.models[place] = added(self.models.get(place, _NOTHING), meters)
        self.key_lookups = added_counts(self.key_lookups, other.key_lookups)
        self.usage_dropped += other.usage_dropped
        self.log_lines_dropped += other.log_lines_dropped
        self.spans_dropped += other.spans_dropped


@dataclass(slots=True)
class _Router:
    counts: Totals = field(default_factory=Totals)
    heard: bool = False
    connections: int = 0
    waiting: int = 0
    queues: dict[str, Queue] = field(default_factory=dict)


class Account:
    """What comes over one connection; `close` it when that ends."""

    def __init__(self, metrics: "RouterMetrics") -> None:
        self._metrics = metrics
        self._id = ""

    def hear(self, report: MeterReport | None) -> None:
        """Take in a report; none, or one without an id, is a router that measures nothing."""
        if report is None or not report.id:
            return
        if report.id != self._id:
            self.close()
            self._id = report.id
            self._metrics.join(report.id)
        self._metrics.hear(report)

    def close(self) -> None:
        """The connection ended; the router may be dead or come back."""
        if self._id:
            self._metrics.leave(self._id)
            self._id = ""


class RouterMetrics:
    """Adds up what routers report. Synchronous; belongs to the trio thread."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.pace = Pace(clock)
        """How tokens came lately."""
        self._routers: dict[str, _Router] = {}
        self._gone = Totals()

    def join(self, report_id: str) -> None:
        """A connection reports under this id."""
        self._routers.setdefault(report_id, _Router()).connections += 1

    def hear(self, report: MeterReport) -> None:
        """A router that joined reports."""
        router = self._routers[report.id]
        counts = router.counts
        for name, meters in report.models.items():
            if name not in counts.models and len(counts.models) > MAX_MODELS:
                continue
            meters = comparable(meters)
            if router.heard:  # what it counted before we knew it need not be of this minute
                self.pace.add(name, counts.models.get(name, _NOTHING).inter_token, meters.inter_token)
            counts.models[name] = meters
        counts.key_lookups = report.key_lookups
        counts.usage_dropped = report.usage_dropped
        counts.log_lines_dropped = report.log_lines_dropped
        counts.spans_dropped = report.spans_dropped
        router.waiting, router.heard, router.queues = report.usage_waiting, True, report.queues

    def leave(self, report_id: str) -> None:
        """A connection that reported under this id ended."""
        router = self._routers[report_id]
        router.connections -= 1
        # The newest of those that left are last.
        self._routers[report_id] = self._routers.pop(report_id)
        away = [name for name, other in self._routers.items() if not other.connections]
        for name in away[: max(0, len(away) - KEPT_GONE)]:
            self._gone.add(self._routers.pop(name).counts)

    def queues(self) -> dict[str, Queue]:
        """Who waits for which model, as routers that are connected said last."""
        found: dict[str, Queue] = {}
        for router in self._routers.values():
            if router.connections and router.queues:
                found = added_queues(found, router.queues)
        return found

    def totals(self) -> Totals:
        """The sum as of the last reports."""
        total = Totals()
        total.add(self._gone)
        for router in self._routers.values():
            total.add(router.counts)
            if router.connections:
                total.usage_waiting = (total.usage_waiting or 0) + router.waiting
        total.queues = self.queues()
        return total


_NOTHING = ModelMeters()
