"""What a key, a team or a tenant may do: limits by the minute and at once, budgets by the day and month.

Scopes are a chain, key → team → tenant; one counter a scope is fed by everything beneath it. Money is whole micros of
the operator's currency. Days and months are UTC's, and so are minutes: counts of two routers can be added.
"""

from datetime import UTC, datetime
from enum import StrEnum

import msgspec

MICROS = 1_000_000
"""Micros in one unit of currency."""


class ScopeKind(StrEnum):
    """Who a limit is for."""

    KEY = "key"
    TEAM = "team"
    TENANT = "tenant"


class Period(StrEnum):
    """After which a budget begins anew."""

    DAY = "day"
    MONTH = "month"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """None is unlimited; 0 refuses everything."""

    rpm: int | None = None
    """Requests a minute."""
    tpm: int | None = None
    """Tokens a minute, read and written."""
    parallel: int | None = None
    """Requests open at once."""


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What may be spent in a period; a scope has at most one a period."""

    amount_micros: int
    period: Period


class Spending(msgspec.Struct, frozen=True, kw_only=True):
    """What the store knows was spent, in the day and the month it was asked."""

    day: int = 0
    """`day_number` of the day that `day_micros` is about."""
    day_micros: int = 0
    month: int = 0
    """`month_number` of the month that `month_micros` is about."""
    month_micros: int = 0


class ScopeRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A team or a tenant as routers know it; a key's are in its own record."""

    kind: ScopeKind
    id: str
    """Its name, unique among its kind."""
    tenant: str = ""
    """Of a team: the tenant above it, if any."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent: Spending = Spending()


def minute_number(at: float) -> int:
    """Minutes since the epoch; `at` is Unix seconds."""
    return int(at) // 60


def day_number(at: float) -> int:
    """Days since the epoch."""
    return int(at) // 86_400


def month_number(at: float) -> int:
    """Months since year 0."""
    moment = datetime.fromtimestamp(at, UTC)
    return moment.year * 12 + moment.month - 1


def period_end(period: Period, at: float) -> float:
    """Unix seconds at which the period that `at` lies in is over."""
    if period is Period.DAY:
        return (day_number(at) + 1) * 86_400.0
    year, month = divmod(month_number(at) + 1, 12)
    return datetime(year, month + 1, 1, tzinfo=UTC).timestamp()
