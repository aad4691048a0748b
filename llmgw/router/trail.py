"""What one request met on its way, noted while it happens: a line a replica that was asked, and what it waited for."""

import time
from dataclasses import dataclass, field

from llmgw.core.requests import Tried
from llmgw.core.routing import RoutedReplica
from llmgw.router.traces import Trace, new_span_id
from llmgw.router.verdicts import Verdict

ABANDONED = "it was not waited for to the end"
"""What became of a try whose client left, or whose request ran out of time."""


@dataclass(slots=True)
class Try:
    """One replica that is or was asked. Times are monotonic seconds."""

    replica: RoutedReplica
    chosen_by: str
    at: float
    span: str = ""
    """Its span's id, where the request is traced."""
    ended_at: float = 0.0
    failed: str = ABANDONED

    def ended(self, found: Verdict) -> None:
        """Note what became of it."""
        self.ended_at = time.monotonic()
        if found.failure is not None:
            self.failed = found.failure.words
        elif found.refusal is not None:
            self.failed = f"it answered {found.refusal.code or found.refusal.status}"
        else:
            self.failed = "" if found.well else ABANDONED

    def told(self, began_at: float, model: str) -> Tried:
        """As it stands in the log of a request that `model` answered, or was to."""
        return Tried(
            replica=self.replica.id,
            model="" if self.replica.model == model else self.replica.model,
            node=self.replica.node,
            chosen_by=self.chosen_by,
            failed=self.failed,
            at_ms=round((self.at - began_at) * 1000, 3),
            duration_ms=round(max(0.0, self.ended_at - self.at) * 1000, 3),
        )


@dataclass(slots=True)
class Trail:
    """The tries of one request, in their order."""

    trace: Trace | None = None
    tries: list[Try] = field(default_factory=list)
    waited_for: str = ""
    """What kept it from being let in at once, a few words."""

    def begin(self, replica: RoutedReplica, chosen_by: str) -> Try:
        """A replica is asked now."""
        span = new_span_id() if self.trace is not None and self.trace.exported else ""
        found = Try(replica, chosen_by, time.monotonic(), span)
        self.tries.append(found)
        return found

    def close(self) -> None:
        """The request ended: so did a try that nobody waited for any more."""
        if self.tries and not self.tries[-1].ended_at:
            self.tries[-1].ended_at = time.monotonic()

    def engine_lines(self) -> bytes:
        """Header lines for the engine that is asked now: whose trace it works for. Outsiders are told of none."""
        trace = self.trace
        if trace is None or not self.tries:
            return b""
        now = self.tries[-1]
        return b"" if now.replica.external is not None else trace.lines(now.span or trace.span)
