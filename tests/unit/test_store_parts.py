"""Parts of the store that need no database: named statements, the lock file, what error texts may say."""

import contextlib
import re
import sys
from pathlib import Path

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import llmgw.store
from llmgw.core.errors import InvalidInput
from llmgw.store import launch, pool
from llmgw.store.failures import describe
from llmgw.store.migrations import known_migrations
from llmgw.store.notify import Change, parse
from llmgw.store.sql import load

PACKAGE = Path(llmgw.store.__file__).parent
FILES = sorted(path.stem for path in (PACKAGE / "queries").glob("*.sql"))


@pytest.mark.parametrize("name", FILES)
def test_every_statement_is_named_once_and_used(name: str) -> None:
    statements = load(name)
    assert statements
    source = "\n".join(text for path in PACKAGE.glob("*.py") if f'load("{name}")' in (text := path.read_text("utf-8")))
    used = set(re.findall(r'_SQL\["(\w+)"\]', source))
    assert used >= set(statements)
    for body in statements.values():
        assert body
        assert b";" not in body


def test_python_holds_no_sql() -> None:
    for path in PACKAGE.glob("*.py"):
        assert not re.search(r'"\s*(select|insert|update|delete|create)\s', path.read_text("utf-8")), path.name


def test_no_statement_is_missing() -> None:
    for path in PACKAGE.glob("*.py"):
        text = path.read_text("utf-8")
        for name in re.findall(r'_SQL = load\("(\w+)"\)', text):
            assert set(re.findall(r'_SQL\["(\w+)"\]', text)) <= set(load(name)), path.name


def test_migrations_are_numbered_without_a_gap() -> None:
    versions = [migration.version for migration in known_migrations()]
    assert versions == list(range(1, len(versions) + 1))
    assert len({migration.checksum for migration in known_migrations()}) == len(versions)


@given(st.text(alphabet=st.characters(exclude_categories=("Cs", "Z", "C"), exclude_characters="'\\@:/"), min_size=8))
@settings(max_examples=50)
def test_descriptions_leave_passwords_out(secret: str) -> None:
    for text in (f"bad password={secret} host=x", f"bad postgresql://u:{secret}@h/d", f"PASSWORD = '{secret}' x"):
        assert secret not in describe(psycopg.OperationalError(text))


@given(st.text(max_size=60))
@settings(max_examples=100)
def test_any_connection_string_is_taken_or_refused_in_words(text: str) -> None:
    # Anything but InvalidInput fails the test.
    with contextlib.suppress(InvalidInput):
        pool.where(pool.with_defaults(text))


def test_what_the_operator_says_wins_over_defaults() -> None:
    assert "connect_timeout=2" in pool.with_defaults("host=db connect_timeout=2")
    assert "keepalives_idle=15" in pool.with_defaults("postgresql://u:p@db/x")
    assert pool.where("postgresql://u:p4ss@db.example/x") == "db.example/x"


@given(st.text(max_size=80))
@settings(max_examples=50)
def test_any_payload_is_a_change(payload: str) -> None:
    assert isinstance(parse(payload), Change)


def test_the_newest_postgresql_comes_first_and_its_python_api_is_not_imported() -> None:
    names = [path.parent.name for path in launch.installations()]
    assert names[0] == "pginstall18"
    assert launch.WHEEL not in sys.modules
