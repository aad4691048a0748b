"""One leader, by the database's clock alone; every leader's write proves its epoch in its own transaction.

The fence locks the lease's row against a new epoch until the write's transaction ends. So a write either commits
before the next leader has its epoch, or is refused; a pause anywhere in between changes nothing. Renewals do not wait
for writes. A transaction that stays idle is ended by the database, so a paused leader cannot hold up its successor.
"""

import msgspec

from llmgw.core.errors import LlmgwError
from llmgw.store.sql import Conn, execute, fetch_one, load

_SQL = load("leadership")


class StaleLease(LlmgwError):
    """A write under an epoch that is over; the server stops leading."""

    code = "stale_lease"
    http_status = 503


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """The lease as it stands."""

    epoch: int
    owner: str
    """Server id; empty before the first leader."""
    host: str
    pid: int
    held: bool
    """Whether it has not run out."""
    remaining_s: float
    """Seconds until it runs out, by the database's clock; 0 when it has."""


class _Epoch(msgspec.Struct, frozen=True, kw_only=True):
    epoch: int


def acquire(conn: Conn, *, owner: str, ttl_s: float, host: str, pid: int) -> int | None:
    """Take the lease for `ttl_s` seconds: its epoch, or none while another owner holds it.

    The owner's own lease is retaken at once, under a new epoch, on the host that holds it: a copy of its data directory
    on another machine waits like any server. Waits for leader writes that are under way.
    """
    params = {"owner": owner, "ttl_s": ttl_s, "host": host, "pid": pid}
    row = fetch_one(conn, _SQL["acquire"], _Epoch, params)
    return row.epoch if row else None


def renew(conn: Conn, *, owner: str, epoch: int, ttl_s: float) -> bool:
    """Extend the lease to `ttl_s` from now; False when the epoch is over. One that ran out untaken is still ours."""
    return execute(conn, _SQL["renew"], {"owner": owner, "epoch": epoch, "ttl_s": ttl_s}) == 1


def release(conn: Conn, *, owner: str, epoch: int) -> bool:
    """Let anybody take the lease at once; False when it was not ours any more."""
    return execute(conn, _SQL["release"], {"owner": owner, "epoch": epoch}) == 1


def current(conn: Conn) -> Lease:
    """Who leads, or led last."""
    lease = fetch_one(conn, _SQL["current"], Lease)
    if lease is None:
        raise LlmgwError("the database has lost its leadership row: restore it from a backup")
    return lease


def fence(conn: Conn, epoch: int) -> None:
    """Hold `epoch` valid until this transaction ends; raises StaleLease when it is over or has run out."""
    if fetch_one(conn, _SQL["fence"], _Epoch, {"epoch": epoch}) is None:
        raise StaleLease(f"this server no longer leads (its epoch {epoch} is over): ask the leader")
