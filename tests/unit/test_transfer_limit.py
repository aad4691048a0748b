"""One limit for many transfers: their sum holds, each has the same share, and it may change while they wait."""

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from llmgw.transfer.limit import LEAST_PIECE_BYTES, PIECE_S, SPARE_S, Limit

RATE = 1_000_000
MOST = 256 * 1024


def limit_of(bytes_s: int) -> Limit:
    limit = Limit()
    limit.set(bytes_s)
    return limit


async def move(limit: Limit, moved: list[int], who: int, *, between_s: float = 0.0) -> None:
    """A transfer that never ends, and takes `between_s` of its own over every piece."""
    while True:
        piece = limit.within(PIECE_S, MOST)
        moved[who] += piece
        await limit.pay(piece)
        await trio.sleep(between_s)


async def moved_in(seconds: float, limit: Limit, *between_s: float) -> list[int]:
    """Bytes that each of these transfers moved."""
    moved = [0] * len(between_s)
    with trio.move_on_after(seconds):
        async with trio.open_nursery() as nursery:
            for who, own_s in enumerate(between_s):
                nursery.start_soon(lambda who=who, own_s=own_s: move(limit, moved, who, between_s=own_s))  # type: ignore[misc]
    return moved


@pytest.mark.trio
@pytest.mark.parametrize("count", [1, 2, 16, 300])
async def test_the_sum_holds_and_all_have_the_same_share(autojump_clock: MockClock, count: int) -> None:
    limit = limit_of(RATE)
    piece = limit.within(PIECE_S, MOST)
    moved = await moved_in(60, limit, *[0.0] * count)
    assert 59 * RATE <= sum(moved) <= (60 + SPARE_S) * RATE + count * piece
    assert max(moved) - min(moved) <= 2 * piece


@pytest.mark.trio
async def test_a_slow_transfer_holds_up_no_other(autojump_clock: MockClock) -> None:
    slow, first, second = await moved_in(60, limit_of(RATE), 5.0, 0.0, 0.0)
    assert slow <= 13 * RATE * PIECE_S
    assert first + second >= 59 * RATE - slow
    assert abs(first - second) <= 2 * RATE * PIECE_S


@pytest.mark.trio
async def test_an_idle_hour_is_not_saved_up(autojump_clock: MockClock) -> None:
    limit = limit_of(RATE)
    await limit.pay(1)
    await trio.sleep(3600)
    (moved,) = await moved_in(1, limit, 0.0)
    assert moved <= (1 + SPARE_S) * RATE + RATE * PIECE_S


@pytest.mark.trio
async def test_hundreds_at_the_least_limit_each_move_well_within_a_minute(autojump_clock: MockClock) -> None:
    limit = limit_of(100_000)
    moved = await moved_in(30, limit, *[0.0] * 512)
    assert min(moved) >= 2 * LEAST_PIECE_BYTES


@pytest.mark.trio
async def test_a_change_is_in_force_for_those_who_wait(autojump_clock: MockClock) -> None:
    limit = limit_of(1000)
    over: list[float] = []

    async def pay() -> None:
        await limit.pay(3_600_000)
        over.append(trio.current_time())

    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pay)
        await trio.sleep(600)
        limit.set(100_000)
    assert over[0] - began == pytest.approx(600 + 3000 / 100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(pay)
        await trio.sleep(1)
        limit.set(0)
    assert over[1] - over[0] == pytest.approx(1)
    await limit.pay(10**12)
    assert trio.current_time() == pytest.approx(over[1])
    limit.set(1000)
    await limit.pay(1000)
    assert trio.current_time() == pytest.approx(over[1] + 1), "what moved without a limit is not owed under the next"


@pytest.mark.trio
async def test_the_same_limit_again_wakes_nobody(autojump_clock: MockClock) -> None:
    limit = limit_of(1000)
    woken = 0

    async def wait(event: trio.Event, _seconds: float) -> None:
        nonlocal woken
        await event.wait()
        woken += 1

    limit._wait = wait
    async with trio.open_nursery() as nursery:
        nursery.start_soon(limit.pay, 5000)
        await wait_all_tasks_blocked()
        limit.set(1000)
        await wait_all_tasks_blocked()
        assert woken == 0
        limit.set(0)
    assert woken == 1


@pytest.mark.trio
async def test_what_was_moved_is_paid_for_though_its_transfer_ends(autojump_clock: MockClock) -> None:
    limit = limit_of(RATE)
    with trio.move_on_after(1):
        await limit.pay(10 * RATE)
    began = trio.current_time()
    await limit.pay(1)
    assert trio.current_time() - began == pytest.approx(9, abs=0.01)


@given(
    bytes_s=st.integers(100_000, 10**11),
    pays=st.lists(st.integers(1, MOST), min_size=1, max_size=60),
    pauses=st.lists(st.floats(0, 2), min_size=60, max_size=60),
)
@settings(deadline=None, max_examples=60)
def test_no_more_than_the_limit_in_any_time(bytes_s: int, pays: list[int], pauses: list[float]) -> None:
    now = 0.0

    async def wait(_event: trio.Event, seconds: float) -> None:
        nonlocal now
        assert seconds > 0
        now += seconds
        await trio.lowlevel.checkpoint()

    async def main() -> None:
        nonlocal now
        limit = Limit(clock=lambda: now, wait=wait)
        limit.set(bytes_s)
        over = [(0.0, 0)]
        for count, pause in zip(pays, pauses, strict=False):
            await limit.pay(count)
            over.append((now, over[-1][1] + count))
            now += pause
        for i, (since, before) in enumerate(over):
            for until, after in over[i + 1 :]:
                assert after - before <= bytes_s * (until - since + SPARE_S) + 2

    trio.run(main)


def test_a_piece_is_what_the_limit_lets_through_in_a_moment() -> None:
    limit = Limit(clock=lambda: 0.0)
    assert limit.within(PIECE_S, MOST) == MOST
    limit.set(RATE)
    assert limit.within(PIECE_S, MOST) == RATE * PIECE_S
    limit.set(100_000)
    assert limit.within(PIECE_S, MOST) == LEAST_PIECE_BYTES
    limit.set(10**11)
    assert limit.within(PIECE_S, MOST) == MOST
