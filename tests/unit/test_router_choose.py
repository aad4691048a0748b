"""The least loaded replica that did not just fail."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.routing import RoutedReplica
from llmgw.router.choose import Chooser
from llmgw.router.limits import PENALTY_FIRST_S, PENALTY_LAST_S


def replicas(count: int, weights: dict[int, float] | None = None) -> list[RoutedReplica]:
    """Replicas r0, r1, …"""
    chosen = weights or {}
    return [
        RoutedReplica(id=f"r{i}", model="m", endpoint=f"http://h:{i + 1}", weight=chosen.get(i, 1.0))
        for i in range(count)
    ]


def picked(chooser: Chooser, count: int, load: dict[str, int], tried: set[str] | None = None, now: float = 0.0) -> str:
    """Id of the replica that is chosen."""
    replica = chooser.choose(replicas(count), load, tried=tried or set(), now=now)
    assert replica is not None
    return replica.id


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_never_more_loaded_than_another(loads: list[int]) -> None:
    load = {f"r{i}": n for i, n in enumerate(loads) if n}
    assert load.get(picked(Chooser(), len(loads), load), 0) == min(loads)


def test_equally_loaded_take_turns() -> None:
    chooser = Chooser()
    assert {picked(chooser, 3, {}) for _ in range(3)} == {"r0", "r1", "r2"}


def test_weight_shares_the_load() -> None:
    three = replicas(2, {1: 3.0})
    chosen = Chooser().choose(three, {"r0": 1, "r1": 2}, tried=set(), now=0.0)
    assert chosen is not None
    assert chosen.id == "r1"
    assert Chooser().choose(replicas(2, {0: 0.0}), {"r0": 1, "r1": 9}, tried=set(), now=0.0) is not None


def test_no_replica_is_none() -> None:
    assert Chooser().choose([], {}, tried=set(), now=0.0) is None


def test_a_failed_replica_is_passed_over_then_tried_once() -> None:
    chooser = Chooser()
    chooser.failed("r0", 0.0)
    assert {picked(chooser, 2, {"r1": 9}, now=PENALTY_FIRST_S / 2) for _ in range(4)} == {"r1"}
    later = PENALTY_FIRST_S + 0.1
    assert [picked(chooser, 2, {"r1": 9}, now=later) for _ in range(3)] == ["r0", "r1", "r1"]
    chooser.succeeded("r0")
    assert picked(chooser, 2, {"r1": 9}, now=later) == "r0"


def test_penalties_grow_and_end() -> None:
    chooser = Chooser()
    for _ in range(20):
        chooser.failed("r0", 0.0)
    assert picked(chooser, 2, {"r1": 9}, now=PENALTY_LAST_S - 0.1) == "r1"
    assert picked(chooser, 2, {"r1": 9}, now=PENALTY_LAST_S + 0.1) == "r0"


def test_a_failed_one_is_better_than_none_and_than_one_tried() -> None:
    chooser = Chooser()
    chooser.failed("r0", 0.0)
    assert picked(chooser, 1, {}) == "r0"
    assert picked(chooser, 2, {}, tried={"r1"}) == "r0"
    assert picked(chooser, 1, {}, tried={"r0"}) == "r0"
