"""The listener hears of commits, keeps little, and asks for a resync after every gap."""

import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
import trio

from llmgw.core.layout import ServerLayout
from llmgw.store import listen, settings
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.listen import Listener
from llmgw.store.notify import RESYNC, Change, notify
from llmgw.store.sql import Conn
from llmgw.store.store import Store
from tests.support.waiting import until

DEADLINE_S = 20.0
RESYNCED = Change(topic=RESYNC)


async def hears(listener: Listener, wanted: Change) -> frozenset[Change]:
    """Take changes until the wanted one comes; everything taken on the way."""
    seen: frozenset[Change] = frozenset()
    with trio.fail_after(DEADLINE_S):
        while wanted not in seen:
            seen |= await listener.changes()
    return seen


@pytest.mark.trio
async def test_changes_arrive_and_waiting_costs_nothing(store: Store, database: str) -> None:
    listener = Listener(database)
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        await hears(listener, RESYNCED)
        await store.run(settings.set_setting, "a", 1, actor="t")
        assert await hears(listener, Change(topic="settings", name="a")) == {Change(topic="settings", name="a")}
        begin = time.process_time()
        with trio.move_on_after(0.3):
            await listener.changes()
        assert time.process_time() - begin < 0.15
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_slow_consumer_costs_bounded_memory(store: Store, database: str) -> None:
    def many(conn: Conn) -> None:
        for number in range(2000):
            notify(conn, "catalog", f"m{number}")

    listener = Listener(database)
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        await hears(listener, RESYNCED)
        await store.run(many)
        await store.run(settings.set_setting, "end", 1, actor="t")
        seen = await hears(listener, Change(topic="settings", name="end"))
        assert RESYNCED in seen
        assert len(seen) <= listen.MAX_PENDING + 1
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_lost_connection_is_made_again_and_asks_for_a_resync(store: Store, database: str) -> None:
    problems: list[str] = []
    listener = Listener(database, on_problem=problems.append)
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        await hears(listener, RESYNCED)
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where datname = current_database() and query ilike 'listen%'"
            )
        await hears(listener, RESYNCED)
        await store.run(settings.set_setting, "b", 1, actor="t")
        await hears(listener, Change(topic="settings", name="b"))
        nursery.cancel_scope.cancel()
    assert len(problems) == 1
    assert "away" in problems[0]


@pytest.mark.trio
async def test_it_starts_without_a_database_and_hears_of_it_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listen, "BACKOFF_MAX_S", 0.2)
    postgres = EmbeddedPostgres(ServerLayout(data=tmp_path))
    problems: list[str] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(postgres.stop)
        conninfo = await postgres.start()
        os.kill(postgres.pid, signal.SIGINT)
        await postgres.wait_exit()
        listener = Listener(conninfo, on_problem=problems.append)
        async with trio.open_nursery() as nursery:
            await nursery.start(listener.run)
            await until(lambda: len(problems) >= 2)
            await postgres.start()
            await hears(listener, RESYNCED)
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_payloads_nobody_can_read_ask_for_a_resync(store: Store, database: str) -> None:
    listener = Listener(database)
    async with trio.open_nursery() as nursery:
        await nursery.start(listener.run)
        await hears(listener, RESYNCED)
        with psycopg.connect(database, autocommit=True) as conn:
            conn.execute("select pg_notify('llmgw', '{\"topic\": 3')")
        await hears(listener, RESYNCED)
        nursery.cancel_scope.cancel()
