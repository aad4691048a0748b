"""Reconciling: idempotent, never more than needed, and nothing amplifies a failure."""

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.cluster import NodeLink, Replica, ShardState
from llmgw.core.reconcile import (
    DRAIN_DEADLINE_S,
    FAILURE_PAUSE_S,
    MASS_LOSS_PAUSE_S,
    Plan,
    failure_pause_s,
    reconcile,
)
from llmgw.core.snapshot import CatalogEntry, Snapshot, WeightsState
from tests.support.builders import GB, a_model, a_node, a_profile, a_replica, a_snapshot, an_entry, changed


def test_a_wanted_model_starts_where_it_fits() -> None:
    plan = reconcile(a_snapshot(entries=(an_entry(),), nodes=(a_node(),)))
    (start,) = plan.starts
    assert (start.model, start.placement.node, start.context_length) == ("m", "n1", 4096)
    assert not plan.unplaced


def test_what_runs_as_wanted_is_left_alone() -> None:
    entry = an_entry()
    for state in (ShardState.PENDING, ShardState.FETCHING, ShardState.STARTING, ShardState.READY):
        snapshot = a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(a_replica(entry, state=state),))
        assert reconcile(snapshot) == Plan(), state


def test_weights_come_before_the_start() -> None:
    entry = an_entry(weights=WeightsState(message="fetching 41% of 98 MB"))
    plan = reconcile(a_snapshot(entries=(entry,), nodes=(a_node(),)))
    assert plan.fetches == (entry.model.source,)
    assert not plan.starts
    assert plan.unplaced[0].message == "fetching 41% of 98 MB"


def test_nothing_starts_before_the_nodes_have_spoken() -> None:
    plan = reconcile(a_snapshot(entries=(an_entry(),), nodes=(a_node(),), settled=False))
    assert not plan.starts
    assert "known nodes" in plan.unplaced[0].message


def test_a_replica_of_no_model_ends() -> None:
    plan = reconcile(a_snapshot(nodes=(a_node(),), replicas=(a_replica(),)))
    assert [d.replica for d in plan.drains] == ["r1"]


def test_a_stopped_model_drains() -> None:
    entry = an_entry(a_model(stopped=True))
    plan = reconcile(a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(a_replica(entry),)))
    assert [d.replica for d in plan.drains] == ["r1"]
    assert not plan.starts


def test_a_draining_replica_stops_when_its_requests_have_ended_or_the_deadline_has() -> None:
    entry = an_entry(a_model(stopped=True))
    draining = a_replica(entry, state=ShardState.DRAINING, since=990.0)
    base = a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(draining,))
    assert not reconcile(changed(base, in_flight={"r1": 2})).stops
    assert [s.replica for s in reconcile(base).stops] == ["r1"]
    late = changed(base, in_flight={"r1": 2}, now=990.0 + DRAIN_DEADLINE_S)
    assert [s.replica for s in reconcile(late).stops] == ["r1"]


def test_a_silent_nodes_replicas_are_left_alone_and_a_lost_ones_replaced() -> None:
    entry = an_entry()
    other = a_node("n2")
    here = a_replica(entry)
    silent = a_snapshot(entries=(entry,), nodes=(a_node(link=NodeLink.SILENT), other), replicas=(here,))
    lost = changed(silent, nodes=(a_node(link=NodeLink.LOST), other, a_node("n3")))
    assert reconcile(silent) == Plan()
    plan = reconcile(lost)
    assert [s.placement.node for s in plan.starts] == ["n2"]
    assert not plan.stops


def test_when_half_the_nodes_vanish_nothing_is_rescheduled() -> None:
    entry = an_entry()
    nodes = (
        a_node("n1", link=NodeLink.LOST, heard_at=930.0),
        a_node("n2", link=NodeLink.LOST, heard_at=931.0),
        a_node("n3", heard_at=1000.0),
    )
    just_now = a_snapshot(entries=(entry,), nodes=nodes, replicas=(a_replica(entry),))
    plan = reconcile(just_now)
    assert not plan.starts
    assert "2 of 3 nodes" in plan.paused
    # Machines that stay away are lost like any other, each in its own time.
    later = reconcile(changed(just_now, now=930.0 + MASS_LOSS_PAUSE_S))
    assert not later.paused
    assert [s.placement.node for s in later.starts] == ["n3"]


def test_after_a_partition_the_surplus_ends_and_the_ready_one_stays() -> None:
    entry = an_entry()
    both = (
        a_replica(entry, id="old", node="n1"),
        a_replica(entry, id="new", node="n2", state=ShardState.STARTING),
    )
    plan = reconcile(a_snapshot(entries=(entry,), nodes=(a_node("n1"), a_node("n2")), replicas=both))
    assert [s.replica for s in plan.stops] == ["new"]
    assert not plan.drains


def test_a_failed_replica_is_replaced_after_a_pause_that_doubles() -> None:
    entry = an_entry(failures=1)
    failed = a_replica(entry, state=ShardState.FAILED, since=1000.0)
    base = a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(failed,))
    early = reconcile(base)
    assert not early.starts
    assert not early.stops
    later = reconcile(changed(base, now=1000.0 + FAILURE_PAUSE_S))
    assert [s.replica for s in later.stops] == ["r1"]
    assert len(later.starts) == 1
    assert failure_pause_s(3) == 4 * FAILURE_PAUSE_S
    assert failure_pause_s(99) == 300.0


def test_an_edit_replaces_replicas_one_by_one_new_before_old() -> None:
    before = an_entry(a_model(replicas=2))
    after = an_entry(a_model(replicas=2, context_length=8192))
    old = tuple(a_replica(before, id=f"old{i}", since=float(i)) for i in range(2))
    base = a_snapshot(entries=(after,), nodes=(a_node(),), replicas=old)

    first = reconcile(base)
    assert len(first.starts) == 1
    assert not first.drains

    starting = a_replica(after, id="new0", state=ShardState.STARTING)
    assert reconcile(changed(base, replicas=(*old, starting))) == Plan()

    ready = changed(starting, state=ShardState.READY)
    second = reconcile(changed(base, replicas=(*old, ready)))
    assert [d.replica for d in second.drains] == ["old0"]
    assert len(second.starts) == 1


def test_without_room_beside_the_old_replica_it_goes_first() -> None:
    before = an_entry(a_model(profiles=(a_profile(min_memory_gb=10),)))
    after = an_entry(a_model(profiles=(a_profile(min_memory_gb=10),), context_length=8192))
    old = a_replica(before, memory_bytes=10 * GB)
    node = a_node(memory=16 * GB, memory_available_bytes=0)
    plan = reconcile(a_snapshot(entries=(after,), nodes=(node,), replicas=(old,)))
    assert [d.replica for d in plan.drains] == ["r1"]
    assert not plan.starts


def test_a_restart_replaces_what_began_before_it() -> None:
    entry = an_entry(restart_after=500.0)
    old = a_replica(entry, started_at=400.0)
    plan = reconcile(a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(old,)))
    assert len(plan.starts) == 1
    newer = reconcile(a_snapshot(entries=(entry,), nodes=(a_node(),), replicas=(changed(old, started_at=501.0),)))
    assert newer == Plan()


COMING = (ShardState.PENDING, ShardState.FETCHING, ShardState.CHECKING, ShardState.STARTING)


def _apply(snapshot: Snapshot, plan: Plan, step: int) -> Snapshot:
    """A cluster in which every order succeeds by the next look."""
    gone = {s.replica for s in plan.stops}
    draining = {d.replica for d in plan.drains}
    now = snapshot.now + 60.0
    replicas: list[Replica] = []
    for replica in snapshot.replicas:
        if replica.id in gone:
            continue
        if replica.id in draining:
            replicas.append(changed(replica, state=ShardState.DRAINING, since=snapshot.now))
        elif replica.state in COMING:
            replicas.append(changed(replica, state=ShardState.READY, since=now))
        else:
            replicas.append(replica)
    for i, start in enumerate(plan.starts):
        entry = next(e for e in snapshot.entries if e.model.name == start.model)
        replicas.append(
            a_replica(
                entry,
                id=f"s{step}-{i}",
                node=start.placement.node,
                memory_bytes=start.placement.memory_bytes,
                spec_hash=start.spec_hash,
                profile=start.placement.profile.name,
                state=ShardState.PENDING,
                since=now,
                started_at=now,
            )
        )
    return changed(snapshot, replicas=tuple(replicas), now=now)


_states = st.sampled_from(list(ShardState))


@st.composite
def _clusters(draw: st.DrawFn) -> Snapshot:
    nodes = tuple(
        a_node(
            f"n{i}",
            memory=draw(st.integers(2, 24)) * GB,
            memory_available_bytes=0,
            link=draw(st.sampled_from([NodeLink.CONNECTED] * 4 + [NodeLink.SILENT, NodeLink.LOST])),
            cordoned=draw(st.sampled_from([False, False, False, True])),
        )
        for i in range(draw(st.integers(0, 5)))
    )
    entries: list[CatalogEntry] = []
    replicas: list[Replica] = []
    for i in range(draw(st.integers(0, 4))):
        model = a_model(f"m{i}", replicas=draw(st.integers(0, 4)), stopped=draw(st.booleans()))
        entry = an_entry(model)
        entries.append(entry)
        for j in range(draw(st.integers(0, 3))):
            node = draw(st.sampled_from(nodes)).name if nodes else "gone"
            old = draw(st.booleans())
            replicas.append(
                a_replica(
                    entry,
                    id=f"{model.name}-{j}",
                    node=node,
                    state=draw(_states),
                    memory_bytes=draw(st.integers(1, 4)) * GB,
                    spec_hash="old" if old else entry.spec_hash(model.profiles[0]),
                    since=draw(st.floats(0, 1000)),
                )
            )
    return a_snapshot(entries=tuple(entries), nodes=nodes, replicas=tuple(replicas))


@given(_clusters())
@settings(max_examples=200, deadline=None)
def test_any_cluster_comes_to_rest_as_wanted(snapshot: Snapshot) -> None:
    for step in range(40):
        plan = reconcile(snapshot)
        assert reconcile(snapshot) == plan
        nodes = {n.name: n for n in snapshot.nodes}
        for start in plan.starts:
            node = nodes[start.placement.node]
            assert node.link is NodeLink.CONNECTED
            assert not node.cordoned
        coming = any(r.state in COMING for r in snapshot.replicas)
        if not (plan.starts or plan.drains or plan.stops or coming):
            break
        snapshot = _apply(snapshot, plan, step)
        for node in snapshot.nodes:
            fresh = [r for r in snapshot.replicas if r.node == node.name and r.live and r.id.startswith("s")]
            if fresh:
                held = sum(r.memory_bytes for r in snapshot.replicas if r.node == node.name and r.live)
                assert held <= node.memory_total_bytes
    else:
        raise AssertionError(f"still changing after 40 steps: {plan}")
    if plan.paused:
        return
    lost = {n.name for n in snapshot.nodes if n.link is NodeLink.LOST}
    unplaced = {u.model: u.missing for u in plan.unplaced}
    for entry in snapshot.entries:
        live = [
            r
            for r in snapshot.replicas
            if r.model == entry.model.name and r.live and r.node in nodes and r.node not in lost
        ]
        serving = [r for r in live if r.state is not ShardState.DRAINING]
        assert len(serving) + unplaced.get(entry.model.name, 0) >= entry.model.wanted_replicas
        assert len(serving) <= max(entry.model.wanted_replicas, 0)
