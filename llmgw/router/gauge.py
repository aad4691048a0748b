"""How loaded models are, measured when somebody asks: what engines said, and what this router did there since.

What it had open at an engine when the engine last spoke is the most it had open since the time before: figures are a
little old when they come, and requests that ended on their way must not be taken for those of other routers.
"""

import time
from collections.abc import Sequence
from typing import NamedTuple

from llmgw.core.admission import Admission
from llmgw.core.routing import ReplicaLoad, RoutedReplica
from llmgw.router.ports import RouterState
from llmgw.router.saturation import NOTHING_KNOWN, STALE_S, Work, load_of, work_of

MOST_KEPT = 0.5
"""Share of a model's places that is kept for higher bands at most."""


class Measured(NamedTuple):
    """A model's replicas, those with open breakers left out."""

    load: float
    """Their mean load, 0 to 1."""
    works: Sequence[Work]
    """What the cluster's own engines have to do; one more stands for all endpoints outside."""
    counted: int


class Gauge:
    """Measures models. Synchronous."""

    def __init__(self, state: RouterState) -> None:
        self._state = state
        self.peaks: dict[str, int] = {}
        """By replica, the most requests this router had open there since it last spoke."""
        self._then: dict[str, tuple[ReplicaLoad, int]] = {}
        """By replica, its figures and how many requests this router had open there when they came."""

    def measure(self, replicas: Sequence[RoutedReplica], rules: Admission, about_to: int) -> Measured:
        """The load of a model's replicas, with the `about_to` requests that were let in and have not begun."""
        broken = self._state.breakers
        counted = [replica for replica in replicas if replica.id not in broken] if broken else replicas
        own = [replica for replica in counted if replica.external is None]
        if not own:
            return Measured(0.0, (), len(counted))
        share, wall = about_to / len(own), time.time()
        works: list[Work] = []
        total = 0.0
        for replica in own:
            work, kv_used = self._work(replica, share, wall)
            works.append(work)
            total += load_of(work, kv_used, rules)
        if len(own) < len(counted):
            works.append(NOTHING_KNOWN)  # nobody knows how much an endpoint outside takes
        return Measured(total / len(counted), works, len(counted))

    def heard(self) -> None:
        """Engines said how they are."""
        for replica_id, load in self._state.loads.items():
            self._opened_then(replica_id, load)

    def keep(self, replica_ids: set[str]) -> None:
        """Forget replicas that are gone."""
        for known in (self._then, self.peaks):
            for replica_id in known.keys() - replica_ids:
                del known[replica_id]

    def _work(self, replica: RoutedReplica, about_to: float, wall: float) -> tuple[Work, float | None]:
        in_flight = self._state.in_flight.get(replica.id, 0)
        load = self._state.loads.get(replica.id)
        if load is None:
            return NOTHING_KNOWN, None
        fresh = wall - load.at <= STALE_S
        work = work_of(load, in_flight + about_to, self._opened_then(replica.id, load), fresh=fresh)
        return work, load.kv_used if fresh else None

    def _opened_then(self, replica_id: str, load: ReplicaLoad) -> int:
        """How many requests this router had open there, at most, when the engine said `load`."""
        known = self._then.get(replica_id)
        if known is None or (known[0] is not load and known[0] != load):  # the same may be told again
            in_flight = self._state.in_flight.get(replica_id, 0)
            known = self._then[replica_id] = (load, max(in_flight, self.peaks.pop(replica_id, 0)))
            if in_flight:
                self.peaks[replica_id] = in_flight
        return known[1]


def leaves_room(works: Sequence[Work], kept: int) -> bool:
    """Whether engines have more places free than are kept; those of which nothing is known may have any number."""
    free = 0.0
    for work in works:
        if work.free is None:
            return True
        free += work.free
    return free > min(kept, int(sum(work.slots for work in works) * MOST_KEPT))
