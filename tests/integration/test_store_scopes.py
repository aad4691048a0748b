"""Teams, tenants, limits, budgets and spending on a real PostgreSQL."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import psycopg
import pytest

from llmgw.core.errors import Conflict, NotFound
from llmgw.core.limits import Budget, Limits, Period, ScopeKind, ScopeRecord, Spending, day_number, month_number
from llmgw.core.routing import UsageRow
from llmgw.store import audit, keys, pool, scopes, usage
from llmgw.store.keys import NewKey
from llmgw.store.migrations import known_migrations, migrate
from llmgw.store.sql import Conn, load
from llmgw.store.usage import By

ACTOR = "uid:1000"
TEAM, TENANT = ScopeKind.TEAM, ScopeKind.TENANT
MONTHLY = (Budget(amount_micros=50_000_000, period=Period.MONTH),)
KEYS = 10_000


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    connection = pool.connect(pool.with_defaults(database))
    yield connection
    connection.close()


def entries(conn: Conn) -> list[tuple[str, str, object, object]]:
    """Action, target, before and after of the audit, oldest first."""
    return [
        (e.action, e.target, json.loads(bytes(e.before or b"null")), json.loads(bytes(e.after or b"null")))
        for e in reversed(audit.entries(conn, limit=1000))
    ]


def used(
    id: str, key: str, micros: int, *, at: float | None = None, model: str = "qwen", team: str | None = None
) -> UsageRow:
    return UsageRow(
        id=id,
        at=time.time() if at is None else at,
        key_id=key,
        model=model,
        status=200,
        input_tokens=10,
        cached_tokens=4,
        output_tokens=5,
        cost_micros=micros,
        team=team,
    )


def store(conn: Conn, *rows: UsageRow) -> int:
    with conn.transaction():
        return usage.store_batch(conn, rows)


def named(conn: Conn, kind: ScopeKind, name: str) -> scopes.ScopeRow:
    return next(row for row in scopes.list_scopes(conn, kind) if row.name == name)


class TestScopes:
    def test_life_of_a_team_and_its_tenant(self, conn: Conn) -> None:
        scopes.create(conn, TENANT, "acme", limits=Limits(rpm=600), actor=ACTOR)
        scopes.create(conn, TEAM, "blue", tenant="acme", budgets=MONTHLY, actor=ACTOR)
        before, after = scopes.set_limits(conn, TEAM, "blue", {"rpm": 60, "parallel": 4}, actor=ACTOR)
        assert (before.limits, after.limits) == (Limits(), Limits(rpm=60, parallel=4))
        _, after = scopes.set_limits(conn, TEAM, "blue", {"rpm": None}, actor=ACTOR)
        assert after.limits == Limits(parallel=4)
        scopes.set_budgets(conn, TENANT, "acme", MONTHLY, actor=ACTOR)
        blue, acme = scopes.records(conn)
        assert (blue.id, blue.tenant, blue.limits, blue.budgets) == ("blue", "acme", Limits(parallel=4), MONTHLY)
        assert (acme.kind, acme.limits, acme.budgets) == (TENANT, Limits(rpm=600), MONTHLY)
        with pytest.raises(Conflict, match=r"tenant 'acme' still has teams \(blue\)"):
            scopes.remove(conn, TENANT, "acme", actor=ACTOR)
        scopes.move_team(conn, "blue", None, actor=ACTOR)
        scopes.remove(conn, TENANT, "acme", actor=ACTOR)
        scopes.remove(conn, TEAM, "blue", actor=ACTOR)
        assert scopes.list_scopes(conn) == ()
        expected = ["tenant.create", "team.create", "team.limits", "team.limits", "tenant.budget", "team.move"]
        assert [action for action, *_ in entries(conn)] == [*expected, "tenant.remove", "team.remove"]

    def test_every_change_is_audited_with_before_and_after_and_told(self, conn: Conn) -> None:
        scopes.create(conn, TEAM, "blue", actor=ACTOR)
        conn.execute("listen llmgw")
        scopes.set_limits(conn, TEAM, "blue", {"tpm": 5}, actor=ACTOR)
        scopes.set_limits(conn, TEAM, "blue", {"tpm": 5}, actor=ACTOR)
        scopes.set_budgets(conn, TEAM, "blue", MONTHLY, actor=ACTOR)
        told = [json.loads(n.payload) for n in conn.notifies(timeout=0)]
        assert told == [{"topic": "scopes", "name": "team:blue"}] * 2
        _, limits, budget = entries(conn)
        assert limits[:2] == ("team.limits", "blue")
        assert limits[2] == {"name": "blue", "tenant": None, "limits": _limits(), "budgets": []}
        assert limits[3] == {"name": "blue", "tenant": None, "limits": _limits(tpm=5), "budgets": []}
        assert budget[3] == limits[3] | {"budgets": [{"amount_micros": 50_000_000, "period": "month"}]}

    def test_what_is_not_there_is_named(self, conn: Conn) -> None:
        for kind in (TEAM, TENANT):
            with pytest.raises(NotFound, match=f"no {kind} 'x'"):
                scopes.set_limits(conn, kind, "x", {"rpm": 1}, actor=ACTOR)
            with pytest.raises(NotFound, match=f"no {kind} 'x'"):
                scopes.remove(conn, kind, "x", actor=ACTOR)
        scopes.create(conn, TEAM, "blue", actor=ACTOR)
        with pytest.raises(Conflict, match="a team 'blue' already"):
            scopes.create(conn, TEAM, "blue", actor=ACTOR)
        with pytest.raises(NotFound, match="no tenant 'x'"):
            scopes.create(conn, TEAM, "red", tenant="x", actor=ACTOR)
        with pytest.raises(NotFound, match="no tenant 'x'"):
            scopes.move_team(conn, "blue", "x", actor=ACTOR)
        assert len(entries(conn)) == 1

    def test_a_team_goes_when_its_last_key_is_revoked_and_never_under_a_new_one(
        self, conn: Conn, database: str
    ) -> None:
        keys.create_key(conn, NewKey(id="k1", name="ci", digest="d1", team="blue"), actor=ACTOR)
        with pytest.raises(Conflict, match=r"team 'blue' still has living keys \(k1\)"):
            scopes.remove(conn, TEAM, "blue", actor=ACTOR)
        keys.revoke_key(conn, "k1", actor=ACTOR)

        def remove() -> bool:
            with pool.connect(pool.with_defaults(database)) as own:
                try:
                    with own.transaction():
                        scopes.remove(own, TEAM, "blue", actor=ACTOR)
                except Conflict:
                    return False
                return True

        with ThreadPoolExecutor(1) as threads:
            with conn.transaction():
                keys.create_key(conn, NewKey(id="k2", name="ci", digest="d2", team="blue"), actor=ACTOR)
                removing = threads.submit(remove)
                _until_blocked(database)
            assert not removing.result(timeout=30)
        keys.revoke_key(conn, "k2", actor=ACTOR)
        assert remove()
        assert [key.team for key in keys.list_keys(conn)] == [None, None]


class TestKeys:
    def test_a_team_that_is_not_there_is_made_with_its_first_key(self, conn: Conn) -> None:
        assert keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", team="blue"), actor=ACTOR)
        assert not keys.create_key(conn, NewKey(id="k2", name="b", digest="d2", team="blue"), actor=ACTOR)
        assert (named(conn, TEAM, "blue").limits, named(conn, TEAM, "blue").keys) == (Limits(), 2)
        assert [action for action, *_ in entries(conn)] == ["team.create", "key.create", "key.create"]

    def test_of_two_first_keys_of_a_team_at_once_both_are_made(self, conn: Conn, database: str) -> None:
        def second() -> bool:
            with pool.connect(pool.with_defaults(database)) as own, own.transaction():
                return keys.create_key(own, NewKey(id="k2", name="b", digest="d2", team="blue"), actor=ACTOR)

        with ThreadPoolExecutor(1) as threads:
            with conn.transaction():
                assert keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", team="blue"), actor=ACTOR)
                making = threads.submit(second)
                _until_blocked(database)
            assert not making.result(timeout=30)
        assert named(conn, TEAM, "blue").keys == 2

    def test_a_record_carries_limits_budgets_team_and_spending(self, conn: Conn) -> None:
        new = NewKey(id="k1", name="a", digest="d1", team="blue", limits=Limits(rpm=5), budgets=MONTHLY)
        keys.create_key(conn, new, actor=ACTOR)
        store(conn, used("1", "k1", 700))
        record = keys.key_by_digest(conn, "d1")
        assert record is not None
        assert (record.team, record.limits, record.budgets) == ("blue", Limits(rpm=5), MONTHLY)
        assert (record.spent.day_micros, record.spent.month_micros) == (700, 700)
        now = time.time()
        assert (record.spent.day, record.spent.month) == (day_number(now), month_number(now))
        keys.set_budgets(conn, "k1", (), actor=ACTOR)
        bare = keys.key_by_digest(conn, "d1")
        assert bare is not None
        assert bare.spent == Spending()

    def test_changes_are_audited_told_and_leave_the_rest(self, conn: Conn) -> None:
        keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", limits=Limits(rpm=5)), actor=ACTOR)
        scopes.create(conn, TEAM, "blue", actor=ACTOR)
        conn.execute("listen llmgw")
        _, after = keys.set_limits(conn, "k1", {"tpm": 9}, actor=ACTOR)
        assert after.limits == Limits(rpm=5, tpm=9)
        keys.set_limits(conn, "k1", {"tpm": 9}, actor=ACTOR)
        keys.set_budgets(conn, "k1", MONTHLY, actor=ACTOR)
        keys.move_key(conn, "k1", "blue", actor=ACTOR)
        told = [json.loads(n.payload) for n in conn.notifies(timeout=0)]
        assert told == [{"topic": "keys", "name": "k1"}] * 3
        limits, budget, moved = entries(conn)[-3:]
        assert [e[0] for e in (limits, budget, moved)] == ["key.limits", "key.budget", "key.move"]
        assert isinstance(limits[2], dict)
        assert isinstance(limits[3], dict)
        assert (limits[2]["limits"], limits[3]["limits"]) == (_limits(rpm=5), _limits(rpm=5, tpm=9))
        assert "digest" not in limits[3]
        assert isinstance(moved[3], dict)
        assert moved[3]["team"] == "blue"

    def test_a_name_does_for_an_id_while_one_key_has_it(self, conn: Conn) -> None:
        for number, name in enumerate(("ci", "ci", "solo", "k0"), 1):
            keys.create_key(conn, NewKey(id=f"k{number - 1}", name=name, digest=f"d{number}"), actor=ACTOR)
        assert keys.set_limits(conn, "solo", {"rpm": 1}, actor=ACTOR)[1].id == "k2"
        assert keys.set_limits(conn, "k0", {"rpm": 1}, actor=ACTOR)[1].id == "k0"
        with pytest.raises(Conflict, match=r"keys are called 'ci': give an id \(k0, k1\)"):
            keys.revoke_key(conn, "ci", actor=ACTOR)
        keys.revoke_key(conn, "k0", actor=ACTOR)
        assert keys.revoke_key(conn, "ci", actor=ACTOR).id == "k1"
        with pytest.raises(NotFound, match="no key with id or name 'x'"):
            keys.set_limits(conn, "x", {"rpm": 1}, actor=ACTOR)

    def test_a_revoked_key_is_not_changed(self, conn: Conn) -> None:
        keys.create_key(conn, NewKey(id="k1", name="a", digest="d1"), actor=ACTOR)
        keys.revoke_key(conn, "k1", actor=ACTOR)
        changes: list[Callable[[], object]] = [
            lambda: keys.set_limits(conn, "k1", {"rpm": 1}, actor=ACTOR),
            lambda: keys.set_budgets(conn, "k1", (), actor=ACTOR),
            lambda: keys.move_key(conn, "k1", None, actor=ACTOR),
        ]
        for change in changes:
            with pytest.raises(Conflict, match=r"a \(k1\) is revoked and stays so"):
                change()


class TestSpending:
    def test_what_was_spent_stays_where_it_was_spent(self, conn: Conn) -> None:
        scopes.create(conn, TENANT, "acme", budgets=MONTHLY, actor=ACTOR)
        scopes.create(conn, TENANT, "other", budgets=MONTHLY, actor=ACTOR)
        scopes.create(conn, TEAM, "blue", tenant="acme", budgets=MONTHLY, actor=ACTOR)
        scopes.create(conn, TEAM, "red", budgets=MONTHLY, actor=ACTOR)
        keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", team="blue"), actor=ACTOR)
        store(conn, used("1", "k1", 100))
        keys.move_key(conn, "k1", "red", actor=ACTOR)
        store(conn, used("2", "k1", 30), used("1", "k1", 100))
        scopes.move_team(conn, "blue", "other", actor=ACTOR)
        spent = {(r.kind, r.id): r.spent.month_micros for r in scopes.records(conn)}
        assert spent == {(TEAM, "blue"): 100, (TEAM, "red"): 30, (TENANT, "acme"): 100, (TENANT, "other"): 0}
        (key,) = keys.list_keys(conn)
        assert (key.team, key.cost_micros, key.requests) == ("red", 130, 2)
        blue = named(conn, TEAM, "blue")
        assert (blue.requests, blue.input_tokens, blue.output_tokens, blue.cost_micros) == (1, 10, 5, 100)
        assert (named(conn, TENANT, "acme").keys, named(conn, TENANT, "acme").cost_micros) == (0, 100)

    def test_a_row_that_comes_late_counts_where_its_request_was_let_in(self, conn: Conn) -> None:
        scopes.create(conn, TENANT, "acme", budgets=MONTHLY, actor=ACTOR)
        scopes.create(conn, TEAM, "blue", tenant="acme", budgets=MONTHLY, actor=ACTOR)
        keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", team="blue"), actor=ACTOR)
        keys.move_key(conn, "k1", None, actor=ACTOR)
        store(conn, used("1", "k1", 100, team="blue"), used("2", "k1", 30, team=""), used("3", "k1", 4))
        assert {r.id: r.spent.month_micros for r in scopes.records(conn)} == {"blue": 100, "acme": 100}
        assert [(r.team, r.cost_micros) for r in usage.totals(conn, by="team")] == [("", 34), ("blue", 100)]

    def test_a_new_day_and_a_new_month_begin_at_nothing(self, conn: Conn) -> None:
        scopes.create(conn, TEAM, "blue", budgets=MONTHLY, actor=ACTOR)
        new = NewKey(id="k1", name="a", digest="d1", team="blue", budgets=MONTHLY)
        keys.create_key(conn, new, actor=ACTOR)
        today = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        month_begin = today.replace(day=1)
        moments = [today, today - timedelta(seconds=1), month_begin - timedelta(seconds=1)]
        store(conn, *(used(str(n), "k1", 10**n, at=m.timestamp()) for n, m in enumerate(moments)))
        month = sum(10**n for n, m in enumerate(moments) if m >= month_begin)
        (record,) = scopes.records(conn)
        assert (record.spent.day_micros, record.spent.month_micros) == (1, month)
        (key,) = keys.list_keys(conn)
        assert (key.spent_day_micros, key.spent_month_micros, key.cost_micros) == (1, month, 111)
        assert usage.model_costs(conn) == {"qwen": 1}

    def test_absurd_costs_are_held_to_their_bounds(self, conn: Conn) -> None:
        assert store(conn, used("1", "k1", 2**62), used("2", "k1", -5)) == 2
        (total,) = usage.totals(conn)
        assert total.cost_micros == usage.MAX_COST_MICROS

    @pytest.mark.parametrize(
        ("by", "expected"),
        [
            ("key_model", [("k1", "qwen", "", "", 5), ("k2", "llama", "", "", 7), ("k2", "qwen", "", "", 2)]),
            ("key", [("k1", "", "", "", 5), ("k2", "", "", "", 9)]),
            ("model", [("", "llama", "", "", 7), ("", "qwen", "", "", 7)]),
            ("team", [("", "", "", "", 9), ("", "", "blue", "", 5)]),
            ("tenant", [("", "", "", "", 9), ("", "", "", "acme", 5)]),
        ],
    )
    def test_sums_by_every_kind(self, conn: Conn, by: By, expected: list[tuple[object, ...]]) -> None:
        scopes.create(conn, TENANT, "acme", actor=ACTOR)
        scopes.create(conn, TEAM, "blue", tenant="acme", actor=ACTOR)
        keys.create_key(conn, NewKey(id="k1", name="a", digest="d1", team="blue"), actor=ACTOR)
        store(conn, used("1", "k1", 5), used("2", "k2", 7, model="llama"), used("3", "k2", 2))
        rows = usage.totals(conn, by=by)
        assert [(r.key_id, r.model, r.team, r.tenant, r.cost_micros) for r in rows] == expected
        assert sum(row.cached_tokens for row in rows) == 12
        assert all(row.key == ("a" if row.key_id == "k1" else "") for row in rows), "k2 is not known any more"

    def test_days_are_both_included(self, conn: Conn) -> None:
        noon = datetime(2026, 1, 10, 12, tzinfo=UTC)
        store(conn, *(used(str(n), "k1", 1, at=(noon + timedelta(days=n)).timestamp()) for n in range(3)))
        since, until = date(2026, 1, 11), date(2026, 1, 11)
        assert [row.requests for row in usage.totals(conn, since=since, until=until)] == [1]
        assert usage.totals(conn, since=date(2026, 1, 13)) == ()

    def test_looking_up_a_key_reads_only_its_own_sums(self, conn: Conn) -> None:
        """However many keys there are and however long they have been used."""
        conn.execute(
            "insert into api_keys (id, name, digest, created_by, budgets) select 'k' || n, 'k' || n, 'd' || n, 'x', "
            "%s::jsonb from generate_series(1, %s) n",
            ['[{"amount_micros": 1, "period": "day"}]', KEYS],
        )
        conn.execute(
            "insert into usage_daily (day, key_id, model, requests, failed, input_tokens, cached_tokens, "
            "output_tokens, last_at, cost_micros) select current_date - d, 'k' || n, 'm', 1, 0, 1, 0, 1, now(), 1 "
            "from generate_series(1, %s) n, generate_series(0, 4) d",
            [KEYS],
        )
        conn.execute("insert into teams (name, created_by) select 't' || n, 'x' from generate_series(1, %s) n", [KEYS])
        conn.execute("analyze")
        statement = b"explain " + load("keys")["by_digest"]
        plan = "\n".join(str(row[0]) for row in conn.execute(statement, {"digest": "d7"}).fetchall())
        assert "usage_daily_key" in plan
        assert "Seq Scan" not in plan
        record = keys.key_by_digest(conn, "d7")
        assert record is not None
        assert record.spent.day_micros == 1

    @pytest.mark.parametrize(("queries", "name"), [("keys", "list_keys"), ("scopes", "list_scopes")])
    def test_listing_reads_sums_and_of_days_only_this_months(self, conn: Conn, queries: str, name: str) -> None:
        """It is read every few seconds while somebody looks, however long the cluster has run."""
        conn.execute(
            "insert into scope_daily (kind, id, day, requests, input_tokens, output_tokens, cost_micros) "
            "select 'key', 'k' || n, current_date - d, 1, 1, 1, 1 from generate_series(1, 20) n, "
            "generate_series(0, 999) d"
        )
        conn.execute("analyze")
        statement = b"explain " + load(queries)[name]
        plan = "\n".join(str(row[0]) for row in conn.execute(statement, {"kind": None}).fetchall())
        assert "usage_daily" not in plan
        assert "Seq Scan on scope_daily" not in plan


def test_usage_of_before_is_kept_by_the_migration(empty_database: str) -> None:
    first = known_migrations()[:1]
    with psycopg.connect(empty_database) as conn:
        migrate(conn, first)
        conn.execute(
            "insert into usage_daily (day, key_id, model, requests, failed, input_tokens, cached_tokens, "
            "output_tokens, last_at) values (current_date, 'k1', 'm', 3, 0, 30, 0, 15, now())"
        )
        conn.execute("insert into api_keys (id, name, digest, created_by) values ('k1', 'old', 'd1', 'x')")
    with psycopg.connect(empty_database) as conn:
        migrate(conn)
    with pool.connect(pool.with_defaults(empty_database)) as conn:
        (key,) = keys.list_keys(conn)
        assert (key.requests, key.input_tokens, key.cost_micros, key.limits, key.team) == (3, 30, 0, Limits(), None)
        store(conn, used("1", "k1", 5, model="m"))
        (total,) = usage.totals(conn)
        assert (total.requests, total.cost_micros) == (4, 5)
        assert scopes.records(conn) == ()


def test_a_record_says_which_periods_it_is_about(conn: Conn) -> None:
    scopes.create(conn, TEAM, "blue", budgets=MONTHLY, actor=ACTOR)
    scopes.create(conn, TEAM, "free", actor=ACTOR)
    now = time.time()
    blue, free = scopes.records(conn)
    assert blue.spent == Spending(day=day_number(now), month=month_number(now))
    assert free == ScopeRecord(kind=TEAM, id="free")


def _limits(**given: int) -> dict[str, int | None]:
    return {"rpm": None, "tpm": None, "parallel": None} | given


def _until_blocked(database: str) -> None:
    """Return once another connection of the database waits for a lock."""
    deadline = time.monotonic() + 10
    query = "select 1 from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'"
    with psycopg.connect(database, autocommit=True) as conn:
        while not conn.execute(query).fetchall():
            assert time.monotonic() < deadline, "nobody waits"
