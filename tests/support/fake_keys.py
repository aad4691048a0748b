"""Keys, teams and tenants in memory, as `llmgw.web.key_ports.KeyControl` has them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

import msgspec

from llmgw.api import types as t
from llmgw.core.errors import Conflict, NotFound
from llmgw.core.limits import Budget, Limits, ScopeKind
from llmgw.web.key_ports import By

NOW = datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)
KEY = "sk-0123456789abcdef0123456789abcdef"


@dataclass
class FakeKeys:
    """Keeps what it was asked, in `calls`."""

    calls: list[tuple[object, ...]] = field(default_factory=list)
    keys_made: list[t.KeyInfo] = field(default_factory=list)
    scopes_made: list[t.ScopeInfo] = field(default_factory=list)
    used: list[t.UsageInfo] = field(default_factory=list)

    async def keys(self) -> Sequence[t.KeyInfo]:
        return self.keys_made

    async def create_key(self, request: t.KeyCreate, *, actor: str) -> t.KeyCreated:
        self.calls.append(("create_key", request, actor))
        made = request.team is not None and not self._scopes(ScopeKind.TEAM, request.team)
        if made and request.team is not None:
            self.scopes_made.append(t.ScopeInfo(kind=ScopeKind.TEAM, name=request.team, created=NOW))
        info = t.KeyInfo(
            id=f"k{len(self.keys_made) + 1}",
            name=request.name,
            models=request.models,
            created=NOW,
            team=request.team,
            limits=request.limits,
            budgets=request.budgets,
        )
        self.keys_made.append(info)
        return t.KeyCreated(
            id=info.id,
            name=info.name,
            key=KEY,
            team=info.team,
            team_created=made,
            limits=info.limits,
            budgets=info.budgets,
        )

    async def revoke_key(self, key_id: str, *, actor: str) -> t.Result:
        if key_id not in {key.id for key in self.keys_made}:
            raise NotFound(f"there is no key {key_id!r}")
        self.calls.append(("revoke_key", key_id, actor))
        return t.Result(message=f"{key_id} is refused here now, and everywhere within 30 s")

    async def key_limits(self, key_id: str, change: t.LimitsChange, *, actor: str) -> t.Result:
        self.calls.append(("key_limits", key_id, change, actor))
        key = self._key(key_id)
        self._put_key(msgspec.structs.replace(key, limits=_changed(key.limits, change)))
        return t.Result(message=f"{key_id}: limits changed")

    async def key_budget(self, key_id: str, budgets: tuple[Budget, ...], *, actor: str) -> t.Result:
        self.calls.append(("key_budget", key_id, budgets, actor))
        self._put_key(msgspec.structs.replace(self._key(key_id), budgets=budgets))
        return t.Result(message=f"{key_id}: budget changed")

    async def move_key(self, key_id: str, team: str | None, *, actor: str) -> t.Result:
        self.calls.append(("move_key", key_id, team, actor))
        self._put_key(msgspec.structs.replace(self._key(key_id), team=team))
        return t.Result(message=f"{key_id}: moved")

    async def scopes(self, kind: ScopeKind) -> Sequence[t.ScopeInfo]:
        return [scope for scope in self.scopes_made if scope.kind is kind]

    async def create_team(self, request: t.TeamCreate, *, actor: str) -> t.Result:
        self.calls.append(("create_team", request, actor))
        return self._made(ScopeKind.TEAM, request.name, request.tenant, request.limits, request.budgets)

    async def create_tenant(self, request: t.TenantCreate, *, actor: str) -> t.Result:
        self.calls.append(("create_tenant", request, actor))
        return self._made(ScopeKind.TENANT, request.name, None, request.limits, request.budgets)

    async def scope_limits(self, kind: ScopeKind, name: str, change: t.LimitsChange, *, actor: str) -> t.Result:
        self.calls.append(("scope_limits", kind, name, change, actor))
        scope = self._scope(kind, name)
        self._put_scope(msgspec.structs.replace(scope, limits=_changed(scope.limits, change)))
        return t.Result(message=f"{kind} {name}: limits changed")

    async def scope_budget(self, kind: ScopeKind, name: str, budgets: tuple[Budget, ...], *, actor: str) -> t.Result:
        self.calls.append(("scope_budget", kind, name, budgets, actor))
        self._put_scope(msgspec.structs.replace(self._scope(kind, name), budgets=budgets))
        return t.Result(message=f"{kind} {name}: budget changed")

    async def move_team(self, name: str, tenant: str | None, *, actor: str) -> t.Result:
        self.calls.append(("move_team", name, tenant, actor))
        self._put_scope(msgspec.structs.replace(self._scope(ScopeKind.TEAM, name), tenant=tenant))
        return t.Result(message=f"team {name}: moved")

    async def remove_scope(self, kind: ScopeKind, name: str, *, actor: str) -> t.Result:
        self.calls.append(("remove_scope", kind, name, actor))
        self.scopes_made.remove(self._scope(kind, name))
        return t.Result(message=f"{kind} {name} removed")

    async def usage(self, by: By, since: date | None, until: date | None) -> Sequence[t.UsageInfo]:
        self.calls.append(("usage", by, since, until))
        return self.used

    def _key(self, key_id: str) -> t.KeyInfo:
        found = next((key for key in self.keys_made if key_id in (key.id, key.name)), None)
        if found is None:
            raise NotFound(f"there is no key {key_id!r}")
        return found

    def _put_key(self, key: t.KeyInfo) -> None:
        self.keys_made = [key if other.id == key.id else other for other in self.keys_made]

    def _scopes(self, kind: ScopeKind, name: str) -> list[t.ScopeInfo]:
        return [scope for scope in self.scopes_made if (scope.kind, scope.name) == (kind, name)]

    def _scope(self, kind: ScopeKind, name: str) -> t.ScopeInfo:
        found = self._scopes(kind, name)
        if not found:
            raise NotFound(f"there is no {kind} {name!r}")
        return found[0]

    def _put_scope(self, scope: t.ScopeInfo) -> None:
        same = (scope.kind, scope.name)
        self.scopes_made = [scope if (other.kind, other.name) == same else other for other in self.scopes_made]

    def _made(
        self, kind: ScopeKind, name: str, tenant: str | None, limits: Limits, budgets: tuple[Budget, ...]
    ) -> t.Result:
        if self._scopes(kind, name):
            raise Conflict(f"there is a {kind} {name!r} already")
        info = t.ScopeInfo(kind=kind, name=name, tenant=tenant, limits=limits, budgets=budgets, created=NOW)
        self.scopes_made.append(info)
        return t.Result(message=f"{kind} {name} made")


def _changed(limits: Limits, change: t.LimitsChange) -> Limits:
    fields = {name: getattr(change, name) for name in change.__struct_fields__}
    return msgspec.structs.replace(
        limits, **{name: value for name, value in fields.items() if value is not msgspec.UNSET}
    )
