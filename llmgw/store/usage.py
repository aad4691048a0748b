"""Usage: a row is counted once, however often it is sent; sums are kept in the transaction that stores the rows."""

from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Literal, get_args

import msgspec

from llmgw.core.routing import UsageRow
from llmgw.store.sql import Conn, execute, fetch_all, fetch_one, load

LAST_SECOND = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
MAX_TOKENS = 2**40
"""More than any request can have; a row that claims more is held to it, so that sums cannot overflow."""
MAX_COST_MICROS = 10**12
"""A million in currency: more than any request can cost."""
MAX_TEXT = 512
"""Longest id or name kept; longer ones are cut."""

_SQL = load("usage")


class UsageTotal(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over days; `key_id`, `model`, `team` and `tenant` are empty where they are summed over, or none is."""

    key_id: str
    key: str
    """The key's name; empty where the key is not known any more."""
    model: str
    team: str
    tenant: str
    requests: int
    failed: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost_micros: int
    last_at: datetime


By = Literal["key", "model", "key_model", "team", "tenant"]
BY: tuple[By, ...] = get_args(By)


class _Cost(msgspec.Struct, frozen=True, kw_only=True):
    model: str
    cost_micros: int


class _Count(msgspec.Struct, frozen=True, kw_only=True):
    new: int


def store_batch(conn: Conn, rows: Iterable[UsageRow]) -> int:
    """Store the rows that are not there yet; answers how many those were.

    A row counts for the team it names (its key's, if it names none) and for the tenant that team is under now. No row
    is refused, or one bad row would hold up a router's spool for ever: absurd figures are held to their bounds.
    """
    execute(conn, _SQL["make_incoming"])
    with conn.cursor() as cursor, cursor.copy(_SQL["copy_incoming"]) as copy:
        for row in rows:
            copy.write_row(_columns(row))
    count = fetch_one(conn, _SQL["take_incoming"], _Count)
    return count.new if count else 0


def drop_old(conn: Conn, *, days: int, limit: int) -> int:
    """Drop at most `limit` rows of requests older than `days`; answers how many. Sums by day stay as they are."""
    return execute(conn, _SQL["drop_old"], {"days": days, "limit": limit})


def totals(
    conn: Conn, *, by: By = "key_model", since: date | None = None, until: date | None = None
) -> tuple[UsageTotal, ...]:
    """Sums by what `by` names, from the UTC day `since` to `until`, both included (none: without end)."""
    params = {
        "by_key": by in ("key", "key_model"),
        "by_model": by in ("model", "key_model"),
        "by_team": by == "team",
        "by_tenant": by == "tenant",
        "since": since,
        "until": until,
    }
    return fetch_all(conn, _SQL["totals"], UsageTotal, params)


def model_costs(conn: Conn) -> dict[str, int]:
    """Micros spent on each model since the UTC day began; models that cost nothing are left out."""
    return {row.model: row.cost_micros for row in fetch_all(conn, _SQL["model_costs"], _Cost)}


def _columns(row: UsageRow) -> tuple[object, ...]:
    """In the order of `copy_incoming`."""
    at = min(max(row.at, 0.0), LAST_SECOND) if row.at == row.at else 0.0
    return (
        *(_text(row.id), datetime.fromtimestamp(at, UTC), _text(row.key_id), _text(row.model), _text(row.replica)),
        *(min(max(row.status, 0), 999), row.failed, row.stream),
        *(_tokens(row.input_tokens), _tokens(row.cached_tokens), _tokens(row.output_tokens)),
        *(row.estimated, row.first_token_ms, row.duration_ms, min(max(row.attempts, 0), 10**6)),
        min(max(row.cost_micros, 0), MAX_COST_MICROS),
        *(_text(row.band), row.waited_ms, _text(row.asked)),
        None if row.team is None else _text(row.team),
    )


def _text(value: str) -> str:
    return value[:MAX_TEXT].replace("\0", "").encode("utf-8", "replace").decode()


def _tokens(value: int) -> int:
    return min(max(value, 0), MAX_TOKENS)
