"""Fields for limits and budgets, checked as the server checks them, and what they say in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from console.screens.fields import Field, said_of, whole
from console.screens.quota import limits_words
from console.widgets.lines import Line
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import MAX_PARALLEL, MAX_RPM, MAX_TPM
from llmgw.core.limits import Budget, Limits
from llmgw.core.money import NONE, budgets_text, parse_budgets

Values = Mapping[str, str]
UNLIMITED = "unlimited"
_LIMITS = (
    Field(name="rpm", label="requests/min", help="empty: unlimited, 0: none", whole=(0, MAX_RPM)),
    Field(name="tpm", label="tokens/min", help="read and written together", whole=(0, MAX_TPM)),
    Field(name="parallel", label="open at once", help="requests under way", whole=(0, MAX_PARALLEL)),
)
OF: Mapping[str, str] = {
    "limits.rpm": "rpm",
    "limits.tpm": "tpm",
    "limits.parallel": "parallel",
    "budgets": "budget",
    "limits": "rpm",
}
"""Name the server uses → field."""


def limit_fields(limits: Limits) -> Sequence[Field]:
    """A field a limit, with what stands."""
    return tuple(replace(field, value=_text(getattr(limits, field.name)), stand_in=UNLIMITED) for field in _LIMITS)


def budget_field(budgets: tuple[Budget, ...]) -> Field:
    """All budgets in one field."""
    return Field(
        name="budget",
        label="budget",
        help="AMOUNT/day or AMOUNT/month, or both: 50/month,5/day",
        value=budgets_text(budgets) if budgets else "",
        stand_in=NONE,
        offers=("50/month", "5/day"),
        long=True,
    )


def _text(value: int | None) -> str:
    return "" if value is None else str(value)


def limits_in(values: Values) -> Limits:
    """The limits that stand in the fields; what is no number is none."""
    return Limits(rpm=whole(values["rpm"]), tpm=whole(values["tpm"]), parallel=whole(values["parallel"]))


def budgets_in(values: Values) -> tuple[Budget, ...]:
    """The budgets that stand in the field; raises InvalidInput."""
    return parse_budgets(values["budget"].replace(" ", "") or NONE, field="budget")


def check_budget(values: Values) -> dict[str, str]:
    """What is wrong with the budget."""
    try:
        budgets_in(values)
    except InvalidInput as error:
        return {"budget": said_of(error)}
    return {}


def limit_remarks(values: Values) -> dict[str, Line]:
    """That a limit of nothing refuses everything."""
    return {
        name: [("refuses every request", "warn")] for name in ("rpm", "tpm", "parallel") if whole(values[name]) == 0
    }


def terms(limits: Limits, budgets: tuple[Budget, ...]) -> str:
    """`60 rpm · 4 at once, 50.00/month`; what is not limited is said so."""
    spend = budgets_text(budgets) if budgets else ""
    return ", ".join(part for part in (limits_words(limits) or "no limits", spend or "no budget") if part)
