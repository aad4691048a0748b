"""Replicas over several nodes: one state of many, whatever order their nodes speak in."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.cluster import LIVE_STATES, FetchProgress, Replica, Shard, ShardState
from llmgw.core.shards import (
    assemble,
    ended,
    heard,
    left_over,
    missed,
    node_of,
    progressed,
    rallied,
    rank_on,
    replica_and_rank,
    seat_of,
    shard_id_of,
    to_stop,
)
from tests.support.builders import a_replica, changed

NODES = ("n1", "n2", "n3")


def wide(state: ShardState = ShardState.PENDING, **over: Any) -> Replica:
    """A replica on three nodes, all of whose shards are in one state."""
    shards = tuple(Shard(node=node, address=f"10.0.0.{i}", cards=(f"GPU-{node}",)) for i, node in enumerate(NODES))
    shards = tuple(changed(shard, state=state) for shard in shards)
    fields: dict[str, Any] = {
        "endpoint": "",
        "cards": tuple(f"GPU-{n}" for n in NODES),
        "shards": shards,
        "state": state,
        **over,
    }
    return a_replica(node="n1", **fields)


def told(state: ShardState, **over: Any) -> Replica:
    """What a node says of its shard."""
    return a_replica(state=state, **{"endpoint": "", **over})


def test_an_id_bears_its_rank() -> None:
    assert shard_id_of("qwen-abc", 2) == "qwen-abc/2"
    assert replica_and_rank("qwen-abc/2") == ("qwen-abc", 2)
    assert replica_and_rank("qwen-abc") == ("qwen-abc", 0)


def test_where_its_shards_are() -> None:
    replica = wide()
    assert (node_of(replica, 1), node_of(replica, 3), rank_on(replica, "n3")) == ("n2", "", 2)
    assert seat_of(replica) == "n1 n2 n3"
    assert seat_of(a_replica(node="n7")) == "n7"


def test_it_is_as_far_as_the_last_of_its_shards() -> None:
    replica = heard(wide(), "n1", told(ShardState.READY, endpoint="http://10.0.0.0:18000", pid=7))
    assert (replica.state, replica.endpoint, replica.pid) == (ShardState.PENDING, "http://10.0.0.0:18000", 7)
    replica = heard(replica, "n2", told(ShardState.READY, pid=8))
    replica = heard(replica, "n3", told(ShardState.FETCHING))
    assert (replica.state, replica.pid) == (ShardState.FETCHING, 7)
    assert heard(replica, "n3", told(ShardState.READY)).state is ShardState.READY


def test_one_shard_that_fails_fails_all_and_nothing_brings_it_back() -> None:
    failed = heard(wide(ShardState.READY), "n2", told(ShardState.FAILED, message="exit code 1"))
    assert (failed.state, failed.message) == (ShardState.FAILED, "worker on n2: exit code 1")
    assert left_over(failed)
    assert failed.holding == ("n1", "n3")
    after = heard(failed, "n1", told(ShardState.FAILED, message="a card is gone"))
    after = heard(heard(after, "n2", told(ShardState.READY)), "n3", told(ShardState.STOPPED))
    assert after.state is ShardState.FAILED
    assert after.message == "worker on n2: exit code 1"


def test_a_shard_its_node_does_not_name_is_a_failure() -> None:
    replica = missed(wide(ShardState.READY), "n1")
    assert replica.state is ShardState.FAILED
    assert "head on n1" in replica.message


def test_what_one_node_tells_stands_for_all_until_the_others_speak() -> None:
    shards = wide().shards
    replica = assemble(changed(told(ShardState.READY, node="n2"), shards=shards), "n2")
    assert (replica.node, replica.state, replica.endpoint) == ("n1", ShardState.STARTING, "")
    assert replica.message == "head on n1: not heard yet"
    assert [shard.heard for shard in replica.shards] == [False, True, False]
    replica = heard(replica, "n1", told(ShardState.READY))
    assert replica.state is ShardState.READY
    replica = heard(replica, "n3", told(ShardState.STARTING))
    assert replica.state is ShardState.STARTING


def test_none_starts_before_all_have_their_weights_and_no_worker_before_its_head() -> None:
    replica = wide()
    ready = told(ShardState.STARTING, prepared=True)
    for node in ("n1", "n2"):
        replica = heard(replica, node, ready)
    assert list(rallied(replica)) == []
    replica = heard(replica, "n3", ready)
    assert list(rallied(replica)) == [0]
    replica = heard(replica, "n1", told(ShardState.STARTING, pid=1))
    assert list(rallied(replica)) == []
    replica = heard(replica, "n1", told(ShardState.STARTING, pid=1, runtime_port=6379))
    assert list(rallied(replica)) == [1, 2]
    assert list(rallied(heard(replica, "n2", told(ShardState.FAILED)))) == []


def test_the_head_ends_first_and_a_failed_replica_all_at_once() -> None:
    def everywhere(_node: str) -> bool:
        return True

    draining = changed(wide(ShardState.READY), state=ShardState.DRAINING)
    assert to_stop(draining, everywhere) == (0,)
    assert to_stop(draining, lambda node: node != "n1") == (1, 2)
    draining = heard(draining, "n1", told(ShardState.STOPPED))
    assert (draining.state, to_stop(draining, everywhere)) == (ShardState.DRAINING, (1, 2))
    for node in ("n2", "n3"):
        assert not ended(draining)
        draining = heard(draining, node, told(ShardState.STOPPED))
    assert ended(draining)
    failed = heard(wide(ShardState.READY), "n3", told(ShardState.FAILED))
    assert to_stop(failed, everywhere) == (0, 1, 2)
    assert to_stop(a_replica(), everywhere) == (0,)


def test_it_shows_the_download_that_is_least_far() -> None:
    replica = progressed(wide(), "n1", FetchProgress(phase="fetching", done_bytes=90, total_bytes=100))
    replica = progressed(replica, "n3", FetchProgress(phase="fetching", done_bytes=10, total_bytes=100))
    assert replica.progress is not None
    assert replica.progress.done_bytes == 10


@given(words=st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(list(ShardState))), max_size=20))
def test_it_serves_only_while_all_its_shards_do(words: list[tuple[str, ShardState]]) -> None:
    replica = wide()
    was_failed = False
    for node, state in words:
        replica = heard(replica, node, told(state))
        assert (replica.state is ShardState.READY) <= all(s.state is ShardState.READY for s in replica.shards)
        assert (replica.state is ShardState.FAILED) >= was_failed
        was_failed = replica.state is ShardState.FAILED
        assert set(replica.holding) == {s.node for s in replica.shards if s.state in LIVE_STATES}
