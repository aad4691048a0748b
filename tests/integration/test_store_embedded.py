"""The embedded PostgreSQL's life and death, with real processes."""

import os
import pwd
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import psycopg
import pytest
import trio

from llmgw.core.errors import Conflict, InvalidInput, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.store import embedded, launch, lock
from llmgw.store.embedded import EmbeddedPostgres
from llmgw.store.leftovers import end_leftovers, processes_on
from llmgw.store.store import Store
from tests.support.waiting import until, until_sync

ROOT = os.geteuid() == 0
CHILD = "tests.support.postgres_child"


@asynccontextmanager
async def running(data: Path, *, account: str | None = None) -> AsyncIterator[tuple[EmbeddedPostgres, str]]:
    postgres = EmbeddedPostgres(ServerLayout(data=data), account=account)
    try:
        yield postgres, await postgres.start()
    finally:
        await postgres.stop()


def version(conninfo: str) -> int:
    with psycopg.connect(conninfo) as conn:
        return conn.info.server_version


@pytest.fixture
def child_data() -> Iterator[Path]:
    """A data directory another account may own: pytest's own stand under a directory only we can walk."""
    with tempfile.TemporaryDirectory(prefix="llmgw-test-") as name:
        Path(name).chmod(0o755)
        yield Path(name) / "data"


def start_child(data: Path, *arguments: str) -> "subprocess.Popen[str]":
    child = subprocess.Popen(
        [sys.executable, "-m", CHILD, str(data), *arguments], stdout=subprocess.PIPE, text=True, env=os.environ
    )
    assert child.stdout is not None
    line = child.stdout.readline().split()
    assert line[:1] == ["ready"], f"the child said {line}"
    return child


def end_child(child: "subprocess.Popen[str]", number: signal.Signals) -> int:
    child.send_signal(number)
    assert child.stdout is not None
    child.stdout.close()
    return child.wait(timeout=20)


@pytest.mark.trio
async def test_first_and_second_start_keep_the_data_and_nothing_is_left(tmp_path: Path) -> None:
    database = tmp_path / "data" / "db"
    for wanted in (1, 2):
        async with running(tmp_path / "data") as (postgres, conninfo):
            assert processes_on(database)[0] <= postgres.pid
            with psycopg.connect(conninfo, autocommit=True) as conn:
                conn.execute("create table if not exists kept (n int)")
                conn.execute("insert into kept values (1)")
                row = conn.execute("select count(*) from kept").fetchone()
                assert row == (wanted,)
                assert conn.execute("show fsync").fetchone() == ("on",)
                assert conn.execute("show listen_addresses").fetchone() == ("",)
        assert processes_on(database) == []
        assert sorted(p.name for p in (tmp_path / "data").iterdir()) == ["db", "log"]
        assert not [p for p in database.iterdir() if p.is_socket() or p.name == "postmaster.pid"]
    assert stat.S_IMODE(database.stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.trio
@pytest.mark.parametrize(
    "name",
    ["with space and 'quotes' \"both\"", "ünïcödé-日本", "a,b;c$(d)`e`", "new\nline", f"{'long' * 50}/{'path' * 50}"],
)
async def test_awkward_paths_work(tmp_path: Path, name: str) -> None:
    async with running(tmp_path / name / "data") as (_, conninfo), aclosing(await Store.open(conninfo)) as store:
        await store.ping()
        assert await store.migrate()
    assert processes_on(tmp_path / name / "data" / "db") == []


@pytest.mark.trio
@pytest.mark.parametrize("name", ["short", "long" * 50])
async def test_the_callers_hear_of_an_exit_and_can_start_again(tmp_path: Path, name: str) -> None:
    async with running(tmp_path / name) as (postgres, conninfo):
        exits: list[int] = []

        async def watch() -> None:
            exits.append(await postgres.wait_exit())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            nursery.start_soon(watch)
            await trio.testing.wait_all_tasks_blocked()
            os.kill(postgres.pid, signal.SIGKILL)
        assert exits == [-signal.SIGKILL, -signal.SIGKILL]
        again = await postgres.start()
        assert again == conninfo
        assert version(again) >= 180000
    assert processes_on(tmp_path / name / "db") == []


def test_a_killed_server_leaves_no_postgres_and_the_next_one_starts(child_data: Path) -> None:
    for _ in range(3):
        child = start_child(child_data)
        assert processes_on(child_data / "db")
        assert end_child(child, signal.SIGKILL) == -signal.SIGKILL
        # No waiting here: the next start has to cope with a PostgreSQL that is still ending.
    until_sync(lambda: processes_on(child_data / "db") == [])
    child = start_child(child_data)
    assert end_child(child, signal.SIGTERM) == 0
    assert processes_on(child_data / "db") == []
    assert not (child_data / "lock").exists()


def test_a_second_server_names_the_holder(child_data: Path) -> None:
    child = start_child(child_data)
    with pytest.raises(Conflict, match=f"in use by process {child.pid}"):
        lock.acquire(child_data / "lock")
    assert end_child(child, signal.SIGKILL) < 0
    held = lock.acquire(child_data / "lock")
    assert (child_data / "lock").read_text() == f"{os.getpid()}\n"
    held.release()
    held.release()
    assert not (child_data / "lock").exists()


@pytest.mark.skipif(not ROOT, reason="becoming another user needs root")
def test_an_ordinary_user_needs_no_root(child_data: Path) -> None:
    child_data.mkdir()
    os.chown(child_data, 65534, 65534)
    child = start_child(child_data, "--uid=65534")
    assert {os.stat(f"/proc/{pid}").st_uid for pid in processes_on(child_data / "db")} == {65534}
    assert end_child(child, signal.SIGKILL) < 0
    until_sync(lambda: processes_on(child_data / "db") == [])
    assert end_child(start_child(child_data, "--uid=65534"), signal.SIGTERM) == 0


@pytest.mark.skipif(not ROOT, reason="becoming a user without a name needs root")
def test_a_user_without_a_name_works(child_data: Path) -> None:
    uid = next(n for n in range(61000, 62000) if n not in {entry.pw_uid for entry in pwd.getpwall()})
    child_data.mkdir()
    os.chown(child_data, uid, uid)
    assert end_child(start_child(child_data, f"--uid={uid}"), signal.SIGTERM) == 0
    assert processes_on(child_data / "db") == []


@pytest.mark.trio
@pytest.mark.skipif(not ROOT, reason="only root can choose an account")
async def test_root_may_name_an_account_and_only_the_database_is_handed_over(tmp_path: Path) -> None:
    before = tmp_path.stat()
    data = tmp_path / "data"
    async with running(data, account="nobody") as (postgres, conninfo):
        assert os.stat(f"/proc/{postgres.pid}").st_uid == 65534
        assert version(conninfo) >= 180000
    assert (data / "db").stat().st_uid == 65534
    assert (data.stat().st_uid, stat.S_IMODE(data.stat().st_mode)) == (0, 0o700)
    assert (tmp_path.stat().st_mode, tmp_path.stat().st_uid) == (before.st_mode, before.st_uid)
    with pytest.raises(InvalidInput, match="belongs to uid 65534"):
        await EmbeddedPostgres(ServerLayout(data=data)).start()


@pytest.mark.trio
@pytest.mark.skipif(not ROOT, reason="root alone reads below a directory closed to it")
async def test_root_works_below_a_directory_of_somebody_else(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    os.chown(home, 65534, 65534)
    async with running(home / "data") as (_, conninfo):
        assert version(conninfo) >= 180000
    assert home.stat().st_uid == 65534
    assert stat.S_IMODE(home.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("account", "words"), [("no-such-account", "no account 'no-such-account'"), ("root", "not run as root")]
)
def test_an_account_that_cannot_work_is_refused(account: str, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        launch.choose_identity(account)


@pytest.mark.skipif(not ROOT, reason="root alone needs a user namespace")
def test_forbidden_user_namespaces_are_told_with_a_way_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`unshare` of a machine that forbids them, in its place on the path."""
    refusing = tmp_path / "unshare"
    refusing.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    refusing.chmod(0o755)
    monkeypatch.setitem(launch._ENVIRONMENT, "PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(InvalidInput, match=r"forbids user namespaces .*Operation not permitted.*set postgres_account"):
        launch.choose_installation(launch.choose_identity(None), major=None)


@pytest.mark.trio
async def test_a_cut_off_first_start_is_made_again(tmp_path: Path) -> None:
    (tmp_path / "db.new" / "base").mkdir(parents=True)
    (tmp_path / "db.new" / "PG_VERSION").write_text("18\n")
    async with running(tmp_path) as (_, conninfo):
        assert version(conninfo) >= 180000
    assert not (tmp_path / "db.new").exists()


@pytest.mark.trio
async def test_a_cancelled_first_start_leaves_nothing_running(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(ServerLayout(data=tmp_path))
    with trio.move_on_after(0.1) as scope:
        await postgres.start()
    assert scope.cancelled_caught
    await until(lambda: processes_on(tmp_path / "db.new") == [])
    assert not (tmp_path / "db").exists()
    await postgres.stop()
    async with running(tmp_path) as (_, conninfo):
        assert version(conninfo) >= 180000


@pytest.mark.trio
async def test_a_stranger_with_the_recorded_pid_is_left_alone(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    with subprocess.Popen(["sleep", "60"], cwd=tmp_path / "db") as stranger:
        # Even one that works in the very directory: it is no postgres.
        (tmp_path / "db" / "postmaster.pid").write_text(f"{stranger.pid}\n/x\n0\n5432\n.\n\n 1 1\nready\n")
        (tmp_path / "db" / ".s.PGSQL.5432.lock").write_text(f"{stranger.pid}\n")
        try:
            async with running(tmp_path) as (_, conninfo):
                assert version(conninfo) >= 180000
            assert stranger.poll() is None
        finally:
            stranger.kill()


@pytest.mark.trio
async def test_a_lingering_postgres_is_ended_before_the_next_start(tmp_path: Path) -> None:
    lost = EmbeddedPostgres(ServerLayout(data=tmp_path))
    await lost.start()
    async with running(tmp_path) as (postgres, _):
        assert await lost.wait_exit() == 0
        assert postgres.pid != lost.pid
    await lost.stop()
    await end_leftovers(tmp_path / "db")


@pytest.mark.trio
async def test_what_postgres_says_of_a_failed_start_is_told(tmp_path: Path) -> None:
    async with running(tmp_path):
        pass
    broken = EmbeddedPostgres(ServerLayout(data=tmp_path), settings={"shared_buffers": "much"})
    with pytest.raises(Unavailable, match="shared_buffers"):
        await broken.start()
    (tmp_path / "db" / "PG_VERSION").write_text("12\n")
    with pytest.raises(Unavailable, match="made by PostgreSQL 12, and only 18, 16"):
        await EmbeddedPostgres(ServerLayout(data=tmp_path)).start()
    (tmp_path / "db" / "PG_VERSION").unlink()
    with pytest.raises(InvalidInput, match="holds no PostgreSQL database"):
        await EmbeddedPostgres(ServerLayout(data=tmp_path)).start()


@pytest.mark.trio
async def test_the_log_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "LOG_LIMIT_BYTES", 1000)
    monkeypatch.setattr(embedded, "LOG_CHECK_S", 0.01)
    (tmp_path / "log").mkdir()
    log = tmp_path / "log" / "postgres.log"
    log.write_bytes(b"x" * 5000)
    async with running(tmp_path) as (postgres, _):
        assert not log.read_bytes().startswith(b"x")
        with log.open("ab") as out:
            out.write(b"y" * 5000)
        with trio.move_on_after(20) as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(postgres.wait_exit)
                await until(lambda: log.stat().st_size < 1000)
                nursery.cancel_scope.cancel()
        assert not scope.cancelled_caught


@pytest.mark.trio
async def test_only_the_main_thread_starts_it(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(ServerLayout(data=tmp_path))
    with pytest.raises(RuntimeError, match="main thread"):
        await trio.to_thread.run_sync(trio.run, postgres.start)
