"""Teams and tenants: what operators change of them, and the table of them that routers are told.

The table is read and published under one lock, so a newer one is never followed by an older. It is published whenever
it differs from the last: at once after a change here, when another server tells of one, and by time as spending moves.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
import trio

from llmgw.api.types import LimitsChange, Result, ScopeInfo, TeamCreate, TenantCreate
from llmgw.control.leadership import Leadership
from llmgw.control.limit_words import budget_sentence, changed_limits, limits_sentence
from llmgw.control.wake import Wake
from llmgw.core.errors import LlmgwError
from llmgw.core.frames import FrameTooLong
from llmgw.core.limit_rules import check_limits, check_scope_name, limits_text
from llmgw.core.limits import Budget, Limits, ScopeKind, ScopeRecord
from llmgw.core.money import budgets_text, check_budgets, in_order
from llmgw.core.routing import ScopeTable, UsageRow
from llmgw.store import scopes as stored
from llmgw.store import usage as stored_usage
from llmgw.store.store import Store

SPENDING_S = 30.0
"""What the store knows was spent is read this often. Routers lead it by what they counted themselves."""
RETRY_S = 1.0
"""Pause after the store refused to be read."""

log = logging.getLogger(__name__)


class ScopeService:
    """Teams and tenants for operators, and the routers' table of them."""

    def __init__(
        self, *, store: Store, leadership: Leadership, publish: Callable[[ScopeTable], None], told: Callable[[], str]
    ) -> None:
        """`publish` gives the table to the routers here (raises FrameTooLong); `told` is how many hear, in words."""
        self._store = store
        self._leadership = leadership
        self._publish = publish
        self._told = told
        self._reading = trio.Lock()
        self._wake = Wake()
        self._records: tuple[ScopeRecord, ...] | None = None
        self._teams: frozenset[str] = frozenset()
        self._costs: Mapping[str, int] = {}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow what is spent, until cancelled."""
        task_status.started()
        while True:
            pause_s = SPENDING_S
            try:
                await self.reload()
                self._costs = await self._store.run(stored_usage.model_costs)
            except LlmgwError as error:
                log.warning("teams and tenants could not be read: %s", error.message)
                pause_s = RETRY_S
            await self._wake.wait(pause_s)

    async def reload(self) -> None:
        """Read the table, and tell the routers here when it is another. Raises Unavailable."""
        async with self._reading:
            records = await self._store.run(stored.records)
            if records == self._records:
                return
            try:
                self._publish(ScopeTable(scopes=records))
            except FrameTooLong as error:
                log.error("%d teams and tenants are too many for the routers: %s", len(records), error)
                return
            self._records = records
            self._teams = frozenset(record.id for record in records if record.kind is ScopeKind.TEAM)

    def wake(self) -> None:
        """Read what was spent again soon."""
        self._wake.set()

    def knows(self, team: str) -> bool:
        """Whether the routers here were told of that team (of the table at all, for no team)."""
        return self._records is not None and (not team or team in self._teams)

    def costs_today(self) -> Mapping[str, int]:
        """Micros spent by model since the UTC day began: as the store had it SPENDING_S ago at most, and `used` since.

        Another object whenever it changed.
        """
        return self._costs

    def used(self, rows: Sequence[UsageRow]) -> None:
        """Rows were stored here. Those sent twice or of another day are right again with the next reading."""
        costs = dict(self._costs)
        for row in rows:
            if row.cost_micros > 0:
                costs[row.model] = costs.get(row.model, 0) + row.cost_micros
        if costs != self._costs:
            self._costs = costs

    # -- what operators do

    async def list(self, kind: ScopeKind) -> tuple[ScopeInfo, ...]:
        """Teams, or tenants, by name."""
        return tuple(scope_info(row) for row in await self._store.run(stored.list_scopes, kind))

    async def create_team(self, request: TeamCreate, *, actor: str) -> Result:
        """Make a team."""
        if request.tenant is not None:
            check_scope_name(request.tenant, field="tenant")
        return await self._create(ScopeKind.TEAM, request, request.tenant, actor)

    async def create_tenant(self, request: TenantCreate, *, actor: str) -> Result:
        """Make a tenant."""
        return await self._create(ScopeKind.TENANT, request, None, actor)

    async def _create(
        self, kind: ScopeKind, request: TeamCreate | TenantCreate, tenant: str | None, actor: str
    ) -> Result:
        check_scope_name(request.name)
        limits, budgets = checked(request.limits, request.budgets)
        await self._leadership.lead(
            stored.create, kind, request.name, tenant=tenant, limits=limits, budgets=budgets, actor=actor
        )
        under = f" under tenant {tenant}" if tenant else ""
        words = f"{limits_text(limits)}, budget {budgets_text(budgets)}"
        return await self._done(f"{kind} {request.name} made{under}: {words}")

    async def set_limits(self, kind: ScopeKind, name: str, change: LimitsChange, *, actor: str) -> Result:
        """Change the limits given."""
        given = changed_limits(change)
        before, after = await self._leadership.lead(stored.set_limits, kind, name, given, actor=actor)
        return await self._done(limits_sentence(f"{kind} {name}", before.limits, after.limits))

    async def set_budgets(self, kind: ScopeKind, name: str, budgets: tuple[Budget, ...], *, actor: str) -> Result:
        """Set all budgets."""
        check_budgets(budgets)
        before, after = await self._leadership.lead(stored.set_budgets, kind, name, in_order(budgets), actor=actor)
        return await self._done(budget_sentence(f"{kind} {name}", before.budgets, after.budgets))

    async def move_team(self, name: str, tenant: str | None, *, actor: str) -> Result:
        """Put a team under a tenant, or under none."""
        before, after = await self._leadership.lead(stored.move_team, name, tenant, actor=actor)
        if before.tenant == after.tenant:
            return Result(message=f"team {name} is under {_tenant(tenant)} already")
        return await self._done(f"team {name}: {_tenant(before.tenant)} → {_tenant(after.tenant)}")

    async def remove(self, kind: ScopeKind, name: str, *, actor: str) -> Result:
        """Remove what nothing is beneath any more."""
        await self._leadership.lead(stored.remove, kind, name, actor=actor)
        return await self._done(f"{kind} {name} removed; what was used under it stays counted")

    async def _done(self, sentence: str) -> Result:
        return Result(message=f"{sentence}; {await self.tell(self.reload)}")

    async def tell(self, telling: Callable[[], Awaitable[None]]) -> str:
        """Do `telling` after a change that is in the store; how far it got, in words."""
        try:
            await telling()
        except LlmgwError as error:
            # The change is made: to answer with a refusal would be a lie.
            log.warning("the routers here were not told yet: %s", error.message)
            self._wake.set()
            return "the routers here are told as soon as the store can be read again"
        return self._told()


def checked(limits: Limits, budgets: tuple[Budget, ...]) -> tuple[Limits, tuple[Budget, ...]]:
    """Limits and budgets as they may be stored; raises InvalidInput."""
    check_limits(limits)
    check_budgets(budgets)
    return limits, in_order(budgets)


def scope_info(row: stored.ScopeRow) -> ScopeInfo:
    """A team or tenant as the admin API shows it."""
    return msgspec.convert(row, ScopeInfo, from_attributes=True)


def _tenant(name: str | None) -> str:
    return f"tenant {name}" if name else "no tenant"
