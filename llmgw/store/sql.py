"""SQL has names and lives in `queries/*.sql`; Python holds none.

A section begins with `-- name: NAME` and is one statement. Parameters are psycopg's `%(name)s`, so a value is never
part of a statement.
"""

import functools
import re
from collections.abc import Mapping
from importlib.resources import files
from typing import TypeAlias, TypeVar

import msgspec
import psycopg
from psycopg.rows import dict_row

Conn: TypeAlias = "psycopg.Connection[tuple[object, ...]]"
"""A connection inside a transaction, as `Store.run` and `Store.lead` hand it to their function."""

Params: TypeAlias = Mapping[str, object]
T = TypeVar("T")

_SECTION = re.compile(r"^-- name: *(\w+) *$", re.MULTILINE)


@functools.cache
def load(name: str) -> Mapping[str, bytes]:
    """The statements of `queries/<name>.sql` by their names; raises ValueError for a name given twice."""
    text = files("llmgw.store").joinpath("queries", f"{name}.sql").read_text("utf-8")
    parts = _SECTION.split(text)
    names, bodies = parts[1::2], parts[2::2]
    if len(set(names)) != len(names):
        raise ValueError(f"queries/{name}.sql names a statement twice")
    return {name: body.strip().encode() for name, body in zip(names, bodies, strict=True)}


def fetch_all(conn: Conn, statement: bytes, row_type: type[T], params: Params | None = None) -> tuple[T, ...]:
    """Every row, converted to `row_type` by column names (types are checked; lists become tuples)."""
    with conn.cursor(row_factory=dict_row) as cursor:
        cursor.execute(statement, params)
        return tuple(msgspec.convert(row, row_type) for row in cursor.fetchall())


def fetch_one(conn: Conn, statement: bytes, row_type: type[T], params: Params | None = None) -> T | None:
    """The only row, or none."""
    rows = fetch_all(conn, statement, row_type, params)
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} rows where one was expected")
    return rows[0] if rows else None


def execute(conn: Conn, statement: bytes, params: Params | None = None) -> int:
    """Run a statement for its effect; answers how many rows it touched."""
    return conn.execute(statement, params).rowcount
