"""API keys: the store knows a keyed digest of each, and neither the key nor (outside this table) the digest.

Recording usage never writes here: what a key may do changes only by an operator's hand, with its audit row.
"""

from collections.abc import Mapping
from datetime import datetime

import msgspec

from llmgw.core.errors import Conflict, NotFound
from llmgw.core.limits import Budget, Limits, ScopeKind
from llmgw.core.near import did_you_mean
from llmgw.core.routing import KeyRecord
from llmgw.store import audit, bands, scopes
from llmgw.store.notify import notify
from llmgw.store.scopes import document
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

TOPIC = "keys"
_NAMED = 5
"""Ids that a refusal of an ambiguous name gives."""

_SQL = load("keys")


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key and what was done with it."""

    id: str
    name: str
    models: tuple[str, ...] | None
    """Names it may use; none is all."""
    team: str | None
    band: str | None
    limits: Limits
    budgets: tuple[Budget, ...]
    created: datetime
    created_by: str
    revoked: datetime | None
    last_used: datetime | None
    requests: int
    input_tokens: int
    output_tokens: int
    cost_micros: int
    spent_day_micros: int
    spent_month_micros: int


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key to keep; `digest` stands for it."""

    id: str
    name: str
    digest: str
    models: tuple[str, ...] | None = None
    team: str | None = None
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    band: str | None = None


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """What operators may change of a key, as its row has it."""

    id: str
    name: str
    digest: str
    team: str | None
    band: str | None
    limits: Limits
    budgets: tuple[Budget, ...]
    revoked: bool

    @property
    def called(self) -> str:
        """`nightly (key-1)`, for sentences."""
        return f"{self.name} ({self.id})"


class _Digest(msgspec.Struct, frozen=True, kw_only=True):
    digest: str


class _Known(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str


class _Found(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    revoked: bool


def create_key(conn: Conn, new: NewKey, *, actor: str) -> bool:
    """Keep a new key by its digest; whether its team had to be made for it.

    Raises Conflict when the id or digest is taken (draw another), InvalidInput for a band that is not there.
    """
    if new.band is not None:
        bands.hold(conn, new.band)
    made = new.team is not None and scopes.ensure_team(conn, new.team, actor=actor)
    listed = None if new.models is None else list(new.models)
    params = {"id": new.id, "name": new.name, "digest": new.digest, "models": listed, "team": new.team, "actor": actor}
    params |= {"limits": document(new.limits), "budgets": document(new.budgets), "band": new.band}
    if not execute(conn, _SQL["create_key"], params):
        raise Conflict(f"key id {new.id!r} is taken: repeat the command")
    after = {name: value for name, value in msgspec.structs.asdict(new).items() if name != "digest"}
    audit.record(conn, actor=actor, action="key.create", target=new.id, after=after)
    notify(conn, TOPIC, new.id)
    return made


def list_keys(conn: Conn) -> tuple[KeyRow, ...]:
    """Every key, oldest first, with its sums of usage; revoked ones too."""
    return fetch_all(conn, _SQL["list_keys"], KeyRow)


def key_by_digest(conn: Conn, digest: str) -> KeyRecord | None:
    """Whose key it is; a revoked one is answered as such, so that a router can remember it.

    What it spent is summed for a key with a budget only.
    """
    return fetch_one(conn, _SQL["by_digest"], KeyRecord, {"digest": digest})


def digest_of(conn: Conn, id: str) -> str | None:
    """The digest of a key, for telling routers to forget it."""
    row = fetch_one(conn, _SQL["digest_of"], _Digest, {"id": id})
    return row.digest if row else None


def revoke_key(conn: Conn, id: str, *, actor: str) -> Key:
    """Revoke a key; answers it, for routers are told to forget its digest. Again is harmless. Raises NotFound."""
    key = _lock(conn, id)
    if not key.revoked:
        execute(conn, _SQL["revoke_key"], {"id": key.id, "actor": actor})
        _changed(conn, "key.revoke", key, msgspec.structs.replace(key, revoked=True), actor)
    return key


def set_limits(conn: Conn, id: str, change: Mapping[str, int | None], *, actor: str) -> tuple[Key, Key]:
    """Change the limits that `change` names; the key before and after. Raises NotFound, or Conflict when revoked."""
    before = _lock_living(conn, id)
    after = msgspec.structs.replace(before, limits=msgspec.structs.replace(before.limits, **change))
    if after != before:
        execute(conn, _SQL["set_limits"], {"id": before.id, "limits": document(after.limits)})
        _changed(conn, "key.limits", before, after, actor)
    return before, after


def set_budgets(conn: Conn, id: str, budgets: tuple[Budget, ...], *, actor: str) -> tuple[Key, Key]:
    """Put `budgets` in place of all it has; the key before and after. Raises NotFound, or Conflict when revoked."""
    before = _lock_living(conn, id)
    after = msgspec.structs.replace(before, budgets=budgets)
    if after != before:
        execute(conn, _SQL["set_budgets"], {"id": before.id, "budgets": document(budgets)})
        _changed(conn, "key.budget", before, after, actor)
    return before, after


def move_key(conn: Conn, id: str, team: str | None, *, actor: str) -> tuple[Key, Key]:
    """Put a key under a team or none; the key before and after. Raises NotFound for either, Conflict when revoked."""
    if team is not None:
        scopes.hold(conn, ScopeKind.TEAM, team)
    before = _lock_living(conn, id)
    after = msgspec.structs.replace(before, team=team)
    if after != before:
        execute(conn, _SQL["set_team"], {"id": before.id, "team": team})
        _changed(conn, "key.move", before, after, actor)
    return before, after


def set_band(conn: Conn, id: str, band: str | None, *, actor: str) -> tuple[Key, Key]:
    """Let a key's requests wait in a band of their own, or in its team's; the key before and after.

    Raises NotFound, Conflict when revoked, InvalidInput for a band that is not there.
    """
    if band is not None:
        bands.hold(conn, band)
    before = _lock_living(conn, id)
    after = msgspec.structs.replace(before, band=band)
    if after != before:
        execute(conn, _SQL["set_band"], {"id": before.id, "band": band})
        _changed(conn, "key.band", before, after, actor)
    return before, after


def _lock_living(conn: Conn, id: str) -> Key:
    key = _lock(conn, id)
    if key.revoked:
        raise Conflict(f"{key.called} is revoked and stays so: make a new key with llmgw ctl keys create")
    return key


def _lock(conn: Conn, id: str) -> Key:
    """The key of that id or, where no other living key has it, that name; locked."""
    found = fetch_all(conn, _SQL["find_key"], _Found, {"id": id, "limit": _NAMED + 1})
    if not found:
        known = [name for key in fetch_all(conn, _SQL["living_keys"], _Known) for name in (key.name, key.id)]
        hint = did_you_mean(id, known) or ": see llmgw ctl keys list"
        raise NotFound(f"there is no key with id or name {id!r}{hint}")
    candidates = [key for key in found if not key.revoked] or list(found)
    if found[0].id == id:
        candidates = [found[0]]
    if len(candidates) > 1:
        ids = ", ".join(key.id for key in candidates[:_NAMED])
        raise Conflict(f"{len(candidates)} or more keys are called {id!r}: give an id ({ids})")
    key = fetch_one(conn, _SQL["lock_key"], Key, {"id": candidates[0].id})
    if key is None:
        raise NotFound(f"there is no key with id {candidates[0].id!r}: see llmgw ctl keys list")
    return key


def _changed(conn: Conn, action: str, before: Key, after: Key, actor: str) -> None:
    audit.record(conn, actor=actor, action=action, target=after.id, before=_shown(before), after=_shown(after))
    notify(conn, TOPIC, after.id)


def _shown(key: Key) -> dict[str, object]:
    return {name: value for name, value in msgspec.structs.asdict(key).items() if name != "digest"}
