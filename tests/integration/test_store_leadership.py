"""The lease: one leader by the database's clock, and no write of an epoch that is over."""

import threading

import psycopg
import pytest
import trio

from llmgw.core.errors import Conflict
from llmgw.store import leadership, settings
from llmgw.store.leadership import StaleLease
from llmgw.store.sql import Conn
from llmgw.store.store import Store
from tests.support.waiting import until


def take(conn: Conn, owner: str, ttl_s: float = 10.0) -> int | None:
    return leadership.acquire(conn, owner=owner, ttl_s=ttl_s, host="host", pid=1)


def renew(conn: Conn, owner: str, epoch: int) -> bool:
    return leadership.renew(conn, owner=owner, epoch=epoch, ttl_s=10.0)


def write(conn: Conn, key: str) -> None:
    settings.set_setting(conn, key, 1, actor="test")


def expire(conn: Conn) -> None:
    conn.execute("update leadership set expires_at = clock_timestamp() - interval '1 s'")


def waiting(conninfo: str) -> int:
    with psycopg.connect(conninfo, autocommit=True) as conn:
        row = conn.execute(
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.trio
async def test_the_owner_retakes_at_once_and_others_wait_for_the_end(store: Store) -> None:
    assert (await store.run(leadership.current)).held is False
    assert await store.run(take, "a") == 1
    assert await store.run(take, "b") is None
    assert await store.run(take, "a") == 2
    lease = await store.run(leadership.current)
    assert (lease.epoch, lease.owner, lease.held) == (2, "a", True)
    assert 5 < lease.remaining_s <= 10
    assert await store.run(renew, "a", 1) is False
    assert await store.run(renew, "b", 2) is False
    assert await store.run(renew, "a", 2) is True
    await store.run(expire)
    assert await store.run(take, "b") == 3
    assert await store.run(renew, "a", 2) is False


@pytest.mark.trio
async def test_a_released_lease_is_free_at_once(store: Store) -> None:
    epoch = await store.run(take, "a")
    assert epoch is not None
    assert await store.run(leadership.release, owner="b", epoch=epoch) is False
    assert await store.run(leadership.release, owner="a", epoch=epoch) is True
    with pytest.raises(StaleLease):
        await store.lead(epoch, write, "late")
    assert await store.run(take, "b") == epoch + 1


@pytest.mark.trio
@pytest.mark.promise("A2")
async def test_writes_of_an_epoch_that_is_over_are_refused(store: Store) -> None:
    epoch = await store.run(take, "a")
    assert epoch is not None
    await store.lead(epoch, write, "good")
    await store.run(expire)
    with pytest.raises(StaleLease, match="no longer leads"):
        await store.lead(epoch, write, "expired")
    assert await store.run(renew, "a", epoch) is True
    await store.lead(epoch, write, "renewed")
    await store.run(expire)
    assert await store.run(take, "b") == epoch + 1
    with pytest.raises(StaleLease):
        await store.lead(epoch, write, "stale")
    await store.lead(epoch + 1, write, "new")
    assert sorted(await store.run(settings.load_settings)) == ["good", "new", "renewed"]


@pytest.mark.trio
@pytest.mark.promise("A2")
async def test_a_new_epoch_waits_for_the_old_leaders_write_and_renewals_do_not(store: Store, database: str) -> None:
    epoch = await store.run(take, "a")
    assert epoch is not None
    fenced, go_on = threading.Event(), threading.Event()
    taken: list[int | None] = []

    def slow_write(conn: Conn) -> None:
        fenced.set()
        assert go_on.wait(20)
        write(conn, "slow")

    async def takeover() -> None:
        taken.append(await store.run(take, "b"))
        assert "slow" in await store.run(settings.load_settings)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.lead, epoch, slow_write)
        await trio.to_thread.run_sync(fenced.wait, 20)
        with trio.fail_after(60):
            assert await store.run(renew, "a", epoch) is True
        await store.run(expire)
        nursery.start_soon(takeover)
        await until(lambda: waiting(database) == 1)
        assert taken == []
        go_on.set()
    assert taken == [epoch + 1]


@pytest.mark.trio
@pytest.mark.promise("A2")
async def test_a_valid_writer_that_waits_for_its_own_successor_is_refused(store: Store, database: str) -> None:
    """The same owner retakes its lease while an older epoch's write comes in: it must wait, look again, and stop."""
    epoch = await store.run(take, "a")
    assert epoch is not None
    taken, go_on = threading.Event(), threading.Event()
    refused: list[bool] = []

    def slow_retake(conn: Conn) -> None:
        assert take(conn, "a") == epoch + 1
        taken.set()
        assert go_on.wait(20)

    async def late_write() -> None:
        try:
            await store.lead(epoch, write, "late")
        except StaleLease:
            refused.append(True)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.run, slow_retake)
        await trio.to_thread.run_sync(taken.wait, 20)
        nursery.start_soon(late_write)
        await until(lambda: waiting(database) == 1)
        assert refused == []
        go_on.set()
    assert refused == [True]


@pytest.mark.trio
@pytest.mark.promise("A2")
async def test_many_racing_owners_never_share_an_epoch(store: Store, database: str) -> None:
    """Every write records the epoch it was made under; epochs seen in commit order never go back."""
    order: list[int] = []
    guard = threading.Lock()
    refused = 0

    def mark(conn: Conn, epoch: int) -> None:
        # Under the fence no other epoch can begin, so this list is in the database's order.
        with guard:
            order.append(epoch)

    async def write_until_refused(epoch: int) -> None:
        while True:
            await store.lead(epoch, mark, epoch)

    async def contender(owner: str) -> None:
        nonlocal refused
        led = 0
        while led < 3:
            epoch = await store.run(take, owner, 0.01)
            if epoch is not None:
                with pytest.raises(StaleLease):
                    await write_until_refused(epoch)
                led, refused = led + 1, refused + 1

    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            for owner in "abcd":
                nursery.start_soon(contender, owner)
    assert order == sorted(order)
    assert len(set(order)) > 4
    assert refused == 12


@pytest.mark.trio
async def test_a_leaders_error_rolls_its_write_back(store: Store) -> None:
    epoch = await store.run(take, "a")
    assert epoch is not None

    def fail(conn: Conn) -> None:
        write(conn, "lost")
        raise Conflict("no")

    with pytest.raises(Conflict):
        await store.lead(epoch, fail)
    assert await store.run(settings.load_settings) == {}
