"""Which rows of the live feed are told anew when figures move that nobody tells of."""

from hypothesis import given
from hypothesis import strategies as st

from llmgw.control.breakers import Breaker
from llmgw.control.live_counts import IN_FLIGHT_ROWS, ShownCounts
from llmgw.core.figures import EngineLoad

OPEN = Breaker(1, 1, "it answers 500")
HALF_OPEN = Breaker(0, 1, "it answers 500")


def anything(name: str) -> bool:
    return True


def test_costs_that_moved_are_told_and_the_others_are_not() -> None:
    shown = ShownCounts()
    assert shown.costs_moved({"a": 5, "b": 7, "elsewhere": 1}, {"a", "b"}.__contains__) == {"a", "b"}
    assert shown.costs_moved({"a": 5, "b": 8}, anything) == {"b", "elsewhere"}
    assert (shown.cost_micros("a"), shown.cost_micros("b"), shown.cost_micros("elsewhere")) == (5, 8, 0)
    assert shown.costs_moved({}, anything) == {"a", "b"}


def test_breakers_are_told_when_their_state_changes() -> None:
    shown = ShownCounts()
    assert shown.breakers_moved({"r1": OPEN, "r2": HALF_OPEN}, {"r1", "r2"}.__contains__) == {"r1", "r2"}
    assert shown.breakers_moved({"r1": Breaker(2, 2, "refused"), "r2": OPEN}, anything) == {"r2"}
    assert shown.breakers_moved({"r2": OPEN}, anything) == {"r1"}
    assert (shown.breaker("r1"), shown.breaker("r2")) == ("", "open")


def test_a_replica_that_comes_back_is_told_from_nothing() -> None:
    shown = ShownCounts()
    assert shown.requests_moved({"r1": 3}, anything) == {"r1"}
    shown.forget("r1")
    assert shown.open_requests("r1") == 0
    assert shown.requests_moved({"r1": 3}, anything) == {"r1"}


def test_those_that_moved_most_go_first_and_the_rest_follow() -> None:
    shown = ShownCounts()
    counts = {f"r{n}": n for n in range(1, 2 * IN_FLIGHT_ROWS + 1)}
    first = shown.requests_moved(counts, anything)
    assert first == {f"r{n}" for n in range(IN_FLIGHT_ROWS + 1, 2 * IN_FLIGHT_ROWS + 1)}
    assert shown.requests_moved(counts, anything) == counts.keys() - first
    assert shown.requests_moved(counts, anything) == set()


def test_loads_that_moved_most_go_first_and_what_is_not_said_any_more_is_told() -> None:
    shown = ShownCounts()
    loads = {f"r{n}": EngineLoad(waiting=n, kv_used=0.5) for n in range(1, IN_FLIGHT_ROWS + 3)}
    assert shown.loads_moved(loads, anything) == loads.keys() - {"r1", "r2"}
    assert shown.loads_moved(loads, anything) == {"r1", "r2"}
    assert shown.load("r2") == loads["r2"]
    full = {**loads, "r3": EngineLoad(waiting=3, kv_used=0.9)}
    del full["r2"]
    assert shown.loads_moved(full, {"r2", "r3"}.__contains__) == {"r2", "r3"}
    assert (shown.load("r2"), shown.load("r3").kv_used) == (EngineLoad(), 0.9)
    shown.forget("r3")
    assert shown.load("r3") == EngineLoad()


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3)), max_size=8))
def test_in_the_end_the_rows_say_what_was_counted(steps: list[dict[str, int]]) -> None:
    shown = ShownCounts()
    for counts in steps:
        told = shown.requests_moved(counts, anything)
        assert {name: shown.open_requests(name) for name in "abc"} == {name: counts.get(name, 0) for name in "abc"}
        assert not shown.requests_moved(counts, anything), told
