"""Replicas as their nodes tell of them and as they were ordered. A node speaks for its own replicas only.

A replica on several nodes is told of in parts, of which `core.shards` makes one state; its time moves with that state.
"""

from collections.abc import Callable, Iterable, Sequence

import msgspec

from llmgw.control.touched import Touched
from llmgw.core import shards
from llmgw.core.cluster import FetchProgress, Replica, ShardState


class ReplicaBook:
    """All replicas of this term, and how often a model's failed in a row. Times are the leader's monotonic seconds."""

    def __init__(self, clock: Callable[[], float], touched: Touched, spoke: Callable[[str], bool]) -> None:
        """`touched` notes what changed; `spoke` says whether a node is connected and spoke since this process leads."""
        self._clock = clock
        self._touched = touched
        self._spoke = spoke
        self._replicas: dict[str, Replica] = {}
        self._failures: dict[str, int] = {}

    def clear(self) -> None:
        """A new term: nodes tell again."""
        self._replicas = {}
        self._failures = {}

    # -- what nodes say

    def told(self, node: str, replicas: Sequence[Replica]) -> None:
        """Everything the node runs. What it does not name, it does not run."""
        before = {replica.id: replica for replica in self.on(node)}
        self.left(node, [before[gone] for gone in before.keys() - {replica.id for replica in replicas}])
        for replica in replicas:
            if replica.id in before or replica.id not in self._replicas:
                self._merge(replica, before.get(replica.id))

    def left(self, node: str, replicas: Iterable[Replica]) -> None:
        """The node does not run these: gone with it, or failed where other nodes have a part in them."""
        for replica in replicas:
            if replica.shards:
                self._became(shards.missed(replica, node), replica)
            else:
                del self._replicas[replica.id]
                self._touched.replica(replica.id)

    def changed(self, node: str, replica: Replica) -> bool:
        """A status of a shard the agent has; false for one of another node's, which is not believed.

        One nobody heard of is taken in when it says what it is.
        """
        known = self._replicas.get(replica.id)
        if known is not None and node not in known.nodes:
            return False
        if known is not None and known.shards:
            self._merge(msgspec.structs.replace(replica, node=node), known)
        elif replica.state is ShardState.STOPPED:
            self.forget(replica.id)
        elif known is not None or replica.model:
            self._merge(msgspec.structs.replace(replica, node=node), known)
        return True

    def progressed(self, node: str, replica_ids: Sequence[str], progress: FetchProgress) -> None:
        """A download moved; not a transition. Replicas that are gone are ignored."""
        moved = msgspec.structs.replace(progress, at=self._clock())
        for replica_id in replica_ids:
            known = self._replicas.get(replica_id)
            if known is not None and node in known.nodes:
                self._replicas[replica_id] = (
                    shards.progressed(known, node, moved)
                    if known.shards
                    else msgspec.structs.replace(known, progress=moved)
                )
                self._touched.replica(replica_id)

    # -- what is ordered

    def ordered(self, replica: Replica) -> None:
        """A start was sent."""
        now = self._clock()
        self._replicas[replica.id] = msgspec.structs.replace(replica, since=now, started_at=now)
        self._touched.replica(replica.id)

    def draining(self, replica_id: str, reason: str) -> None:
        """A drain was sent; the replica leaves routing now, whatever the agent answers."""
        known = self._replicas.get(replica_id)
        if known is not None:
            self._replicas[replica_id] = msgspec.structs.replace(
                known, state=ShardState.DRAINING, since=self._clock(), message=reason
            )
            self._touched.replica(replica_id)

    def unwanted(self, replica_id: str) -> bool:
        """It no longer counts as what is wanted, and its model's failures are forgiven; whether it is there."""
        known = self._replicas.get(replica_id)
        if known is None:
            return False
        self._replicas[replica_id] = msgspec.structs.replace(known, spec_hash="restart")
        self.forgive(known.model)
        return True

    def forget(self, replica_id: str) -> None:
        """It is gone, or was cleared."""
        self._replicas.pop(replica_id, None)
        self._touched.replica(replica_id)

    def forgive(self, model: str) -> None:
        """The next replica of the model starts without a pause."""
        self._failures.pop(model, None)

    # -- what is known

    def all(self) -> tuple[Replica, ...]:
        """Every replica, by id."""
        return tuple(replica for _, replica in sorted(self._replicas.items()))

    def get(self, replica_id: str) -> Replica | None:
        """One replica."""
        return self._replicas.get(replica_id)

    def on(self, node: str) -> list[Replica]:
        """Those that the node runs, or runs a part of."""
        return [replica for replica in self._replicas.values() if node in replica.nodes]

    def failures(self, model: str) -> int:
        """Replicas of the model that failed in a row."""
        return self._failures.get(model, 0)

    # -- taking in

    def _merge(self, told: Replica, known: Replica | None) -> None:
        """Take in what was told; `since` moves only with the state, and a transition clears the download."""
        if known is not None and known.shards:
            self._became(shards.heard(known, told.node, told), known)
            return
        now = self._clock()
        self._touched.replica(told.id)
        if known is None:
            whole = self._assembled(told) if told.shards else told
            self._replicas[told.id] = msgspec.structs.replace(whole, since=now, started_at=now)
            return
        state = told.state
        if known.state is ShardState.DRAINING and told.live:
            # What was ordered to go does not come back, whatever was on its way or the agent forgot.
            state = ShardState.DRAINING
        moved = state is not known.state
        if moved:
            self._count(msgspec.structs.replace(known, state=state))
        self._replicas[told.id] = msgspec.structs.replace(
            known,
            state=state,
            endpoint=told.endpoint or known.endpoint,
            pid=told.pid,
            message=told.message,
            adopted=told.adopted,
            restarts=told.restarts,
            compute=told.compute,
            since=now if moved else known.since,
            progress=None if moved else known.progress,
        )

    def _became(self, replica: Replica, known: Replica) -> None:
        """A replica on several nodes changed on one of them; it is gone when it is gone from all."""
        if shards.ended(replica) and replica.state is not ShardState.FAILED:
            self.forget(replica.id)
            return
        self._touched.replica(replica.id)
        moved = replica.state is not known.state
        if moved:
            self._count(replica)
        self._replicas[replica.id] = msgspec.structs.replace(replica, since=self._clock() if moved else known.since)

    def _assembled(self, told: Replica) -> Replica:
        """A replica first heard of by one of its nodes; others that spoke before and did not name it run none of it."""
        replica = shards.assemble(told, told.node)
        for node in replica.nodes:
            if node != told.node and self._spoke(node):
                replica = shards.missed(replica, node)
        return replica

    def _count(self, replica: Replica) -> None:
        """Failures in a row, told of a replica whose state is new."""
        if replica.state is ShardState.FAILED:
            self._failures[replica.model] = self._failures.get(replica.model, 0) + 1
        elif replica.state is ShardState.READY:
            self._failures.pop(replica.model, None)
