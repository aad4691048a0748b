"""Who a request is counted for: its key, the key's team and the team's tenant, where they have limits or budgets."""

from collections.abc import Iterable
from typing import NamedTuple

from llmgw.core.limits import Budget, Limits, Period, ScopeKind, ScopeRecord, Spending
from llmgw.core.routing import KeyRecord
from llmgw.router.counters import scope_hash

MAX_CHAINS = 20_000
"""Keys whose chain is remembered: more than a router knows keys. Past it all are forgotten and made again."""


class Demand(NamedTuple):
    """What a request may take."""

    input_tokens: int
    """Estimated."""
    output_tokens: int
    """What it asked for, over all its choices, or what is likely if it asked for nothing."""
    asked: bool
    """Whether it named a number of tokens."""
    choices: int
    worst_micros: int
    """What it costs at the very most."""


class Scope:
    """A key, team or tenant with what it may do. Never changed once made."""

    __slots__ = (
        "budgeted",
        "day_budget",
        "hash",
        "id",
        "kind",
        "month_budget",
        "name",
        "parallel",
        "rpm",
        "spent",
        "tpm",
    )

    def __init__(
        self, kind: ScopeKind, id: str, name: str, limits: Limits, budgets: Iterable[Budget], spent: Spending
    ) -> None:
        self.kind = kind
        self.id = id
        self.name = name
        self.hash = scope_hash(kind, id)
        self.rpm = limits.rpm
        self.tpm = limits.tpm
        self.parallel = limits.parallel
        amounts = {budget.period: budget.amount_micros for budget in budgets}
        self.day_budget = amounts.get(Period.DAY)
        self.month_budget = amounts.get(Period.MONTH)
        self.budgeted = bool(amounts)
        self.spent = spent
        """As the store had it; another object each time it was heard."""

    @property
    def counts(self) -> bool:
        """Whether there is anything to count for."""
        return self.budgeted or not (self.rpm is None and self.tpm is None and self.parallel is None)


class Chain:
    """Scopes that count for one key, its own first; never without any."""

    __slots__ = ("bound", "budgeted", "scopes")

    def __init__(self, scopes: tuple[Scope, ...]) -> None:
        self.scopes = scopes
        self.budgeted = any(scope.budgeted for scope in scopes)
        self.bound: object = None
        """Where the limiter found their rows; its own to read and write."""


class ScopeBook:
    """Chains by key, made when a key is first used and again when the key, a team or a tenant changed."""

    def __init__(self) -> None:
        self._above: dict[str, tuple[Scope, ...]] = {}
        self._chains: dict[str, tuple[KeyRecord, Chain | None]] = {}

    def learn(self, scopes: Iterable[ScopeRecord]) -> None:
        """These are all the teams and tenants there are."""
        tenants, teams = {}, {}
        for record in scopes:
            scope = Scope(record.kind, record.id, record.id, record.limits, record.budgets, record.spent)
            if record.kind is ScopeKind.TENANT:
                tenants[record.id] = scope
            elif record.kind is ScopeKind.TEAM:
                teams[record.id] = (scope, record.tenant)
        self._above = {
            name: tuple(s for s in (team, tenants.get(tenant)) if s is not None and s.counts)
            for name, (team, tenant) in teams.items()
        }
        self._chains = {}

    def chain(self, key: KeyRecord) -> Chain | None:
        """Whom a request with this key is counted for; none when nothing limits it."""
        known = self._chains.get(key.id)
        if known is not None and known[0] is key:
            return known[1]
        scope = Scope(ScopeKind.KEY, key.id, key.name, key.limits, key.budgets, key.spent)
        scopes = ((scope,) if scope.counts else ()) + self._above.get(key.team, ())
        chain = Chain(scopes) if scopes else None
        if len(self._chains) >= MAX_CHAINS:
            self._chains = {}
        self._chains[key.id] = (key, chain)
        return chain
