"""The part of the plane that is about keys, teams, tenants and usage."""

from collections.abc import Sequence
from datetime import date

from llmgw.api import types as t
from llmgw.control.keys import KeyService
from llmgw.control.scopes import ScopeService
from llmgw.core.limits import Budget, ScopeKind
from llmgw.store.usage import By


class KeyPlane:
    """`web.key_ports.KeyControl` over the services of one server."""

    def __init__(self, keys: KeyService, scopes: ScopeService) -> None:
        self._keys = keys
        self._scopes = scopes

    async def keys(self) -> Sequence[t.KeyInfo]:
        """API keys."""
        return await self._keys.list()

    async def create_key(self, request: t.KeyCreate, *, actor: str) -> t.KeyCreated:
        """Make a key."""
        return await self._keys.create(request, actor=actor)

    async def revoke_key(self, key_id: str, *, actor: str) -> t.Result:
        """Refuse a key from now on."""
        return await self._keys.revoke(key_id, actor=actor)

    async def key_limits(self, key_id: str, change: t.LimitsChange, *, actor: str) -> t.Result:
        """Change a key's limits."""
        return await self._keys.set_limits(key_id, change, actor=actor)

    async def key_budget(self, key_id: str, budgets: tuple[Budget, ...], *, actor: str) -> t.Result:
        """Set a key's budgets."""
        return await self._keys.set_budgets(key_id, budgets, actor=actor)

    async def move_key(self, key_id: str, team: str | None, *, actor: str) -> t.Result:
        """Put a key under a team, or under none."""
        return await self._keys.move(key_id, team, actor=actor)

    async def scopes(self, kind: ScopeKind) -> Sequence[t.ScopeInfo]:
        """Teams or tenants."""
        return await self._scopes.list(kind)

    async def create_team(self, request: t.TeamCreate, *, actor: str) -> t.Result:
        """Make a team."""
        return await self._scopes.create_team(request, actor=actor)

    async def create_tenant(self, request: t.TenantCreate, *, actor: str) -> t.Result:
        """Make a tenant."""
        return await self._scopes.create_tenant(request, actor=actor)

    async def scope_limits(self, kind: ScopeKind, name: str, change: t.LimitsChange, *, actor: str) -> t.Result:
        """Change a scope's limits."""
        return await self._scopes.set_limits(kind, name, change, actor=actor)

    async def scope_budget(self, kind: ScopeKind, name: str, budgets: tuple[Budget, ...], *, actor: str) -> t.Result:
        """Set a scope's budgets."""
        return await self._scopes.set_budgets(kind, name, budgets, actor=actor)

    async def move_team(self, name: str, tenant: str | None, *, actor: str) -> t.Result:
        """Put a team under a tenant, or under none."""
        return await self._scopes.move_team(name, tenant, actor=actor)

    async def remove_scope(self, kind: ScopeKind, name: str, *, actor: str) -> t.Result:
        """Remove a team or tenant."""
        return await self._scopes.remove(kind, name, actor=actor)

    async def usage(self, by: By, since: date | None, until: date | None) -> Sequence[t.UsageInfo]:
        """Sums of usage."""
        return await self._keys.usage(by, since, until)
