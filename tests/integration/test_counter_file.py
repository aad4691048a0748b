"""The counter file itself: who may read it, what is done with one that is not ours, and rows that change hands."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from llmgw.core.limits import Limits, ScopeKind, Spending, month_number
from llmgw.router import counters as counters_module
from llmgw.router import slots
from llmgw.router.counter_file import (
    H_SLOTS_HIGH,
    H_USED,
    H_VERSION,
    ROWS_AT,
    SLOTS,
    WORD,
    file_bytes,
)
from llmgw.router.counters import IDLE_S, Counters, scope_hash
from llmgw.router.limiter import Limiter
from tests.support.limits import NOON, ROOMY, Clock, FakeRouter, chain_of, demand, figures, key, month, refused, scope

NOW = int(NOON)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the counters are to be."""
    return tmp_path / "counters"


def counted(path: Path) -> int:
    """Requests of key k1 as a router that starts finds them."""
    counters = Counters.open(path)
    found = figures(counters, chain_of(key(limits=ROOMY)), 0, NOON).requests
    counters.close()
    return found


def count_one(path: Path) -> None:
    """One request of key k1."""
    counters = Counters.open(path)
    Limiter(counters, clock=Clock()).admit(chain_of(key(limits=ROOMY)), demand())
    counters.close()


def test_it_is_private_and_takes_little_room(path: Path) -> None:
    count_one(path)
    found = path.stat()
    assert stat.S_IMODE(found.st_mode) == 0o600
    assert found.st_blocks * 512 < file_bytes(0) + 128 * 1024 < found.st_size


def test_counts_are_found_again(path: Path) -> None:
    count_one(path)
    count_one(path)
    assert counted(path) == 2


def word(at: int, value: int) -> Callable[[Path], None]:
    """Damage: another word in the file."""

    def damage(path: Path) -> None:
        with open(path, "r+b") as file:
            file.seek(at * WORD)
            file.write(value.to_bytes(WORD, "little", signed=True))

    return damage


def cut(path: Path) -> None:
    """Damage: the end is missing."""
    os.truncate(path, file_bytes(10))


def emptied(path: Path) -> None:
    """Damage: nothing is left."""
    os.truncate(path, 0)


def grown(path: Path) -> None:
    """Damage: too long."""
    os.truncate(path, path.stat().st_size + 1)


@pytest.mark.parametrize(
    "damage",
    [
        cut,
        emptied,
        grown,
        word(0, 7),
        word(H_VERSION, 99),
        word(H_USED, 10**9),
        word(H_USED, -1),
        word(H_SLOTS_HIGH, SLOTS + 1),
    ],
)
def test_another_kind_of_file_is_replaced_and_old_users_go_on(path: Path, damage: Callable[[Path], None]) -> None:
    count_one(path)
    old = Counters.open(path)
    kept = path.with_name("kept")
    os.link(path, kept)
    before = kept.stat().st_size
    # As a router of another version would leave it: a file of its own under the name.
    path.unlink()
    path.write_bytes(kept.read_bytes())
    damage(path)
    assert counted(path) == 0
    count_one(path)
    assert counted(path) == 1
    assert kept.stat().st_size == before
    limiter, chain = Limiter(old, clock=Clock()), chain_of(key(limits=ROOMY))
    limiter.admit(chain, demand())
    assert figures(old, chain, 0, NOON).requests == 2
    old.close()


def test_a_link_in_its_place_is_not_followed(path: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"precious")
    path.symlink_to(elsewhere)
    with pytest.raises(OSError):
        Counters.open(path)
    assert elsewhere.read_bytes() == b"precious"


def test_a_supervisor_makes_no_file(path: Path) -> None:
    assert slots.reap_file(path) == 0
    assert not path.exists()


def test_slots_are_taken_lowest_first_and_given_up(path: Path) -> None:
    first = Counters.open(path)
    assert slots.claim(first)
    second = Counters.open(path)
    assert slots.claim(second)
    assert (first.slot, second.slot) == (0, 1)
    slots.give_up(first)
    third = Counters.open(path)
    assert slots.claim(third)
    assert third.slot == 0
    for counters in (first, second, third):
        counters.close()


def test_a_slot_of_another_boot_or_process_is_reaped(path: Path) -> None:
    clock = Clock()
    chain = chain_of(key(limits=ROOMY))
    gone = FakeRouter.start(path, 0, clock, os.getpid())
    gone.limiter.admit(chain_of(key(limits=ROOMY)), demand(worst=5))
    lives = FakeRouter.start(path, 1, clock, os.getpid())
    lives.limiter.admit(chain, demand(worst=5))
    gone.die()
    assert slots.reap(lives.counters) == 1
    found = figures(lives.counters, chain, 0, NOON)
    assert (found.open, found.reserved) == (1, 5)
    lives.counters.close()


def test_every_slot_taken_is_said(path: Path) -> None:
    routers = [FakeRouter.start(path, slot, Clock(), os.getpid()) for slot in range(SLOTS)]
    late = Counters.open(path)
    assert not slots.claim(late)
    for counters in (late, *(router.counters for router in routers)):
        counters.close()


def find(counters: Counters, name: str, *, now: int = NOW, budgeted: bool = False) -> int | None:
    """A key's row."""
    return counters.find(scope_hash("key", name), budgeted=budgeted, now=now)


def test_scopes_of_one_name_and_other_kinds_are_told_apart(path: Path) -> None:
    counters = Counters.open(path)
    kinds = [scope_hash(kind, "x") for kind in ScopeKind]
    rows = {counters.find(kind, budgeted=False, now=NOW) for kind in kinds}
    assert len(rows) == 3
    assert {counters.find(kind, budgeted=False, now=NOW) for kind in kinds} == rows
    counters.close()


def test_rows_idle_for_two_minutes_are_given_away_those_with_budgets_last(path: Path) -> None:
    counters = Counters.open(path, rows=3)
    with_budget = find(counters, "budgeted", budgeted=True)
    plain, later = find(counters, "plain"), find(counters, "later")
    assert find(counters, "new") is None
    counters._full_until = 0.0
    assert find(counters, "new", now=NOW + IDLE_S) is None, "not idle for long enough"
    counters._full_until = 0.0
    assert find(counters, "new", now=NOW + IDLE_S + 1) in (plain, later)
    assert find(counters, "newer", now=NOW + IDLE_S + 1) in (plain, later)
    assert find(counters, "budgeted", now=NOW + IDLE_S + 1, budgeted=True) == with_budget
    assert find(counters, "newest", now=NOW + IDLE_S + 1) == with_budget
    counters.close()


def test_a_row_with_something_open_is_nobody_elses(path: Path) -> None:
    counters = Counters.open(path, rows=1)
    assert slots.claim(counters)
    limiter = Limiter(counters, clock=Clock())
    held = limiter.admit(chain_of(key(limits=ROOMY)), demand())
    assert find(counters, "other", now=NOW + 86_400) is None
    held.settle(0, 0)
    counters._full_until = 0.0
    assert find(counters, "other", now=NOW + 86_400) is not None
    counters.close()


def test_who_lost_its_row_gets_another_with_what_was_spent(path: Path) -> None:
    counters = Counters.open(path, rows=1)
    clock = Clock()
    limiter = Limiter(counters, clock=clock)
    chain = chain_of(key(limits=Limits(rpm=5), budgets=month(1000)))
    limiter.admit(chain, demand(worst=700)).settle(10, 700)
    clock.at += IDLE_S + 1
    other = chain_of(key("other", limits=ROOMY))
    limiter.admit(other, demand()).settle(0, 0)
    clock.at += IDLE_S + 1
    refusal = refused(limiter, chain, demand(worst=301))
    assert refusal is not None
    assert refusal.hit == ("key", "budget")
    limiter.admit(chain, demand(worst=300))
    assert figures(counters, chain, 0, clock.at).month_micros == 700
    counters.close()


def test_without_a_shared_row_a_scope_is_counted_here_alone(path: Path) -> None:
    counters = Counters.open(path, rows=1)
    limiter = Limiter(counters, clock=Clock())
    team = scope(ScopeKind.TEAM, "ml", limits=ROOMY)
    chain = chain_of(key(limits=Limits(rpm=2), team="ml"), team)
    for _ in range(2):
        limiter.admit(chain, demand()).settle(0, 0)
    assert refused(limiter, chain, demand()) is not None
    counters.close()


def test_a_full_disk_is_no_crash(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    counters = Counters.open(path)
    monkeypatch.setattr(counters_module, "allocate", full)
    limiter, chain = Limiter(counters, clock=Clock()), chain_of(key(limits=Limits(rpm=2)))
    for _ in range(2):
        limiter.admit(chain, demand())
    assert refused(limiter, chain, demand()) is not None
    assert counters.words[H_USED] == 0
    counters.close()


def test_an_index_left_in_the_middle_of_a_change_misleads_nobody(path: Path) -> None:
    """Killed between giving a row out and entering it, or with an entry left of another scope."""
    counters = Counters.open(path)
    first = find(counters, "a")
    assert first is not None
    bucket = counters._bucket(scope_hash("key", "a"))
    counters.words[bucket] = 0
    second = find(counters, "a")
    assert second not in (None, first)
    assert find(counters, "a") == second
    other = counters._bucket(scope_hash("key", "b"))
    counters.words[other] = (first - ROWS_AT) // 2048 + 1
    assert find(counters, "b") not in (None, first, second)
    counters.close()


def test_a_new_month_found_in_the_file_begins_at_nothing(path: Path) -> None:
    """S168, across a restart."""
    clock = Clock(at=1_896_134_340.0)  # 2030-01-31 23:59 UTC
    record = key(budgets=month(100), spent=Spending(month=month_number(clock.at), month_micros=100))
    chain = chain_of(record)
    counters = Counters.open(path)
    limiter = Limiter(counters, clock=clock)
    assert refused(limiter, chain, demand(worst=1)) is not None
    limiter.admit(chain, demand(worst=0)).settle(1, 0)
    counters.close()
    counters = Counters.open(path)
    clock.at += 60
    Limiter(counters, clock=clock).admit(chain_of(record), demand(worst=100))
    counters.close()
