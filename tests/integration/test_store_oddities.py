"""Databases as one finds them: of another encoding, with faults, fed by clocks that run ahead, with copied servers."""

import time
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from psycopg import errors, sql
from psycopg.conninfo import make_conninfo

from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Budget, Period
from llmgw.core.routing import UsageRow
from llmgw.store import keys, leadership, settings, usage
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.failures import translate
from llmgw.store.keys import NewKey
from llmgw.store.migrations import migrate
from llmgw.store.sql import Conn
from llmgw.store.store import Store
from tests.support.postgres import FAST, TestServer

DAY_S = 86_400.0


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_database_that_cannot_keep_every_name_is_refused(postgres_server: TestServer, encoding: str) -> None:
    name = f"encoded_{encoding.lower()}"
    statement = sql.SQL("create database {} template template0 encoding {} locale 'C'")
    with psycopg.connect(postgres_server.conninfo, autocommit=True) as conn:
        conn.execute(statement.format(sql.Identifier(name), sql.Literal(encoding)))
    conninfo = make_conninfo(postgres_server.conninfo, dbname=name)
    try:
        with psycopg.connect(conninfo) as conn, pytest.raises(InvalidInput, match=f"encoding is {encoding}.*'UTF8'"):
            migrate(conn)
    finally:
        postgres_server.drop(conninfo)


@pytest.mark.trio
async def test_variables_for_other_databases_are_not_taken_for_the_embedded_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = {"PGSERVICE": "nosuch", "PGOPTIONS": "-c nosuch=1", "PGHOST": "10.0.0.1", "PGCLIENTENCODING": "LATIN1"}
    for name, value in (others | {"PGTARGETSESSIONATTRS": "standby", "PGCHANNELBINDING": "require"}).items():
        monkeypatch.setenv(name, value)
    postgres = EmbeddedPostgres(ServerLayout(data=tmp_path), settings=FAST)
    try:
        opened = await Store.open(await postgres.start())
        await opened.migrate()
        await opened.run(settings.set_setting, "鍵", "読写é🙂", actor="test")
        assert bytes((await opened.run(settings.load_settings))["鍵"]).decode() == '"読写é🙂"'
        await opened.aclose()
    finally:
        await postgres.stop()


@pytest.mark.trio
async def test_names_are_kept_whatever_encoding_the_environment_asks_for(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    opened = await Store.open(database)
    await opened.run(settings.set_setting, "k", "読", actor="test")
    assert bytes((await opened.run(settings.load_settings))["k"]).decode() == '"読"'
    await opened.aclose()


@pytest.mark.trio
async def test_a_server_that_was_paused_in_a_change_goes_on(store: Store) -> None:
    def paused(conn: Conn) -> None:
        conn.execute("set local idle_in_transaction_session_timeout = 1")
        while True:
            time.sleep(0.01)
            conn.execute("select 1")

    with pytest.raises(Unavailable, match=r"paused in the middle of a change.*nothing of it was kept"):
        await store.run(paused)
    assert (await store.run(leadership.current)).epoch == 0


@pytest.mark.parametrize("error", [errors.InternalError_("cache lookup failed"), errors.DataCorrupted("bad page")])
def test_a_fault_of_the_databases_own_is_a_sentence_and_no_end(error: psycopg.Error) -> None:
    meaning = translate(error)
    assert isinstance(meaning, Unavailable)
    assert meaning.message == f"the database met a fault of its own: {error}"


def test_our_own_mistakes_are_still_seen_as_they_are() -> None:
    assert translate(errors.UndefinedColumn("no such column")) is None
    assert translate(errors.InFailedSqlTransaction("aborted")) is None


@pytest.mark.trio
async def test_what_a_router_whose_clock_ran_ahead_spent_is_spent_now(store: Store) -> None:
    """Left in the future it would count in every month's budget until then."""
    now = datetime.now(UTC).timestamp()
    budget = Budget(amount_micros=100, period=Period.MONTH)
    await store.run(keys.create_key, NewKey(id="k", name="k", digest="d", budgets=(budget,)), actor="test")
    row = UsageRow(id="1", at=now + 400 * DAY_S, key_id="k", model="m", status=200, cost_micros=7)
    assert await store.run(usage.store_batch, [row]) == 1
    (total,) = await store.run(usage.totals)
    assert abs(total.last_at.timestamp() - now) < DAY_S
    record = await store.run(keys.key_by_digest, "d")
    assert record is not None
    assert (record.spent.day_micros, record.spent.month_micros) == (7, 7)


@pytest.mark.trio
async def test_a_copy_of_a_leaders_directory_on_another_machine_does_not_take_its_lease(store: Store) -> None:
    def take(conn: Conn, host: str) -> int | None:
        return leadership.acquire(conn, owner="same", ttl_s=10.0, host=host, pid=1)

    def renew(conn: Conn, epoch: int) -> bool:
        return leadership.renew(conn, owner="same", epoch=epoch, ttl_s=10.0)

    assert await store.run(take, "one") == 1
    assert await store.run(take, "two") is None
    assert await store.run(renew, 1) is True
    assert await store.run(take, "one") == 2
    assert await store.run(leadership.release, owner="same", epoch=2)
    assert await store.run(take, "two") == 3
