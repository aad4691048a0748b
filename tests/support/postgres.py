"""Fixtures on a real PostgreSQL: one embedded server a test session, a fresh database a test.

`postgres_server` (session): the server, as a `TestServer`.
`empty_database`: connection string of a new database without our schema.
`database`: connection string of a new database with the schema applied.
`store`: a `Store` on `database`, for trio tests.
"""

import itertools
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
import trio
from psycopg import sql
from psycopg.conninfo import make_conninfo

from llmgw.core.layout import ServerLayout
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.migrations import migrate
from llmgw.store.store import Store

FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""Tests do not survive a power cut anyway."""
TEMPLATE = "llmgw_template"


@dataclass(kw_only=True)
class TestServer:
    """The session's PostgreSQL."""

    __test__ = False

    conninfo: str
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def create(self, *, template: str = "template0") -> str:
        """Connection string of a new database."""
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            statement = sql.SQL("create database {} template {}").format(sql.Identifier(name), sql.Identifier(template))
            conn.execute(statement)
        return make_conninfo(self.conninfo, dbname=name)

    def drop(self, conninfo: str) -> None:
        """Remove a database, whoever is connected."""
        name = psycopg.conninfo.conninfo_to_dict(conninfo)["dbname"]
        with psycopg.connect(self.conninfo, autocommit=True) as conn:
            conn.execute(sql.SQL("drop database if exists {} with (force)").format(sql.Identifier(str(name))))


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[TestServer]:
    """One embedded PostgreSQL for the session, with a template that carries the schema."""
    data = Path(tempfile.mkdtemp(prefix="llmgw-test-pg-"))
    postgres = EmbeddedPostgres(ServerLayout(data=data), settings=FAST)
    try:
        server = TestServer(conninfo=trio.run(postgres.start))
        with psycopg.connect(server.conninfo, autocommit=True) as conn:
            conn.execute(sql.SQL("create database {}").format(sql.Identifier(TEMPLATE)))
        with psycopg.connect(make_conninfo(server.conninfo, dbname=TEMPLATE)) as conn:
            migrate(conn)
        yield server
    finally:
        trio.run(postgres.stop)
        shutil.rmtree(data)


@pytest.fixture
def empty_database(postgres_server: TestServer) -> Iterator[str]:
    """A new database without our schema."""
    conninfo = postgres_server.create()
    yield conninfo
    postgres_server.drop(conninfo)


@pytest.fixture
def database(postgres_server: TestServer) -> Iterator[str]:
    """A new database with our schema."""
    conninfo = postgres_server.create(template=TEMPLATE)
    yield conninfo
    postgres_server.drop(conninfo)


@pytest.fixture
async def store(database: str) -> AsyncIterator[Store]:
    """A store on a new database; trio tests only."""
    opened = await Store.open(database)
    yield opened
    await opened.aclose()
