"""What keys, teams and tenants with limits were answered in the last minute, from the feed's sums; no call of its own.

The sums come every few seconds and hold only what was answered: what was refused is in none of them.
"""

from collections import deque
from dataclasses import dataclass

from console.state.cluster import ClusterState
from console.state.diff import Diff
from llmgw.api.watch import KeyRow, ScopeRow

MINUTE_S = 60.0
MAX_ROWS = 20_000
"""Rows with limits that are followed."""
SAMPLE_S = 2.0
"""Sums that come sooner after the last ones stand in their place: 32 samples are a minute."""
REACHED = 0.95
"""Share of a limit that counts as all of it: sums lag by some seconds."""


@dataclass(frozen=True, kw_only=True)
class Pace:
    """What was answered in the last minute."""

    requests: int = 0
    tokens: int = 0


Sample = tuple[float, int, int]
"""When, requests, tokens."""
NOTHING = Pace()


class Rates:
    """Sums of the last minute, of rows that have a limit by the minute."""

    def __init__(self) -> None:
        self._samples: dict[tuple[str, str], deque[Sample]] = {}

    def record(self, state: ClusterState, diff: Diff, now: float) -> None:
        """Take in the rows that changed."""
        for topic in ("keys", "scopes"):
            rows = state.rows(topic)
            for key in diff.keys(topic):
                row = rows.get(key)
                if isinstance(row, KeyRow | ScopeRow) and (row.limits.rpm or row.limits.tpm):
                    self._add((topic, key), (now, row.requests, row.input_tokens + row.output_tokens))
                else:
                    self._samples.pop((topic, key), None)

    def _add(self, of: tuple[str, str], sample: Sample) -> None:
        samples = self._samples.get(of)
        if samples is None:
            if len(self._samples) < MAX_ROWS:
                self._samples[of] = deque((sample,))
            return
        at, requests, _ = samples[-1]
        if sample[1] < requests:
            # Sums that shrink are of another key, or of a store that was put back.
            samples.clear()
        elif len(samples) > 1 and sample[0] - at < SAMPLE_S:
            samples[-1] = (at, *sample[1:])
            return
        samples.append(sample)
        # The newest of those that are older than a minute stays: its sums are those at the minute's beginning.
        while len(samples) > 1 and samples[1][0] <= sample[0] - MINUTE_S:
            samples.popleft()

    def pace(self, topic: str, key: str, now: float) -> Pace:
        """The minute before `now`; what came before the console did is not in it."""
        samples = self._samples.get((topic, key))
        if not samples:
            return NOTHING
        before = [sample for sample in samples if sample[0] <= now - MINUTE_S]
        _, requests, tokens = before[-1] if before else samples[0]
        return Pace(requests=samples[-1][1] - requests, tokens=samples[-1][2] - tokens)
