"""Which replica a request goes to: the least loaded one, a replica that just failed only when there is no other."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from llmgw.core.routing import RoutedReplica
from llmgw.router.limits import PENALTY_FIRST_S, PENALTY_LAST_S

MAX_PENALTIES = 1024
"""Failed replicas remembered at once."""


@dataclass(slots=True)
class _Penalty:
    until: float
    failures: int


class Chooser:
    """Remembers which replicas failed lately; everything else is an argument."""

    def __init__(self) -> None:
        self._penalties: dict[str, _Penalty] = {}
        self._turn = 0

    def choose(
        self, replicas: Sequence[RoutedReplica], in_flight: Mapping[str, int], *, tried: Collection[str], now: float
    ) -> RoutedReplica | None:
        """The replica to try next; none when there is none at all. `tried` are passed over if others exist.

        Among the equally loaded they take turns. A replica whose penalty ran out gets one request to prove itself:
        choosing it renews the penalty, which `succeeded` ends.
        """
        if len(replicas) == 1:
            return replicas[0]
        best: RoutedReplica | None = None
        best_rank = (3, 0.0)
        count = len(replicas)
        self._turn += 1
        for i in range(count):
            replica = replicas[(self._turn + i) % count]
            penalty = self._penalties.get(replica.id)
            blocked = penalty is not None and penalty.until > now
            rank = (
                2 if replica.id in tried else 1 if blocked else 0,
                in_flight.get(replica.id, 0) / (replica.weight if replica.weight > 0 else 1e-6),
            )
            if rank < best_rank:
                best, best_rank = replica, rank
        if best is not None and (penalty := self._penalties.get(best.id)) is not None and penalty.until <= now:
            penalty.until = now + PENALTY_LAST_S
        return best

    def failed(self, replica_id: str, now: float) -> None:
        """The replica did not connect, or gave no first byte."""
        penalty = self._penalties.get(replica_id)
        if penalty is None:
            if len(self._penalties) >= MAX_PENALTIES:  # replicas that are gone are forgotten, the oldest first
                del self._penalties[next(iter(self._penalties))]
            self._penalties[replica_id] = _Penalty(now + PENALTY_FIRST_S, 1)
            return
        penalty.failures = min(penalty.failures + 1, 10)
        penalty.until = now + min(PENALTY_FIRST_S * 2 ** (penalty.failures - 1), PENALTY_LAST_S)

    def succeeded(self, replica_id: str) -> None:
        """The replica answered."""
        if self._penalties:
            self._penalties.pop(replica_id, None)
