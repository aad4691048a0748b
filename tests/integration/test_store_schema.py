"""Migrations: once, together or not at all, refused from the future; and the reference dump is what they make."""

import threading
from importlib.resources import files

import psycopg
import pytest

from llmgw.core.errors import Conflict
from llmgw.store.migrations import Migration, known_migrations, migrate
from tests.support.postgres import TestServer

CATALOG = b"""
select 'column', table_name, column_name, data_type, is_nullable, coalesce(column_default, ''), is_identity
from information_schema.columns where table_schema = 'public' and table_name <> 'schema_migrations'
union all
select 'index', tablename, indexname, indexdef, '', '', '' from pg_indexes
where schemaname = 'public' and tablename <> 'schema_migrations'
union all
select 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid), '', '', '' from pg_constraint
where connamespace = 'public'::regnamespace and conrelid::regclass::text <> 'schema_migrations'
union all
select 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid), '', '', '' from pg_trigger
where not tgisinternal
union all
select 'view', viewname, '', definition, '', '', '' from pg_views where schemaname = 'public'
union all
select 'function', proname, '', pg_get_functiondef(oid), '', '', '' from pg_proc
where pronamespace = 'public'::regnamespace
order by 1, 2, 3, 4
"""


def catalog_of(conninfo: str) -> list[tuple[object, ...]]:
    with psycopg.connect(conninfo) as conn:
        return [tuple(row) for row in conn.execute(CATALOG).fetchall()]


def test_the_reference_schema_is_all_migrations(postgres_server: TestServer, empty_database: str) -> None:
    dump = files("llmgw.store").joinpath("schema.sql").read_bytes()
    with psycopg.connect(empty_database) as conn:
        conn.execute(dump)
    migrated = postgres_server.create()
    try:
        with psycopg.connect(migrated) as conn:
            migrate(conn)
        expected = catalog_of(migrated)
        assert len(expected) > 60
        assert catalog_of(empty_database) == expected
    finally:
        postgres_server.drop(migrated)


def test_a_second_run_changes_nothing_and_the_file_cannot_change_under_it(empty_database: str) -> None:
    known = known_migrations()
    with psycopg.connect(empty_database) as conn:
        assert migrate(conn) == tuple(m.version for m in known)
    with psycopg.connect(empty_database) as conn:
        assert migrate(conn) == ()
        edited = (Migration(version=1, name="initial", sql=known[0].sql + b"-- edited"), *known[1:])
        with pytest.raises(Conflict, match="not the one this llmgw carries"):
            migrate(conn, edited)


def test_a_newer_database_is_refused_in_words(empty_database: str) -> None:
    known = known_migrations()
    later = Migration(version=len(known) + 1, name="later", sql=b"create table later (n int)")
    with psycopg.connect(empty_database) as conn:
        assert migrate(conn, (*known, later))[-1] == later.version
    with psycopg.connect(empty_database) as conn, pytest.raises(Conflict, match=r"newer llmgw \(schema \d+;.*upgrade"):
        migrate(conn)


def test_a_failing_migration_leaves_nothing(empty_database: str) -> None:
    broken = Migration(version=2, name="broken", sql=b"create table half (n int); select 1/0")
    with pytest.raises(psycopg.errors.DivisionByZero), psycopg.connect(empty_database) as conn:
        migrate(conn, (*known_migrations()[:1], broken))
    with psycopg.connect(empty_database) as conn:
        row = conn.execute("select to_regclass('half'), to_regclass('models'), to_regclass('schema_migrations')")
        assert row.fetchone() == (None, None, None)


def test_servers_starting_together_migrate_once(empty_database: str) -> None:
    applied: list[tuple[int, ...]] = []

    def one() -> None:
        with psycopg.connect(empty_database) as conn:
            applied.append(migrate(conn))

    threads = [threading.Thread(target=one) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(applied) == [(), (), (), (), tuple(m.version for m in known_migrations())]
