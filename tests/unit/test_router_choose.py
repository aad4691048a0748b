"""The least loaded replica that nothing speaks against."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.routing import RoutedReplica
from llmgw.router.breaker import Failure
from llmgw.router.choose import Chooser
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
    replica = chooser.choose(replicas(count), load, tried=tried or set(), now=now)
    assert replica is not None
    return replica.id


@given(st.lists(st.integers(0, 50), min_size=1, max_size=8))
def test_never_more_loaded_than_another(loads: list[int]) -> None:
    load = {f"r{i}": n for i, n in enumerate(loads) if n}
    assert load.get(picked(Chooser(HealthBook({}, {})), len(loads), load), 0) == min(loads)


def test_equally_loaded_take_turns() -> None:
    chooser = Chooser(HealthBook({}, {}))
    assert {picked(chooser, 3, {}) for _ in range(3)} == {"r0", "r1", "r2"}


def test_weight_shares_the_load() -> None:
    three = replicas(2, {1: 3.0})
    chosen = Chooser(HealthBook({}, {})).choose(three, {"r0": 1, "r1": 2}, tried=set(), now=0.0)
    assert chosen is not None
    assert chosen.id == "r1"
    assert (
        Chooser(HealthBook({}, {})).choose(replicas(2, {0: 0.0}), {"r0": 1, "r1": 9}, tried=set(), now=0.0) is not None
    )


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
