"""The leader's loop: snapshot → plan → orders → routing. Woken by the store and the agents, resynced by time.

Deciding is `core.reconcile`'s; here a plan is only carried out, each step checked against the present once more.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import trio

from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.routing import RoutingBuilder
from llmgw.control.wake import Wake
from llmgw.core.admission import Admission
from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import Replica, Shard, ShardState
from llmgw.core.reconcile import DRAIN_DEADLINE_S, Plan, Start, Unplaced, reconcile
from llmgw.core.requests import Seen
from llmgw.core.routing import Routing, Scoring, Timeouts
from llmgw.core.shards import seat_of, to_stop
from llmgw.core.snapshot import CatalogEntry, Snapshot, WeightsState

RESYNC_S = 2.0
"""The loop looks at least this often: deadlines pass without anyone saying so."""
REST_FACTOR = 4.0
"""After a look the loop rests this many times as long as it took, RESYNC_S at most: in a large cluster that changes
all the time, agents' messages and readers get four fifths of the thread."""
STOP_GRACE_S = 10.0
"""An engine has this long between SIGTERM and SIGKILL."""
STOP_REPEAT_S = STOP_GRACE_S + 5.0
"""A stop that had no effect by then is ordered again."""

log = logging.getLogger(__name__)


class Orders(Protocol):
    """What agents can be told. Each answers whether the order went out; orders are idempotent by replica id."""

    def start(self, replica: Replica, entry: CatalogEntry, profile: Profile) -> bool:
        """Run this replica."""

    def drain(self, replica: Replica, reason: str, deadline_s: float) -> bool:
        """Take no new requests, end by the deadline."""

    def stop(self, replica: Replica, reason: str, grace_s: float, *, rank: int = 0) -> bool:
        """End it, or one of its shards, now."""

    def rally(self, replica: Replica, rank: int) -> bool:
        """Let a shard that waits for the replica's others go on."""


class Weights(Protocol):
    """What the mirror knows of sources."""

    def ensure(self, source: str) -> None:
        """Have the source fetched, if it is not there or on its way."""

    def state(self, source: str) -> WeightsState:
        """Where it stands."""

    def facts(self, source: str) -> ModelFacts | None:
        """What the weights say of themselves, once they are there."""


class Traffic(Protocol):
    """The routers, as the reconciler sees them."""

    def publish(self, routing: Routing) -> None:
        """Tell every router."""

    def in_flight(self) -> Mapping[str, int]:
        """Open requests by replica id, over all routers."""


class Reconciler:
    """Keeps the cluster as the catalog wants it. One writer: this loop orders, nobody else does."""

    def __init__(
        self,
        *,
        catalog: Catalog,
        inventory: Inventory,
        weights: Weights,
        orders: Orders,
        traffic: Traffic,
        timeouts: Callable[[], Timeouts],
        scoring: Callable[[], Scoring] = Scoring,
        seen: Callable[[], Seen] = Seen,
        admission: Callable[[], Admission] = Admission,
        leading: Callable[[], bool],
        wake: Wake,
        owner: str,
        new_id: Callable[[str, str], str],
    ) -> None:
        """`new_id(model, seat)` names a replica that is about to be ordered."""
        self._catalog = catalog
        self._inventory = inventory
        self._weights = weights
        self._orders = orders
        self._traffic = traffic
        self._timeouts = timeouts
        self._scoring = scoring
        self._seen = seen
        self._admission = admission
        self._leading = leading
        self._wake = wake
        self._new_id = new_id
        self._routing = RoutingBuilder(owner)
        self._unplaced: dict[str, Unplaced] = {}
        self._paused = ""
        self._stopped_at: dict[tuple[str, int], float] = {}
        """When the end of each replica's shard was ordered last, by rank."""

    @property
    def paused(self) -> str:
        """Why nothing is rescheduled, when nothing is."""
        return self._paused

    def unplaced(self, model: str) -> Unplaced | None:
        """What the last plan could not place of the model."""
        return self._unplaced.get(model)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look, decide, order; until cancelled. A look that fails is told and followed by the next."""
        self._look()
        task_status.started()
        while True:
            await self._wake.wait(RESYNC_S)
            began = trio.current_time()
            self._look()
            await trio.sleep(min(RESYNC_S, REST_FACTOR * (trio.current_time() - began)))

    def _look(self) -> None:
        try:
            self.step()
        except Exception as error:
            # A supervised border: an entry that cannot be decided on (an older version's, a newer one's) must not end
            # the server, with which operators could mend it.
            log.exception("the cluster could not be looked at; what runs goes on")
            self._paused = (
                f"nothing is rescheduled: the cluster could not be looked at ({type(error).__name__}: {error})"
            )

    def step(self) -> None:
        """One look. Synchronous, so what is ordered fits what was looked at.

        A leader whose lease may have run out (the store is away) orders nothing, since another may lead; it goes on
        telling routers what it knows.
        """
        plan = reconcile(self.snapshot())
        self._paused = plan.paused
        self._unplaced = {u.model: u for u in plan.unplaced}
        if self._leading():
            for source in plan.fetches:
                self._weights.ensure(source)
            self._apply(plan)
        if self._inventory.worth_routing_by():
            routing = self._routing.build(
                self.snapshot(),
                self._timeouts(),
                self._catalog.created(),
                scoring=self._scoring(),
                seen=self._seen(),
                admission=self._admission(),
            )
            self._traffic.publish(routing)

    def snapshot(self) -> Snapshot:
        """The cluster as of now."""
        return Snapshot(
            now=trio.current_time(),
            entries=tuple(self._entry(entry) for entry in self._catalog.entries()),
            nodes=self._inventory.nodes(),
            replicas=self._inventory.replicas(),
            in_flight=dict(self._traffic.in_flight()),
            settled=self._inventory.settled(),
        )

    def entry(self, entry: CatalogEntry) -> CatalogEntry:
        """A catalog entry, also one not in the catalog, with what is known of its weights."""
        return self._entry(entry)

    def _entry(self, entry: CatalogEntry) -> CatalogEntry:
        if entry.model.external:
            return entry  # no weights of it are here, and no replica that could fail
        return msgspec.structs.replace(
            entry,
            facts=self._weights.facts(entry.model.source) or entry.facts,
            weights=self._weights.state(entry.model.source),
            failures=self._inventory.failures(entry.model.name),
        )

    def _apply(self, plan: Plan) -> None:
        for stop in plan.stops:
            self._stop(stop.replica, stop.reason)
        for collapse in plan.collapses:
            failed = self._inventory.replica(collapse.replica)
            if failed is not None:
                self._tell_to_end(failed, collapse.reason)
        for rally in plan.rallies:
            waiting = self._inventory.replica(rally.replica)
            if waiting is not None:
                # Where the head is, its node's own Hello says, not what a shard was once told.
                shards = tuple(self._addressed(shard) for shard in waiting.shards)
                self._orders.rally(msgspec.structs.replace(waiting, shards=shards), rally.rank)
        for drain in plan.drains:
            self._drain(drain.replica, drain.reason)
        entries = {e.model.name: e for e in self.snapshot().entries} if plan.starts else {}
        for start in plan.starts:
            entry = entries.get(start.model)
            if entry is not None:
                self._start(start, entry)

    def _start(self, start: Start, entry: CatalogEntry) -> None:
        place = start.placement
        replica = Replica(
            id="",
            model=start.model,
            profile=place.profile.name,
            engine=place.profile.engine,
            node=place.node,
            spec_hash=start.spec_hash,
            state=ShardState.PENDING,
            cards=place.cards,
            shards=tuple(self._addressed(shard) for shard in place.shards),
            memory_bytes=place.memory_bytes,
            host_bytes=place.host_bytes,
            context_length=start.context_length,
            slots=place.profile.slots,
            message=start.reason,
        )
        replica = msgspec.structs.replace(replica, id=self._new_id(start.model, seat_of(replica)))
        connected = all(self._inventory.is_connected(node) for node in replica.nodes)
        if not connected or not self._orders.start(replica, entry, place.profile):
            log.warning("start not sent: the node is gone", extra={"model": start.model, "node": place.node})
            return
        self._inventory.ordered(replica)
        log.info("start", extra={"replica": replica.id, "model": start.model, "node": place.where})

    def _addressed(self, shard: Shard) -> Shard:
        """A shard with the address at which the others reach its node."""
        node = self._inventory.node(shard.node)
        return msgspec.structs.replace(shard, address=node.address if node is not None else "")

    def _drain(self, replica_id: str, reason: str) -> None:
        replica = self._inventory.replica(replica_id)
        if replica is None or replica.state is not ShardState.READY:
            return
        # Out of routing first: that needs no agent.
        self._inventory.draining(replica_id, reason)
        self._orders.drain(replica, reason, DRAIN_DEADLINE_S)
        log.info("drain", extra={"replica": replica_id, "reason": reason})

    def _stop(self, replica_id: str, reason: str) -> None:
        replica = self._inventory.replica(replica_id)
        if replica is None:
            return
        told = self._tell_to_end(replica, reason)
        if replica.state is ShardState.FAILED:
            # Of several shards those that can be told have ended by now; the rest are strangers when they come back.
            if told or replica.shards:
                self._inventory.forget(replica_id)
        elif told and replica.state is not ShardState.DRAINING:
            self._inventory.draining(replica_id, reason)

    def _tell_to_end(self, replica: Replica, reason: str) -> bool:
        """Order the end of a replica, or of those of its shards whose turn it is; whether an order went out."""
        now = trio.current_time()
        self._stopped_at = {k: at for k, at in self._stopped_at.items() if now - at < STOP_REPEAT_S}
        ranks = [r for r in to_stop(replica, self._inventory.is_connected) if (replica.id, r) not in self._stopped_at]
        told = [rank for rank in ranks if self._orders.stop(replica, reason, STOP_GRACE_S, rank=rank)]
        self._stopped_at.update({(replica.id, rank): now for rank in told})
        if told:
            log.info("stop", extra={"replica": replica.id, "reason": reason, "shards": told})
        return bool(told)
