"""The schema only moves forward, one numbered file at a time, under a lock that all servers share.

All that is missing is applied in one transaction: a failure, or a killed server, leaves the schema as it was.
"""

import hashlib
import re
from importlib.resources import files

import msgspec

from llmgw.core.errors import Conflict, InvalidInput
from llmgw.store.sql import Conn, execute, fetch_all, load

LOCK_KEY = 0x6C6C6D6777  # "llmgw"
"""Advisory lock of migrations; arbitrary, and the same in every version."""
OLDEST_POSTGRES = 140000
"""Oldest PostgreSQL whose features the SQL uses, as `server_version_num` writes it."""

_FILE = re.compile(r"(\d{4})_(\w+)\.sql")
_SQL = load("migrations")


class Migration(msgspec.Struct, frozen=True, kw_only=True):
    """One file of `migrations/`."""

    version: int
    name: str
    sql: bytes

    @property
    def checksum(self) -> str:
        """SHA-256 of the file, in hex."""
        return hashlib.sha256(self.sql).hexdigest()


class _Applied(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    name: str
    checksum: str


def known_migrations() -> tuple[Migration, ...]:
    """Those this version carries, in order; raises ValueError when their numbers leave a gap."""
    found = []
    for entry in files("llmgw.store").joinpath("migrations").iterdir():
        match = _FILE.fullmatch(entry.name)
        if match:
            found.append(Migration(version=int(match[1]), name=match[2], sql=entry.read_bytes()))
    found.sort(key=lambda migration: migration.version)
    if [migration.version for migration in found] != list(range(1, len(found) + 1)):
        raise ValueError("migrations are not numbered 1, 2, 3, …")
    return tuple(found)


def migrate(conn: Conn, known: tuple[Migration, ...] | None = None) -> tuple[int, ...]:
    """Bring the schema up to date; answers the versions applied now.

    Raises Conflict for a database of a newer version, or one whose migrations differ from ours; InvalidInput for a
    PostgreSQL that is too old, or a database that keeps other characters than UTF-8's.
    """
    if conn.info.server_version < OLDEST_POSTGRES:
        raise InvalidInput(
            f"the database runs PostgreSQL {conn.info.server_version // 10000}; "
            f"{OLDEST_POSTGRES // 10000} or newer is needed"
        )
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise InvalidInput(
            f"the database's encoding is {encoding}, in which not every name can be kept: make one of encoding 'UTF8' "
            "(create database … encoding 'UTF8' template template0)"
        )
    if known is None:
        known = known_migrations()
    execute(conn, _SQL["unlimited"])
    execute(conn, _SQL["lock"], {"key": LOCK_KEY})
    execute(conn, _SQL["make_table"])
    applied = fetch_all(conn, _SQL["applied"], _Applied)
    _check(applied, known)
    missing = known[len(applied) :]
    for migration in missing:
        execute(conn, migration.sql)
        record = {"version": migration.version, "name": migration.name, "checksum": migration.checksum}
        execute(conn, _SQL["record"], record)
    return tuple(migration.version for migration in missing)


def _check(applied: tuple[_Applied, ...], known: tuple[Migration, ...]) -> None:
    if applied and applied[-1].version > len(known):
        raise Conflict(
            f"the database was used by a newer llmgw (schema {applied[-1].version}; this one knows 1 to "
            f"{len(known)}): upgrade this server, or restore a backup made before that upgrade"
        )
    for have, want in zip(applied, known, strict=False):
        if (have.version, have.checksum) != (want.version, want.checksum):
            raise Conflict(
                f"migration {have.version} ({have.name}) in the database is not the one this llmgw carries "
                f"({want.version}, {want.name}): the database belongs to another build"
            )
