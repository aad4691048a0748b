"""Which replica a request goes to: the least loaded of those nothing speaks against, others only when there is none."""

from collections.abc import Collection, Mapping, Sequence

from llmgw.core.routing import RoutedReplica
from llmgw.router.breaker import Caution
from llmgw.router.health import HealthBook

_LAST_RESORT = 10
"""Added to the rank of what was tried already."""


class Chooser:
    """Chooses by load and health; whose turn it is among equals is all it remembers."""

    def __init__(self, health: HealthBook) -> None:
        self._health = health
        self._turn = 0

    def choose(
        self,
        replicas: Sequence[RoutedReplica],
        in_flight: Mapping[str, int],
        *,
        tried: Collection[str],
        now: float,
        again: bool = True,
    ) -> RoutedReplica | None:
        """The replica to try next; none when there is none, or none but those that keep their clients waiting.

        `tried` are passed over if others exist, and in any case unless `again`. Among the equally loaded they take
        turns. One whose pause is over goes first, so that it is back as soon as it can be; but only in a request's
        first attempt, for a request must not spend all its attempts on finding out who is still broken.
        """
        suspects = self._health.suspects
        if not suspects and not tried and len(replicas) == 1:
            return replicas[0]
        best: RoutedReplica | None = None
        best_rank = (3 * _LAST_RESORT, 0.0)
        count = len(replicas)
        self._turn += 1
        for i in range(count):
            replica = replicas[(self._turn + i) % count]
            if replica.id in tried and not again:
                continue
            level = self._level(replica.id, tried, now) if replica.id in suspects else 0
            if level is None:
                continue
            if replica.id in tried:
                level += _LAST_RESORT
            rank = (level, in_flight.get(replica.id, 0) / (replica.weight if replica.weight > 0 else 1e-6))
            if rank < best_rank:
                best, best_rank = replica, rank
        return best

    def _level(self, replica_id: str, tried: Collection[str], now: float) -> int | None:
        caution = self._health.caution(replica_id, now)
        if caution is Caution.HUNG:
            return None
        if caution is Caution.PROBE and tried:
            return Caution.BROKEN
        return caution

    def has_other(self, replicas: Sequence[RoutedReplica], replica: RoutedReplica, tried: Collection[str]) -> bool:
        """Whether a request may go to another replica that nothing speaks against, should `replica` fail it."""
        suspects = self._health.suspects
        return any(r is not replica and r.id not in tried and r.id not in suspects for r in replicas)
