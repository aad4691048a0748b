"""Documents of keys, teams and tenants: who may use what, how much of it, and what was used.

Money is whole micros of the operator's currency; days and months are UTC's.
"""

from datetime import datetime

import msgspec

from llmgw.core.limits import Budget, Limits, ScopeKind


class KeyInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An API key, without the key."""

    id: str
    name: str
    models: tuple[str, ...] | None = None
    created: datetime
    revoked: datetime | None = None
    last_used: datetime | None = None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    team: str | None = None
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent_day_micros: int = 0
    """Spent since the UTC day began."""
    spent_month_micros: int = 0
    cost_micros: int = 0
    """Spent ever."""
    band: str | None = None
    """Band its requests wait in; null is its team's."""


class KeyCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl keys create`."""

    name: str
    models: tuple[str, ...] | None = None
    team: str | None = None
    """Made, without limits, when there is none of that name."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    band: str | None = None
    """Band its requests wait in; null is its team's."""


class KeyCreated(msgspec.Struct, frozen=True, kw_only=True):
    """The only time the key itself is shown."""

    id: str
    name: str
    key: str
    team: str | None = None
    team_created: bool = False
    """Whether the team was made for it."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()


class LimitsChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl keys|teams|tenants limits`: what is absent stays as it is, null is unlimited, 0 refuses everything."""

    rpm: int | msgspec.UnsetType | None = msgspec.UNSET
    tpm: int | msgspec.UnsetType | None = msgspec.UNSET
    parallel: int | msgspec.UnsetType | None = msgspec.UNSET


class BudgetChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl keys|teams|tenants budget`: the whole set, at most one a period."""

    budgets: tuple[Budget, ...]


class KeyMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl keys move`."""

    team: str | None
    """A team that exists, or null for none."""


class ScopeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A team or a tenant, with what everything beneath it used."""

    kind: ScopeKind
    """`team` or `tenant`."""
    name: str
    tenant: str | None = None
    """Of a team: the tenant above it."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent_day_micros: int = 0
    spent_month_micros: int = 0
    cost_micros: int = 0
    keys: int = 0
    """Keys beneath it that are not revoked."""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    created: datetime
    band: str | None = None
    """Of a team: the band of its keys that name none; null is the default one."""


class TeamCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl teams create`."""

    name: str
    tenant: str | None = None
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()


class TeamMove(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl teams move`."""

    tenant: str | None
    """A tenant that exists, or null for none."""


class TenantCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl tenants create`."""

    name: str
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()


class UsageInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Sums of usage; `key_id`, `model`, `team` and `tenant` are empty where they are summed over, or where none is.

    The team is the one the request was let in under, the tenant that team's when the usage was stored.
    """

    key_id: str = ""
    key: str = ""
    """The key's name; empty without a key, and where the key is not known any more."""
    model: str = ""
    team: str = ""
    tenant: str = ""
    requests: int = 0
    input_tokens: int = 0
    """Cached ones too."""
    cached_tokens: int = 0
    output_tokens: int = 0
    cost_micros: int = 0
    failed: int = 0
    """Of the requests, those that ended in an error."""
