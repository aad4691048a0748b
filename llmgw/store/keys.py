"""API keys: the store knows a keyed digest of each, and neither the key nor (outside this table) the digest."""

from datetime import datetime

import msgspec

from llmgw.core.errors import Conflict, NotFound
from llmgw.core.routing import KeyRecord
from llmgw.store import audit
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

TOPIC = "keys"

_SQL = load("keys")


class KeyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A key and what was done with it."""

    id: str
    name: str
    models: tuple[str, ...] | None
    """Names it may use; none is all."""
    created: datetime
    created_by: str
    revoked: datetime | None
    last_used: datetime | None
    requests: int
    input_tokens: int
    output_tokens: int


class _Digest(msgspec.Struct, frozen=True, kw_only=True):
    digest: str


class _Locked(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    name: str
    digest: str
    revoked: bool


def create_key(conn: Conn, *, id: str, name: str, digest: str, models: tuple[str, ...] | None, actor: str) -> KeyRow:
    """Keep a new key by its digest. Raises Conflict when the id or digest is taken (draw another)."""
    listed = None if models is None else list(models)
    params = {"id": id, "name": name, "digest": digest, "models": listed, "actor": actor}
    row = fetch_one(conn, _SQL["create_key"], KeyRow, params)
    if row is None:
        raise Conflict(f"key id {id!r} is taken: repeat the command")
    audit.record(conn, actor=actor, action="key.create", target=id, after={"id": id, "name": name, "models": models})
    notify(conn, TOPIC, id)
    return row


def list_keys(conn: Conn) -> tuple[KeyRow, ...]:
    """Every key, oldest first, with its sums of usage; revoked ones too."""
    return fetch_all(conn, _SQL["list_keys"], KeyRow)


def key_by_digest(conn: Conn, digest: str) -> KeyRecord | None:
    """Whose key it is; a revoked one is answered as such, so that a router can remember it."""
    return fetch_one(conn, _SQL["by_digest"], KeyRecord, {"digest": digest})


def digest_of(conn: Conn, id: str) -> str | None:
    """The digest of a key, for telling routers to forget it."""
    row = fetch_one(conn, _SQL["digest_of"], _Digest, {"id": id})
    return row.digest if row else None


def revoke_key(conn: Conn, id: str, *, actor: str) -> str:
    """Revoke a key; answers its digest, which routers are told to forget. Again is harmless. Raises NotFound."""
    row = fetch_one(conn, _SQL["lock_key"], _Locked, {"id": id})
    if row is None:
        raise NotFound(f"there is no key with id {id!r}: see llmgw ctl keys list")
    if not row.revoked:
        execute(conn, _SQL["revoke_key"], {"id": id, "actor": actor})
        before = {"id": id, "name": row.name, "revoked": False}
        audit.record(conn, actor=actor, action="key.revoke", target=id, before=before, after=before | {"revoked": True})
        notify(conn, TOPIC, id)
    return row.digest
