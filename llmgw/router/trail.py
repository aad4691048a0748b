"""What one request met on its way, noted while it happens: a line a replica that was asked, and what it waited for.

Times are monotonic seconds.
"""

import time

from llmgw.core.requests import Tried
from llmgw.core.routing import RoutedReplica
from llmgw.router.traces import Trace, new_span_id
from llmgw.router.verdicts import Verdict

ABANDONED = "it was not waited for to the end"
"""What became of a try whose client left, or whose request ran out of time."""


class Try:
    """One replica that is or was asked."""

    __slots__ = ("at", "chosen_by", "ended_at", "failed", "replica", "span")

    def __init__(self, replica: RoutedReplica, chosen_by: str, at: float, span: str = "") -> None:
        self.replica = replica
        self.chosen_by = chosen_by
        self.at = at
        self.span = span
        """Its span's id, where the request is traced."""
        self.ended_at = 0.0
        self.failed = ABANDONED

    def ended(self, found: Verdict, now: float) -> None:
        """Note what became of it."""
        self.ended_at = now
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


class Trail:
    """The tries of one request, in their order."""

    __slots__ = ("trace", "tries", "waited_for")

    def __init__(self) -> None:
        self.trace: Trace | None = None
        self.tries: list[Try] = []
        self.waited_for = ""
        """What kept it from being let in at once, a few words."""

    def begin(self, replica: RoutedReplica, chosen_by: str, now: float) -> Try:
        """A replica is asked."""
        span = new_span_id() if self.trace is not None and self.trace.exported else ""
        found = Try(replica, chosen_by, now, span)
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
