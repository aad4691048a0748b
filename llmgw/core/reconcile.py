"""Desired against actual: one snapshot in, one plan out, the same plan for the same snapshot.

What holds for every plan: nothing starts before the cluster has settled; a silent node's replicas are left alone; an
edit replaces replicas one by one, the new one Ready before the old one drains; a replica that failed is replaced after
a pause that doubles; and when half the nodes or more vanish at once nothing is rescheduled, because then the fault is
here, not there. A replica on several nodes starts and ends as one: its shards go on together, when one fails the others
are ended, and when one of its nodes is lost it gives way to a new one, as an outdated replica does.
"""

import msgspec

from llmgw.core.cluster import Node, NodeLink, Replica, ShardState
from llmgw.core.placement import Decision, Placement, place, place_many
from llmgw.core.shards import left_over, rallied
from llmgw.core.snapshot import CatalogEntry, Snapshot
from llmgw.core.units import plural
from llmgw.core.verdicts import NodeVerdict

DRAIN_DEADLINE_S = 30.0
"""Requests in flight on a replica that goes get this long."""
DRAIN_MIN_S = 2.0
"""A draining replica stays at least this long: a router may have chosen it just before it heard."""
FAILURE_PAUSE_S = 5.0
"""Pause before a failed replica is replaced; doubles with every failure in a row."""
FAILURE_PAUSE_MAX_S = 300.0
MASS_LOSS_SHARE = 0.5
"""At this share of nodes gone at once, rescheduling pauses."""
MASS_LOSS_PAUSE_S = 900.0
"""A loss is "at once" for so long after a node was last heard: machines switched off for good pause nothing."""


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """Start one replica."""

    model: str
    placement: Placement
    context_length: int
    spec_hash: str
    reason: str


class Drain(msgspec.Struct, frozen=True, kw_only=True):
    """Take a replica out of routing and let its requests end."""

    replica: str
    reason: str


class Stop(msgspec.Struct, frozen=True, kw_only=True):
    """End a replica now."""

    replica: str
    reason: str


class Rally(msgspec.Struct, frozen=True, kw_only=True):
    """Let a shard that waits for the others go on."""

    replica: str
    rank: int


class Unplaced(msgspec.Struct, frozen=True, kw_only=True):
    """Replicas that are wanted and have no place, and why."""

    model: str
    missing: int
    message: str
    verdicts: tuple[NodeVerdict, ...] = ()


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now."""

    starts: tuple[Start, ...] = ()
    drains: tuple[Drain, ...] = ()
    stops: tuple[Stop, ...] = ()
    rallies: tuple[Rally, ...] = ()
    collapses: tuple[Stop, ...] = ()
    """Replicas that failed on one node, whose shards on others are to end; they hold their cards until they have."""
    fetches: tuple[str, ...] = ()
    """Sources the mirror should have and does not."""
    unplaced: tuple[Unplaced, ...] = ()
    paused: str = ""
    """Why nothing is rescheduled, when nothing is."""


class _Draft:
    """The plan while it is made; `snapshot` takes in what was decided so far, so no card is promised twice."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.reachable = frozenset(n.name for n in snapshot.nodes if n.link is not NodeLink.LOST)
        self.connected = frozenset(n.name for n in snapshot.nodes if n.link is NodeLink.CONNECTED)
        self.starts: list[Start] = []
        self.drains: list[Drain] = []
        self.stops: list[Stop] = []
        self.collapses: list[Stop] = []
        self.fetches: list[str] = []
        self.unplaced: list[Unplaced] = []

    def lost(self, replica: Replica) -> bool:
        """Whether its node is lost, or not there at all; all of its nodes, where it has several."""
        return self.reachable.isdisjoint(replica.nodes)

    def torn(self, replica: Replica) -> bool:
        """Whether some of its nodes are lost and others are not."""
        return not self.lost(replica) and not self.reachable.issuperset(replica.nodes)

    def start(self, entry: CatalogEntry, placement: Placement, reason: str) -> None:
        spec_hash = entry.spec_hash(placement.profile)
        self.starts.append(
            Start(
                model=entry.model.name,
                placement=placement,
                context_length=entry.context_length,
                spec_hash=spec_hash,
                reason=reason,
            )
        )
        promised = Replica(
            id=f"planned/{len(self.starts)}",
            model=entry.model.name,
            profile=placement.profile.name,
            engine=placement.profile.engine,
            node=placement.node,
            spec_hash=spec_hash,
            cards=placement.cards,
            shards=placement.shards,
            memory_bytes=placement.memory_bytes,
            host_bytes=placement.host_bytes,
            since=self.snapshot.now,
        )
        self.snapshot = msgspec.structs.replace(self.snapshot, replicas=(*self.snapshot.replicas, promised))

    def collapse(self, replica: Replica) -> bool:
        """Have what is left of a failed replica ended; whether there is something left that can be told so."""
        left = left_over(replica) and not self.connected.isdisjoint(replica.holding)
        if left:
            self.collapses.append(Stop(replica=replica.id, reason=f"it failed: {replica.message}"))
        return left

    def end(self, replica: Replica, reason: str) -> None:
        """Drain what serves, stop what does not."""
        if self.collapse(replica):
            return
        if replica.state is ShardState.READY:
            self.drains.append(Drain(replica=replica.id, reason=reason))
        elif replica.state is not ShardState.DRAINING:
            self.stops.append(Stop(replica=replica.id, reason=reason))


def reconcile(snapshot: Snapshot) -> Plan:
    """What to start, drain, stop and fetch so that the cluster comes to be as wanted."""
    draft = _Draft(snapshot)
    _finish_drains(draft)
    # Until the cluster has settled nodes are expected to be silent: they have not had the time to speak.
    paused = mass_loss(snapshot) if snapshot.settled else ""
    wanted = {entry.model.name: entry for entry in snapshot.entries}
    for replica in snapshot.replicas:
        if replica.model not in wanted and not draft.lost(replica):
            draft.end(replica, "its model is not in the catalog")
    for entry in snapshot.entries:
        _reconcile_model(draft, entry, paused)
    return Plan(
        starts=tuple(draft.starts),
        drains=tuple(draft.drains),
        stops=tuple(draft.stops),
        rallies=tuple(Rally(replica=r.id, rank=rank) for r in snapshot.replicas for rank in rallied(r)),
        collapses=tuple(draft.collapses),
        fetches=tuple(dict.fromkeys(draft.fetches)),
        unplaced=tuple(draft.unplaced),
        paused=paused,
    )


def mass_loss(snapshot: Snapshot) -> str:
    """Why rescheduling pauses, or nothing: half the nodes or more went lately, and more than one did.

    Nodes that have been away for longer count neither as gone nor as there.
    """
    nodes = [n for n in snapshot.nodes if snapshot.now - n.heard_at < MASS_LOSS_PAUSE_S or n.link is NodeLink.CONNECTED]
    gone = [n for n in nodes if n.link is not NodeLink.CONNECTED]
    if len(gone) < 2 or len(gone) < MASS_LOSS_SHARE * len(nodes):
        return ""
    return (
        f"{len(gone)} of {plural(len(nodes), 'node')} vanished at once: "
        "rescheduling is paused, engines there are taken to run on"
    )


def failure_pause_s(failures: int) -> float:
    """Seconds between the failure of a replica and its replacement."""
    return float(min(FAILURE_PAUSE_MAX_S, FAILURE_PAUSE_S * 2 ** min(max(0, failures - 1), 16)))


def _finish_drains(draft: _Draft) -> None:
    snapshot = draft.snapshot
    for replica in snapshot.replicas:
        if replica.state is not ShardState.DRAINING or draft.lost(replica):
            continue
        age = snapshot.now - replica.since
        open_requests = snapshot.in_flight.get(replica.id, 0)
        if age >= DRAIN_DEADLINE_S:
            draft.stops.append(Stop(replica=replica.id, reason=f"drained for {DRAIN_DEADLINE_S:.0f} s"))
        elif open_requests == 0 and age >= DRAIN_MIN_S:
            draft.stops.append(Stop(replica=replica.id, reason="drained"))


def _reconcile_model(draft: _Draft, entry: CatalogEntry, paused: str) -> None:
    snapshot = draft.snapshot
    mine = [r for r in snapshot.replicas if r.model == entry.model.name]
    if paused:
        here = [r for r in mine if r.state is not ShardState.DRAINING]
    else:
        here = [r for r in mine if r.state is not ShardState.DRAINING and not draft.lost(r)]
    live = [r for r in here if r.live]
    failed = [r for r in here if r.state is ShardState.FAILED]
    target = entry.model.wanted_replicas
    current: list[Replica] = []
    outdated: list[Replica] = []
    for replica in live:
        good = _is_current(entry, replica) and (paused or not draft.torn(replica))
        (current if good else outdated).append(replica)
    held_back = _forget_failed(draft, entry, failed, surplus=target == 0)
    if not paused:
        _end_surplus(draft, current, len(current) - target)
        _end_outdated(draft, current, outdated, target)
    missing = target - len(current) - held_back
    # A replacement for an outdated replica comes one at a time, and only once the one before it serves.
    replacing = bool(outdated)
    if replacing:
        room_to_grow = target - len(live)
        missing = max(room_to_grow, 1 if _all_ready(current) else 0) if missing > 0 else 0
    if missing > 0:
        _start_missing(draft, entry, missing, outdated, paused)


def _is_current(entry: CatalogEntry, replica: Replica) -> bool:
    profile = next((p for p in entry.model.profiles if p.name == replica.profile), None)
    if profile is None or replica.spec_hash != entry.spec_hash(profile):
        return False
    return replica.started_at >= entry.restart_after


def _all_ready(replicas: list[Replica]) -> bool:
    return all(r.state is ShardState.READY for r in replicas)


def _forget_failed(draft: _Draft, entry: CatalogEntry, failed: list[Replica], *, surplus: bool) -> int:
    """Clear failed replicas whose pause is over; the count of those whose pause is not."""
    held_back = 0
    for replica in failed:
        if draft.collapse(replica):
            held_back += 1
            continue
        over = draft.snapshot.now - replica.since >= failure_pause_s(entry.failures)
        if surplus or over or not _is_current(entry, replica):
            draft.stops.append(Stop(replica=replica.id, reason="it failed and is replaced"))
        else:
            held_back += 1
    return held_back


def _end_surplus(draft: _Draft, current: list[Replica], surplus: int) -> None:
    if surplus <= 0:
        return
    nodes = {n.name: n for n in draft.snapshot.nodes}

    def worth(replica: Replica) -> tuple[bool, bool, float]:
        reachable = all(_takes_work(nodes.get(name)) for name in replica.nodes)
        return (replica.state is ShardState.READY, reachable, -replica.since)

    for replica in sorted(current, key=worth)[:surplus]:
        draft.end(replica, "more replicas than wanted")


def _takes_work(node: Node | None) -> bool:
    return node is not None and node.link is NodeLink.CONNECTED and not node.cordoned


def _end_outdated(draft: _Draft, current: list[Replica], outdated: list[Replica], target: int) -> None:
    """Old replicas go as new ones come to serve; those that serve nobody go at once."""
    ready_new = sum(1 for r in current if r.state is ShardState.READY)
    serving = [r for r in outdated if r.state is ShardState.READY]
    for replica in outdated:
        if replica.state is not ShardState.READY:
            draft.end(replica, "one of its nodes is lost" if draft.torn(replica) else "its model was changed")
    keep = max(0, target - ready_new)
    for replica in sorted(serving, key=lambda r: r.since)[: max(0, len(serving) - keep)]:
        draft.end(replica, "replaced by a newer one")


def _start_missing(draft: _Draft, entry: CatalogEntry, missing: int, outdated: list[Replica], paused: str) -> None:
    name = entry.model.name
    if paused or not draft.snapshot.settled:
        why = paused or "waiting for the known nodes to say what they run"
        draft.unplaced.append(Unplaced(model=name, missing=missing, message=why))
        return
    if not entry.weights.ready:
        draft.fetches.append(entry.model.source)
        message = entry.weights.message or "waiting for the mirror to fetch its weights"
        draft.unplaced.append(Unplaced(model=name, missing=missing, message=message))
        return
    found = place_many(entry, draft.snapshot, missing)
    for placement in found:
        draft.start(entry, placement, f"goes to {placement.where} with profile {placement.profile.name}")
    if len(found) < missing:
        _give_way(draft, entry, missing - len(found), place(entry, draft.snapshot), outdated)


def _give_way(draft: _Draft, entry: CatalogEntry, left: int, decision: Decision, outdated: list[Replica]) -> None:
    """No room beside the old replica: it goes first, one at a time, if the place would then be there."""
    leaving = {d.replica for d in draft.drains} | {s.replica for s in draft.stops}
    draining = any(r.state is ShardState.DRAINING and r.model == entry.model.name for r in draft.snapshot.replicas)
    for replica in outdated:
        if replica.id in leaving:
            return
        without = tuple(r for r in draft.snapshot.replicas if r.id != replica.id)
        if place(entry, msgspec.structs.replace(draft.snapshot, replicas=without)).placement is not None:
            if not draining:
                draft.end(replica, "it makes room for its replacement")
            return
    draft.unplaced.append(
        Unplaced(model=entry.model.name, missing=left, message=decision.message, verdicts=decision.verdicts)
    )
