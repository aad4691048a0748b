"""Teams and tenants: the scopes above keys. A change, its audit row and its notification are one transaction."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from llmgw.core.errors import Conflict, NotFound
from llmgw.core.limits import Budget, Limits, ScopeKind, ScopeRecord
from llmgw.core.near import did_you_mean
from llmgw.store import audit, bands
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

TOPIC = "scopes"
KEYS_TOPIC = "keys"
NO_LIMITS = Limits()
_NAMED = 5
"""Names of what is still beneath a scope that a refusal gives."""

_SQL = load("scopes")


class _Statements(NamedTuple):
    """What is done with scopes of one kind."""

    create: bytes
    lock: bytes
    hold: bytes
    set_limits: bytes
    set_budgets: bytes
    beneath: bytes
    beneath_words: str
    names: bytes
    remove: bytes


_OF = {
    ScopeKind.TEAM: _Statements(
        create=_SQL["create_team"],
        lock=_SQL["lock_team"],
        hold=_SQL["hold_team"],
        set_limits=_SQL["set_team_limits"],
        set_budgets=_SQL["set_team_budgets"],
        beneath=_SQL["beneath_team"],
        beneath_words="living keys",
        names=_SQL["team_names"],
        remove=_SQL["remove_team"],
    ),
    ScopeKind.TENANT: _Statements(
        create=_SQL["create_tenant"],
        lock=_SQL["lock_tenant"],
        hold=_SQL["hold_tenant"],
        set_limits=_SQL["set_tenant_limits"],
        set_budgets=_SQL["set_tenant_budgets"],
        beneath=_SQL["beneath_tenant"],
        beneath_words="teams",
        names=_SQL["tenant_names"],
        remove=_SQL["remove_tenant"],
    ),
}


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True):
    """A team or tenant and what everything beneath it used, ever, today and this month."""

    kind: ScopeKind
    name: str
    tenant: str | None
    band: str | None
    limits: Limits
    budgets: tuple[Budget, ...]
    created: datetime
    keys: int
    """Living keys beneath it."""
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    spent_day_micros: int
    spent_month_micros: int


class Scope(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A team or tenant as its row has it."""

    name: str
    tenant: str | None
    limits: Limits
    budgets: tuple[Budget, ...]
    band: str | None = None


class _Member(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    digest: str


class _Name(msgspec.Struct, frozen=True, kw_only=True):
    name: str


def document(value: object) -> str:
    """Limits or budgets as their column takes them."""
    return msgspec.json.encode(value).decode()


def list_scopes(conn: Conn, kind: ScopeKind | None = None) -> tuple[ScopeRow, ...]:
    """Teams, tenants or both, by name, with their sums of usage."""
    return fetch_all(conn, _SQL["list_scopes"], ScopeRow, {"kind": kind})


def records(conn: Conn) -> tuple[ScopeRecord, ...]:
    """Every team and tenant as routers know it; what was spent is summed for those with a budget only."""
    return fetch_all(conn, _SQL["records"], ScopeRecord)


def create(
    conn: Conn,
    kind: ScopeKind,
    name: str,
    *,
    tenant: str | None = None,
    limits: Limits = NO_LIMITS,
    budgets: tuple[Budget, ...] = (),
    actor: str,
) -> None:
    """Make a team or tenant. Raises Conflict when the name is taken, NotFound for a tenant that is not there."""
    if tenant is not None:
        hold(conn, ScopeKind.TENANT, tenant)
    given: dict[str, str | None] = {
        "name": name,
        "limits": document(limits),
        "budgets": document(budgets),
        "actor": actor,
    }
    given |= {"tenant": tenant} if kind is ScopeKind.TEAM else {}
    if not execute(conn, _OF[kind].create, given):
        raise Conflict(f"there is a {kind} {name!r} already")
    after = Scope(name=name, tenant=tenant, limits=limits, budgets=budgets)
    audit.record(conn, actor=actor, action=f"{kind}.create", target=name, after=after)
    notify(conn, TOPIC, f"{kind}:{name}")


def ensure_team(conn: Conn, name: str, *, actor: str) -> bool:
    """Make the team unless it is there, or somebody makes it at this moment; whether it was made."""
    if _held(conn, ScopeKind.TEAM, name):
        return False
    try:
        create(conn, ScopeKind.TEAM, name, actor=actor)
    except Conflict:
        hold(conn, ScopeKind.TEAM, name)
        return False
    return True


def hold(conn: Conn, kind: ScopeKind, name: str) -> None:
    """Raise NotFound unless it is there; it cannot be removed before this transaction ends."""
    if not _held(conn, kind, name):
        raise NotFound(_absent(conn, kind, name))


def _held(conn: Conn, kind: ScopeKind, name: str) -> bool:
    return fetch_one(conn, _OF[kind].hold, Scope, {"name": name}) is not None


def set_limits(
    conn: Conn, kind: ScopeKind, name: str, change: Mapping[str, int | None], *, actor: str
) -> tuple[Scope, Scope]:
    """Change the limits that `change` names; the scope before and after. Raises NotFound."""
    before = _lock(conn, kind, name)
    after = msgspec.structs.replace(before, limits=msgspec.structs.replace(before.limits, **change))
    if after != before:
        execute(conn, _OF[kind].set_limits, {"name": name, "limits": document(after.limits)})
        _changed(conn, kind, f"{kind}.limits", before, after, actor)
    return before, after


def set_budgets(
    conn: Conn, kind: ScopeKind, name: str, budgets: tuple[Budget, ...], *, actor: str
) -> tuple[Scope, Scope]:
    """Put `budgets` in place of all it has; the scope before and after. Raises NotFound."""
    before = _lock(conn, kind, name)
    after = msgspec.structs.replace(before, budgets=budgets)
    if after != before:
        execute(conn, _OF[kind].set_budgets, {"name": name, "budgets": document(budgets)})
        _changed(conn, kind, f"{kind}.budget", before, after, actor)
    return before, after


def move_team(conn: Conn, name: str, tenant: str | None, *, actor: str) -> tuple[Scope, Scope]:
    """Put a team under a tenant or none; the team before and after. Raises NotFound for either."""
    if tenant is not None:
        hold(conn, ScopeKind.TENANT, tenant)
    before = _lock(conn, ScopeKind.TEAM, name)
    after = msgspec.structs.replace(before, tenant=tenant)
    if after != before:
        execute(conn, _SQL["set_tenant"], {"name": name, "tenant": tenant})
        _changed(conn, ScopeKind.TEAM, "team.move", before, after, actor)
    return before, after


def set_team_band(conn: Conn, name: str, band: str | None, *, actor: str) -> tuple[Scope, Scope, tuple[str, ...]]:
    """Let requests of a team's keys wait in a band; the team before and after, and the digests of its living keys.

    Raises NotFound, InvalidInput for a band that is not there.
    """
    if band is not None:
        bands.hold(conn, band)
    before = _lock(conn, ScopeKind.TEAM, name)
    after = msgspec.structs.replace(before, band=band)
    if after == before:
        return before, after, ()
    execute(conn, _SQL["set_team_band"], {"name": name, "band": band})
    _changed(conn, ScopeKind.TEAM, "team.band", before, after, actor)
    members = fetch_all(conn, _SQL["keys_of_team"], _Member, {"name": name})
    for member in members:
        notify(conn, KEYS_TOPIC, member.id)
    return before, after, tuple(member.digest for member in members)


def remove(conn: Conn, kind: ScopeKind, name: str, *, actor: str) -> None:
    """Remove a team without living keys, or a tenant without teams. Raises NotFound, or Conflict naming the rest."""
    before = _lock(conn, kind, name)
    beneath = fetch_all(conn, _OF[kind].beneath, _Name, {"name": name, "limit": _NAMED + 1})
    if beneath:
        shown = ", ".join(row.name for row in beneath[:_NAMED])
        more = f" and more than {_NAMED} in all" if len(beneath) > _NAMED else ""
        raise Conflict(
            f"{kind} {name!r} still has {_OF[kind].beneath_words} ({shown}{more}): move or remove them first"
        )
    execute(conn, _OF[kind].remove, {"name": name})
    audit.record(conn, actor=actor, action=f"{kind}.remove", target=name, before=before)
    notify(conn, TOPIC, f"{kind}:{name}")


def _lock(conn: Conn, kind: ScopeKind, name: str) -> Scope:
    row = fetch_one(conn, _OF[kind].lock, Scope, {"name": name})
    if row is None:
        raise NotFound(_absent(conn, kind, name))
    return row


def _changed(conn: Conn, kind: ScopeKind, action: str, before: Scope, after: Scope, actor: str) -> None:
    audit.record(conn, actor=actor, action=action, target=after.name, before=before, after=after)
    notify(conn, TOPIC, f"{kind}:{after.name}")


def _absent(conn: Conn, kind: ScopeKind, name: str) -> str:
    known = [row.name for row in fetch_all(conn, _OF[kind].names, _Name)]
    return f"there is no {kind} {name!r}{did_you_mean(name, known) or f': see llmgw ctl {kind}s list'}"
