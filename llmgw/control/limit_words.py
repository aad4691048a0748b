"""Changes of limits and budgets: checked, and in sentences with the figures before and after."""

from llmgw.api.types import LimitsChange
from llmgw.core.errors import InvalidInput
from llmgw.core.limit_rules import check_limits, limits_text
from llmgw.core.limits import Budget, Limits
from llmgw.core.money import budgets_text


def changed_limits(change: LimitsChange) -> dict[str, int | None]:
    """The limits that `change` names, by name; raises InvalidInput for none at all or a figure out of bounds."""
    fields = {name: getattr(change, name) for name in change.__struct_fields__}
    given: dict[str, int | None] = {
        name: value for name, value in fields.items() if value is None or isinstance(value, int)
    }
    if not given:
        raise InvalidInput(f"names no limit: give one or more of {', '.join(fields)}")
    check_limits(Limits(**given))
    return given


def limits_sentence(who: str, before: Limits, after: Limits) -> str:
    """`nightly (key-1): 60 rpm → 60 rpm · 4 at once`."""
    if before == after:
        return f"{who}: {limits_text(after)}, as before"
    return f"{who}: {limits_text(before)} → {limits_text(after)}"


def budget_sentence(who: str, before: tuple[Budget, ...], after: tuple[Budget, ...]) -> str:
    """`nightly (key-1): budget none → 50.00/month`."""
    if before == after:
        return f"{who}: budget {budgets_text(after)}, as before"
    return f"{who}: budget {budgets_text(before)} → {budgets_text(after)}"
