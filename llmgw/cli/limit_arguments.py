"""Limits and budgets as ctl's arguments give them, and as its tables show them."""

import argparse

from llmgw.api.problems import Usage
from llmgw.api.types import LimitsChange
from llmgw.core.errors import InvalidInput
from llmgw.core.limits import Budget, Limits, Period
from llmgw.core.money import NONE, budgets_text, money, parse_budgets

_LIMITS = ("rpm", "tpm", "parallel")


def limits_change(args: argparse.Namespace) -> LimitsChange | None:
    """The change that --rpm, --tpm and --parallel ask for; none when none of them is given."""
    given = {name: value for name in _LIMITS if (value := getattr(args, name)) is not None}
    if not given:
        return None
    return LimitsChange(**{name: None if value == NONE else value for name, value in given.items()})


def limits_given(args: argparse.Namespace) -> Limits:
    """The same for something new."""
    given = {name: getattr(args, name) for name in _LIMITS}
    return Limits(**{name: None if value == NONE else value for name, value in given.items()})


def budgets_given(text: str | None) -> tuple[Budget, ...]:
    """`50/month,5/day`; raises Usage."""
    if text is None:
        return ()
    try:
        return parse_budgets(text, field="budget")
    except InvalidInput as error:
        raise Usage(error.message) from error


def spending(budgets: tuple[Budget, ...], day_micros: int, month_micros: int) -> str:
    """`12.40 of 50.00 this month, 0.30 of 5.00 today`; without budgets, what was spent this month."""
    spent = {Period.DAY: (day_micros, "today"), Period.MONTH: (month_micros, "this month")}
    shown = [f"{money(spent[b.period][0])} of {money(b.amount_micros)} {spent[b.period][1]}" for b in budgets]
    return ", ".join(shown) or f"{money(month_micros)} this month"


def limit_cells(limits: Limits, budgets: tuple[Budget, ...]) -> list[str]:
    """Cells of the columns RPM, TPM, PARALLEL and BUDGET."""
    figures = [getattr(limits, name) for name in _LIMITS]
    cells = ["-" if figure is None else str(figure) for figure in figures]
    return [*cells, budgets_text(budgets) if budgets else "-"]


def limit_facts(limits: Limits) -> list[tuple[str, str]]:
    """Lines of a scope's limits."""
    words = {"rpm": "requests a minute", "tpm": "tokens a minute", "parallel": "requests at once"}
    figures = [(words[name], getattr(limits, name)) for name in _LIMITS]
    return [(label, NONE if figure is None else str(figure)) for label, figure in figures]
