"""What the admin app needs of the control plane for keys, teams, tenants and usage; see `llmgw.web.ports`."""

from collections.abc import Sequence
from datetime import date
from typing import Literal, Protocol

from llmgw.api.types import (
    KeyCreate,
    KeyCreated,
    KeyInfo,
    LimitsChange,
    Result,
    ScopeInfo,
    TeamCreate,
    TenantCreate,
    UsageInfo,
)
from llmgw.core.limits import Budget, ScopeKind

By = Literal["key", "model", "key_model", "team", "tenant"]
"""What a row of usage is of."""


class KeyControl(Protocol):
    """A key is named by its id, or by its name where no other living key has it (Conflict otherwise)."""

    async def keys(self) -> Sequence[KeyInfo]:
        """API keys, revoked ones too, without the keys themselves."""
        ...

    async def create_key(self, request: KeyCreate, *, actor: str) -> KeyCreated:
        """Make a key; the answer is the only place where it is shown."""
        ...

    async def revoke_key(self, key_id: str, *, actor: str) -> Result:
        """Refuse a key from now on; the sentence says which routers were told."""
        ...

    async def key_limits(self, key_id: str, change: LimitsChange, *, actor: str) -> Result:
        """Change the limits given; raises InvalidInput, Conflict for a revoked key."""
        ...

    async def key_budget(self, key_id: str, budgets: tuple[Budget, ...], *, actor: str) -> Result:
        """Set all budgets; raises InvalidInput, Conflict for a revoked key."""
        ...

    async def move_key(self, key_id: str, team: str | None, *, actor: str) -> Result:
        """Put a key under a team that exists, or under none."""
        ...

    async def scopes(self, kind: ScopeKind) -> Sequence[ScopeInfo]:
        """Teams or tenants, by name."""
        ...

    async def create_team(self, request: TeamCreate, *, actor: str) -> Result:
        """Make a team; raises Conflict when the name is taken, NotFound for its tenant."""
        ...

    async def create_tenant(self, request: TenantCreate, *, actor: str) -> Result:
        """Make a tenant; raises Conflict when the name is taken."""
        ...

    async def scope_limits(self, kind: ScopeKind, name: str, change: LimitsChange, *, actor: str) -> Result:
        """Change the limits given; raises NotFound, InvalidInput."""
        ...

    async def scope_budget(self, kind: ScopeKind, name: str, budgets: tuple[Budget, ...], *, actor: str) -> Result:
        """Set all budgets; raises NotFound, InvalidInput."""
        ...

    async def move_team(self, name: str, tenant: str | None, *, actor: str) -> Result:
        """Put a team under a tenant that exists, or under none."""
        ...

    async def remove_scope(self, kind: ScopeKind, name: str, *, actor: str) -> Result:
        """Remove a team or tenant; raises Conflict while it has living keys or teams."""
        ...

    async def usage(self, by: By, since: date | None, until: date | None) -> Sequence[UsageInfo]:
        """Sums of usage over UTC days, both included."""
        ...
