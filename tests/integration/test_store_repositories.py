"""Catalog, nodes, tokens, keys, usage, settings and audit on a real PostgreSQL."""

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import msgspec
import psycopg
import pytest

from llmgw.core.catalog import Model, ModelFacts, Profile, Scaling
from llmgw.core.errors import Conflict, InvalidInput, NotFound, Unauthenticated
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.store import audit, catalog, keys, nodes, pool, settings, tokens, usage
from llmgw.store.failures import translate
from llmgw.store.keys import NewKey
from llmgw.store.sql import Conn

ACTOR = "uid:1000"


@pytest.fixture
def conn(database: str) -> Iterator[Conn]:
    connection = pool.connect(pool.with_defaults(database))
    yield connection
    connection.close()


def model(name: str = "qwen", *aliases: str, source: str = "sim:", slots: int = 4) -> Model:
    return Model(
        name=name,
        source=source,
        aliases=aliases,
        context_length=4096,
        scaling=Scaling(min=1, max=2),
        profiles=(Profile(name="cpu", engine="sim", slots=slots, env={"A": "b"}, args=("--x",)),),
    )


def actions(conn: Conn) -> list[str]:
    return [row.action for row in reversed(audit.entries(conn, limit=1000))]


def heard(conn: Conn, act: Callable[[], object]) -> list[dict[str, str]]:
    conn.execute("listen llmgw")
    act()
    return [json.loads(n.payload) for n in conn.notifies(timeout=0)]


class TestCatalog:
    def test_put_get_change_remove(self, conn: Conn) -> None:
        added = catalog.put_model(conn, model("qwen", "q"), actor=ACTOR)
        assert (added.generation, added.declared, added.facts) == (1, False, None)
        assert catalog.get_model(conn, "q") == catalog.get_model(conn, "qwen") == added
        assert catalog.put_model(conn, model("qwen", "q"), actor=ACTOR) == added
        changed = catalog.put_model(conn, model("qwen", "r"), actor=ACTOR)
        assert (changed.generation, changed.created) == (2, added.created)
        assert changed.changed > added.changed
        assert catalog.get_model(conn, "q") is None
        assert catalog.list_models(conn) == (changed,)
        assert catalog.remove_model(conn, "qwen", actor=ACTOR) == changed
        assert catalog.list_models(conn) == ()
        assert catalog.get_model(conn, "r") is None
        with pytest.raises(NotFound):
            catalog.remove_model(conn, "qwen", actor=ACTOR)
        assert actions(conn) == ["model.add", "model.change", "model.remove"]
        rows = audit.entries(conn)
        assert [row.actor for row in rows] == [ACTOR] * 3
        assert rows[2].before is None
        assert rows[0].after is None
        assert rows[1].before is not None
        assert rows[1].after is not None
        assert msgspec.json.decode(rows[1].before, type=Model) == model("qwen", "q")
        assert msgspec.json.decode(rows[1].after, type=Model) == model("qwen", "r")

    def test_names_are_unique_across_names_and_aliases(self, conn: Conn) -> None:
        catalog.put_model(conn, model("qwen", "q"), actor=ACTOR)
        for other in (model("q"), model("other", "qwen"), model("other", "q")):
            with pytest.raises(Conflict, match="already"):
                catalog.put_model(conn, other, actor=ACTOR)
        spec = msgspec.json.encode(model("sly", "q")).decode()
        with pytest.raises(psycopg.errors.UniqueViolation) as info:
            conn.execute("insert into models (name, spec) values ('sly', %s::jsonb)", (spec,))
        assert isinstance(translate(info.value), Conflict)

    def test_generations_are_compared(self, conn: Conn) -> None:
        catalog.put_model(conn, model(), actor=ACTOR, expected_generation=0)
        with pytest.raises(Conflict, match="already"):
            catalog.put_model(conn, model(slots=2), actor=ACTOR, expected_generation=0)
        catalog.put_model(conn, model(slots=2), actor=ACTOR, expected_generation=1)
        with pytest.raises(Conflict, match="generation 2, not 1"):
            catalog.put_model(conn, model(slots=3), actor=ACTOR, expected_generation=1)
        with pytest.raises(Conflict, match="removed"):
            catalog.put_model(conn, model("gone"), actor=ACTOR, expected_generation=3)

    def test_facts_stay_with_the_source(self, conn: Conn) -> None:
        facts = ModelFacts(weights_bytes=98_000_000, architecture="llama")
        with pytest.raises(NotFound):
            catalog.set_facts(conn, "qwen", facts, actor=ACTOR)
        catalog.put_model(conn, model(), actor=ACTOR)
        assert catalog.set_facts(conn, "qwen", facts, actor=ACTOR).generation == 2
        assert catalog.set_facts(conn, "qwen", facts, actor=ACTOR).generation == 2
        assert catalog.put_model(conn, model(slots=2), actor=ACTOR).facts == facts
        assert catalog.put_model(conn, model(source="file:/x"), actor=ACTOR).facts is None

    @pytest.mark.promise("A10")
    def test_fields_of_a_newer_version_are_passed_over(self, conn: Conn) -> None:
        catalog.put_model(conn, model(), actor=ACTOR)
        conn.execute(
            """update models set facts = '{"layers": 3, "later": 1}',
            spec = jsonb_set(spec, '{profiles,0,later}', '[1]') || '{"later": 1, "scaling": {"min": 2, "x": 1}}'"""
        )
        entry = catalog.get_model(conn, "qwen")
        assert entry is not None
        assert entry.spec.profiles == model().profiles
        assert entry.spec.scaling == Scaling(min=2)
        assert entry.facts == ModelFacts(layers=3)

    def test_listeners_hear_of_commits_only(self, conn: Conn, database: str) -> None:
        assert heard(conn, lambda: catalog.put_model(conn, model(), actor=ACTOR)) == [
            {"topic": "catalog", "name": "qwen"}
        ]

        def rolled_back() -> None:
            with conn.transaction():
                catalog.put_model(conn, model("other"), actor=ACTOR)
                raise psycopg.Rollback

        assert heard(conn, rolled_back) == []
        assert actions(conn) == ["model.add"]


class TestNodes:
    def test_life_of_a_node(self, conn: Conn) -> None:
        joined = nodes.upsert_node(conn, name="n1", fingerprint="f1", serial="1", actor="token")
        assert (joined.cordoned, joined.evicted) == (False, None)
        assert nodes.set_cordoned(conn, "n1", True, actor=ACTOR).cordoned
        assert nodes.set_cordoned(conn, "n1", True, actor=ACTOR).cordoned
        renewed = nodes.upsert_node(conn, name="n1", fingerprint="f2", serial="2", actor="node:n1")
        assert (renewed.cordoned, renewed.joined, renewed.fingerprint) == (True, joined.joined, "f2")
        assert nodes.remove_node(conn, "n1", actor=ACTOR).evicted is not None
        with pytest.raises(NotFound, match="was removed"):
            nodes.set_cordoned(conn, "n1", False, actor=ACTOR)
        again = nodes.upsert_node(conn, name="n1", fingerprint="f3", serial="3", actor="token")
        assert (again.evicted, again.cordoned) == (None, False)
        assert nodes.list_nodes(conn) == (again,)
        assert nodes.get_node(conn, "n1") == again
        assert nodes.get_node(conn, "n2") is None
        with pytest.raises(NotFound, match="no node"):
            nodes.remove_node(conn, "n2", actor=ACTOR)
        assert actions(conn) == ["node.join", "node.cordon", "node.renew", "node.remove", "node.join"]


class TestTokens:
    def test_a_token_works_once(self, conn: Conn) -> None:
        expires = tokens.create_token(conn, digest="d", ttl_s=900, actor=ACTOR)
        assert timedelta(seconds=800) < expires - datetime.now(UTC) <= timedelta(seconds=900)
        tokens.consume_token(conn, digest="d", node="n1")
        with pytest.raises(Unauthenticated, match="used by 'n1'"):
            tokens.consume_token(conn, digest="d", node="n2")
        with pytest.raises(Unauthenticated, match="not known"):
            tokens.consume_token(conn, digest="x", node="n2")
        assert actions(conn) == ["token.create", "token.use"]
        assert "d" not in {str(value) for row in audit.entries(conn) for value in (row.target, row.actor)}

    def test_the_databases_clock_ends_it(self, conn: Conn) -> None:
        tokens.create_token(conn, digest="d", ttl_s=900, actor=ACTOR)
        conn.execute("update join_tokens set expires = clock_timestamp() - interval '1 s'")
        with pytest.raises(Unauthenticated, match="expired"):
            tokens.consume_token(conn, digest="d", node="n1")
        for ttl_s in (0, -1, 1e9, float("nan")):
            with pytest.raises(InvalidInput):
                tokens.create_token(conn, digest="e", ttl_s=ttl_s, actor=ACTOR)

    def test_of_many_at_once_one_wins(self, conn: Conn, database: str) -> None:
        tokens.create_token(conn, digest="d", ttl_s=900, actor=ACTOR)

        def join(number: int) -> bool:
            with psycopg.connect(database) as own:
                try:
                    tokens.consume_token(own, digest="d", node=f"n{number}")
                except Unauthenticated:
                    return False
                return True

        with ThreadPoolExecutor(8) as threads:
            assert sum(threads.map(join, range(16))) == 1


class TestKeys:
    def test_life_of_a_key(self, conn: Conn) -> None:
        assert not keys.create_key(conn, NewKey(id="k1", name="team", digest="d1", models=("qwen",)), actor=ACTOR)
        (made,) = keys.list_keys(conn)
        assert (made.models, made.requests, made.last_used, made.created_by) == (("qwen",), 0, None, ACTOR)
        keys.create_key(conn, NewKey(id="k2", name="all", digest="d2"), actor=ACTOR)
        assert keys.key_by_digest(conn, "d1") == KeyRecord(id="k1", name="team", models=("qwen",))
        assert keys.key_by_digest(conn, "d2") == KeyRecord(id="k2", name="all")
        assert keys.key_by_digest(conn, "d3") is None
        assert keys.digest_of(conn, "k1") == "d1"
        assert keys.revoke_key(conn, "k1", actor=ACTOR).digest == "d1"
        assert keys.revoke_key(conn, "k1", actor=ACTOR).digest == "d1"
        record = keys.key_by_digest(conn, "d1")
        assert record is not None
        assert record.revoked
        with pytest.raises(NotFound):
            keys.revoke_key(conn, "k9", actor=ACTOR)
        for clash in (("k1", "d9"), ("k9", "d1")):
            with pytest.raises(Conflict):
                keys.create_key(conn, NewKey(id=clash[0], name="x", digest=clash[1]), actor=ACTOR)
        assert [key.id for key in keys.list_keys(conn)] == ["k1", "k2"]
        assert actions(conn) == ["key.create", "key.create", "key.revoke"]
        written = b"".join(bytes(value) for row in audit.entries(conn) for value in (row.before, row.after) if value)
        assert b"d1" not in written

    def test_an_empty_list_of_models_is_not_all(self, conn: Conn) -> None:
        keys.create_key(conn, NewKey(id="k", name="none", digest="d", models=()), actor=ACTOR)
        record = keys.key_by_digest(conn, "d")
        assert record is not None
        assert record.models == ()


def used(id: str, *, key_id: str = "k1", name: str = "qwen", at: float = 1_700_000_000.0, **more: object) -> UsageRow:
    fields = {
        "id": id,
        "at": at,
        "key_id": key_id,
        "model": name,
        "status": 200,
        "input_tokens": 10,
        "output_tokens": 5,
    }
    return msgspec.convert(fields | more, UsageRow)


class TestUsage:
    def test_a_batch_sent_twice_counts_once(self, conn: Conn) -> None:
        keys.create_key(conn, NewKey(id="k1", name="team", digest="d1"), actor=ACTOR)
        rows = [used("1"), used("2", failed=True, status=500, first_token_ms=12.5), used("1")]
        with conn.transaction():
            assert usage.store_batch(conn, rows) == 2
        with conn.transaction():
            assert usage.store_batch(conn, [*rows, used("3", key_id="k2", at=1_700_100_000.0)]) == 1
        with conn.transaction():
            assert usage.store_batch(conn, []) == 0
        (first, second) = usage.totals(conn)
        assert (first.key_id, first.model, first.requests, first.failed) == ("k1", "qwen", 2, 1)
        assert (first.input_tokens, first.output_tokens, second.key_id) == (20, 10, "k2")
        (by_model,) = usage.totals(conn, by="model")
        assert (by_model.key_id, by_model.requests, by_model.input_tokens) == ("", 3, 30)
        assert [total.model for total in usage.totals(conn, by="key")] == ["", ""]
        since = datetime.fromtimestamp(1_700_100_000, UTC).date()
        assert [total.key_id for total in usage.totals(conn, since=since)] == ["k2"]
        (key,) = keys.list_keys(conn)
        assert (key.requests, key.input_tokens, key.output_tokens) == (2, 20, 10)
        assert key.last_used == datetime.fromtimestamp(1_700_000_000, UTC)

    def test_no_row_holds_up_the_others(self, conn: Conn) -> None:
        absurd = used(
            "\0\ud800x" + "y" * 5000,
            at=float("inf"),
            input_tokens=2**70,
            output_tokens=-5,
            status=10**12,
            attempts=-1,
            duration_ms=float("nan"),
            replica="a\tb\\N\n",
        )
        with conn.transaction():
            assert usage.store_batch(conn, [absurd, used("ok", at=float("nan")), used("e", at=-1e300)]) == 3
        rows = conn.execute(
            "select replica, input_tokens, output_tokens, status from usage order by at desc"
        ).fetchall()
        assert rows[0] == ("a\tb\\N\n", usage.MAX_TOKENS, 0, 999)
        assert sum(total.requests for total in usage.totals(conn)) == 3

    def test_routers_storing_at_once_lose_nothing(self, conn: Conn, database: str) -> None:
        def batch(number: int) -> int:
            rows = [used(f"{number}-{i}", key_id=f"k{(i + number) % 7}", name=f"m{i % 3}") for i in range(200)]
            with psycopg.connect(database) as own:
                return usage.store_batch(own, rows)

        with ThreadPoolExecutor(6) as threads:
            assert sum(threads.map(batch, range(12))) == 2400
        assert sum(total.requests for total in usage.totals(conn, by="model")) == 2400


class TestSettings:
    def test_set_and_unset(self, conn: Conn) -> None:
        settings.set_setting(conn, "router.timeouts.queue", 30, actor=ACTOR)
        settings.set_setting(conn, "router.timeouts.queue", 30, actor=ACTOR)
        settings.set_setting(conn, "router.timeouts.queue", msgspec.Raw(b"45.5"), actor=ACTOR)
        assert {k: bytes(v) for k, v in settings.load_settings(conn).items()} == {"router.timeouts.queue": b"45.5"}
        settings.unset_setting(conn, "router.timeouts.queue", actor=ACTOR)
        with pytest.raises(NotFound):
            settings.unset_setting(conn, "router.timeouts.queue", actor=ACTOR)
        assert actions(conn) == ["setting.set", "setting.set", "setting.unset"]
        (last, second, _) = audit.entries(conn)
        assert (last.before, last.after) == (msgspec.Raw(b"45.5"), None)
        assert (second.before, second.after) == (msgspec.Raw(b"30"), msgspec.Raw(b"45.5"))


class TestAudit:
    @pytest.mark.parametrize("statement", ["update audit set actor = 'x'", "delete from audit", "truncate audit"])
    def test_the_audit_only_grows(self, conn: Conn, statement: str) -> None:
        audit.record(conn, actor=ACTOR, action="test", target="t")
        with pytest.raises(psycopg.errors.RestrictViolation, match="append-only"):
            conn.execute(statement.encode())
        assert len(audit.entries(conn)) == 1

    def test_it_is_read_in_pages(self, conn: Conn) -> None:
        for number in range(5):
            audit.record(conn, actor=ACTOR, action="test", target=str(number), after={"n": number})
        first = audit.entries(conn, limit=2)
        assert [row.target for row in first] == ["4", "3"]
        assert [row.target for row in audit.entries(conn, limit=10, before_id=first[-1].id)] == ["2", "1", "0"]
        assert audit.entries(conn, since=datetime.now(UTC) + timedelta(hours=1)) == ()
        assert len(audit.entries(conn, since=datetime.now(UTC) - timedelta(hours=1))) == 5
        with pytest.raises(InvalidInput):
            audit.entries(conn, limit=0)


def test_old_usage_rows_go_a_few_at_a_time_and_the_sums_stay(conn: Conn) -> None:
    now = datetime.now(UTC).timestamp()
    rows = [used(str(n), at=now - 91 * 86_400 - n) for n in range(5)]
    with conn.transaction():
        usage.store_batch(conn, [*rows, used("new", at=now - 89 * 86_400)])
    before = usage.totals(conn)
    assert [usage.drop_old(conn, days=90, limit=3) for _ in range(3)] == [3, 2, 0]
    assert [row[0] for row in conn.execute("select id from usage").fetchall()] == ["new"]
    assert usage.totals(conn) == before


def test_a_usage_row_keeps_where_and_how_long_it_waited_and_who_was_asked(conn: Conn) -> None:
    now = datetime.now(UTC).timestamp()
    waited = msgspec.structs.replace(used("w", at=now), band="bulk", waited_ms=1250.5, asked="qwen-large")
    with conn.transaction():
        usage.store_batch(conn, [waited, used("n", at=now)])
    rows = conn.execute("select id, band, waited_ms, asked from usage order by id desc").fetchall()
    assert [tuple(row) for row in rows] == [("w", "bulk", 1250.5, "qwen-large"), ("n", "", 0.0, "")]
