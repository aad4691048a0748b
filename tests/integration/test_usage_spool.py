"""Usage rows on real files: none is lost to an outage, a restart or a full disk that empties again."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from llmgw.core.routing import UsageBatch, UsageRow
from llmgw.router.spool import SpoolDirectory, read_records
from llmgw.router.usage import MAX_QUEUED, UsageSpool
from tests.support.waiting import until

pytestmark = pytest.mark.promise("A3")


def row(number: int) -> UsageRow:
    """A row with an id of its own."""
    return UsageRow(id=f"u{number}", at=1.5, key_id="k", model="m", replica="r", status=200, output_tokens=3)


class Store:
    """A control plane that stores what it is sent, at once or never."""

    def __init__(self, spool: UsageSpool) -> None:
        self.ids: list[str] = []
        self.acknowledges = True
        self._spool = spool
        spool.send = self._received

    def _received(self, batch: UsageBatch) -> None:
        self.ids += [row.id for row in batch.rows]
        if self.acknowledges:
            # As over a socket: the answer comes when the sender has gone on.
            trio.lowlevel.spawn_system_task(self._acknowledge, batch.seq)

    async def _acknowledge(self, seq: int) -> None:
        self._spool.stored(seq)


@asynccontextmanager
async def running(root: Path, index: int = 0) -> AsyncIterator[tuple[UsageSpool, Store]]:
    """A spool under `root` that runs while the context is open, and ends as a drained router's does."""
    spool = UsageSpool(root, index)
    store = Store(spool)
    async with trio.open_nursery() as nursery:
        await nursery.start(spool.run)
        yield spool, store
        nursery.cancel_scope.cancel()
    spool.close()


def on_disk(root: Path) -> list[str]:
    """Ids of all rows in all segments under `root`."""
    found: list[str] = []
    for path in sorted(root.glob("*/*/*.rows")):
        found += [row.id for row in read_records(path.read_bytes())[0]]
    return found


def empty(root: Path) -> Callable[[], bool]:
    """Whether nothing is spooled under `root`."""
    return lambda: on_disk(root) == []


@pytest.mark.trio
async def test_rows_are_on_disk_before_they_are_sent_and_gone_when_stored(tmp_path: Path) -> None:
    """The spool of a router with a healthy control plane is empty."""
    async with running(tmp_path) as (spool, store):
        spool.record(row(1))
        await until(lambda: on_disk(tmp_path) == ["u1"])
        assert store.ids == []
        spool.feed_up()
        await until(empty(tmp_path))
        assert store.ids == ["u1"]
        assert not spool.waiting
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.trio
async def test_a_long_outage_keeps_memory_bounded_and_loses_nothing(tmp_path: Path) -> None:
    """More rows than memory holds come back from disk, each one."""
    count = 3 * MAX_QUEUED
    async with running(tmp_path) as (spool, store):
        for number in range(count):
            spool.record(row(number))
            if number % 4000 == 3999:
                await until(lambda: not spool._fresh)
        await until(lambda: not spool._fresh and len(spool._unsent) <= MAX_QUEUED)
        spool.feed_up()
        await until(lambda: not spool.waiting)
        assert set(store.ids) == {f"u{number}" for number in range(count)}
        assert spool.dropped == 0


@pytest.mark.trio
async def test_rows_that_wait_are_counted_wherever_they_are(tmp_path: Path) -> None:
    """In memory, in sealed files, in what a dead router left, and on their way."""
    count = 2 * MAX_QUEUED + 10
    async with running(tmp_path) as (spool, _):
        for number in range(count):
            spool.record(row(number))
            if number % 4000 == 3999:
                assert spool.waiting_rows == number + 1
                await until(lambda: not spool._fresh)
        await until(lambda: not spool._fresh and bool(spool._backlog))
        assert spool.waiting_rows == count
    async with running(tmp_path, index=1) as (other, store):
        await until(lambda: bool(other._backlog))
        assert other.waiting_rows == count
        store.acknowledges = False
        other.feed_up()
        await until(lambda: bool(store.ids))
        assert other.waiting_rows == count
        store.acknowledges = True
        other.feed_down()
        other.feed_up()
        await until(lambda: not other.waiting)
        assert other.waiting_rows == 0


@pytest.mark.trio
async def test_what_a_dead_router_left_is_sent_by_the_next_of_any_index(tmp_path: Path) -> None:
    """Also past a torn end; a living router's spool is left alone."""
    async with running(tmp_path, index=3) as (spool, _):
        spool.record(row(1))
        spool.record(row(2))
        await until(lambda: on_disk(tmp_path) == ["u1", "u2"])
        async with running(tmp_path, index=0) as (other, store):
            other.feed_up()
            await until(lambda: len(list(tmp_path.glob("router-*"))) == 1)
            assert store.ids == []
    [left] = tmp_path.glob("router-3/*/*.rows")
    left.write_bytes(left.read_bytes() + b"\x00\x00\x01\x00torn")
    async with running(tmp_path, index=0) as (other, store):
        other.feed_up()
        await until(lambda: store.ids == ["u1", "u2"])
        await until(empty(tmp_path))
    assert not list(tmp_path.glob("*/*"))


@pytest.mark.trio
async def test_a_batch_that_was_not_acknowledged_is_sent_again(tmp_path: Path) -> None:
    """A control plane that died with it has not stored it."""
    async with running(tmp_path) as (spool, store):
        store.acknowledges = False
        spool.feed_up()
        spool.record(row(1))
        await until(lambda: store.ids == ["u1"])
        spool.feed_down()
        store.acknowledges = True
        spool.feed_up()
        await until(empty(tmp_path))
        assert store.ids == ["u1", "u1"]


@pytest.mark.trio
@pytest.mark.promise("A14")
async def test_a_full_disk_stops_nothing_and_is_made_good_when_there_is_room(tmp_path: Path) -> None:
    """What no file takes is kept in memory as far as it goes, then dropped and counted."""
    async with running(tmp_path) as (spool, store):
        spool._directory.cap_bytes = 0
        for number in range(2 * MAX_QUEUED + 100):
            spool.record(row(number))
            if number == MAX_QUEUED - 1:
                await until(lambda: not spool._fresh)
        assert spool.dropped == 100
        assert on_disk(tmp_path) == []
        spool._directory.cap_bytes = 100_000_000
        await until(lambda: len(set(on_disk(tmp_path))) == 2 * MAX_QUEUED)
        spool.feed_up()
        await until(lambda: not spool.waiting)
        assert len(set(store.ids)) == 2 * MAX_QUEUED


def test_a_failed_append_leaves_no_half_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fills up in the middle of a record costs nothing that was written before."""
    directory = SpoolDirectory(tmp_path, 0)
    directory.append([row(1)])
    real = __import__("os").write
    calls = 0

    def half(file: int, data: memoryview) -> int:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise OSError(28, "No space left on device")
        return int(real(file, data[: len(data) // 2]))

    with monkeypatch.context() as patched:
        patched.setattr("llmgw.router.spool.os.write", half)
        with pytest.raises(OSError, match="No space"):
            directory.append([row(2)])
    assert directory.lacking
    directory.append([row(2)])
    assert on_disk(tmp_path) == ["u1", "u2"]
    directory.close()
