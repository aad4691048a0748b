"""What rings, tracks and the book keep: each figure in its step, within a bound, whatever the clock does."""

import math
import tracemalloc
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.api.series import FIGURES, Scope
from llmgw.control.history.book import MB, RANKED, ROW_BYTES, SHEETS, Book, Sheet, step_of
from llmgw.control.history.packing import HALVES, SINGLE, TENS, TENTHS, WHOLE, Packing
from llmgw.control.history.rings import EACH, LONG_STEPS, SHORT_STEPS, STEPS_KEPT, Ring, Track

PACKINGS = (HALVES, TENTHS, WHOLE, TENS, SINGLE)
FIRST = 340_000_000


def a_row(packing: Packing, *values: float | None) -> "array[float]":
    row, encode = packing.blank(len(values)), packing.encoder()
    for slot, value in enumerate(values):
        if value is not None:
            row[slot] = encode(value)
    return row


@given(st.sampled_from(PACKINGS), st.floats(0, 10_000))
def test_a_figure_comes_back_within_the_packing_s_error(packing: Packing, value: float) -> None:
    (code,) = a_row(packing, value)
    found = packing.decode(code)
    assert found is not None
    error = packing.error or 1e-6 * max(1.0, value)
    assert abs(found - min(value, packing.most)) <= error + 1e-9


@given(st.sampled_from(PACKINGS), st.sampled_from([math.nan, math.inf, -math.inf]))
def test_what_is_no_number_is_not_reported(packing: Packing, value: float) -> None:
    assert packing.decode(a_row(packing, value)[0]) is None


@pytest.mark.parametrize("packing", PACKINGS[:4])
def test_below_zero_is_zero_and_the_highest_is_not_taken_for_absent(packing: Packing) -> None:
    assert packing.decode(a_row(packing, -5.0)[0]) == 0.0
    assert packing.decode(a_row(packing, 1e9)[0]) == packing.most


@given(
    st.sampled_from(PACKINGS),
    st.lists(st.lists(st.none() | st.floats(0, 100), min_size=1, max_size=6), min_size=1, max_size=EACH),
)
def test_means_are_of_what_is_reported_slot_by_slot(packing: Packing, samples: list[list[float | None]]) -> None:
    found = packing.mean([a_row(packing, *values) for values in samples])
    assert len(found) == max(map(len, samples))
    for slot, code in enumerate(found):
        known = [v for values in samples if slot < len(values) and (v := values[slot]) is not None]
        mean = packing.decode(code)
        if not known:
            assert mean is None
        else:
            assert mean == pytest.approx(sum(known) / len(known), abs=2 * packing.error + 1e-4)


@given(st.integers(1, 40), st.lists(st.integers(0, 200), max_size=60, unique=True))
@settings(max_examples=200)
def test_a_ring_has_the_newest_steps_and_nothing_else(size: int, steps: list[int]) -> None:
    """Also with gaps, and when steps come as they like: a step never shows another's row."""
    ring = Ring(size)
    held: dict[int, int] = {}
    for step in steps:
        ring.put(step, a_row(WHOLE, float(step)))
        held[step % size] = step
    for step in range(201):
        row = ring.row(step)
        assert (row is not None) == (held.get(step % size) == step)
        assert row is None or WHOLE.decode(row[0]) == step


def test_a_minute_is_the_mean_of_its_samples_and_outlives_them() -> None:
    track = Track(HALVES)
    minute = FIRST // EACH
    for place in range(EACH):
        if place != 3:
            track.put(minute * EACH + place, a_row(HALVES, float(place), None))
    expected = sum(place for place in range(EACH) if place != 3) / (EACH - 1)
    # Under way it is what came so far; a slot that nobody reports has none.
    assert track.minute(minute, 0, born=0) == pytest.approx(expected)
    track.fold(minute)
    for later in range(SHORT_STEPS):
        track.put((minute + 1) * EACH + later, a_row(HALVES, 99.0, 99.0))
    assert track.at(minute * EACH, 0) is None
    assert track.minute(minute, 0, born=0) == pytest.approx(expected, abs=0.25)
    assert track.minute(minute, 1, born=0) is None
    assert track.minute(minute + LONG_STEPS, 0, born=0) is None


class Recorded:
    """A book of one model whose requests are the step they were taken at."""

    def __init__(self, limit: int = 10 * MB) -> None:
        self.book = Book(limit)

    def take(self, step: int, name: str = "m") -> None:
        for track, minute in self.book.begin(step):
            track.fold(minute)
        sheet = self.book.sheets[Scope.MODEL]
        sheet.names((name,), step)
        rows = sheet.blanks()
        rows["requests"][sheet.slots[name]] = float(step - FIRST)
        sheet.put(step, rows)

    def at(self, step: int, name: str = "m") -> float | None:
        return self.book.sheets[Scope.MODEL].value(name, "requests", step, each=1)

    def minute(self, minute: int, name: str = "m") -> float | None:
        return self.book.sheets[Scope.MODEL].value(name, "requests", minute, each=EACH)


@given(st.lists(st.integers(-900, 900).filter(bool), min_size=1, max_size=25))
@settings(max_examples=60, deadline=None)
def test_a_clock_that_jumps_leaves_gaps_and_never_shows_what_was_elsewhere(jumps: list[int]) -> None:
    recorded = Recorded()
    step = FIRST
    shown: set[int] = set()
    for jump in jumps:
        step += jump
        for _ in range(3):
            recorded.take(step)
            # What a clock that went back had recorded ahead of it is forgotten.
            shown = {known for known in shown if known < step} | {step}
            step += 1
    newest = max(shown)
    assert [recorded.at(newest - back) for back in (2, 1, 0)] == [newest - back - FIRST for back in (2, 1, 0)]
    for known in range(newest - SHORT_STEPS + 1, newest + 30):
        value = recorded.at(known)
        if value is not None:
            assert known in shown
            assert value == pytest.approx(known - FIRST)
    assert recorded.book.since is not None
    assert recorded.book.since <= min(shown)


def test_a_name_that_comes_into_another_s_place_has_none_of_its_past() -> None:
    recorded = Recorded()
    for place in range(EACH + 2):
        recorded.take(FIRST + place, "before")
    for place in range(EACH + 2, EACH + 4):
        recorded.take(FIRST + place, "after")
    sheet = recorded.book.sheets[Scope.MODEL]
    assert sheet.slots == {"after": 0}
    assert recorded.at(FIRST + EACH, "after") is None
    assert recorded.at(FIRST + EACH + 2, "after") == EACH + 2
    assert recorded.minute(FIRST // EACH, "after") is None
    assert recorded.at(FIRST, "before") is None


def test_figures_nobody_reports_cost_nothing() -> None:
    recorded = Recorded()
    recorded.take(FIRST)
    assert recorded.book.sheets[Scope.MODEL].seen == {"requests"}
    assert recorded.book.needed() == (4 + ROW_BYTES) * STEPS_KEPT
    assert recorded.book.bytes == 4


def test_every_figure_that_is_kept_has_a_rank_and_a_name_that_can_be_asked_for() -> None:
    assert sorted(RANKED) == sorted((scope, name) for scope, sheet in SHEETS.items() for name in sheet)
    asked = {(scope, figure.name) for figure in FIGURES for scope in figure.scopes}
    assert set(RANKED) <= asked
    # The others are made of those: a node's of its cards', tokens for a watt-hour of tokens and watts.
    made = {name for _, name in asked - set(RANKED)}
    assert made <= {"tokens_per_wh", "power_cards"} | set(SHEETS[Scope.CARD])


def full(sheet: Sheet, names: int, step: int) -> None:
    """Everything reported of `names` things."""
    sheet.names(map(str, range(names)), step)
    rows = sheet.blanks()
    for name, row in rows.items():
        code = sheet.packings[name].encoder()(50.0)
        row[:] = (
            array(row.typecode, [code] * len(row))
            if row.typecode == "f"
            else array(row.typecode, [int(code)] * len(row))
        )
    sheet.put(step, rows)


def test_memory_keeps_within_what_is_allowed_at_eight_thousand_cards() -> None:
    """By the sizes of full rings; figures worth least are left out, for all cards alike."""
    book = Book(160 * MB)
    kinds = {Scope.CLUSTER: 1, Scope.MODEL: 50, Scope.NODE: 1000, Scope.CARD: 8000}
    for step in (FIRST, FIRST + 1, FIRST + 2):
        book.begin(step)
        for scope, count in kinds.items():
            full(book.sheets[scope], count, step)
    cards = book.sheets[Scope.CARD]
    assert 140 * MB < book.needed() <= 160 * MB
    assert set(book.sheets[Scope.NODE].tracks) == set(SHEETS[Scope.NODE])
    assert set(cards.tracks) == {"work", "busy", "power", "temperature", "memory"}
    assert cards.refused == {"memory_temperature", "tensor", "dram", "clock", "occupancy"}
    assert set(book.sheets[Scope.MODEL].tracks) == set(SHEETS[Scope.MODEL])


def test_what_full_rings_take_is_what_was_reckoned_with() -> None:
    """Measured as Python's own allocations: rows, their heads, and the rings' places."""
    tracemalloc.start()
    try:
        book = Book(128 * MB)
        before, _ = tracemalloc.get_traced_memory()
        for step in (FIRST, FIRST + 1):
            book.begin(step)
            for scope, count in {Scope.CLUSTER: 1, Scope.MODEL: 5, Scope.NODE: 25, Scope.CARD: 200}.items():
                full(book.sheets[scope], count, step)
        for sheet in book.sheets.values():
            for track in sheet.tracks.values():
                for place in range(SHORT_STEPS):
                    track.put(FIRST + 2 + place, track.packing.blank(sheet.width))
                for place in range(LONG_STEPS):
                    track._long.put(place, track.packing.blank(sheet.width))
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert 0.8 * book.needed() < after - before <= book.needed() + MB


def test_what_had_no_room_comes_back_when_there_is_some() -> None:
    book = Book((4 * 10 + ROW_BYTES) * STEPS_KEPT)
    for count, expected in ((8, set()), (11, {"output_tokens"})):
        book.begin(FIRST + count)
        sheet = book.sheets[Scope.MODEL]
        sheet.names(map(str, range(count)), FIRST + count)
        sheet.seen |= {"output_tokens"}
        book.begin(FIRST + count + 1)
        assert sheet.refused == expected
    book.limit_bytes *= 2
    book.begin(FIRST + 13)
    assert book.sheets[Scope.MODEL].refused == set()


def test_steps_are_counted_from_the_epoch() -> None:
    assert (step_of(4.9), step_of(5.0), step_of(1_700_000_003.2)) == (0, 1, 340_000_000)
