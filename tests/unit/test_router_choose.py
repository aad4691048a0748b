"""The least loaded replica that nothing speaks against."""

import time
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.figures import LOAD_HOLDS_S
from llmgw.core.routing import ReplicaLoad, RoutedReplica
from llmgw.router.breaker import Failure
from llmgw.router.choose import Chooser
from llmgw.router.expected import FULL_CACHE
from llmgw.router.health import HealthBook
from llmgw.router.limits import HUNG_AFTER_S, PAUSE_FIRST_S


def replicas(count: int, weights: dict[int, float] | None = None) -> list[RoutedReplica]:
    """Replicas r0, r1, …"""
    chosen = weights or {}
    return [
        RoutedReplica(id=f"r{i}", model="m", endpoint=f"http://h:{i + 1}", weight=chosen.get(i, 1.0))
        for i in range(count)
    ]


def picked(chooser: Chooser, count: int, load: dict[str, int], tried: set[str] | None = None, now: float = 0.0) -> str:
    """Id of the replica that is chosen."""
    chosen = chooser.choose(replicas(count), load, tried=tried or set(), now=now)
    assert chosen is not None
    return chosen[0].id


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_never_more_loaded_than_another(loads: list[int]) -> None:
    load = {f"r{i}": n for i, n in enumerate(loads) if n}
    assert load.get(picked(Chooser(HealthBook({}, {})), len(loads), load), 0) == min(loads)


def test_equally_loaded_take_turns() -> None:
    chooser = Chooser(HealthBook({}, {}))
    assert {picked(chooser, 3, {}) for _ in range(3)} == {"r0", "r1", "r2"}


def test_a_second_try_takes_no_turn() -> None:
    chooser, firsts = Chooser(HealthBook({}, {})), []
    for _ in range(4):
        firsts.append(picked(chooser, 2, {}))
        if firsts[-1] == "r0":
            assert picked(chooser, 2, {}, tried={"r0"}) == "r1"
    assert sorted(firsts) == ["r0", "r0", "r1", "r1"]


def shares(chooser: Chooser, there: list[RoutedReplica], requests: int) -> Counter[str]:
    """How many of so many requests that never end each replica was given."""
    load: Counter[str] = Counter()
    for _ in range(requests):
        chosen = chooser.choose(there, load, tried=set(), now=0.0)
        assert chosen is not None
        load[chosen[0].id] += 1
    return load


@given(st.lists(st.integers(1, 8), min_size=2, max_size=6), st.integers(1, 40))
def test_open_requests_are_shared_by_weight(weights: list[int], times: int) -> None:
    there = replicas(len(weights), dict(enumerate(map(float, weights))))
    load = shares(Chooser(HealthBook({}, {})), there, sum(weights) * times)
    assert load == {f"r{i}": weight * times for i, weight in enumerate(weights)}


@given(st.lists(st.integers(1, 8), min_size=2, max_size=6), st.integers(1, 40))
def test_turns_of_idle_replicas_are_shared_by_weight(weights: list[int], times: int) -> None:
    chooser, got = Chooser(HealthBook({}, {})), Counter[str]()
    there = replicas(len(weights), dict(enumerate(map(float, weights))))
    for _ in range(sum(weights) * times):
        chosen = chooser.choose(there, {}, tried=set(), now=0.0)
        assert chosen is not None
        got[chosen[0].id] += 1
    assert all(abs(got[f"r{i}"] - weight * times) <= len(weights) for i, weight in enumerate(weights)), got


def test_weight_zero_gets_nothing_unless_it_is_the_only_one_left() -> None:
    spare = replicas(2, {0: 0.0})
    assert shares(Chooser(HealthBook({}, {})), spare, 50) == {"r1": 50}
    assert shares(Chooser(HealthBook({}, {})), spare[:1], 3) == {"r0": 3}
    after_r1 = Chooser(HealthBook({}, {})).choose(spare, {}, tried={"r1"}, now=0.0)
    assert after_r1 is not None
    assert after_r1[0].id == "r0"
    without_r1 = broken("r1").choose(spare, {}, tried=set(), now=0.0)
    assert without_r1 is not None
    assert without_r1[0].id == "r0"


def test_what_engines_say_of_others_requests_counts() -> None:
    loads = {"r0": ReplicaLoad(running=6, waiting=2, at=time.time())}
    chooser = Chooser(HealthBook({}, {}), loads)
    assert [picked(chooser, 2, {"r1": 3}) for _ in range(3)] == ["r1"] * 3
    loads["r0"] = ReplicaLoad(running=2, waiting=0, at=time.time())
    assert picked(chooser, 2, {"r1": 3}) == "r0"
    assert picked(chooser, 2, {"r0": 2, "r1": 3}) == "r1"
    del loads["r0"]
    assert picked(chooser, 2, {"r1": 3}) == "r0"


def test_own_requests_that_ended_before_their_figures_came_are_not_taken_for_others() -> None:
    loads = {name: ReplicaLoad(running=0, waiting=0, at=time.time()) for name in ("r0", "r1")}
    chooser = Chooser(HealthBook({}, {}), loads)
    first = picked(chooser, 2, {})
    loads[first] = ReplicaLoad(running=1, waiting=0, at=time.time())
    assert {picked(chooser, 2, {}) for _ in range(2)} == {"r0", "r1"}


def test_old_figures_are_no_figures() -> None:
    loads = {"r0": ReplicaLoad(running=8, at=time.time())}
    chooser = Chooser(HealthBook({}, {}), loads)
    assert picked(chooser, 2, {"r1": 1}, now=100.0) == "r1"
    assert picked(chooser, 2, {"r1": 1}, now=100.0 + LOAD_HOLDS_S) == "r0"
    loads["r0"] = ReplicaLoad(running=8, at=time.time() - LOAD_HOLDS_S - 1.0)
    assert picked(chooser, 2, {"r1": 1}, now=200.0) == "r0"


def test_more_slots_take_more_requests_when_all_engines_say_how_many_they_have() -> None:
    loads = {f"r{i}": ReplicaLoad(running=0, waiting=0, slots=slots, at=time.time()) for i, slots in enumerate((12, 4))}
    there = replicas(2)
    assert shares(Chooser(HealthBook({}, {}), loads), there, 32) == {"r0": 24, "r1": 8}
    loads["r1"] = ReplicaLoad(running=0, waiting=0, at=time.time())
    assert shares(Chooser(HealthBook({}, {}), loads), there, 32) == {"r0": 16, "r1": 16}


def test_a_full_kv_cache_counts_as_more_work() -> None:
    loads = {
        "r0": ReplicaLoad(running=3, waiting=0, kv_used=FULL_CACHE, at=time.time()),
        "r1": ReplicaLoad(running=5, waiting=0, kv_used=0.2, at=time.time()),
    }
    assert picked(Chooser(HealthBook({}, {}), loads), 2, {}) == "r1"


def test_no_replica_is_none() -> None:
    assert Chooser(HealthBook({}, {})).choose([], {}, tried=set(), now=0.0) is None


REFUSED = Failure("refused", at_once=True)
HUNG = Failure("hung", at_once=True, hung=True)


def broken(*ids: str, failure: Failure = REFUSED, now: float = 0.0) -> Chooser:
    """A chooser to whom these replicas are broken since `now`."""
    book = HealthBook({}, {})
    for replica in replicas(8):
        if replica.id in ids:
            trial = book.begin(replica, streamed=True, now=now)
            trial.failed(failure, now)
            trial.close(now)
    return Chooser(book)


def test_a_broken_replica_is_passed_over_and_goes_first_when_its_pause_is_over() -> None:
    chooser = broken("r0")
    assert {picked(chooser, 2, {"r1": 9}, now=PAUSE_FIRST_S / 2) for _ in range(4)} == {"r1"}
    assert picked(chooser, 2, {"r0": 9}, now=PAUSE_FIRST_S) == "r0"


def test_a_request_probes_in_its_first_attempt_only() -> None:
    chooser = broken("r0", "r1")
    assert picked(chooser, 3, {"r2": 9}, tried={"r0"}, now=PAUSE_FIRST_S) == "r2"


def test_when_all_are_broken_those_that_fail_quickly_are_tried_and_those_that_hang_are_not() -> None:
    assert picked(broken("r0", "r1"), 2, {}, tried={"r1"}) == "r0"
    assert picked(broken("r0"), 1, {}) == "r0"
    assert picked(broken("r0"), 1, {}, tried={"r0"}) == "r0"
    assert broken("r0").choose(replicas(1), {}, tried={"r0"}, now=0.0, again=False) is None
    assert Chooser(HealthBook({}, {})).choose(replicas(1), {}, tried={"r0"}, now=0.0, again=False) is None
    hung = broken("r0", "r1", failure=HUNG)
    assert hung.choose(replicas(2), {}, tried=set(), now=0.0) is None
    assert picked(hung, 2, {}, now=PAUSE_FIRST_S) in ("r0", "r1")
    assert picked(hung, 3, {"r2": 99}) == "r2"


def test_a_late_replica_is_passed_over_while_there_are_others() -> None:
    book = HealthBook({}, {})
    two = replicas(2)
    book.begin(two[0], streamed=True, now=0.0)
    book.tick(HUNG_AFTER_S + 1.0)
    chooser = Chooser(book)
    now = HUNG_AFTER_S + 1.0
    assert {picked(chooser, 2, {"r1": 50}, now=now) for _ in range(4)} == {"r1"}
    assert picked(chooser, 1, {}, now=now) == "r0"
    assert picked(chooser, 2, {}, tried={"r1"}, now=now) == "r0"
    assert not chooser.has_other(two, two[1], set())
    assert chooser.has_other(two, two[0], set())
