"""Amounts and budgets in words: `12.50`, `50/month`, `50/month,5/day`. Read strictly, kept as whole micros.

Nothing is rounded: an amount that micros cannot hold is refused, with what would work.
"""

import re
from collections.abc import Iterable

from llmgw.core.errors import InvalidInput
from llmgw.core.limits import MICROS, Budget, Period

MAX_MICROS = 1_000_000_000 * MICROS - 1
"""Just below 1,000,000,000: sums of a million such amounts still fit 64 bits."""
NONE = "none"
"""How a person writes that there is no budget, no limit, no team."""

_AMOUNT = re.compile(r"[0-9]{1,9}(\.[0-9]{1,6})?")
_PERIODS = tuple(Period)


def parse_money(text: str, *, field: str | None = None) -> int:
    """Micros of an amount such as `50` or `0.25`; raises InvalidInput."""
    if not _AMOUNT.fullmatch(text):
        raise InvalidInput(
            f"{text[:40]!r} is not an amount: write digits, at most nine before the point and six after it, "
            "as 50 or 0.25",
            field=field,
        )
    whole, _, part = text.partition(".")
    return int(whole) * MICROS + int(part.ljust(6, "0"))


def parse_budgets(text: str, *, field: str | None = None) -> tuple[Budget, ...]:
    """The budgets in `50/month`, `5/day`, `50/month,5/day` or `none`; raises InvalidInput."""
    if text == NONE:
        return ()
    budgets = tuple(_parse_budget(part, field) for part in text.split(","))
    check_budgets(budgets, field=field)
    return in_order(budgets)


def _parse_budget(text: str, field: str | None) -> Budget:
    amount, slash, period = text.partition("/")
    if not slash or period not in _PERIODS:
        raise InvalidInput(
            f"{text[:40]!r} is not a budget: write AMOUNT/day or AMOUNT/month without spaces, several with a comma "
            "between them, as 50/month or 50/month,5/day, or none",
            field=field,
        )
    return Budget(amount_micros=parse_money(amount, field=field), period=Period(period))


def check_budgets(budgets: Iterable[Budget], *, field: str | None = "budgets") -> None:
    """Raise InvalidInput unless each period has at most one budget and each amount can be kept."""
    seen: set[Period] = set()
    for budget in budgets:
        if budget.period in seen:
            raise InvalidInput(f"there are two budgets a {budget.period}: give one a period", field=field)
        seen.add(budget.period)
        if not 0 <= budget.amount_micros <= MAX_MICROS:
            raise InvalidInput(
                f"{budget.amount_micros} micros is outside 0 to {MAX_MICROS} (just below 1,000,000,000)", field=field
            )


def in_order(budgets: Iterable[Budget]) -> tuple[Budget, ...]:
    """The same budgets, shortest period first: equal sets compare equal."""
    return tuple(sorted(budgets, key=lambda budget: _PERIODS.index(budget.period)))


def money(micros: int) -> str:
    """`12.40`, `0.000012`: at least two decimals, more only where they say something."""
    sign = "-" if micros < 0 else ""
    whole, part = divmod(abs(micros), MICROS)
    return f"{sign}{whole}.{f'{part:06}'.rstrip('0').ljust(2, '0')}"


def budgets_text(budgets: Iterable[Budget]) -> str:
    """`50.00/month,5.00/day` or `none`, as `parse_budgets` reads it."""
    return ",".join(f"{money(b.amount_micros)}/{b.period}" for b in in_order(budgets)) or NONE
