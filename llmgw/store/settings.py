"""Cluster settings as stored: only what differs from the defaults, which live in the code."""

import msgspec

from llmgw.core.errors import NotFound
from llmgw.store import audit
from llmgw.store.notify import notify
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

TOPIC = "settings"

_SQL = load("settings")


class _Setting(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    value: str


def load_settings(conn: Conn) -> dict[str, msgspec.Raw]:
    """Every stored setting, as JSON."""
    return {row.key: msgspec.Raw(row.value.encode()) for row in fetch_all(conn, _SQL["load"], _Setting)}


def set_setting(conn: Conn, key: str, value: object, *, actor: str) -> None:
    """Store a setting, anything msgspec writes as JSON (`msgspec.Raw` too). The same again changes nothing."""
    before = _locked(conn, key)
    text = msgspec.json.encode(value).decode()
    if before is not None and msgspec.json.decode(before) == msgspec.json.decode(text):
        return
    execute(conn, _SQL["put"], {"key": key, "value": text})
    _record(conn, actor, "setting.set", key, before, msgspec.Raw(text.encode()))


def unset_setting(conn: Conn, key: str, *, actor: str) -> None:
    """Go back to the default; raises NotFound when the setting stands at it."""
    before = _locked(conn, key)
    if before is None:
        raise NotFound(f"{key} is not set: it has its default")
    execute(conn, _SQL["unset"], {"key": key})
    _record(conn, actor, "setting.unset", key, before, None)


def _locked(conn: Conn, key: str) -> msgspec.Raw | None:
    row = fetch_one(conn, _SQL["lock_setting"], _Setting, {"key": key})
    return msgspec.Raw(row.value.encode()) if row else None


def _record(
    conn: Conn, actor: str, action: str, key: str, before: msgspec.Raw | None, after: msgspec.Raw | None
) -> None:
    audit.record(conn, actor=actor, action=action, target=key, before=before, after=after)
    notify(conn, TOPIC, key)
