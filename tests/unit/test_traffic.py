"""What the traffic meter says of requests: means, first tokens and history, each request once and in its second."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.control import traffic
from llmgw.control.pace import NO_GAPS, Gaps
from llmgw.control.traffic import LAG_S, POINTS, STEP_S, TrafficMeter, by_model
from llmgw.core.meters import Queue
from llmgw.core.routing import UsageRow

START = 1_900_000_000.0


class Wall:
    """A clock to set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


def a_meter() -> tuple[TrafficMeter, Wall]:
    wall = Wall()
    return TrafficMeter(known=lambda name: name in ("m", "n"), wall=wall), wall


def a_row(number: int, at: float, *, model: str = "m", **over: object) -> UsageRow:
    fields: dict[str, object] = {"id": f"u{number}", "at": at, "key_id": "k", "model": model, "status": 200}
    return UsageRow(**{**fields, **over})  # type: ignore[arg-type]


def test_rates_are_means_over_ten_seconds() -> None:
    meter, wall = a_meter()
    meter.count(
        [a_row(i, wall.now - 5, input_tokens=10, output_tokens=20, failed=i % 4 == 0) for i in range(20)]
        + [a_row(100 + i, wall.now - 5, model="n") for i in range(10)]
    )
    rows = meter.rows({"m": 3}, 4)
    assert (rows["m"].requests_per_s, rows["m"].errors_per_s) == (2.0, 0.5)
    assert (rows["m"].input_tokens_per_s, rows["m"].output_tokens_per_s) == (20.0, 40.0)
    assert (rows["*"].requests_per_s, rows["n"].requests_per_s) == (3.0, 1.0)
    assert (rows["m"].open_requests, rows["n"].open_requests, rows["*"].open_requests) == (3, 0, 4)
    wall.now += 20
    assert meter.rows({}, 0)["m"].requests_per_s == 0.0


def test_requests_that_another_model_answered_are_told_of_both_for_a_minute() -> None:
    meter, wall = a_meter()
    meter.count([a_row(i, wall.now - 5, model="n", asked="m") for i in range(12)])
    meter.count([a_row(99, wall.now - 5, model="n"), a_row(98, wall.now - 5, model="n", asked="nobody")])
    rows = meter.rows({}, 0)
    assert (rows["m"].fell_back, rows["m"].answered_for, rows["m"].requests_per_s) == ({"n": 12}, {}, 0.0)
    assert (rows["n"].fell_back, rows["n"].answered_for) == ({}, {"m": 12, "nobody": 1})
    assert (rows["*"].fell_back, rows["*"].answered_for, rows["*"].requests_per_s) == ({}, {}, 1.4)
    wall.now += traffic.WINDOW_S + 1
    rows = meter.rows({"m": 1, "n": 1}, 2)
    assert (rows["m"].fell_back, rows["n"].answered_for) == ({}, {})


def test_gaps_between_tokens_are_shown_beside_what_ended() -> None:
    """Also of a model whose first answer still streams."""
    told = {"m": Gaps(20.0, 45.5, 90.25), "*": Gaps(10.0, 30.0, 60.0)}
    meter = TrafficMeter(known=lambda name: True, wall=Wall(), gaps=lambda model: told.get(model, NO_GAPS))
    rows = meter.rows({"m": 1, "n": 1}, 2)
    shown = {
        name: (row.inter_token_p50_ms, row.inter_token_p95_ms, row.inter_token_p99_ms) for name, row in rows.items()
    }
    assert shown == {"m": told["m"], "*": told["*"], "n": (None, None, None)}


def test_who_waits_in_routers_is_shown_also_of_a_model_that_answered_nothing_yet() -> None:
    queues = {
        "m": Queue(waiting={"gold": 1, "bronze": 2}, oldest_s=1.26),
        "n": Queue(waiting={"": 4}, oldest_s=0.5),
        "no longer there": Queue(waiting={"": 1}, oldest_s=9.0),
    }
    meter = TrafficMeter(known=lambda name: name in ("m", "n"), wall=Wall(), queues=lambda: queues)
    rows = meter.rows({}, 0)
    shown = {name: (row.queued, row.queued_oldest_s) for name, row in rows.items()}
    assert shown == {"*": (8, 9.0), "m": (3, 1.3), "n": (4, 0.5)}


def test_a_batch_sent_again_counts_once_and_an_old_backlog_makes_no_spike() -> None:
    meter, wall = a_meter()
    batch = [a_row(1, wall.now - 4), a_row(2, wall.now - 4)]
    meter.count(batch)
    meter.count(batch)
    meter.count([a_row(3, wall.now - 3600)])
    assert meter.rows({}, 0)["*"].requests_per_s == 0.2


@pytest.mark.parametrize("at", [float("nan"), float("inf"), float("-inf"), -5.0, 1e300])
def test_a_row_with_an_absurd_time_harms_nothing(at: float) -> None:
    meter, wall = a_meter()
    meter.count([a_row(1, at, first_token_ms=float("inf")), a_row(2, wall.now - 3, first_token_ms=-1.0)])
    wall.now += 4
    rows = meter.rows({}, 0)
    assert rows["*"].requests_per_s <= 0.2


def test_names_that_are_no_models_are_counted_in_all_and_kept_nowhere() -> None:
    meter, wall = a_meter()
    meter.count([a_row(i, wall.now - 3, model=f"made-up-{i}") for i in range(50)])
    rows = meter.rows({"made-up-1": 5}, 5)
    assert set(rows) == {"*"}
    assert rows["*"].requests_per_s == 5.0


@settings(max_examples=50)
@given(times=st.lists(st.floats(1.0, 100_000.0), min_size=1, max_size=200))
def test_first_token_quantiles_are_right_to_a_tenth(times: list[float]) -> None:
    meter, wall = a_meter()
    meter.count([a_row(i, wall.now - 3, first_token_ms=ms) for i, ms in enumerate(times)])
    row = meter.rows({}, 0)["m"]
    ordered = sorted(times)
    for share, shown in ((0.5, row.first_token_p50_ms), (0.95, row.first_token_p95_ms)):
        exact = ordered[max(0, -(-int(share * 100) * len(ordered) // 100) - 1)]
        assert shown is not None
        assert exact / 1.11 - 1 <= shown <= exact * 1.11 + 1


def test_first_tokens_are_forgotten_after_a_minute() -> None:
    meter, wall = a_meter()
    meter.count([a_row(1, wall.now, first_token_ms=50.0)])
    wall.now += 59
    assert meter.rows({}, 0)["m"].first_token_p50_ms == pytest.approx(50, rel=0.06)
    wall.now += 2
    assert meter.rows({}, 0)["*"].first_token_p50_ms is None


def test_history_has_a_point_every_five_seconds_and_ends_when_the_last_one_does() -> None:
    meter, wall = a_meter()
    for second in range(60):
        wall.now = START + second
        meter.count([a_row(second, wall.now, output_tokens=30)])
        meter.rows({"m": 2}, 2)
    history = meter.history("m")
    assert len(history.requests_per_s) == len(history.first_token_p95_ms) == POINTS
    assert history.end % STEP_S == 0
    assert wall.now - LAG_S - STEP_S < history.end <= wall.now - LAG_S + 1
    assert history.requests_per_s[-5:] == (1.0,) * 5
    assert history.output_tokens_per_s[-5:] == (30.0,) * 5
    assert history.open_requests[-1] == 2
    assert history.requests_per_s[0] == 0.0
    assert meter.history("*").requests_per_s[-5:] == (1.0,) * 5


def test_a_model_that_rests_is_forgotten_and_its_history_is_zeros() -> None:
    meter, wall = a_meter()
    meter.count([a_row(1, wall.now)])
    for _ in range(POINTS + 20):
        wall.now += STEP_S
        meter.rows({}, 0)
    assert set(meter.rows({}, 0)) == {"*"}
    assert meter.history("m").requests_per_s == (0.0,) * POINTS


def test_a_clock_that_jumps_leaves_history_whole() -> None:
    meter, wall = a_meter()
    meter.count([a_row(1, wall.now)])
    for jump in (-7200.0, 86_400.0, -10.0):
        wall.now += jump
        meter.count([a_row(int(jump) + 10**6, wall.now)])
        meter.rows({}, 0)
        assert len(meter.history("m").requests_per_s) == POINTS


def test_open_requests_by_model() -> None:
    models = {"r1": "m", "r2": "m", "r3": "n"}
    assert by_model({"r1": 2, "r2": 3, "r3": 1, "gone": 9}, models.get) == {"m": 5, "n": 1}


def test_bins_cover_every_time() -> None:
    assert traffic._bin(0.0) == 0
    assert traffic._bin(float("inf")) == traffic._bin(traffic.LONGEST_MS) < traffic._BINS
