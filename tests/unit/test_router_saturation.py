"""How loaded an engine is taken to be: its own word, what was started there since, and what counts as full."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.admission import Admission
from llmgw.core.routing import ReplicaLoad
from llmgw.router.saturation import ROOM_UNSEEN, load_of, work_of

RULES = Admission()


def load(said: ReplicaLoad, in_flight: int = 0, then: int = 0, *, fresh: bool = True) -> float:
    """The load of an engine that said this."""
    return load_of(work_of(said, in_flight, then, fresh=fresh), said.kv_used if fresh else None, RULES)


def test_the_thresholds_are_those_promised() -> None:
    assert (RULES.waiting_per_replica, RULES.kv_ceiling, RULES.saturation) == (4.0, 0.9, 0.85)
    assert load(ReplicaLoad(running=8, waiting=4, slots=8)) == 1.0
    assert load(ReplicaLoad(running=8, waiting=3, slots=8)) == 0.75
    assert load(ReplicaLoad(running=8, waiting=0, slots=8)) == 0.0
    assert load(ReplicaLoad(running=8, waiting=0, slots=8, kv_used=0.9)) == 1.0
    assert load(ReplicaLoad(running=8, waiting=0, slots=8, kv_used=0.45)) == pytest.approx(0.5)


def test_what_was_started_since_it_spoke_counts() -> None:
    said = ReplicaLoad(running=8, waiting=0, slots=8)
    assert load(said, in_flight=10, then=8) == 0.5
    assert load(said, in_flight=12, then=8) == 1.0
    assert load(said, in_flight=4, then=8) == 0.0


def test_requests_of_other_routers_count_too() -> None:
    said = ReplicaLoad(running=8, waiting=2, slots=8)
    assert work_of(said, 1, 1, fresh=True).waiting == 2
    assert work_of(said, 3, 1, fresh=True).waiting == 4


def test_two_hundred_in_flight_at_an_engine_of_the_cluster_are_a_queue() -> None:
    assert load(ReplicaLoad(running=0, waiting=0), in_flight=200) == 1.0
    assert load(ReplicaLoad(slots=8), in_flight=200) == 1.0


def test_an_engine_without_a_queue_that_names_no_slots_takes_more_than_it_has() -> None:
    assert load(ReplicaLoad(running=100, waiting=0), in_flight=150, then=100) == 0.0
    assert work_of(ReplicaLoad(running=1, waiting=0), 2, 1, fresh=True).free == ROOM_UNSEEN - 2


def test_one_that_queues_is_full_with_what_runs() -> None:
    said = ReplicaLoad(running=40, waiting=1)
    assert work_of(said, 41, 41, fresh=True) == (1, 0.0, 40)
    assert work_of(said, 44, 41, fresh=True).waiting == 4


def test_old_figures_are_none_but_slots_stay() -> None:
    said = ReplicaLoad(running=8, waiting=50, slots=8, kv_used=1.0)
    assert load(said, in_flight=2, then=2, fresh=False) == 0.0
    assert load(said, in_flight=12, then=2, fresh=False) == 1.0
    assert load(ReplicaLoad(running=8, waiting=50), in_flight=500, fresh=False) == 0.0


def test_an_engine_that_says_nothing_is_never_full() -> None:
    work = work_of(ReplicaLoad(), 100_000, 0, fresh=True)
    assert work.free is None
    assert load_of(work, None, RULES) == 0.0


FIGURE = st.one_of(st.none(), st.integers(0, 500))


@given(FIGURE, FIGURE, st.one_of(st.none(), st.integers(1, 500)), st.integers(0, 500), st.integers(0, 500))
def test_it_never_falls_as_more_is_started(
    running: int | None, waiting: int | None, slots: int | None, in_flight: int, then: int
) -> None:
    said = ReplicaLoad(running=running, waiting=waiting, slots=slots)
    works = [work_of(said, in_flight + more, then, fresh=True) for more in range(3)]
    assert all(0.0 <= load_of(work, None, RULES) <= 1.0 for work in works)
    assert works[0].waiting <= works[1].waiting <= works[2].waiting
    assert works[1].waiting - works[0].waiting <= 1
    frees = [work.free for work in works if work.free is not None]
    assert frees == sorted(frees, reverse=True)
    assert all(work.free is None or not (work.free and work.waiting) for work in works)
