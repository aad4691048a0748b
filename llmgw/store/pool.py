"""Connections that are ready for use. A connection is handed out only if it was heard of no trouble since.

The pool does not limit how many are out: its caller does (`Store`, by its limiter).
"""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Mapping

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import TransactionStatus

from llmgw.core.errors import InvalidInput
from llmgw.store.sql import Conn, execute, load

CONNECT_TIMEOUT_S = 5
"""A database that answers at all answers a new connection within this."""
STATEMENT_TIMEOUT_S = 30
"""The database itself ends a statement that takes longer."""
IDLE_IN_TRANSACTION_S = 10
"""The database ends a connection that pauses this long inside a transaction: its locks would hold up everybody."""

_DEFAULTS: Mapping[str, str | int] = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "application_name": "llmgw",
    # Whatever PGCLIENTENCODING says: names are kept as they are written.
    "client_encoding": "UTF8",
    # A peer that vanished without a word is noticed within half a minute.
    "keepalives": 1,
    "keepalives_idle": 15,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 20_000,
}
_SQL = load("session")


class Pool:
    """Idle connections, the last used first. All methods may be called from any thread."""

    def __init__(self, conninfo: str) -> None:
        self.conninfo = with_defaults(conninfo)
        self._lock = threading.Lock()
        self._idle: list[Conn] = []
        self._closed = False

    def take(self) -> Conn:
        """An idle connection, or a new one; raises psycopg.OperationalError. Blocks up to CONNECT_TIMEOUT_S a host."""
        while True:
            with self._lock:
                conn = self._idle.pop() if self._idle else None
            if conn is None:
                return connect(self.conninfo)
            if _quiet(conn):
                return conn
            discard(conn)

    def give(self, conn: Conn) -> None:
        """Take a connection back; one that is broken, or inside a transaction, is closed instead."""
        if not conn.closed and conn.info.transaction_status == TransactionStatus.IDLE:
            with self._lock:
                if not self._closed:
                    self._idle.append(conn)
                    return
        discard(conn)

    def close(self) -> None:
        """Close idle connections, and from here on every one that is given back."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for conn in idle:
            discard(conn)


def with_defaults(conninfo: str) -> str:
    """The connection string with timeouts and keep-alives where it says nothing; raises InvalidInput, without it."""
    try:
        given = conninfo_to_dict(conninfo)
        return make_conninfo("", **{**_DEFAULTS, **{k: v for k, v in given.items() if v is not None}})
    except psycopg.ProgrammingError:
        raise InvalidInput(
            "not a PostgreSQL connection string: write postgresql://user@host/database, or host=… user=… dbname=…",
            field="database",
        ) from None


def where(conninfo: str) -> str:
    """Host and database, for people; never a password."""
    given = conninfo_to_dict(conninfo)
    host = given.get("host") or given.get("hostaddr") or "localhost"
    return f"{host}/{given.get('dbname') or given.get('user') or ''}".rstrip("/")


def connect(conninfo: str) -> Conn:
    """A new connection, outside a transaction, its limits set in the database; raises psycopg.OperationalError."""
    # Statements are not prepared: a pooler between us and the database may hand each one to another session.
    conn = psycopg.connect(conninfo, autocommit=True, prepare_threshold=None)
    try:
        limits = {"statement_ms": str(STATEMENT_TIMEOUT_S * 1000), "idle_ms": str(IDLE_IN_TRANSACTION_S * 1000)}
        execute(conn, _SQL["prepare"], limits)
    except BaseException:
        discard(conn)
        raise
    return conn


def discard(conn: Conn) -> None:
    """Close a connection in whatever state it is."""
    with contextlib.suppress(psycopg.Error):
        conn.close()


def sever(conn: Conn) -> None:
    """End the connection under a thread that waits on it: its read ends at once. For a database that says nothing."""
    with contextlib.suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(conn.fileno())) as sock:
        sock.shutdown(socket.SHUT_RDWR)


def _quiet(conn: Conn) -> bool:
    """Whether the database said nothing since: whatever it says to an idle connection is a goodbye."""
    if conn.closed:
        return False
    poll = select.poll()
    poll.register(conn.fileno(), select.POLLIN)
    return not poll.poll(0)
