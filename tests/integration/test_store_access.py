"""The store's promises about threads, cancellation and a database that goes away, on a real PostgreSQL."""

import contextlib
import os
import signal
import time
from contextlib import aclosing
from pathlib import Path

import psycopg
import pytest
import trio

from llmgw.core.errors import Conflict, InvalidInput, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.store import pool
from llmgw.store import store as store_module
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.migrations import known_migrations
from llmgw.store.sql import Conn
from llmgw.store.store import Store
from tests.support.waiting import until

DEADLINE_S = 20.0


def scalar(conn: Conn, statement: str) -> object:
    row = conn.execute(statement.encode()).fetchone()
    return None if row is None else row[0]


def insert_setting(conn: Conn, key: str) -> None:
    conn.execute("insert into settings (key, value) values (%s, '1')", (key,))


def active(conninfo: str, pattern: str) -> int:
    with psycopg.connect(conninfo, autocommit=True) as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where state = 'active' and query like %s"
            " and datname = current_database() and pid <> pg_backend_pid()",
            (pattern,),
        ).fetchone()
    assert row is not None
    return int(row[0])


async def until_active(conninfo: str, pattern: str, wanted: int) -> None:
    await until(lambda: active(conninfo, pattern) == wanted)


def is_healthy(store: Store) -> bool:
    return store.health.ok


def postgres_conninfo(store: Store) -> str:
    return store._pool.conninfo


def known_versions() -> tuple[int, ...]:
    return tuple(migration.version for migration in known_migrations())


@pytest.mark.trio
async def test_a_call_commits_and_an_error_rolls_back(store: Store) -> None:
    await store.run(insert_setting, "kept")

    def fail(conn: Conn) -> None:
        insert_setting(conn, "lost")
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        await store.run(fail)
    assert await store.run(scalar, "select string_agg(key, ',') from settings") == "kept"


@pytest.mark.trio
async def test_cancelling_a_call_ends_its_statement(store: Store, database: str) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, scalar, "select pg_sleep(25)")
        await until_active(database, "%pg_sleep(25)%", 1)
        begin = time.monotonic()
        nursery.cancel_scope.cancel()
    assert time.monotonic() - begin < 3
    await until_active(database, "%pg_sleep(25)%", 0)
    assert await store.run(scalar, "select 1") == 1


@pytest.mark.trio
async def test_a_deadline_cancels_and_commits_nothing(store: Store) -> None:
    def slow(conn: Conn) -> None:
        insert_setting(conn, "lost")
        conn.execute("select pg_sleep(25)")

    with trio.move_on_after(0.3) as scope:
        await store.run(slow)
    assert scope.cancelled_caught
    assert await store.run(scalar, "select count(*) from settings") == 0


@pytest.mark.trio
async def test_waiting_for_a_seat_is_cancellable(database: str) -> None:
    store = await Store.open(database, size=1)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, scalar, "select pg_sleep(25)")
        await until_active(database, "%pg_sleep(25)%", 1)
        with trio.move_on_after(0.05) as scope:
            await store.run(scalar, "select 1")
        assert scope.cancelled_caught
        assert await trio.to_thread.run_sync(active, database, "%pg_sleep(25)%") == 1
        nursery.cancel_scope.cancel()
    await store.aclose()
    with pytest.raises(Unavailable, match="stopping"):
        await store.run(scalar, "select 1")


@pytest.mark.trio
async def test_many_calls_share_few_connections(store: Store, database: str) -> None:
    async def one(number: int) -> None:
        assert await store.run(scalar, f"select {number}") == number

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(one, number)
    with psycopg.connect(database) as conn:
        row = conn.execute("select count(*) from pg_stat_activity where datname = current_database()").fetchone()
    assert row is not None
    assert 1 <= int(row[0]) - 1 <= 8


@pytest.mark.trio
async def test_broken_connections_are_replaced(store: Store, database: str) -> None:
    first = await store.run(scalar, "select pg_backend_pid()")
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("select pg_terminate_backend(%s, 5000)", (first,))
    second = await store.run(scalar, "select pg_backend_pid()")
    assert second != first


@pytest.mark.trio
async def test_a_connection_lost_in_a_call_is_unavailable(store: Store, database: str) -> None:
    def terminate_self(conn: Conn) -> None:
        conn.execute("select pg_terminate_backend(pg_backend_pid())")
        conn.execute("select 1")

    with pytest.raises(Unavailable, match="the database is away"):
        await store.run(terminate_self)
    assert not is_healthy(store)
    assert "away" in store.health.message
    assert await store.run(scalar, "select 1") == 1
    assert is_healthy(store)


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_the_database_goes_away_and_comes_back(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(ServerLayout(data=tmp_path))
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(postgres.stop)
        store = await stack.enter_async_context(aclosing(await Store.open(await postgres.start())))
        assert await store.migrate() == known_versions()
        failures: list[str] = []

        async def caught() -> None:
            try:
                await store.run(scalar, "select pg_sleep(25)")
            except Unavailable as error:
                failures.append(error.message)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(caught)
            await until(lambda: active(postgres_conninfo(store), "%pg_sleep(25)%") == 1)
            os.kill(postgres.pid, signal.SIGQUIT)
            with trio.fail_after(DEADLINE_S):
                assert await postgres.wait_exit() >= 0
        assert len(failures) == 1
        for _ in range(3):
            with pytest.raises(Unavailable, match="the database is away"):
                await store.ping()
        assert not is_healthy(store)
        await postgres.start()
        await store.run(insert_setting, "after")
        assert is_healthy(store)


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_a_database_that_says_nothing_ends_a_cancelled_call(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_module, "SEVER_AFTER_S", 0.5)
    store = await Store.open(database)
    backend = await store.run(scalar, "select pg_backend_pid()")
    assert isinstance(backend, int)
    os.kill(backend, signal.SIGSTOP)
    try:
        begin = time.monotonic()
        with trio.move_on_after(0.3) as scope:
            await store.run(scalar, "select 2")
        assert scope.cancelled_caught
        assert time.monotonic() - begin < 5
    finally:
        os.kill(backend, signal.SIGCONT)
    assert await store.run(scalar, "select 3") == 3
    await store.aclose()


@pytest.mark.trio
@pytest.mark.promise("A3")
async def test_a_silent_database_is_unavailable_at_the_deadline(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_module, "SEVER_AFTER_S", 0.2)
    monkeypatch.setattr(store_module, "CALL_DEADLINE_S", 0.5)
    store = await Store.open(database)
    backend = await store.run(scalar, "select pg_backend_pid()")
    assert isinstance(backend, int)
    os.kill(backend, signal.SIGSTOP)
    try:
        with trio.fail_after(DEADLINE_S), pytest.raises(Unavailable):
            await store.run(scalar, "select 2")
    finally:
        os.kill(backend, signal.SIGCONT)
    await store.aclose()


@pytest.mark.trio
async def test_no_message_names_the_password(tmp_path: Path) -> None:
    secret = "c4n4ry-p4ss"
    refused = await Store.open(f"host={tmp_path} user=u dbname=d password={secret}")
    with pytest.raises(Unavailable) as info:
        await refused.ping()
    assert secret not in str(info.value)
    assert str(tmp_path) in refused.where
    for broken in (f"host=x password={secret} oops", f"postgresql://u:{secret}@[bad", f"nonsense={secret}"):
        with pytest.raises(InvalidInput) as refusal:
            await Store.open(broken)
        assert secret not in str(refusal.value)
        assert "postgresql://" in str(refusal.value)


@pytest.mark.trio
async def test_text_that_cannot_be_stored_is_the_callers_mistake(store: Store) -> None:
    for text in ("a\0b", "\ud800"):
        with pytest.raises(InvalidInput):
            await store.run(insert_setting, text)


def test_limits_are_set_in_the_database(database: str) -> None:
    conn = pool.connect(pool.with_defaults(database))
    try:
        assert scalar(conn, "show statement_timeout") == "30s"
        assert scalar(conn, "show idle_in_transaction_session_timeout") == "10s"
    finally:
        conn.close()
