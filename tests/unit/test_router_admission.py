"""The gate: when a model takes no more, who is woken by what, what is refused, and that no place is ever lost."""

import time
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llmgw.core.admission import Admission, Band
from llmgw.core.routing import (
    KeyRecord,
    ReplicaLoad,
    RoutedExternal,
    RoutedModel,
    RoutedReplica,
    Routing,
    Timeouts,
)
from llmgw.router.admission import Gate
from llmgw.router.turned_away import TurnedAway
from llmgw.router.wait_reason import wait_reason
from llmgw.router.waiting import PASSED_OVER, Standing, Waiter
from tests.support.router_plane import MemoryState

RANKED = (Band(name="gold", priority=10), Band(name="bronze", priority=-10, queue_ttl=120.0))
SLOTS = 8
MOST_SENT = SLOTS + 4
"""Requests at an engine of SLOTS from which on others wait in the router."""


def key(band: str = "", id: str = "k", models: tuple[str, ...] | None = None) -> KeyRecord:
    """A key of that band."""
    return KeyRecord(id=id, name=id, band=band, models=models)


def state_of(*replicas: RoutedReplica, rules: Admission | None = None) -> MemoryState:
    """What a router knows that follows these replicas of `m`; `n` has none."""
    models = (RoutedModel(name="m"), RoutedModel(name="n"))
    return MemoryState(Routing(revision="1/1", models=models, replicas=replicas, admission=rules or Admission()))


def replica(number: int = 0, *, outside: bool = False) -> RoutedReplica:
    """A replica of `m`."""
    external = RoutedExternal() if outside else None
    return RoutedReplica(id=f"r{number}", model="m", endpoint=f"http://127.0.0.1:{number + 1}", external=external)


def says(state: MemoryState, running: int, waiting: int = 0, *, number: int = 0, slots: int | None = SLOTS) -> None:
    """An engine says how it is, and the data plane hears of it."""
    state.loads[f"r{number}"] = ReplicaLoad(running=running, waiting=waiting, slots=slots, at=time.time())
    state.on_loads()


def lets_in(gate: Gate, band: str = "") -> bool:
    """Whether a request for `m` is sent at once."""
    return gate.lets_in("m", band, time.monotonic())


def fill(gate: Gate, state: MemoryState, band: str = "") -> int:
    """Send requests to r0 for as long as they are let in; how many those were."""
    count = 0
    while lets_in(gate, band):
        gate.begin("m", band)
        state.in_flight["r0"] = state.in_flight.get("r0", 0) + 1
        count += 1
        assert count < 1000
    return count


def end_one(gate: Gate, state: MemoryState) -> None:
    """A request at r0 ends."""
    state.in_flight["r0"] -= 1
    gate.pump("m")


def let_in(waiters: Sequence[Waiter]) -> list[Waiter]:
    """Those whose turn came."""
    return [waiter for waiter in waiters if waiter.standing is Standing.LET_IN]


def test_where_nothing_is_known_nobody_waits() -> None:
    state = state_of(replica())
    gate = Gate(state)
    state.in_flight["r0"] = 100_000
    assert lets_in(gate)
    assert gate.saturation("m") == 0.0


@pytest.mark.parametrize("slots", range(1, 13))
@pytest.mark.parametrize("bands", [(), RANKED])
def test_a_model_takes_what_its_slots_and_a_short_queue_hold(slots: int, bands: tuple[Band, ...]) -> None:
    state = state_of(replica(), rules=Admission(bands=bands))
    gate = Gate(state)
    says(state, 0, slots=slots)
    assert fill(gate, state) == slots + 4
    assert gate.saturation("m") == 1.0


def test_what_was_found_to_fit_fits_no_more_once_somebody_waits() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, 0)
    began = time.monotonic()
    assert gate.lets_in("m", "", began)
    state.loads["r0"] = ReplicaLoad(running=SLOTS, waiting=9, slots=SLOTS, at=time.time())
    assert not gate.lets_in("m", "", began + 1.0)
    gate.line_up("m", key(), 0)
    assert not gate.lets_in("m", "", began)


def test_requests_outside_are_no_queue_and_count_in_the_mean() -> None:
    outside = state_of(replica(outside=True))
    gate = Gate(outside)
    outside.in_flight["r0"] = 200
    says(outside, 0)
    assert gate.saturation("m") == 0.0
    own = state_of(replica())
    gate = Gate(own)
    says(own, 0)
    own.in_flight["r0"] = 200
    assert gate.saturation("m") == 1.0
    assert not lets_in(gate)
    both = state_of(replica(), replica(1, outside=True))
    gate = Gate(both)
    says(both, 0)
    both.in_flight |= {"r0": 200, "r1": 200}
    assert gate.saturation("m") == 0.5


def test_open_breakers_are_skipped() -> None:
    state = state_of(replica(), replica(1))
    gate = Gate(state)
    says(state, SLOTS, 9)
    says(state, 0, number=1)
    assert gate.saturation("m") == 0.5
    state.breakers["r1"] = "open"
    assert gate.saturation("m") == 1.0
    state.breakers["r0"] = "open"
    assert lets_in(gate), "whether a broken replica is asked is for the chooser to say"


def test_one_full_replica_of_two_leaves_room_at_the_other() -> None:
    state = state_of(replica(), replica(1))
    gate = Gate(state)
    says(state, SLOTS, 500)
    says(state, SLOTS, 2, number=1)
    assert lets_in(gate)


def test_figures_that_grew_old_hold_nobody_back() -> None:
    state = state_of(replica())
    gate = Gate(state)
    state.loads["r0"] = ReplicaLoad(running=SLOTS, waiting=50, slots=SLOTS, at=time.time() - 16)
    assert lets_in(gate)
    state.loads["r0"] = msgspec.structs.replace(state.loads["r0"], at=time.time())
    gate.loads_heard()
    assert not lets_in(gate)


def test_an_end_wakes_the_next_and_nobody_else() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, 0)
    fill(gate, state)
    waiters = [gate.line_up("m", key(), 0) for _ in range(5)]
    end_one(gate, state)
    assert let_in(waiters) == waiters[:1]
    end_one(gate, state)
    assert let_in(waiters) == waiters[:2]
    assert gate.step_out(waiters[0], taken=True) is None
    state.in_flight["r0"] += 1
    gate.pump("m")
    assert let_in(waiters) == waiters[:2]


def test_new_figures_wake_what_fits_now() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, SLOTS, 20)
    waiters = [gate.line_up("m", key(), 0) for _ in range(9)]
    says(state, SLOTS, 2)
    assert len(let_in(waiters)) == 2
    says(state, 0)
    assert len(let_in(waiters)) == 9


def test_who_is_woken_and_gone_leaves_the_place_to_the_next() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, 0)
    fill(gate, state)
    first, second = (gate.line_up("m", key(), 0) for _ in range(2))
    end_one(gate, state)
    assert let_in([first, second]) == [first]
    assert gate.step_out(first, taken=False) is None
    assert second.standing is Standing.LET_IN


def test_who_waits_goes_before_who_comes() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, SLOTS, 20)
    gate.line_up("m", key(), 0)
    state.loads.clear()
    assert not lets_in(gate)
    assert not lets_in(gate, "bronze")
    assert lets_in(gate, "gold")
    gate.tick(time.monotonic())
    assert lets_in(gate)


def test_a_model_without_replicas_keeps_nobody() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, SLOTS, 20)
    waiter = gate.line_up("m", key(), 0)
    state.apply(Routing(revision="1/2", models=(RoutedModel(name="m"),)))
    gate.tick(time.monotonic())
    assert waiter.standing is Standing.LET_IN


def test_what_has_no_place_is_refused_naming_band_and_limit() -> None:
    state = state_of(replica(), rules=Admission(max_waiting=4, max_waiting_bytes=100, bands=RANKED))
    gate = Gate(state)
    says(state, SLOTS, 20)
    for _ in range(3):
        gate.line_up("m", key("bronze"), 20)
    with pytest.raises(TurnedAway, match=r"3 of 3 places of band 'bronze' are taken") as refused:
        gate.line_up("m", key("bronze"), 0)
    assert (refused.value.status, refused.value.code, refused.value.reason) == (429, "queue_full", "full")
    assert refused.value.retry_after_s is not None
    with pytest.raises(TurnedAway, match=r"queue of band 'gold' is full: waiting requests hold 0 B of 75 B") as refused:
        gate.line_up("m", key("gold"), 76)
    assert refused.value.reason == "bytes"


def test_a_higher_band_takes_the_place_of_the_newest_of_the_lowest() -> None:
    state = state_of(replica(), rules=Admission(max_waiting=4, bands=RANKED))
    gate = Gate(state)
    says(state, SLOTS, 20)
    bronze = [gate.line_up("m", key("bronze"), 0) for _ in range(3)]
    default = gate.line_up("m", key(), 0)
    gold = gate.line_up("m", key("gold"), 0)
    assert [waiter.standing for waiter in bronze] == [Standing.WAITING, Standing.WAITING, Standing.DISPLACED]
    assert default.standing is gold.standing is Standing.WAITING
    refusal = gate.step_out(bronze[2], taken=False)
    assert refusal is not None
    assert (refusal.status, refusal.reason) == (429, "displaced")
    with pytest.raises(TurnedAway, match="4 of 4 places of all bands together"):
        gate.line_up("m", key("bronze"), 0)


def test_nobody_loses_a_place_to_a_request_that_finds_no_room_even_so() -> None:
    bands = (*RANKED, Band(name="silver", priority=5))
    state = state_of(replica(), rules=Admission(max_waiting_bytes=100, bands=bands))
    gate = Gate(state)
    says(state, SLOTS, 20)
    bronze = [gate.line_up("m", key("bronze"), 5) for _ in range(4)]
    gate.line_up("m", key("gold"), 60)
    with pytest.raises(TurnedAway, match="waiting requests hold 60 B of 100 B, and this one has 45 B") as refused:
        gate.line_up("m", key("silver"), 45)
    assert refused.value.reason == "bytes"
    assert {waiter.standing for waiter in bronze} == {Standing.WAITING}
    # One that fits beside those of its own and of higher bands gets its room.
    gate.line_up("m", key("silver"), 40)
    assert {waiter.standing for waiter in bronze} == {Standing.DISPLACED}


def test_the_reason_of_a_wait_has_the_figures_it_was_decided_by() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, 0)
    assert fill(gate, state) == MOST_SENT
    # The engine spoke before all these came: what it said would tell of an idle one.
    told = wait_reason(state, "m", gate.measured("m"), first=True)
    assert told == "m's replica was saturated (4 of 4 waiting in engines)"


def test_a_wait_for_a_place_that_is_kept_says_so() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, SLOTS, 20)
    gold = [gate.begin("m", "gold") for _ in range(4)]
    for use in gold:
        assert use is not None
        use.end()
    says(state, SLOTS - 4)
    assert not lets_in(gate, "bronze")
    waiting = [gate.line_up("m", key("bronze"), 0) for _ in range(2)]
    first, second = (
        wait_reason(state, "m", gate.measured("m"), first=gate.room.nobody_before(waiter))
        for waiter in (gate.line_up("m", key(), 0), waiting[1])
    )
    assert first == "the free places of m were kept for higher bands"
    assert second == "others were to be let in to m before it"


def test_a_wait_that_ended_is_504_with_its_band() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, SLOTS, 20)
    waiter = gate.line_up("m", key("bronze"), 0)
    assert gate.ttl_s(waiter) == 120.0
    assert gate.ttl_s(gate.line_up("m", key("no such band"), 0)) == Timeouts().queue
    refusal = gate.step_out(waiter, taken=True)
    assert refusal is not None
    assert (refusal.status, refusal.code, refusal.band) == (504, "queue_timeout", "bronze")
    assert "'bronze'" in refusal.message


def test_a_head_is_refused_only_when_no_model_of_the_key_would_take_it() -> None:
    state = state_of(replica(), rules=Admission(max_waiting=2))
    gate = Gate(state)
    says(state, SLOTS, 20)
    for _ in range(2):
        gate.check_head(key(models=("m",)))
        gate.line_up("m", key(), 0)
    with pytest.raises(TurnedAway, match="2 of 2 places"):
        gate.check_head(key(models=("m",)))
    gate.check_head(key())  # may mean n, which nobody waits for
    gate.check_head(key(models=()))  # is to hear that it may use none


def test_places_that_a_higher_band_used_lately_are_kept_for_it() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, 0)
    uses = [gate.begin("m", "gold") for _ in range(2)]
    for use in uses:
        assert use is not None
        use.end()
    assert fill(gate, state, "bronze") == SLOTS - 2
    assert fill(gate, state, "gold") == MOST_SENT - (SLOTS - 2)


def test_while_a_higher_band_has_all_it_uses_a_lower_one_is_let_into_no_queue() -> None:
    """Or the higher one would find that queue before it each time one of its own ends and the next one comes."""
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, 0)
    for _ in range(2):
        gate.begin("m", "gold")
        state.in_flight["r0"] = state.in_flight.get("r0", 0) + 1
    assert fill(gate, state, "bronze") == SLOTS - 2
    assert gate.saturation("m") == 0.0


def test_no_more_than_half_is_kept() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, 0)
    uses = [gate.begin("m", "gold") for _ in range(3 * SLOTS)]
    for use in uses:
        assert use is not None
        use.end()
    assert fill(gate, state, "bronze") == SLOTS // 2


def test_a_lower_band_gets_in_under_a_flood_of_a_higher_one() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, 0)
    state.in_flight["r0"] = 0
    open_uses = []
    while lets_in(gate, "gold"):
        open_uses.append(gate.begin("m", "gold"))
        state.in_flight["r0"] += 1
    bronze = gate.line_up("m", key("bronze"), 0)
    for turn in range(20):
        gold = gate.line_up("m", key("gold"), 0)
        use = open_uses.pop()
        assert use is not None
        use.end()
        end_one(gate, state)
        if bronze.standing is Standing.LET_IN:
            break
        assert gold.standing is Standing.LET_IN, turn
        gate.step_out(gold, taken=True)
        open_uses.append(gate.begin("m", "gold"))
        state.in_flight["r0"] += 1
    assert bronze.standing is Standing.LET_IN


def test_who_is_passed_over_by_requests_that_never_waited_gets_in_too() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    says(state, 0)
    for use in [gate.begin("m", "gold") for _ in range(SLOTS)][SLOTS // 2 :]:
        assert use is not None
        use.end()
    state.in_flight["r0"] = SLOTS // 2
    assert not lets_in(gate, "bronze"), "the other half is kept"
    bronze = gate.line_up("m", key("bronze"), 0)
    for _ in range(PASSED_OVER):
        gate.pump("m")
        assert bronze.standing is Standing.WAITING
        assert lets_in(gate, "gold")
    gate.pump("m")
    assert bronze.standing is Standing.LET_IN


def test_an_engine_that_emptied_while_its_figures_were_on_their_way_is_not_taken_for_full() -> None:
    state = state_of(replica())
    gate = Gate(state)
    says(state, 0)
    gate.peaks["r0"] = MOST_SENT
    says(state, SLOTS, 4)
    assert lets_in(gate)
    says(state, SLOTS, 4)
    assert not lets_in(gate), "what it says again is not ours: nothing was open here since"


def test_who_waits_is_told_by_model_and_band() -> None:
    state = state_of(replica(), rules=Admission(bands=RANKED))
    gate = Gate(state)
    assert state.meters.report(usage_dropped=0, usage_waiting=0).queues == {}
    says(state, SLOTS, 20)
    gate.line_up("m", key("bronze"), 0)
    gate.line_up("m", key("gold"), 0)
    queues = state.meters.report(usage_dropped=0, usage_waiting=0).queues
    assert queues["m"].waiting == {"gold": 1, "bronze": 1}
    assert queues["m"].oldest_s >= 0


class Traffic(RuleBasedStateMachine):
    """Requests that come, wait, leave and end in any order, before an engine that tells now and then how it is."""

    def __init__(self) -> None:
        super().__init__()
        self.state = state_of(replica(), rules=Admission(max_waiting=6, bands=RANKED))
        self.gate = Gate(self.state)
        self.waiting: list[Waiter] = []
        self.running = 0
        self.tell()

    def _start(self) -> None:
        self.running += 1
        self.state.in_flight["r0"] = self.running
        self.gate.peaks["r0"] = max(self.gate.peaks.get("r0", 0), self.running)

    @rule(band=st.sampled_from(["gold", "", "bronze"]), id=st.sampled_from("ab"))
    def come(self, band: str, id: str) -> None:
        """A request comes."""
        if lets_in(self.gate, band):
            self._start()
            return
        try:
            self.waiting.append(self.gate.line_up("m", key(band, id), 1))
        except TurnedAway:
            assert self.gate.room.count >= 4

    @precondition(lambda self: self.waiting)
    @rule(data=st.data(), stays=st.booleans())
    def go_on(self, data: st.DataObject, stays: bool) -> None:
        """Somebody who waits goes on: it begins if it was let in, unless its client left at that moment."""
        waiter = data.draw(st.sampled_from(self.waiting))
        if waiter.standing is Standing.WAITING and stays:
            return
        self.waiting.remove(waiter)
        was_let_in = waiter.standing is Standing.LET_IN
        refusal = self.gate.step_out(waiter, taken=stays)
        assert (refusal is None) == was_let_in
        if was_let_in and stays:
            self._start()

    @precondition(lambda self: self.running)
    @rule()
    def end(self) -> None:
        """A request ends."""
        self.running -= 1
        self.state.in_flight["r0"] = self.running
        self.gate.pump("m")

    @rule()
    def tell(self) -> None:
        """The engine says how it is."""
        says(self.state, min(self.running, SLOTS), max(0, self.running - SLOTS))

    @invariant()
    def holds(self) -> None:
        """No more is sent than fits, nobody waits beside a free place, and counts are right."""
        woken = len(let_in(self.waiting))
        assert self.running + woken <= MOST_SENT
        still = [waiter for waiter in self.waiting if waiter.standing is Standing.WAITING]
        assert self.gate.room.count == self.gate.room.held_bytes == len(still) <= 6
        if still:
            before = len(let_in(self.waiting))
            self.gate.tick(time.monotonic())
            assert len(let_in(self.waiting)) == before, "somebody waited though there was room"


TestTraffic = Traffic.TestCase
TestTraffic.settings = settings(max_examples=80, stateful_step_count=60, deadline=None)
