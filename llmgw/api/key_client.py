"""The admin client's calls about keys, teams, tenants and usage."""

from datetime import date

from llmgw.api import types as t
from llmgw.api.calls import Calls, Query
from llmgw.core.limits import Budget, ScopeKind


class KeyCalls(Calls):
    """One method an action."""

    def keys(self) -> list[t.KeyInfo]:
        """API keys."""
        return self._call("key.list", list[t.KeyInfo])

    def create_key(self, request: t.KeyCreate) -> t.KeyCreated:
        """Make a key."""
        return self._call("key.create", t.KeyCreated, body=request)

    def revoke_key(self, key_id: str) -> t.Result:
        """Refuse a key from now on. `key_id` is an id, or a name that one key has; so it is below."""
        return self._call("key.revoke", t.Result, {"id": key_id})

    def key_limits(self, key_id: str, change: t.LimitsChange) -> t.Result:
        """Change a key's limits."""
        return self._call("key.limits", t.Result, {"id": key_id}, body=change)

    def key_budget(self, key_id: str, budgets: tuple[Budget, ...]) -> t.Result:
        """Set all of a key's budgets."""
        return self._call("key.budget", t.Result, {"id": key_id}, body=t.BudgetChange(budgets=budgets))

    def move_key(self, key_id: str, team: str | None) -> t.Result:
        """Put a key under a team, or under none."""
        return self._call("key.move", t.Result, {"id": key_id}, body=t.KeyMove(team=team))

    def scopes(self, kind: ScopeKind) -> list[t.ScopeInfo]:
        """Teams, or tenants."""
        return self._call(f"{kind}.list", list[t.ScopeInfo])

    def create_team(self, request: t.TeamCreate) -> t.Result:
        """Make a team."""
        return self._call("team.create", t.Result, body=request)

    def create_tenant(self, request: t.TenantCreate) -> t.Result:
        """Make a tenant."""
        return self._call("tenant.create", t.Result, body=request)

    def scope_limits(self, kind: ScopeKind, name: str, change: t.LimitsChange) -> t.Result:
        """Change a team's or tenant's limits."""
        return self._call(f"{kind}.limits", t.Result, {"name": name}, body=change)

    def scope_budget(self, kind: ScopeKind, name: str, budgets: tuple[Budget, ...]) -> t.Result:
        """Set all of a team's or tenant's budgets."""
        return self._call(f"{kind}.budget", t.Result, {"name": name}, body=t.BudgetChange(budgets=budgets))

    def move_team(self, name: str, tenant: str | None) -> t.Result:
        """Put a team under a tenant, or under none."""
        return self._call("team.move", t.Result, {"name": name}, body=t.TeamMove(tenant=tenant))

    def remove_scope(self, kind: ScopeKind, name: str) -> t.Result:
        """Remove a team without living keys, or a tenant without teams."""
        return self._call(f"{kind}.remove", t.Result, {"name": name})

    def usage(
        self, by: str | None = None, *, since: date | None = None, until: date | None = None
    ) -> list[t.UsageInfo]:
        """Sums of usage by `key_model`, `key`, `team`, `tenant` or `model`; both UTC days are included."""
        query: Query = {
            "by": by,
            "since": since.isoformat() if since else None,
            "until": until.isoformat() if until else None,
        }
        return self._call("usage.list", list[t.UsageInfo], query=query)
