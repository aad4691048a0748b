"""What engines last said of their own work, by replica. Memory only; what is LOAD_HOLDS_S old is not here any more.

Here is where old figures are dropped: everybody who decides or shows by a load reads it from here, or was sent it by
`LoadPublisher`, which says too what is gone. A replica's load counts while its node is heard, its engine answers and
the replica is ready or draining; whichever ends first ends it.
"""

from collections.abc import Callable, Mapping

import msgspec

from llmgw.core.cluster import Replica, ShardState
from llmgw.core.figures import LOAD_HOLDS_S, NOTHING_SAID, EngineLoad, ToldLoad

_AT_WORK = frozenset({ShardState.READY, ShardState.DRAINING})


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine said, and when by the leader's monotonic clock."""

    load: EngineLoad
    at: float
    failures: int


class LoadBook:
    """The newest word of every engine. Written by the session loop alone, through the inventory."""

    def __init__(self, clock: Callable[[], float], replica: Callable[[str], Replica | None]) -> None:
        """`replica` finds the replica of an id."""
        self._clock = clock
        self._replica = replica
        self._nodes: dict[str, dict[str, Said]] = {}

    def heard(self, node: str, told: Mapping[str, ToldLoad]) -> None:
        """All a node says of its engines; what it does not name is forgotten, what is not its own never counts."""
        now = self._clock()
        self._nodes[node] = {
            replica_id: Said(load=one.load, at=now - one.age_s, failures=one.failures)
            for replica_id, one in told.items()
        }

    def forget(self, node: str) -> None:
        """The node is gone."""
        self._nodes.pop(node, None)

    def clear(self) -> None:
        """Nothing is known any more."""
        self._nodes.clear()

    def of(self, replica_id: str) -> EngineLoad:
        """What the replica's engine says, as far as that counts now."""
        said = self._said(replica_id)
        return NOTHING_SAID if said is None or not self._counts(said) else said.load

    def failures(self, replica_id: str) -> int | None:
        """Times the engine was asked in vain; none when its node does not say."""
        said = self._said(replica_id)
        return None if said is None else said.failures

    def all(self) -> dict[str, Said]:
        """All that counts now, by replica."""
        return {
            replica_id: said
            for node, loads in self._nodes.items()
            for replica_id, said in loads.items()
            if self._counts(said) and self._at_work(node, replica_id)
        }

    def loads(self) -> dict[str, EngineLoad]:
        """What counts now, by replica, without its moments."""
        return {replica_id: said.load for replica_id, said in self.all().items()}

    def _said(self, replica_id: str) -> Said | None:
        replica = self._replica(replica_id)
        if replica is None or replica.state not in _AT_WORK:
            return None
        return self._nodes.get(replica.node, {}).get(replica_id)

    def _counts(self, said: Said) -> bool:
        return not said.load.silent and self._clock() - said.at < LOAD_HOLDS_S

    def _at_work(self, node: str, replica_id: str) -> bool:
        replica = self._replica(replica_id)
        return replica is not None and replica.node == node and replica.state in _AT_WORK
