"""Claims on one disk: what was promised is not promised again, and what fits is never refused."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmgw.transfer.errors import DiskFull
from llmgw.transfer.room import Room

DISK = Path("/disk")


def test_what_others_still_need_is_not_free() -> None:
    room = Room(DISK, lambda _path: 100)
    with room.claim("hf:org/first") as first, room.claim("hf:org/second") as second:
        first.need(DISK / "first", 70)
        with pytest.raises(DiskFull) as caught:
            second.need(DISK / "second", 40)
        assert (caught.value.needed_bytes, caught.value.free_bytes, caught.value.promised_bytes) == (40, 100, 70)
        assert caught.value.message == (
            "no space for /disk/second: 40 B more are needed and 100 B are free, of which 70 B are promised to "
            "1 other fetch queued or on the way (hf:org/first: 70 B); what arrived is kept, "
            "and the next fetch carries on from it once there is space"
        )
        second.need(DISK / "second", 30)


def test_a_claim_shrinks_as_bytes_arrive_and_ends_with_its_fetch() -> None:
    free = [100]
    room = Room(DISK, lambda _path: free[0])
    with room.claim("second") as second:
        with room.claim("first") as first:
            first.need(DISK, 100)
            free[0] = 40
            first.still(40)
            with pytest.raises(DiskFull):
                second.need(DISK, 1)
        second.need(DISK, 40)


def test_a_fetch_does_not_stand_in_its_own_way_and_its_larger_need_holds() -> None:
    room = Room(DISK, lambda _path: 100)
    with room.claim("set") as claim, room.claim("other") as other:
        claim.need(DISK, 90)
        claim.need(DISK, 10)
        with pytest.raises(DiskFull):
            other.need(DISK, 20)
        claim.need(DISK, 100)
        with pytest.raises(DiskFull):
            claim.need(DISK, 101)


def test_many_others_are_counted() -> None:
    room = Room(DISK, lambda _path: 20)
    with ExitStack() as claims, room.claim("late") as late:
        for number in range(5):
            claims.enter_context(room.claim(f"set-{number}")).need(DISK, 2 + number)
        with pytest.raises(DiskFull, match=r"5 other fetches .*\(set-4: 6 B, set-3: 5 B, set-2: 4 B and 2 more\)"):
            late.need(DISK, 1)


@given(free=st.integers(0, 1000), needs=st.lists(st.integers(0, 400), max_size=8))
def test_no_more_is_promised_than_is_free(free: int, needs: list[int]) -> None:
    room = Room(DISK, lambda _path: free)
    promised = 0
    with ExitStack() as claims:
        for number, need in enumerate(needs):
            claim = claims.enter_context(room.claim(str(number)))
            if need <= free - promised:
                claim.need(DISK, need)
                promised += need
            else:
                with pytest.raises(DiskFull):
                    claim.need(DISK, need)
    assert promised <= free
