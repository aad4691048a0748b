"""Breakers and hung replicas, on a clock of the test's own."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.routing import RoutedModel, RoutedReplica, Routing
from llmgw.router.breaker import Caution, Failure
from llmgw.router.health import HealthBook, Trial
from llmgw.router.limits import (
    FAILURES_IN_A_ROW,
    FAILURES_OF_RECENT,
    HUNG_AFTER_S,
    HUNG_TIMES,
    PAUSE_FIRST_S,
    PAUSE_LAST_S,
    RECENT_OUTCOMES,
    SHUN_S,
)
from llmgw.router.retry_after import retry_after_s
from llmgw.router.state import IndexedRoutes

REFUSED = Failure("refused", at_once=True)
BAD = Failure("it answers 500")
SLOW = Failure("slow", hung=True, waited=True)


class Bench:
    """A book, its reports, one replica, and the time."""

    def __init__(self) -> None:
        self.breakers: dict[str, str] = {}
        self.failures: dict[str, str] = {}
        self.opened: list[str] = []
        self.book = HealthBook(self.breakers, self.failures, on_open=self.opened.append)
        self.now = 1000.0
        self.replica = RoutedReplica(id="r0", model="m", endpoint="http://h:1")

    def begin(self, *, streamed: bool = True) -> Trial:
        """An attempt begins."""
        return self.book.begin(self.replica, streamed=streamed, now=self.now)

    def fail(self, failure: Failure = BAD) -> None:
        """An attempt fails."""
        trial = self.begin()
        trial.failed(failure, self.now)
        trial.close(self.now)

    def serve(self, *, first_byte_s: float = 0.0) -> None:
        """An attempt succeeds."""
        trial = self.begin()
        self.now += first_byte_s
        trial.answered(self.now)
        trial.succeeded()
        trial.close(self.now)

    def caution(self) -> Caution:
        """What speaks against the replica."""
        return self.book.caution("r0", self.now)

    def pass_time(self, seconds: float) -> None:
        """Time goes by."""
        self.now += seconds
        self.book.tick(self.now)


def test_a_connection_that_fails_opens_at_once() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    assert bench.caution() is Caution.BROKEN
    assert (bench.breakers, bench.failures) == ({"r0": "open"}, {"r0": "refused"})
    assert bench.opened == ["m"]


def test_other_failures_add_up_in_a_row() -> None:
    bench = Bench()
    for _ in range(FAILURES_IN_A_ROW - 1):
        bench.fail()
    bench.serve()
    for _ in range(FAILURES_IN_A_ROW - 1):
        bench.fail()
    assert bench.caution() is Caution.NONE
    bench.fail()
    assert bench.caution() is Caution.BROKEN


def test_half_of_the_last_are_too_many() -> None:
    bench = Bench()
    for _ in range(FAILURES_OF_RECENT - 1):
        bench.fail()
        bench.serve()
    assert bench.caution() is Caution.NONE
    bench.fail()
    assert bench.caution() is Caution.BROKEN


def test_fewer_than_half_are_not() -> None:
    bench = Bench()
    for _ in range(10 * RECENT_OUTCOMES):
        bench.fail()
        bench.serve()
        bench.serve()
    assert bench.caution() is Caution.NONE
    assert not bench.opened


def test_half_open_lets_exactly_one_through_and_it_heals() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    bench.pass_time(PAUSE_FIRST_S)
    assert bench.breakers == {"r0": "half-open"}
    assert bench.caution() is Caution.PROBE
    probe = bench.begin()
    assert probe.probing
    assert bench.caution() is Caution.BROKEN
    second = bench.begin()
    assert not second.probing
    probe.answered(bench.now)
    assert bench.caution() is Caution.NONE
    assert (bench.breakers, bench.failures) == ({}, {})


def test_a_probe_that_fails_doubles_the_pause_up_to_its_bound() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    pauses = []
    for _ in range(8):
        waited = 0.0
        while bench.caution() is not Caution.PROBE:
            bench.pass_time(0.25)
            waited += 0.25
        pauses.append(waited)
        bench.fail(REFUSED)
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0]


def test_a_probe_whose_client_leaves_frees_it_for_the_next() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    bench.pass_time(PAUSE_FIRST_S)
    probe = bench.begin()
    probe.close(bench.now)
    assert bench.caution() is Caution.PROBE
    assert bench.begin().probing


def test_a_first_byte_closes_it_on_trial_only() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    for pause_s in (1.0, 2.0, 4.0):
        bench.pass_time(pause_s - 0.1)
        assert bench.caution() is Caution.BROKEN
        bench.pass_time(0.1)
        probe = bench.begin()
        probe.answered(bench.now)
        assert bench.caution() is Caution.NONE
        probe.failed(BAD, bench.now)  # lost midway: one is enough, and the pause is twice as long
        probe.close(bench.now)
        assert bench.caution() is Caution.BROKEN
    bench.pass_time(8.0)
    bench.serve()
    bench.fail()
    bench.fail()
    assert bench.caution() is Caution.NONE


def test_what_began_before_it_opened_cannot_close_it() -> None:
    bench = Bench()
    old = bench.begin()
    bench.now += 0.1
    bench.fail(REFUSED)
    old.answered(bench.now)
    old.succeeded()
    old.close(bench.now)
    assert bench.caution() is Caution.BROKEN


def test_many_that_fail_together_open_it_once() -> None:
    bench = Bench()
    trials = [bench.begin() for _ in range(32)]
    bench.pass_time(120.0)
    for trial in trials:
        trial.failed(SLOW, bench.now)
        trial.close(bench.now)
    assert bench.opened == ["m"]
    assert bench.caution() is Caution.HUNG
    assert bench.book.next_probe_s([bench.replica], bench.now) == PAUSE_FIRST_S


def test_answers_that_take_long_are_not_held_against_a_replica_that_answers_others() -> None:
    bench = Bench()
    long = [bench.begin(streamed=False) for _ in range(10)]
    for _ in range(120):
        bench.pass_time(1.0)
        bench.serve()
        assert bench.caution() is Caution.NONE
    for trial in long:
        trial.failed(SLOW, bench.now)
        trial.close(bench.now)
    bench.pass_time(0.25)
    assert bench.caution() is Caution.NONE
    assert not bench.opened


def test_a_replica_that_hangs_later_is_late_though_it_answered_others_while_the_oldest_waited() -> None:
    bench = Bench()
    bench.begin(streamed=False)
    for _ in range(20):
        bench.pass_time(1.0)
        bench.serve()
    bench.pass_time(HUNG_AFTER_S + 0.1)
    assert bench.caution() is Caution.LATE


def test_what_an_endpoint_asks_for_is_its_pause() -> None:
    bench = Bench()
    told = Failure("429", at_once=True, hung=True, pause_s=42.0)
    bench.fail(told)
    bench.pass_time(41.9)
    assert bench.caution() is Caution.HUNG
    bench.pass_time(0.1)
    assert bench.caution() is Caution.PROBE
    bench.fail(told)
    bench.pass_time(41.9)
    assert bench.caution() is Caution.HUNG
    bench.pass_time(0.1)
    assert bench.caution() is Caution.PROBE


def test_a_replica_whose_oldest_request_waits_long_is_passed_over_until_it_answers() -> None:
    bench = Bench()
    stuck = bench.begin()
    bench.pass_time(HUNG_AFTER_S)
    assert bench.caution() is Caution.NONE
    bench.pass_time(0.1)
    assert bench.caution() is Caution.LATE
    assert not bench.breakers
    stuck.answered(bench.now)
    bench.pass_time(0.25)
    assert bench.caution() is Caution.NONE
    assert not bench.book.suspects


def test_what_is_late_depends_on_what_first_bytes_usually_take() -> None:
    bench = Bench()
    for _ in range(50):
        bench.serve(first_byte_s=5.0)
    bench.begin()
    bench.pass_time(HUNG_TIMES * 5.0 - 0.1)
    assert bench.caution() is Caution.NONE
    bench.pass_time(0.2)
    assert bench.caution() is Caution.LATE


def test_unstreamed_answers_do_not_make_streams_look_fast_nor_the_other_way_round() -> None:
    bench = Bench()
    for _ in range(50):
        bench.serve(first_byte_s=0.1)
    assert bench.book.patience_s("m", streamed=True) == HUNG_AFTER_S
    slow = bench.begin(streamed=False)
    bench.now += 60.0
    slow.answered(bench.now)
    slow.close(bench.now)
    assert bench.book.patience_s("m", streamed=False) == HUNG_TIMES * 60.0
    assert bench.book.patience_s("m", streamed=True) == HUNG_AFTER_S


def test_who_let_a_client_go_in_vain_is_passed_over_for_a_while() -> None:
    bench = Bench()
    left = bench.begin()
    bench.pass_time(HUNG_AFTER_S + 1.0)
    left.close(bench.now)
    bench.pass_time(0.25)
    assert bench.caution() is Caution.LATE
    assert not bench.breakers
    bench.pass_time(SHUN_S)
    assert bench.caution() is Caution.NONE
    assert not bench.book.suspects


def test_a_client_that_leaves_early_proves_nothing() -> None:
    bench = Bench()
    for _ in range(100):
        bench.begin().close(bench.now)
    assert bench.caution() is Caution.NONE
    assert not bench.book.suspects


def routes(*endpoints: str) -> IndexedRoutes:
    """One model with a replica an endpoint."""
    replicas = tuple(RoutedReplica(id=f"r{i}", model="m", endpoint=at) for i, at in enumerate(endpoints))
    return IndexedRoutes(Routing(revision="1/1", models=(RoutedModel(name="m"),), replicas=replicas))


@pytest.mark.parametrize("after", [routes("http://h:2"), routes()])
def test_a_replica_that_moved_or_is_gone_begins_anew(after: IndexedRoutes) -> None:
    bench = Bench()
    bench.book.follow(routes("http://h:1"))
    bench.fail(REFUSED)
    old = bench.begin()
    bench.book.follow(after)
    assert (bench.breakers, bench.failures, bench.book.suspects) == ({}, {}, {})
    old.failed(REFUSED, bench.now)
    old.close(bench.now)
    assert (bench.breakers, bench.book.suspects) == ({}, {})


def test_routes_that_keep_it_keep_its_breaker() -> None:
    bench = Bench()
    bench.fail(REFUSED)
    bench.book.follow(routes("http://h:1", "http://h:2"))
    assert bench.breakers == {"r0": "open"}


@given(st.integers(0, 2**32), st.integers(20, 120))
def test_whatever_happens_there_is_one_probe_at_most_and_it_is_back_within_its_bound(seed: int, steps: int) -> None:
    picks, bench = random.Random(seed), Bench()
    open_trials: list[Trial] = []
    for _ in range(steps):
        match picks.randrange(5):
            case 0:
                open_trials.append(bench.begin())
            case 1 if open_trials:
                picks.choice(open_trials).answered(bench.now)
            case 2 if open_trials:
                trial = open_trials.pop(picks.randrange(len(open_trials)))
                trial.failed(picks.choice([REFUSED, BAD, SLOW]), bench.now)
                trial.close(bench.now)
            case 3 if open_trials:
                trial = open_trials.pop(picks.randrange(len(open_trials)))
                if picks.random() < 0.7:
                    trial.succeeded()
                trial.close(bench.now)
            case _:
                bench.pass_time(picks.random() * 5)
        assert sum(trial.probing for trial in open_trials) <= 1
        assert set(bench.breakers) == set(bench.failures)
    for trial in open_trials:
        trial.close(bench.now)
    bench.pass_time(PAUSE_LAST_S)
    assert bench.caution() in (Caution.PROBE, Caution.NONE)
    bench.serve()
    bench.pass_time(SHUN_S)
    assert bench.caution() is Caution.NONE
    assert (bench.breakers, bench.book.suspects) == ({}, {})


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (b"120", 120.0),
        (b" 1.5 ", 1.5),
        (b"", None),
        (b"soon", None),
        (b"-5", None),
        (b"\xb2", None),
        (b"9" * 400, None),
        (b"Wed, 21 Oct 2015 07:28:30 GMT", 30.0),
        (b"Wed, 21 Oct 2015 07:27:00 GMT", 0.0),
        (b"Wed, 99 Oct 2015 07:27:00 GMT", None),
    ],
)
def test_when_to_come_back(value: bytes, wanted: float | None) -> None:
    assert retry_after_s(value, wall=1445412480.0) == wanted
