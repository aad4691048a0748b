"""Routers' counts added up: never twice, never less than before, whoever comes, goes and comes back."""

from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.api.watch import ALL_MODELS
from llmgw.control.pace import NO_GAPS, Pace, quantile
from llmgw.control.router_metrics import KEPT_GONE, Account, RouterMetrics
from llmgw.core.meters import INTER_TOKEN_S, MAX_MODELS, NO_MODEL, Histogram, MeterReport, ModelMeters


class Clock:
    """Monotonic seconds to set."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def gaps(*seconds: float) -> Histogram:
    """A histogram of these gaps."""
    counts = [0] * (len(INTER_TOKEN_S) + 1)
    for value in seconds:
        counts[next((i for i, end in enumerate(INTER_TOKEN_S) if value <= end), len(INTER_TOKEN_S))] += 1
    return Histogram(counts=tuple(counts), sum=sum(seconds))


def a_report(
    router: str, ok: int, models: Mapping[str, ModelMeters] | None = None, *, dropped: int = 0, waiting: int = 0
) -> MeterReport:
    if models is None:
        models = {"m": ModelMeters(requests={"ok": ok}, input_tokens=ok)}
    return MeterReport(
        id=router, models=dict(models), key_lookups={"hit": ok}, usage_dropped=dropped, usage_waiting=waiting
    )


def ok_of(metrics: RouterMetrics, model: str = "m") -> int:
    meters = metrics.totals().models.get(model, ModelMeters())
    assert meters.requests.get("ok", 0) == meters.input_tokens
    return meters.input_tokens


def test_routers_add_up_and_the_dead_keep_their_share() -> None:
    metrics = RouterMetrics()
    one, two = Account(metrics), Account(metrics)
    one.hear(a_report("1", 5, dropped=1, waiting=10))
    two.hear(a_report("2", 7, waiting=4))
    totals = metrics.totals()
    assert (ok_of(metrics), totals.key_lookups, totals.usage_dropped, totals.usage_waiting) == (12, {"hit": 12}, 1, 14)
    one.close()
    totals = metrics.totals()
    assert (ok_of(metrics), totals.key_lookups, totals.usage_dropped, totals.usage_waiting) == (12, {"hit": 12}, 1, 4)
    three = Account(metrics)
    three.hear(a_report("3", 1))
    assert ok_of(metrics) == 13
    two.close()
    three.close()
    assert metrics.totals().usage_waiting is None


def test_a_router_that_reconnects_is_counted_once() -> None:
    metrics = RouterMetrics()
    first = Account(metrics)
    first.hear(a_report("1", 5))
    second = Account(metrics)
    second.hear(a_report("1", 6))
    first.close()
    assert (ok_of(metrics), metrics.totals().usage_waiting) == (6, 0)
    second.close()
    second.close()
    third = Account(metrics)
    third.hear(a_report("1", 8))
    assert ok_of(metrics) == 8


def test_one_that_measures_nothing_is_no_trouble() -> None:
    metrics = RouterMetrics()
    account = Account(metrics)
    account.hear(None)
    account.hear(MeterReport(id="", models={"m": ModelMeters(input_tokens=1)}))
    account.close()
    assert metrics.totals().models == {}


def test_a_report_leaves_models_it_does_not_name_as_they_were() -> None:
    metrics = RouterMetrics()
    account = Account(metrics)
    account.hear(a_report("1", 0, {"a": ModelMeters(input_tokens=3), "b": ModelMeters(output_tokens=4)}))
    account.hear(a_report("1", 0, {"a": ModelMeters(input_tokens=5)}))
    totals = metrics.totals().models
    assert (totals["a"].input_tokens, totals["b"].output_tokens) == (5, 4)


def test_memory_is_bounded_however_many_routers_die() -> None:
    metrics = RouterMetrics()
    for number in range(KEPT_GONE * 4):
        account = Account(metrics)
        account.hear(a_report(f"r{number}", 1, {f"m{number}": ModelMeters(input_tokens=1)}))
        account.close()
    assert len(metrics._routers) == KEPT_GONE
    assert sum(meters.input_tokens for meters in metrics.totals().models.values()) == KEPT_GONE * 4


def test_models_beyond_the_bound_are_counted_without_their_name() -> None:
    metrics = RouterMetrics()
    for router in range(2):
        Account(metrics).hear(
            a_report(str(router), 0, {f"m{router}-{i}": ModelMeters(input_tokens=1) for i in range(MAX_MODELS)})
        )
    totals = metrics.totals().models
    assert len(totals) == MAX_MODELS + 1
    assert totals[NO_MODEL].input_tokens == MAX_MODELS


def test_a_histogram_of_other_classes_is_left_out_and_the_counts_are_taken() -> None:
    metrics = RouterMetrics()
    for name in ("old", "new"):
        histogram = gaps(0.01) if name == "new" else Histogram(counts=(1, 2), sum=0.1)
        Account(metrics).hear(a_report(name, 0, {"m": ModelMeters(output_tokens=1, inter_token=histogram)}))
    meters = metrics.totals().models["m"]
    assert (meters.output_tokens, meters.inter_token) == (2, gaps(0.01))


@settings(max_examples=200)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["work", "report", "cut", "kill"])), min_size=1, max_size=80)
)
def test_sums_never_go_back_and_are_what_was_last_heard(steps: list[tuple[int, str]]) -> None:
    metrics = RouterMetrics()
    lives: dict[int, str] = {}
    done: dict[str, int] = {}
    heard: dict[str, int] = {}
    accounts: dict[int, Account] = {}
    before = 0
    for number, (router, step) in enumerate(steps):
        life = lives.setdefault(router, f"{router}-{number}")
        if step == "work":
            done[life] = done.get(life, 0) + 1
        elif step == "report":
            accounts.setdefault(router, Account(metrics)).hear(a_report(life, done.get(life, 0)))
            heard[life] = done.get(life, 0)
        else:
            if router in accounts:
                accounts.pop(router).close()
            if step == "kill":
                del lives[router]
        now = ok_of(metrics)
        assert now >= before
        assert now == sum(heard.values())
        before = now


# -- how tokens came lately


def test_the_pace_is_of_the_last_minute_and_of_what_was_heard_between_two_reports() -> None:
    clock = Clock()
    metrics = RouterMetrics(clock=clock)
    account = Account(metrics)
    account.hear(a_report("1", 0, {"m": ModelMeters(inter_token=gaps(*[5.0] * 100))}))
    # What a router did before this server knew it may be long ago.
    assert metrics.pace.gaps("m") == NO_GAPS
    after = gaps(*[5.0] * 100, *[0.02] * 90, *[0.3] * 10)
    account.hear(a_report("1", 0, {"m": ModelMeters(inter_token=after)}))
    pace = metrics.pace.gaps("m")
    assert pace.p50_ms is not None
    assert pace.p95_ms is not None
    assert 15 < pace.p50_ms <= 20
    assert 200 < pace.p95_ms <= 300
    assert metrics.pace.gaps(ALL_MODELS) == pace
    assert metrics.pace.gaps("n") == NO_GAPS
    clock.now += 54
    assert metrics.pace.gaps("m") == pace
    clock.now += 11
    assert metrics.pace.gaps("m") == NO_GAPS
    assert metrics.pace._slots == {}


def test_a_model_first_asked_after_its_router_joined_counts_from_nothing() -> None:
    metrics = RouterMetrics()
    account = Account(metrics)
    account.hear(a_report("1", 0))
    account.hear(a_report("1", 0, {"n": ModelMeters(inter_token=gaps(0.05))}))
    assert metrics.pace.gaps("n").p50_ms is not None


@given(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_in_the_class_of_the_value_it_stands_for(values: list[float], share: float) -> None:
    found = quantile(gaps(*values).counts, INTER_TOKEN_S, share)
    exact = sorted(values)[max(0, -(-round(share * 1e6 * len(values)) // 10**6) - 1)]
    ends = (*INTER_TOKEN_S, float("inf"))
    place = next(i for i, end in enumerate(ends) if exact <= end)
    low = ends[place - 1] if place else 0.0
    assert low <= found <= min(ends[place], INTER_TOKEN_S[-1])


def test_a_router_that_counts_backwards_does_no_harm() -> None:
    pace = Pace(Clock())
    pace.add("m", gaps(0.01, 0.01), gaps(0.01))
    assert pace.gaps("m") == NO_GAPS
