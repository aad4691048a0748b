"""Several real processes count in one table: exact at once, and unharmed by those that are killed or stopped."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from llmgw.core.limits import Limits, ScopeKind, Spending, day_number, month_number
from llmgw.core.routing import KeyRecord
from llmgw.router import slots
from llmgw.router.counters import Counters
from llmgw.router.limiter import Limiter
from tests.support.limits import NOON, ROOMY, Clock, Figures, chain_of, demand, figures, key, month, refused, scope

ROOT = Path(__file__).parents[2]
TOGETHER_S = 0.05
"""Processes told to begin at once get this long to hear of it."""
DEADLINE_S = 30.0
TEAM = scope(ScopeKind.TEAM, "ml", limits=ROOMY, budgets=month(10**12))


class Child:
    """A counting router."""

    def __init__(self, path: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.counting_router", str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.answer()

    def tell(self, *words: object) -> None:
        """Say one command."""
        assert self.process.stdin is not None
        print(*words, file=self.process.stdin, flush=True)

    def answer(self) -> int:
        """What it says."""
        assert self.process.stdout is not None
        return int(json.loads(self.process.stdout.readline()))

    def ask(self, *words: object) -> int:
        """Both."""
        self.tell(*words)
        return self.answer()

    def use(self, record: KeyRecord, *above: object) -> None:
        """Count for this key."""
        self.ask("use", *(msgspec.msgpack.encode(one).hex() for one in (record, *above)))

    def kill(self) -> None:
        """SIGKILL, and gone."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def until_stopped(self) -> None:
        """Until it is stopped by a signal."""
        until = time.monotonic() + DEADLINE_S
        while Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "T":
            assert time.monotonic() < until


class Site:
    """One machine's counter file and its routers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.children: list[Child] = []

    def child(self) -> Child:
        """Another router."""
        self.children.append(Child(self.path))
        return self.children[-1]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """No router yet."""
    site = Site(tmp_path / "counters")
    yield site
    for child in site.children:
        if child.process.poll() is None:
            child.kill()


def at_once(children: list[Child], attempts: int, tokens: int = 0, output: int = 0, worst: int = 0) -> list[int]:
    """How many each let in, of so many tried at the same time."""
    begin = time.monotonic() + TOGETHER_S
    for child in children:
        child.tell("admit", attempts, begin, tokens, output, worst)
    return [child.answer() for child in children]


def test_ten_a_minute_are_ten_at_two_routers(site: Site) -> None:
    """200 at once, again in a later minute each round, so that rows are rolled by both too."""
    children = [site.child(), site.child()]
    for child in children:
        child.use(key(limits=Limits(rpm=10)))
    for turn in range(12):
        for child in children:
            child.ask("now", NOON + turn * 120)
        assert sum(at_once(children, 100)) == 10
        for child in children:
            child.ask("settle", 10, 0, 0)


def test_routers_that_meet_at_every_request_lose_no_count(site: Site) -> None:
    """Long enough that both run at once, whatever else this machine does."""
    children = [site.child(), site.child()]
    for child in children:
        child.use(key(limits=Limits(rpm=5000)))
    turn, both = 0, False
    while not both:
        assert turn < 50, "they never met"
        for child in children:
            child.ask("now", NOON + turn * 120)
        let_in = at_once(children, 5000)
        assert sum(let_in) == 5000
        both = min(let_in) > 0
        turn += 1
        for child in children:
            child.ask("settle", 5000, 0, 0)
    counters = Counters.open(site.path)
    found = figures(counters, chain_of(key(limits=Limits(rpm=5000))), 0, NOON + (turn - 1) * 120)
    assert (found.requests, found.open) == (5000, 0)
    counters.close()


def test_the_nearest_of_three_scopes_holds_at_three_routers(site: Site) -> None:
    above = (
        scope(ScopeKind.TEAM, "ml", limits=Limits(parallel=7), tenant="acme"),
        scope(ScopeKind.TENANT, "acme", limits=Limits(tpm=1000)),
    )
    children = [site.child() for _ in range(3)]
    for number, child in enumerate(children):
        child.use(key(f"k{number}", team="ml", limits=ROOMY), *above)
    for turn in range(5):
        for child in children:
            child.ask("now", NOON + turn * 120)
        assert sum(at_once(children, 40, tokens=10)) == 7
        for child in children:
            child.ask("release", 7)
        assert sum(at_once(children, 3, tokens=300)) == 3
        for child in children:
            child.ask("settle", 7, 300, 0)


def test_a_budget_at_99_percent_is_not_exceeded(site: Site) -> None:
    spent = Spending(day=day_number(NOON), month=month_number(NOON), month_micros=99_000)
    children = [site.child(), site.child()]
    for child in children:
        child.use(key(budgets=month(100_000), spent=spent))
        child.ask("now", NOON)
    assert sum(at_once(children, 50, worst=300)) == 3
    for child in children:
        child.ask("settle", 50, 10, 300)
    assert sum(at_once(children, 50, worst=100)) == 1
    for child in children:
        child.ask("settle", 50, 10, 100)
    counters = Counters.open(site.path)
    chain = chain_of(key(budgets=month(100_000), spent=spent))
    assert figures(counters, chain, 0, NOON).month_micros == 100_000
    counters.close()


def test_a_killed_router_leaves_nothing_open_and_its_minutes_stay(site: Site) -> None:
    record = key(team="ml", limits=Limits(rpm=1000, tpm=1_000_000, parallel=5), budgets=month(1000))
    victim, other = site.child(), site.child()
    for child in (victim, other):
        child.use(record, TEAM)
        child.ask("now", NOON)
    assert at_once([victim], 4, tokens=10, worst=200) == [4]
    assert at_once([other], 4, tokens=10, worst=200) == [1]
    victim.kill()
    let_in, until = 0, time.monotonic() + DEADLINE_S
    while not let_in:
        assert time.monotonic() < until
        let_in = sum(at_once([other], 9, tokens=10, worst=200))
    assert let_in == 4, "the dead router's places"
    counters = Counters.open(site.path)
    expected = Figures(9, 90, 0, 0, 0, 0, 5, 1000)
    assert [figures(counters, chain_of(record, TEAM), place, NOON) for place in (0, 1)] == [expected, expected]
    counters.close()


def test_the_supervisor_takes_back_what_a_killed_router_had_open(site: Site) -> None:
    victim = site.child()
    victim.use(key(limits=ROOMY))
    victim.ask("now", NOON)
    at_once([victim], 3, worst=7)
    assert slots.reap_file(site.path) == 0, "it lives"
    victim.kill()
    assert slots.reap_file(site.path) == 1
    assert slots.reap_file(site.path) == 0
    counters = Counters.open(site.path)
    found = figures(counters, chain_of(key(limits=ROOMY)), 0, NOON)
    assert (found.open, found.reserved, found.requests) == (0, 0, 3)
    counters.close()


def test_killed_anywhere_in_its_sections(site: Site) -> None:
    """Whatever word was being written: others go on at once, and nothing stays open."""
    record = key(team="ml", limits=ROOMY, budgets=month(10**12))
    chance = random.Random(4)
    counters = Counters.open(site.path)
    assert slots.claim(counters)
    limiter, chain = Limiter(counters, clock=Clock()), chain_of(record, TEAM)
    seen = 0
    for _ in range(8):
        victim = site.child()
        victim.use(record, TEAM)
        victim.ask("churn")
        until, enough = time.monotonic() + DEADLINE_S, seen + chance.randrange(1, 500)
        while figures(counters, chain, 0, NOON).month_micros < enough:
            assert time.monotonic() < until
        victim.kill()
        slots.reap(counters)
        held = limiter.admit(chain, demand(1))
        for place in (0, 1):
            found = figures(counters, chain, place, NOON)
            assert (found.open, found.reserved) == (1, 0)
            assert found.month_micros == found.day_micros
        held.release()
        spent = figures(counters, chain, 0, NOON).month_micros
        assert spent >= seen
        seen = spent
    counters.close()
    assert seen > 0


def test_a_router_stopped_in_its_section_keeps_nobody_waiting(site: Site) -> None:
    """Others go past it and stay exact between themselves; when it wakes it undoes nothing of theirs."""
    record = key(limits=Limits(rpm=5000))
    sleeper, *others = [site.child() for _ in range(3)]
    for child in (sleeper, *others):
        child.use(record)
        child.ask("now", NOON)
    assert at_once(others, 1) == [1, 1]
    sleeper.tell("stop")
    sleeper.until_stopped()
    assert sum(at_once(others, 5000)) == 4998
    counters = Counters.open(site.path)
    assert figures(counters, chain_of(record), 0, NOON).requests == 5000
    for child in others:
        child.ask("release", 1)
    os.kill(sleeper.process.pid, signal.SIGCONT)
    assert sleeper.answer() == 1
    assert figures(counters, chain_of(record), 0, NOON).requests == 4999
    assert sum(at_once([sleeper, *others], 20)) == 1
    counters.close()


def test_counts_outlive_every_router(site: Site) -> None:
    """S166: a budget survives restarts, with all processes gone."""
    first = site.child()
    first.use(key(budgets=month(1000)))
    first.ask("now", NOON)
    at_once([first], 1, worst=900)
    first.ask("settle", 1, 5, 900)
    first.kill()
    second = site.child()
    second.use(key(budgets=month(1000)))
    second.ask("now", NOON)
    assert at_once([second], 5, worst=60) == [1]


def test_a_key_only_others_used_is_refused_where_it_was_never_seen(site: Site) -> None:
    """S169, S170."""
    first, second = site.child(), site.child()
    for child in (first, second):
        child.use(key(limits=Limits(rpm=12)))
        child.ask("now", NOON + 50)
    assert at_once([first], 12) == [12]
    assert at_once([second], 1) == [0]
    second.ask("now", NOON + 70)
    assert at_once([second], 12) == [2], "ten seconds into the next minute the last one weighs five sixths"


def test_this_process_hears_of_the_dead_by_itself(site: Site) -> None:
    victim = site.child()
    victim.use(key(limits=Limits(parallel=1)))
    at_once([victim], 1)
    counters = Counters.open(site.path)
    assert slots.claim(counters)
    limiter, chain = Limiter(counters, clock=Clock()), chain_of(key(limits=Limits(parallel=1)))
    victim.kill()
    assert refused(limiter, chain, demand()) is None
    counters.close()
