"""When the console's process collects its garbage: behind frames, and all of it when nobody presses a key."""

import gc
from collections.abc import Iterator

import pytest

from console.sweeping import NEVER, QUIET_S, WHOLE_S, YOUNG, Sweeper

BORN = 1000.0


class Rounds:
    """The collector's rounds, by generation, as they begin."""

    def __init__(self) -> None:
        self.generations: list[int] = []

    def note(self, phase: str, info: dict[str, int]) -> None:
        """Called by the collector."""
        if phase == "start":
            self.generations.append(info["generation"])

    def new(self) -> list[int]:
        """Those since the last call."""
        found, self.generations = self.generations, []
        return found


@pytest.fixture
def rounds() -> Iterator[Rounds]:
    seen = Rounds()
    gc.collect()
    gc.callbacks.append(seen.note)
    yield seen
    gc.callbacks.remove(seen.note)


@pytest.fixture
def sweeper() -> Iterator[Sweeper]:
    made = Sweeper(now=BORN)
    yield made
    made.stop()


def make(number: int) -> list[list[object]]:
    """So many things that the collector has to look at, each in a ring with itself."""
    made: list[list[object]] = [[] for _ in range(number)]
    for thing in made:
        thing.append(thing)
    return made


def test_nothing_is_swept_while_a_frame_is_made_and_what_was_made_is_after_it(sweeper: Sweeper, rounds: Rounds) -> None:
    sweeper.start()
    rounds.new()
    made = make(4 * YOUNG)
    assert rounds.new() == [], "a frame waited for it"
    sweeper.after_frame()
    assert rounds.new() == [1]
    sweeper.after_frame()
    assert rounds.new() == [], "nothing was made since"
    del made


def test_everything_is_swept_once_in_a_while_when_nobody_presses_a_key(sweeper: Sweeper, rounds: Rounds) -> None:
    sweeper.start()
    rounds.new()
    sweeper.tick(now=BORN + WHOLE_S - 1)
    assert 2 not in rounds.new(), "too early"
    sweeper.touched(now=BORN + WHOLE_S)
    sweeper.tick(now=BORN + WHOLE_S + QUIET_S / 2)
    assert 2 not in rounds.new(), "somebody is at the keys"
    sweeper.tick(now=BORN + WHOLE_S + QUIET_S)
    assert 2 in rounds.new()
    sweeper.tick(now=BORN + WHOLE_S + QUIET_S + 1)
    assert 2 not in rounds.new(), "it was a moment ago"


def test_rings_that_live_through_sweeps_behind_frames_are_freed_by_the_one_of_everything(sweeper: Sweeper) -> None:
    sweeper.start()
    made = make(2 * YOUNG)
    sweeper.after_frame()
    sweeper.after_frame()
    del made
    before = len(gc.get_objects())
    sweeper.tick(now=BORN + WHOLE_S)
    assert len(gc.get_objects()) <= before - 2 * YOUNG


def test_it_ends_as_it_began(sweeper: Sweeper) -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    sweeper.start()
    assert gc.get_threshold()[0] == NEVER
    assert gc.get_freeze_count() > frozen
    sweeper.stop()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_one_that_was_never_started_does_nothing(sweeper: Sweeper, rounds: Rounds) -> None:
    before = gc.get_threshold()
    sweeper.tick(now=BORN + 2 * WHOLE_S)
    sweeper.stop()
    assert rounds.new() == []
    assert gc.get_threshold() == before
