"""The waiting room: nobody lost or counted twice, keys take turns, no band starves, bytes add up."""

from collections import Counter, deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmgw.core.admission import Band
from llmgw.router.waiting import PASSED_OVER, Waiter, WaitingRoom

GOLD, DEFAULT, BRONZE = Band(name="gold", priority=10), Band(name="default"), Band(name="bronze", priority=-10)
BANDS = (GOLD, DEFAULT, BRONZE)


def take_next(room: WaitingRoom, model: str = "m") -> Waiter:
    """Let in whose turn it is."""
    return room.take(model, room.lines[model].turns()[0])


def lined_up(room: WaitingRoom, band: Band, key_id: str, held_bytes: int = 0, model: str = "m") -> Waiter:
    """A waiter in the room."""
    waiter = Waiter(model, band, key_id, held_bytes, 0.0)
    room.add(waiter)
    return waiter


class Room(RuleBasedStateMachine):
    """Everything that can happen to a room, against a plain list of who should be in it."""

    def __init__(self) -> None:
        super().__init__()
        self.room = WaitingRoom()
        self.there: list[Waiter] = []

    @rule(
        band=st.sampled_from(BANDS),
        key=st.sampled_from("abc"),
        model=st.sampled_from(["m", "n"]),
        size=st.integers(0, 9),
    )
    def line_up(self, band: Band, key: str, model: str, size: int) -> None:
        """Another one waits."""
        self.there.append(lined_up(self.room, band, key, size, model))

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        """Somebody leaves, wherever it stands."""
        waiter = data.draw(st.sampled_from(self.there))
        self.there.remove(waiter)
        self.room.remove(waiter)

    @precondition(lambda self: self.there)
    @rule(data=st.data())
    def let_in(self, data: st.DataObject) -> None:
        """The next one of a model is let in: the oldest of its key in its band."""
        model = data.draw(st.sampled_from(sorted(self.room.lines)))
        waiter = take_next(self.room, model)
        same = [w for w in self.there if (w.model, w.band, w.key_id) == (model, waiter.band, waiter.key_id)]
        assert waiter is same[0]
        self.there.remove(waiter)

    @invariant()
    def adds_up(self) -> None:
        """Counts and bytes are those of who is there."""
        assert self.room.count == len(self.there)
        assert self.room.held_bytes == sum(w.held_bytes for w in self.there)
        assert set(self.room.lines) == {w.model for w in self.there}
        for model, line in self.room.lines.items():
            assert line.count == sum(w.model == model for w in self.there)
            assert all(band.count for band in line.bands.values())
        for band in BANDS:
            own = [w for w in self.there if w.band is band]
            assert self.room.of_band(band.name) == (len(own), sum(w.held_bytes for w in own))


TestRoom = Room.TestCase
TestRoom.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@given(st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=1))
def test_keys_take_turns_however_many_requests_each_has(wanted: dict[str, int]) -> None:
    room = WaitingRoom()
    for key, count in wanted.items():
        for _ in range(count):
            lined_up(room, DEFAULT, key)
    let_in: Counter[str] = Counter()
    for _ in range(sum(wanted.values())):
        let_in[take_next(room).key_id] += 1
        unserved = [let_in[key] for key, count in wanted.items() if let_in[key] < count]
        # No key that still waits is two turns behind another that does.
        assert not unserved or max(unserved) - min(unserved) <= 1
    assert let_in == Counter(wanted)


def test_a_new_key_does_not_wait_for_all_requests_of_another() -> None:
    room = WaitingRoom()
    for _ in range(1000):
        lined_up(room, DEFAULT, "flood")
    late = lined_up(room, DEFAULT, "one")
    assert late in [take_next(room) for _ in range(2)]


def test_higher_bands_go_first_and_none_starves() -> None:
    room = WaitingRoom()
    gold = deque(lined_up(room, GOLD, "g") for _ in range(200))
    for _ in range(20):
        lined_up(room, BRONZE, "b")
        lined_up(room, DEFAULT, "d")
    order = [take_next(room).band.name for _ in range(160)]
    assert order[:PASSED_OVER] == ["gold"] * PASSED_OVER
    for name in ("default", "bronze"):
        turns = [at for at, band in enumerate(order) if band == name]
        gaps = [b - a for a, b in zip([-1, *turns], turns, strict=False)]
        assert turns
        assert max(gaps) <= PASSED_OVER + len(BANDS)
    # What the lower ones get is their share and no more.
    assert order.count("gold") >= 160 * (PASSED_OVER - 1) / (PASSED_OVER + 1)
    assert len(gold) == 200


def test_bands_of_one_priority_share_evenly() -> None:
    room = WaitingRoom()
    one, other = Band(name="one"), Band(name="other")
    for _ in range(10):
        lined_up(room, one, "a")
        lined_up(room, other, "b")
    order = [take_next(room).band.name for _ in range(20)]
    assert all(set(order[i : i + 2]) == {"one", "other"} for i in range(0, 20, 2))


def test_the_lowest_band_is_who_makes_room() -> None:
    room = WaitingRoom()
    lined_up(room, GOLD, "g")
    lined_up(room, DEFAULT, "d")
    assert [(model, line.band.name) for model, line in room.lowest_below(10)] == [("m", "default")]
    assert room.lowest_below(0) == []
    lined_up(room, BRONZE, "b", model="n")
    assert [(model, line.band.name) for model, line in room.lowest_below(10)] == [("n", "bronze")]
