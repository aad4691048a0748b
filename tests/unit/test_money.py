"""Amounts and budgets in words: what is read is exact, what cannot be kept is refused with what would work."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.core.catalog import Model, check_model
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import MAX_PARALLEL, check_limits, check_scope_name, limits_text
from llmgw.core.limits import Budget, Limits, Period
from llmgw.core.money import MAX_MICROS, budgets_text, check_budgets, money, parse_budgets, parse_money
from llmgw.core.prices import Prices

budget_sets = st.lists(
    st.builds(Budget, amount_micros=st.integers(0, MAX_MICROS), period=st.sampled_from(Period)),
    max_size=2,
    unique_by=lambda budget: budget.period,
)


@pytest.mark.parametrize(
    ("text", "micros"),
    [("50", 50_000_000), ("0.50", 500_000), ("12.345678", 12_345_678), ("0", 0), ("999999999.999999", MAX_MICROS)],
)
def test_an_amount_is_exact(text: str, micros: int) -> None:
    assert parse_money(text) == micros


@pytest.mark.parametrize(
    "text",
    [
        *("", ".", ".5", "5.", "-1", "+1", "1e9", "nan", "inf", "NaN", " 1", "1 ", "1,5", "1_000", "0x1", "١", "1/2"),
        *("1000000000", "12.3456789", "1.2.3", "1\n", "€5"),
    ],
)
def test_what_is_no_amount_is_refused_with_what_would_work(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"is not an amount: .* as 50 or 0\.25"):
        parse_money(text)


def test_budgets_are_read_in_any_order_and_kept_in_one() -> None:
    expected = (
        Budget(amount_micros=5_000_000, period=Period.DAY),
        Budget(amount_micros=50_000_000, period=Period.MONTH),
    )
    assert parse_budgets("50/month,5/day") == parse_budgets("5/day,50.00/month") == expected
    assert parse_budgets("none") == ()


@pytest.mark.parametrize(
    "text",
    ["", "50", "50/", "50/week", "50/Month", "/day", "50 / month", "50/month, 5/day", "5/day,", "none,5/day", "None"],
)
def test_what_is_no_budget_is_refused_with_what_would_work(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^budget: .* is not (a budget|an amount): write .* as 50"):
        parse_budgets(text, field="budget")


def test_two_budgets_a_period_are_refused() -> None:
    with pytest.raises(InvalidInput, match="two budgets a day"):
        parse_budgets("5/day,6/day")
    with pytest.raises(InvalidInput, match="-1 micros is outside"):
        check_budgets([Budget(amount_micros=-1, period=Period.DAY)])
    with pytest.raises(InvalidInput, match=f"{MAX_MICROS + 1} micros is outside"):
        check_budgets([Budget(amount_micros=MAX_MICROS + 1, period=Period.DAY)])


@given(micros=st.integers(0, MAX_MICROS))
def test_what_is_shown_reads_back(micros: int) -> None:
    assert parse_money(money(micros)) == micros


@given(budgets=budget_sets)
def test_budgets_that_are_shown_read_back(budgets: list[Budget]) -> None:
    assert set(parse_budgets(budgets_text(budgets))) == set(budgets)


def test_figures_for_people() -> None:
    shown = {0: "0.00", 12: "0.000012", 500_000: "0.50", 12_400_000: "12.40", -1_500_000: "-1.50"}
    assert {micros: money(micros) for micros in shown} == shown
    assert limits_text(Limits()) == "no limits"
    assert limits_text(Limits(rpm=60, parallel=0)) == "60 rpm · 0 at once"


@pytest.mark.parametrize(
    ("limits", "field"),
    [(Limits(rpm=-1), "rpm"), (Limits(tpm=10**12 + 1), "tpm"), (Limits(parallel=MAX_PARALLEL + 1), "parallel")],
)
def test_limits_out_of_bounds_are_named(limits: Limits, field: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^limits\.{field}: .* is outside 0 to \d+; none .* is unlimited"):
        check_limits(limits)
    check_limits(Limits(rpm=0, tpm=10**12, parallel=None))


@pytest.mark.parametrize("name", ["", "none", "None", "a b", "a/../b", "-x", "x" * 129, "é"])
def test_names_that_a_scope_may_not_have(name: str) -> None:
    with pytest.raises(InvalidInput):
        check_scope_name(name)
    check_scope_name("research/vision-2")


@pytest.mark.parametrize(
    ("prices", "field"),
    [
        (Prices(input=-0.1), "input"),
        (Prices(output=float("nan")), "output"),
        (Prices(input=float("inf")), "input"),
        (Prices(cached_input=1e7), "cached_input"),
    ],
)
def test_prices_that_are_none_are_refused_by_field(prices: Prices, field: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^prices\.{field}: .* is not a price: 0 to 1e\+06"):
        check_model(Model(name="m", source="sim:", prices=prices))
    check_model(Model(name="m", source="sim:", prices=Prices(input=0.5, cached_input=0, output=1e6)))
