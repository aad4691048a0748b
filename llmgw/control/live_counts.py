"""What rows of the live feed say of costs, requests, loads and breakers, and of which rows that is true no more. Pure.

Nobody tells of these figures: they are compared, time after time, with what was said last.
"""

import heapq
from collections.abc import Callable, Mapping
from typing import TypeVar

from llmgw.control.breakers import Breaker
from llmgw.core.figures import NOTHING_SAID, EngineLoad

IN_FLIGHT_ROWS = 100
"""Replicas whose open requests, or whose loads, are told anew at one time, those that changed most first."""

T = TypeVar("T", int, str, EngineLoad)
Known = Callable[[str], bool]
"""Whether there is a row of that name."""


class ShownCounts:
    """The figures as the rows have them once what the methods answer was made anew."""

    def __init__(self) -> None:
        self._costs: Mapping[str, int] = {}
        self._open: dict[str, int] = {}
        self._broken: Mapping[str, str] = {}
        self._loads: dict[str, EngineLoad] = {}

    def cost_micros(self, model: str) -> int:
        """What the model cost today."""
        return self._costs.get(model, 0)

    def open_requests(self, replica_id: str) -> int:
        """Open requests of a replica."""
        return self._open.get(replica_id, 0)

    def breaker(self, replica_id: str) -> str:
        """State of a replica's breakers; empty when all are closed."""
        return self._broken.get(replica_id, "")

    def load(self, replica_id: str) -> EngineLoad:
        """What a replica's engine says of its work."""
        return self._loads.get(replica_id, NOTHING_SAID)

    def forget(self, replica_id: str) -> None:
        """The replica is gone."""
        self._open.pop(replica_id, None)
        self._loads.pop(replica_id, None)

    def costs_moved(self, costs: Mapping[str, int], known: Known) -> set[str]:
        """Models that cost another sum by now; `costs` is another object whenever anything in it changed."""
        before, self._costs = self._costs, costs
        return set() if before is costs else _moved(before, costs, 0, known)

    def requests_moved(self, counts: Mapping[str, int], known: Known) -> set[str]:
        """Replicas whose open requests are told anew."""
        changed = {
            replica_id: abs(counts.get(replica_id, 0) - self.open_requests(replica_id))
            for replica_id in _moved(self._open, counts, 0, known)
        }
        told = heapq.nlargest(IN_FLIGHT_ROWS, changed, key=changed.__getitem__)
        self._open |= {replica_id: counts.get(replica_id, 0) for replica_id in told}
        return set(told)

    def loads_moved(self, loads: Mapping[str, EngineLoad], known: Known) -> set[str]:
        """Replicas whose loads are told anew."""
        changed = {
            replica_id: _distance(self.load(replica_id), loads.get(replica_id, NOTHING_SAID))
            for replica_id in _moved(self._loads, loads, NOTHING_SAID, known)
        }
        told = heapq.nlargest(IN_FLIGHT_ROWS, changed, key=changed.__getitem__)
        self._loads |= {replica_id: loads.get(replica_id, NOTHING_SAID) for replica_id in told}
        return set(told)

    def breakers_moved(self, breakers: Mapping[str, Breaker], known: Known) -> set[str]:
        """Replicas whose breakers have another state."""
        before, self._broken = self._broken, {replica_id: found.state for replica_id, found in breakers.items()}
        return _moved(before, self._broken, "", known)


def _moved(before: Mapping[str, T], after: Mapping[str, T], nothing: T, known: Known) -> set[str]:
    """Names with another figure than before; who has none has `nothing`."""
    names = before.keys() | after.keys()
    return {name for name in names if before.get(name, nothing) != after.get(name, nothing) and known(name)}


def _distance(before: EngineLoad, after: EngineLoad) -> float:
    """How much another load matters: in requests, a tenth of the KV cache counting as one."""
    requests = abs((before.running or 0) - (after.running or 0)) + abs((before.waiting or 0) - (after.waiting or 0))
    return requests + 10 * abs((before.kv_used or 0.0) - (after.kv_used or 0.0))
