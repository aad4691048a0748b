"""What a router counts, and what it says of it."""

import math
from bisect import bisect_left

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.meters import (
    DURATION_S,
    FIRST_TOKEN_S,
    INTER_TOKEN_S,
    MAX_MODELS,
    NO_MODEL,
    OUTCOMES,
    MeterReport,
    ModelMeters,
)
from llmgw.core.routing import Activity, RouterMessage, UsageRow
from llmgw.router.meters import CLIENT_LEFT, Meters, histogram_of, new_cells, observe


def a_row(**over: object) -> UsageRow:
    fields: dict[str, object] = {"id": "u", "at": 1.0, "key_id": "k", "model": "m", "status": 200, "attempts": 1}
    return UsageRow(**{**fields, **over})  # type: ignore[arg-type]


def report(meters: Meters) -> MeterReport:
    return meters.report(usage_dropped=0, usage_waiting=0)


@pytest.mark.parametrize(
    ("over", "outcome"),
    [
        ({}, "ok"),
        ({"failed": True}, "engine_error"),
        ({"status": 400}, "client_error"),
        ({"status": 404}, "client_error"),
        ({"status": 429}, "engine_error"),
        ({"status": 502, "failed": True, "attempts": 3}, "engine_error"),
        ({"status": 504, "failed": True}, "engine_error"),
        ({"status": 503, "failed": True, "attempts": 0}, "unavailable"),
        ({"status": CLIENT_LEFT}, "client_left"),
        ({"status": CLIENT_LEFT, "attempts": 0}, "client_left"),
        ({"status": CLIENT_LEFT, "failed": True}, "unavailable"),
    ],
)
def test_every_end_of_a_request_is_one_outcome(over: dict[str, object], outcome: str) -> None:
    meters = Meters()
    meters.answered(a_row(**over))
    assert report(meters).models["m"].requests == {outcome: 1}


def test_an_answer_counts_its_tokens_tries_and_times() -> None:
    meters = Meters()
    meters.answered(
        a_row(
            input_tokens=100,
            cached_tokens=60,
            output_tokens=7,
            attempts=3,
            first_token_ms=50.0,
            duration_ms=4_000_000.0,
        )
    )
    meters.answered(a_row(input_tokens=1, status=404))
    counted = report(meters).models["m"]
    assert (counted.input_tokens, counted.cached_tokens, counted.output_tokens) == (101, 60, 7)
    assert counted.retries == 2
    # 50 ms belongs to the class that ends there; what is beyond the highest is in the last.
    assert counted.first_token.counts[FIRST_TOKEN_S.index(0.05)] == 1
    assert (sum(counted.first_token.counts), counted.first_token.sum) == (1, 0.05)
    assert (counted.duration.counts[-1], counted.duration.counts[0]) == (1, 1)
    assert counted.duration.sum == 4000.0


def test_a_request_no_engine_was_there_for_has_no_duration() -> None:
    meters = Meters()
    meters.answered(a_row(status=503, failed=True, attempts=0, duration_ms=1.0))
    assert sum(report(meters).models["m"].duration.counts) == 0


@pytest.mark.parametrize(
    ("model", "status", "hit", "outcome", "limits"),
    [
        ("m", 429, ("team", "rpm"), "refused", {"team/rpm": 1}),
        ("m", 429, ("tenant", "budget"), "refused", {"tenant/budget": 1}),
        ("m", 400, None, "client_error", {}),
        (NO_MODEL, 401, None, "client_error", {}),
        (NO_MODEL, 503, None, "unavailable", {}),
    ],
)
def test_a_refusal_counts_where_it_happened(
    model: str, status: int, hit: tuple[str, str] | None, outcome: str, limits: dict[str, int]
) -> None:
    meters = Meters()
    meters.refused(model, status, hit)
    counted = report(meters).models[model]
    assert (counted.requests, counted.limits_hit) == ({outcome: 1}, limits)
    assert sum(counted.duration.counts) == 0


@given(st.lists(st.floats(0.0, 1e6), max_size=100), st.sampled_from([FIRST_TOKEN_S, INTER_TOKEN_S, DURATION_S]))
def test_every_value_is_in_the_class_that_ends_at_it_or_above(values: list[float], bounds: tuple[float, ...]) -> None:
    cells = new_cells(bounds)
    for value in values:
        observe(cells, bounds, value)
    histogram = histogram_of(cells)
    assert len(histogram.counts) == len(bounds) + 1
    for end in bounds:
        assert sum(histogram.counts[: bisect_left(bounds, end) + 1]) == sum(1 for value in values if value <= end)
    assert sum(histogram.counts) == len(values)
    assert math.isclose(histogram.sum, sum(values))


@pytest.mark.parametrize("bounds", [FIRST_TOKEN_S, INTER_TOKEN_S, DURATION_S])
def test_classes_rise(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))


def test_a_report_names_what_changed_and_a_new_listener_hears_everything() -> None:
    meters = Meters()
    meters.answered(a_row(model="a"))
    meters.answered(a_row(model="b"))
    assert report(meters).models.keys() == {"a", "b"}
    assert report(meters).models == {}
    meters.of("b").gaps[0] += 1
    meters.of("b").gaps[-1] += 0.0005
    assert report(meters).models.keys() == {"b"}
    meters.of("a").breaker_openings += 1
    assert report(meters).models.keys() == {"a"}
    meters.begin_anew()
    assert report(meters).models.keys() == {"a", "b"}
    assert report(meters).id == meters.id != Meters().id


def test_models_beyond_the_bound_share_one_meter() -> None:
    meters = Meters()
    for number in range(MAX_MODELS + 50):
        meters.answered(a_row(model=f"m{number}"))
    counted = report(meters).models
    assert len(counted) == MAX_MODELS + 1
    assert counted[NO_MODEL].requests == {"ok": 50}


def test_a_report_survives_the_feed_and_one_without_is_understood() -> None:
    meters = Meters()
    meters.answered(a_row(first_token_ms=1.0))
    sent = Activity(metrics=meters.report(usage_dropped=3, usage_waiting=4))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(sent), type=RouterMessage) == sent
    bare = msgspec.msgpack.encode({"type": "activity", "requests": 1})
    assert msgspec.msgpack.decode(bare, type=RouterMessage) == Activity(requests=1)


def test_outcomes_are_all_that_is_counted() -> None:
    assert set(Meters().of("m").requests) == set(OUTCOMES)
    assert ModelMeters().requests == {}
