"""The sliding window beside an oracle that remembers every request, and money by its periods."""

import math
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.limits import day_number, month_number
from llmgw.router.windows import (
    Spent,
    Window,
    begun_anew,
    clear_s,
    fits,
    raised,
    rolled,
    take_back,
    used,
    wait_s,
)

EPSILON = 1e-6
attempts = st.lists(
    st.tuples(st.floats(0, 70, allow_nan=False), st.integers(1, 4)),
    min_size=1,
    max_size=80,
)


def split(at: float) -> tuple[int, float]:
    """The minute and the seconds into it."""
    return int(at // 60), at - at // 60 * 60


@given(attempts, st.integers(0, 12))
def test_never_more_than_the_limit_is_in_view(steps: list[tuple[float, int]], limit: int) -> None:
    window, at = Window(0, 0, 0, 0, 0), 1000.0
    admitted: list[tuple[float, int]] = []
    for pause, amount in steps:
        at += pause
        minute, elapsed = split(at)
        window = rolled(window, minute)
        if fits(window.requests, window.last_requests, elapsed, amount, limit):
            admitted.append((at, amount))
            window = window._replace(requests=window.requests + amount)
        this = sum(n for t, n in admitted if t // 60 == minute)
        last = sum(n for t, n in admitted if t // 60 == minute - 1)
        assert (window.requests, window.last_requests) == (this, last)
        in_view = this + last * (60 - elapsed) / 60
        assert used(window.requests, window.last_requests, elapsed) == pytest.approx(in_view)
        if admitted and admitted[-1][0] == at:
            assert in_view <= limit + EPSILON


@given(st.integers(0, 50), st.integers(0, 50), st.floats(0, 59.999), st.integers(1, 50), st.integers(0, 60))
def test_the_wait_is_when_it_fits_and_not_sooner(
    count: int, last: int, elapsed: float, amount: int, limit: int
) -> None:
    wait = wait_s(count, last, elapsed, amount, limit)
    if amount > limit:
        assert wait is None
        return
    assert wait is not None

    def fits_after(seconds: float) -> bool:
        minute, into = split(elapsed + seconds)
        window = rolled(Window(0, count, 0, last, 0), minute)
        return fits(window.requests, window.last_requests, into, amount, limit)

    assert (wait == 0.0) == fits(count, last, elapsed, amount, limit)
    assert fits_after(wait + EPSILON)
    assert fits_after(math.ceil(wait) + EPSILON)
    if wait > 0.01:
        assert not fits_after(wait - 0.01)
    assert wait <= clear_s(count, last, elapsed) + EPSILON


def test_ten_seconds_into_a_minute_the_last_weighs_five_sixths() -> None:
    assert used(0, 12, 10.0) == 10.0
    assert fits(0, 12, 10.0, 2, 12)
    assert not fits(0, 12, 10.0, 3, 12)


def test_minutes_two_back_are_dropped() -> None:
    window = Window(7, 3, 30, 2, 20)
    assert rolled(window, 8) == Window(8, 0, 0, 3, 30)
    assert rolled(window, 9) == Window(9, 0, 0, 0, 0)


def test_a_clock_that_is_behind_lets_nobody_in() -> None:
    window = Window(7, 3, 30, 2, 20)
    assert rolled(window, 6) == window
    assert rolled(window, 3) == Window(3, 3, 30, 2, 20)


@pytest.mark.parametrize(
    ("minute", "left"),
    [
        (7, Window(7, 2, 25, 2, 20)),
        (6, Window(7, 3, 30, 1, 15)),
        (5, Window(7, 3, 30, 2, 20)),
        (8, Window(7, 3, 30, 2, 20)),
    ],
)
def test_what_is_taken_back_comes_from_the_minute_it_was_charged_to(minute: int, left: Window) -> None:
    assert take_back(Window(7, 3, 30, 2, 20), minute, 1, 5) == left


def test_never_less_than_nothing_is_left() -> None:
    assert take_back(Window(7, 0, 3, 0, 0), 7, 1, 5) == Window(7, 0, 0, 0, 0)


@pytest.mark.parametrize(("mine", "heard", "right"), [(900, 400, 900), (100, 700, 700), (0, 50, 50)])
def test_catching_up_raises_and_never_lowers(mine: int, heard: int, right: int) -> None:
    """S167."""
    assert raised(Spent(mine, 5, mine, 2), heard, 5, heard, 2) == Spent(right, 5, right, 2)


def test_what_is_heard_of_another_period_counts_nothing() -> None:
    assert raised(Spent(1, 5, 1, 2), 900, 4, 900, 1) == Spent(1, 5, 1, 2)
    assert raised(Spent(1, 5, 1, 2), 900, 4, 900, 2) == Spent(1, 5, 900, 2)


def test_a_budget_begins_anew_with_its_period() -> None:
    """S168."""
    before = datetime(2030, 1, 31, 23, 59, tzinfo=UTC).timestamp()
    after = datetime(2030, 2, 1, 0, 0, tzinfo=UTC).timestamp()
    spent = Spent(70, day_number(before), 900, month_number(before))
    assert begun_anew(spent, day_number(before), month_number(before)) == spent
    assert begun_anew(spent, day_number(after), month_number(after)) == Spent(
        0, day_number(after), 0, month_number(after)
    )


def test_a_day_of_the_same_month_begins_anew_alone() -> None:
    assert begun_anew(Spent(70, 10, 900, 3), 11, 3) == Spent(0, 11, 900, 3)


def test_a_clock_a_day_behind_does_not_undo_the_new_day() -> None:
    assert begun_anew(Spent(7, 11, 7, 4), 10, 3) == Spent(7, 11, 7, 4)
    assert begun_anew(Spent(7, 99, 7, 9), 10, 3) == Spent(0, 10, 0, 3)
