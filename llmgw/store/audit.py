"""Who changed what: written in the transaction of the change itself, and never changed after (the database refuses)."""

from datetime import datetime

import msgspec

from llmgw.core.errors import InvalidInput
from llmgw.store.sql import Conn, execute, fetch_all, load

MAX_ENTRIES = 1000
"""Most entries one call answers; older ones are asked for with `before_id`."""

_SQL = load("audit")


class AuditRow(msgspec.Struct, frozen=True, kw_only=True):
    """One change. `before` and `after` are JSON; none where there was nothing, or nothing was left."""

    id: int
    at: datetime
    actor: str
    action: str
    """`model.add`, `model.change`, `model.remove`, `model.facts`, `key.create`, `key.revoke`, `node.join`, …"""
    target: str
    before: msgspec.Raw | None
    after: msgspec.Raw | None


class _Row(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    at: datetime
    actor: str
    action: str
    target: str
    before: str | None
    after: str | None


def record(conn: Conn, *, actor: str, action: str, target: str, before: object = None, after: object = None) -> None:
    """Add an entry; `before` and `after` are anything msgspec writes as JSON. Secrets and digests stay out."""
    params = {
        "actor": actor,
        "action": action,
        "target": target,
        "before": None if before is None else msgspec.json.encode(before).decode(),
        "after": None if after is None else msgspec.json.encode(after).decode(),
    }
    execute(conn, _SQL["record"], params)


def entries(
    conn: Conn, *, since: datetime | None = None, limit: int = 100, before_id: int | None = None
) -> tuple[AuditRow, ...]:
    """Newest first, at most `limit` (1 to MAX_ENTRIES); `before_id` continues after the last one seen."""
    if not 1 <= limit <= MAX_ENTRIES:
        raise InvalidInput(f"{limit} is outside 1 to {MAX_ENTRIES}", field="limit")
    rows = fetch_all(conn, _SQL["entries"], _Row, {"since": since, "limit": limit, "before_id": before_id})
    return tuple(
        AuditRow(
            id=row.id,
            at=row.at,
            actor=row.actor,
            action=row.action,
            target=row.target,
            before=_raw(row.before),
            after=_raw(row.after),
        )
        for row in rows
    )


def _raw(text: str | None) -> msgspec.Raw | None:
    return None if text is None else msgspec.Raw(text.encode())
