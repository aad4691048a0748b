"""Any interleaving of routers that admit, settle, take back and die leaves the counters where an oracle has them."""

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from llmgw.core.limits import Limits, ScopeKind
from llmgw.router import slots
from llmgw.router.limiter import Reservation
from llmgw.router.ports import Refusal
from tests.support.limits import Clock, FakeRouter, Figures, chain_of, demand, figures, key, month, raw_rows, scope

ROUTERS = 3
SLOT = st.integers(0, ROUTERS - 1)
TEAM = scope(ScopeKind.TEAM, "ml", limits=Limits(rpm=9, parallel=4), budgets=month(500))
KEYS = (
    key("a", team="ml", limits=Limits(rpm=6, tpm=120, parallel=3)),
    key("b", team="ml", limits=Limits(tpm=90), budgets=month(200)),
)


@dataclass
class Held:
    """A request that is open, as the oracle knows it."""

    reservation: Reservation
    key: int
    minute: int
    tokens: int
    worst: int


@dataclass
class Told:
    """One scope's counts by minute, and its money."""

    requests: dict[int, int] = field(default_factory=dict)
    tokens: dict[int, int] = field(default_factory=dict)
    spent: int = 0

    def add(self, minute: int, requests: int, tokens: int) -> None:
        """Count."""
        self.requests[minute] = self.requests.get(minute, 0) + requests
        self.tokens[minute] = self.tokens.get(minute, 0) + tokens


class Machine(RuleBasedStateMachine):
    """Routers of one machine at one file."""

    @initialize()
    def begin(self) -> None:
        """Nothing is counted."""
        self.directory = tempfile.TemporaryDirectory()
        self.path = Path(self.directory.name) / "counters"
        self.clock = Clock()
        self.routers = [self.start(slot) for slot in range(ROUTERS)]
        self.chains = [chain_of(record, TEAM) for record in KEYS]
        self.held: list[list[Held]] = [[] for _ in range(ROUTERS)]
        self.told = {"a": Told(), "b": Told(), "team": Told()}

    def start(self, slot: int) -> FakeRouter:
        """A router."""
        return FakeRouter.start(self.path, slot, self.clock, os.getpid())

    @property
    def minute(self) -> int:
        """Now."""
        return int(self.clock.at) // 60

    def scopes(self, which: int) -> tuple[Told, Told]:
        """Of a key."""
        return self.told[KEYS[which].id], self.told["team"]

    @rule(
        slot=st.integers(0, ROUTERS - 1), which=st.integers(0, 1), tokens=st.integers(0, 60), worst=st.integers(0, 80)
    )
    def admit(self, slot: int, which: int, tokens: int, worst: int) -> None:
        """A request."""
        before = raw_rows(self.routers[slot].counters)
        try:
            reservation = self.routers[slot].admit(KEYS[which], TEAM, demand(tokens, worst=worst))
        except Refusal:
            if before:
                assert raw_rows(self.routers[slot].counters) == before
            return
        self.held[slot].append(Held(reservation, which, self.minute, tokens, worst))
        for told in self.scopes(which):
            told.add(self.minute, 1, tokens)
        assert self.in_view("requests", self.told["team"]) <= 9 + 1e-6
        assert self.in_view("tokens", self.told[KEYS[which].id]) <= (120, 90)[which] + 1e-6

    def in_view(self, what: str, told: Told) -> float:
        """S130."""
        counts: dict[int, int] = getattr(told, what)
        elapsed = self.clock.at - self.minute * 60
        return counts.get(self.minute, 0) + counts.get(self.minute - 1, 0) * (60 - elapsed) / 60

    @precondition(lambda self: any(self.held))
    @rule(data=st.data(), used=st.integers(0, 90), share=st.floats(0, 1))
    def settle(self, data: st.DataObject, used: int, share: float) -> None:
        """A request ends; it costs its worst at most."""
        slot, held = self.pick(data)
        cost = int(held.worst * share)
        held.reservation.settle(used, cost)
        for told in self.scopes(held.key):
            more = used - held.tokens
            told.add(self.minute if more > 0 else held.minute, 0, more)
            told.spent += cost
        self.held[slot].remove(held)

    @precondition(lambda self: any(self.held))
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        """A request is refused after all."""
        slot, held = self.pick(data)
        held.reservation.release()
        for told in self.scopes(held.key):
            told.add(held.minute, -1, -held.tokens)
        self.held[slot].remove(held)

    def pick(self, data: st.DataObject) -> tuple[int, Held]:
        """An open request."""
        slot = data.draw(st.sampled_from([i for i, held in enumerate(self.held) if held]))
        return slot, data.draw(st.sampled_from(self.held[slot]))

    @rule(slot=SLOT)
    def die(self, slot: int) -> None:
        """A router is killed, noticed, and replaced."""
        self.routers[slot].die()
        self.held[slot] = []
        witness = self.routers[(slot + 1) % ROUTERS]
        assert slots.reap(witness.counters) == 1
        self.routers[slot] = self.start(slot)

    @rule(seconds=st.floats(0.01, 100.0))
    def wait(self, seconds: float) -> None:
        """Time goes by, within the day."""
        self.clock.at += seconds

    @invariant()
    def as_told(self) -> None:
        """Every scope's row is what the oracle has."""
        for which in range(len(KEYS)):
            for place, told in enumerate(self.scopes(which)):
                mine = [held for router in self.held for held in router if place or held.key == which]
                now = self.minute
                assert figures(self.routers[0].counters, self.chains[which], place, self.clock.at) == Figures(
                    told.requests.get(now, 0),
                    told.tokens.get(now, 0),
                    told.requests.get(now - 1, 0),
                    told.tokens.get(now - 1, 0),
                    told.spent,
                    told.spent,
                    len(mine),
                    sum(held.worst for held in mine),
                )
        assert self.told["b"].spent <= 200
        assert self.told["team"].spent <= 500

    def teardown(self) -> None:
        """Nothing is left."""
        if hasattr(self, "routers"):
            for router in self.routers:
                router.counters.close()
            self.directory.cleanup()


TestInterleavings = Machine.TestCase
TestInterleavings.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
