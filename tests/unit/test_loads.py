"""Engines' loads on the control plane: what nodes say counts while it is fresh and theirs, and is told on."""

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.columns import loads_message
from llmgw.agents import plausible, readings
from llmgw.api.types import ClusterStatus, ReplicaInfo
from llmgw.control import live_rows, views
from llmgw.control.inventory import Inventory
from llmgw.control.load_board import NOTHING_YET, REFRESH_S, LoadBoard
from llmgw.control.metrics import render
from llmgw.control.router_metrics import Totals
from llmgw.core.cluster import NodeLink, Replica, ShardState
from llmgw.core.errors import InvalidInput
from llmgw.core.figures import LOAD_HOLDS_S, EngineLoad, ToldLoad
from llmgw.core.routing import LoadTable, ReplicaLoad
from llmgw.core.snapshot import Snapshot
from llmgw.router.keys import KeyCache
from llmgw.router.state import FollowerState
from llmgw.router.usage import UsageSpool
from llmgw.wire.llmgw import v1 as wire
from tests.support.builders import a_node, a_replica
from tests.support.exposition import parse

BUSY = EngineLoad(running=4, waiting=2, slots=8, kv_used=0.61)


class Clock:
    """A clock the test sets."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """Node n1 with the Ready replica r1, and n2 with r2."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.inventory = Inventory(self.clock, lambda: None)
        for node, replica in (("n1", "r1"), ("n2", "r2")):
            ready = a_replica(id=replica, node=node, state=ShardState.READY)
            self.inventory.connected(a_node(node), [ready])

    def say(self, node: str, loads: dict[str, ToldLoad]) -> None:
        """A node says so, by shard."""
        message = wire.EngineLoads.parse(bytes(loads_message(loads)))
        self.inventory.loads.heard(node, readings.loads_from(message))

    def known(self) -> dict[str, EngineLoad]:
        """What counts now; both ways of asking agree."""
        loads = self.inventory.loads.loads()
        assert loads == {r.id: load for r in self.inventory.replicas() if not (load := self.of(r.id)).silent}
        return loads

    def of(self, replica_id: str) -> EngineLoad:
        """What one engine says."""
        return self.inventory.loads.of(replica_id)


def test_what_a_node_says_arrives_as_it_was_said() -> None:
    site = Site()
    site.say("n1", {"r1/0": ToldLoad(load=BUSY, age_s=1.5, failures=3)})
    assert site.known() == {"r1": BUSY}
    assert (site.inventory.loads.failures("r1"), site.inventory.loads.failures("r2")) == (3, None)
    assert site.inventory.loads.all()["r1"].at == 998.5


def test_what_an_engine_does_not_say_stays_unsaid_beside_one_that_does() -> None:
    site = Site()
    site.inventory.connected(
        a_node("n1"), [a_replica(id=name, node="n1", state=ShardState.READY) for name in ("r1", "r3", "r4")]
    )
    loads = {"r1/0": BUSY, "r3/0": EngineLoad(running=0), "r4/0": EngineLoad(slots=4)}
    site.say("n1", {shard: ToldLoad(load=load) for shard, load in loads.items()})
    assert site.known() == {"r1": BUSY, "r3": EngineLoad(running=0)}


def test_a_load_holds_for_fifteen_seconds_from_when_the_engine_said_so() -> None:
    assert LOAD_HOLDS_S == 15.0
    site = Site()
    site.say("n1", {"r1/0": ToldLoad(load=BUSY, age_s=5.0)})
    site.say("n2", {"r2/0": ToldLoad(load=BUSY)})
    site.clock.now += 9.9
    assert site.known().keys() == {"r1", "r2"}
    site.clock.now += 0.2
    assert site.known().keys() == {"r2"}, "its engine hangs, though its node still speaks"
    site.inventory.disconnected("n2")
    assert site.known().keys() == {"r2"}, "a node that lost its stream a moment ago was right a moment ago"
    site.clock.now += 5.0
    assert site.known() == {}
    site.say("n2", {"r2/0": ToldLoad(load=BUSY)})
    assert site.known().keys() == {"r2"}


def test_a_load_goes_with_its_replica_its_node_and_the_term() -> None:
    site = Site()
    for node, replica in (("n1", "r1"), ("n2", "r2")):
        site.say(node, {f"{replica}/0": ToldLoad(load=BUSY)})
    site.inventory.draining("r1", "scaled down")
    assert site.known().keys() == {"r1", "r2"}, "what drains still works"
    site.inventory.shard_changed("n1", a_replica(id="r1", node="n1", state=ShardState.STOPPED))
    assert site.known().keys() == {"r2"}
    site.inventory.shard_changed("n2", a_replica(id="r2", node="n2", state=ShardState.STARTING))
    assert site.known() == {}, "an engine that is started again has no load yet"
    site.inventory.shard_changed("n2", a_replica(id="r2", node="n2", state=ShardState.READY))
    site.inventory.disconnected("n2")
    site.inventory.expect([("n1", False)])
    assert site.inventory.node("n2") is None
    assert site.known() == {}
    site = Site()
    site.say("n1", {"r1/0": ToldLoad(load=BUSY)})
    site.inventory.new_term()
    site.inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1", state=ShardState.READY)])
    assert site.known() == {}


def test_a_node_speaks_for_its_own_engines_and_forgets_by_leaving_out() -> None:
    site = Site()
    site.say("n1", {"r2/0": ToldLoad(load=BUSY, failures=9), "made-up/0": ToldLoad(load=BUSY)})
    assert site.known() == {}
    assert site.inventory.loads.failures("r2") is None
    site.say("n1", {"r1/0": ToldLoad(load=BUSY), "r2/0": ToldLoad(load=BUSY)})
    site.say("n2", {"r2/0": ToldLoad(load=EngineLoad(running=1))})
    assert site.known() == {"r1": BUSY, "r2": EngineLoad(running=1)}
    site.say("n1", {"other/0": ToldLoad(load=BUSY)})
    assert site.known() == {"r2": EngineLoad(running=1)}


def test_a_column_must_have_an_entry_a_shard_and_there_are_no_more_than_a_node_has() -> None:
    with pytest.raises(InvalidInput, match="2 entries for 1"):
        readings.loads_from(wire.EngineLoads(shard_ids=["r1/0"], running=[1.0, 2.0]))
    many = [f"r{i}/0" for i in range(plausible.MAX_SHARDS + 1)]
    with pytest.raises(InvalidInput, match="over the limit"):
        readings.loads_from(wire.EngineLoads(shard_ids=many))
    with pytest.raises(InvalidInput, match="is not an id"):
        readings.loads_from(wire.EngineLoads(shard_ids=["../etc"]))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(*[st.floats(width=32)] * 5, st.integers(0, 2**32 - 1)), min_size=1, max_size=3))
def test_no_figure_that_cannot_be_gets_in(rows: list[tuple[float, float, float, float, float, int]]) -> None:
    age, running, waiting, slots, kv, failures = (list(column) for column in zip(*rows, strict=True))
    message = wire.EngineLoads(
        shard_ids=[f"r{i}/0" for i in range(len(rows))],
        age_s=age,
        running=running,
        waiting=waiting,
        slots=slots,
        kv_used=kv,
        failures=failures,
    )
    for told in readings.loads_from(wire.EngineLoads.parse(bytes(message))).values():
        for count in (told.load.running, told.load.waiting, told.load.slots):
            assert count is None or 0 <= count <= 10**6
        assert told.load.slots != 0
        assert told.load.kv_used is None or 0 <= told.load.kv_used <= 1
        assert math.isfinite(told.age_s)
        assert told.age_s >= 0


def test_a_load_is_in_the_api_in_the_feed_and_on_the_metrics_page_and_absent_where_unsaid() -> None:
    replica = a_replica(id="r1", node="n1", state=ShardState.READY)
    snapshot = Snapshot(now=0.0, nodes=(), replicas=(replica,))
    said = views.replica_info(replica, snapshot, load=BUSY, load_failures=2)
    partly = views.replica_info(replica, snapshot, load=EngineLoad(waiting=0))
    unsaid = views.replica_info(replica, snapshot)
    assert (said.running, said.waiting, said.kv_used, said.load_failures) == (4, 2, 0.61, 2)
    assert (unsaid.running, unsaid.waiting, unsaid.kv_used, unsaid.load_failures) == (None, None, None, None)
    row = live_rows.replica_row(replica, 0, live_rows.Moments(Clock(), Clock()), load=BUSY)
    assert (row.running, row.waiting, row.kv_used) == (4, 2, 0.61)
    names = ("running", "waiting", "kv_used_ratio", "load_failures_total")
    assert _page(said) == dict(zip(names, (4.0, 2.0, 0.61, 2.0), strict=True))
    assert _page(partly) == {"waiting": 0.0}
    assert _page(unsaid) == {}


def _page(replica: ReplicaInfo) -> dict[str, float]:
    """What the metrics page says of a replica's own figures."""
    status = ClusterStatus(
        version="1",
        cluster_id="c",
        leader=None,
        epoch=1,
        servers=(),
        routers=(),
        nodes=(),
        models=(),
        replicas=(replica,),
    )
    families = parse(render(status, Totals(), {})).values()
    labels = {"node": replica.node, "model": replica.model, "replica": replica.id}
    return {f.name.removeprefix("llmgw_replica_"): f.value(**labels) for f in families if "llmgw_replica_" in f.name}


# -- what routers are told

IDS = [f"r{i}" for i in range(6)]
LOADS = st.dictionaries(
    st.sampled_from(IDS),
    st.builds(
        ReplicaLoad,
        running=st.integers(0, 2) | st.none(),
        waiting=st.integers(0, 1),
        at=st.floats(0, 3 * REFRESH_S),
    ),
)


def _follower() -> FollowerState:
    return FollowerState(cluster_secret=b"s", keys=cast("KeyCache", SimpleNamespace()), usage=cast("UsageSpool", None))


@settings(deadline=None)
@given(
    st.lists(st.tuples(LOADS, st.sets(st.integers(0, 2)), st.sets(st.integers(0, 2))), max_size=12), st.integers(0, 3)
)
def test_every_router_knows_what_is_known_however_seldom_it_reads(
    steps: list[tuple[dict[str, ReplicaLoad], set[int], set[int]]], kept: int
) -> None:
    """Each step the loads are others, some routers read, and some connect anew."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("llmgw.control.load_board.MAX_GONE", kept)
        board = LoadBoard()
        routers = [_follower() for _ in range(3)]
        told = [NOTHING_YET] * 3
        for loads, reading, anew in steps:
            board.change(loads)
            for number in anew:
                routers[number], told[number] = _follower(), NOTHING_YET
            for number in reading:
                routers[number].apply_loads(board.since(told[number]))
                told[number] = board.revision
                known = routers[number].loads
                assert {name: _figures(load) for name, load in known.items()} == {
                    name: _figures(load) for name, load in loads.items()
                }
                assert all(loads[name].at - load.at < REFRESH_S for name, load in known.items())


def _figures(load: ReplicaLoad) -> tuple[int | None, ...]:
    return (load.running, load.waiting)


def test_what_did_not_change_is_not_told_again_before_it_is_time() -> None:
    board = LoadBoard()
    assert board.since(NOTHING_YET) == LoadTable(whole=True)
    assert not board.change({})
    first = {"a": ReplicaLoad(running=1, at=10.0), "b": ReplicaLoad(running=1, at=10.0)}
    assert board.change(first)
    assert board.since(NOTHING_YET) == LoadTable(loads=first, whole=True)
    before = board.revision
    assert not board.change({name: ReplicaLoad(running=1, at=10.0 + REFRESH_S / 2) for name in first})
    assert board.since(before) == LoadTable()
    changed = {"a": ReplicaLoad(running=2, at=11.0), "b": first["b"]}
    assert board.change(changed)
    assert board.since(before) == LoadTable(loads={"a": changed["a"]})
    fresher = {"a": changed["a"], "b": ReplicaLoad(running=1, at=10.0 + REFRESH_S)}
    second = board.revision
    assert board.change(fresher)
    assert board.since(second) == LoadTable(loads={"b": fresher["b"]})
    assert board.change({"a": changed["a"]})
    assert board.since(before) == LoadTable(loads={"a": changed["a"]}, gone=("b",))


def test_a_silent_node_keeps_its_replica_and_loses_its_load() -> None:
    site = Site()
    site.say("n1", {"r1/0": ToldLoad(load=BUSY)})
    site.inventory.disconnected("n1")
    site.clock.now += LOAD_HOLDS_S
    node = site.inventory.node("n1")
    assert node is not None
    assert node.link is NodeLink.SILENT
    assert [replica.id for replica in _ready(site.inventory)] == ["r1", "r2"]
    assert site.known() == {}


def _ready(inventory: Inventory) -> Iterator[Replica]:
    return (replica for replica in inventory.replicas() if replica.state is ShardState.READY)
