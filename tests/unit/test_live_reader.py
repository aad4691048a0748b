"""A reader's pace: at most ten messages a second, one a second at least, and only the newest to whoever is late."""

import msgspec
import pytest
import trio
from trio.testing import MockClock

from llmgw.api.watch import Delta, Message, Snapshot, Tick
from llmgw.control.live_reader import Reader
from llmgw.control.live_table import Cursor, LiveTable


class Row(msgspec.Struct, frozen=True):
    """A row to tell apart by its value."""

    value: int


def a_reader(table: LiveTable, *, interval_s: float = 0.1) -> Reader:
    return Reader(table, Cursor(table, {"nodes": None}), interval_s=interval_s, actor="unix:me", role="viewer")


async def taken(reader: Reader) -> Message:
    line = await anext(reader)
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    return msgspec.json.decode(line, type=Message)


@pytest.mark.trio
async def test_first_everything_then_a_tick_every_second(autojump_clock: MockClock) -> None:
    table = LiveTable(("nodes",))
    table.put("nodes", "a", Row(1))
    reader = a_reader(table)
    first = await taken(reader)
    assert isinstance(first, Snapshot)
    assert (first.actor, first.role, list(first.rows["nodes"])) == ("unix:me", "viewer", ["a"])
    begin = trio.current_time()
    assert [type(await taken(reader)) for _ in range(3)] == [Tick] * 3
    assert trio.current_time() - begin == pytest.approx(3.0)


@pytest.mark.trio
@pytest.mark.parametrize(("interval_s", "most"), [(0.1, 91), (2.0, 5)])
async def test_a_flood_of_changes_is_told_at_the_readers_pace(
    autojump_clock: MockClock, interval_s: float, most: int
) -> None:
    table = LiveTable(("nodes",))
    reader = a_reader(table, interval_s=interval_s)
    deltas, ticks = 0, 0

    async def flood() -> None:
        for value in range(2000):
            table.put("nodes", "a", Row(value))
            table.announce()
            await trio.sleep(0.005)

    async with trio.open_nursery() as nursery:
        await taken(reader)
        nursery.start_soon(flood)
        end = trio.current_time() + 9
        while trio.current_time() < end:
            before = trio.current_time()
            message = await taken(reader)
            assert trio.current_time() - before <= 1.0 + 1e-6
            deltas += isinstance(message, Delta)
            ticks += isinstance(message, Tick)
    assert most * 0.7 < deltas <= most
    assert (ticks > 0) == (interval_s > 1)


@pytest.mark.trio
async def test_a_reader_slower_than_the_ticks_still_gets_its_rows(autojump_clock: MockClock) -> None:
    table = LiveTable(("nodes",))
    reader = a_reader(table)
    await taken(reader)
    for value in range(3):
        table.put("nodes", "a", Row(value))
        table.announce()
        await trio.sleep(30)
        message = await taken(reader)
        assert isinstance(message, Delta)
        assert bytes(message.rows["nodes"]["a"]) == msgspec.json.encode(Row(value))


@pytest.mark.trio
async def test_a_change_wakes_the_reader_at_once(autojump_clock: MockClock) -> None:
    table = LiveTable(("nodes",))
    reader = a_reader(table)
    await taken(reader)
    begin = trio.current_time()

    async def change() -> None:
        await trio.sleep(0.25)
        table.put("nodes", "a", Row(1))
        table.announce()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change)
        assert isinstance(await taken(reader), Delta)
    assert trio.current_time() - begin == pytest.approx(0.25)
