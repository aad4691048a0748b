"""Who is let in, what each is charged, and what a refusal says; counted in memory."""

import pytest

from llmgw.core.limits import Budget, Limits, Period, ScopeKind, Spending, day_number, month_number
from llmgw.router.counters import Counters
from llmgw.router.errors import response_of
from llmgw.router.limiter import Limiter
from llmgw.router.ports import Refusal
from tests.support.limits import (
    NOON,
    ROOMY,
    Clock,
    Figures,
    chain_of,
    demand,
    figures,
    key,
    month,
    raw_rows,
    refused,
    scope,
)


class Rig:
    """A limiter over counters of this process and a clock that stands still."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.counters = Counters.private(rows=64)
        self.limiter = Limiter(self.counters, clock=self.clock)


@pytest.fixture
def rig() -> Rig:
    """Nothing counted yet."""
    return Rig()


def test_requests_a_minute(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(rpm=3)))
    for _ in range(3):
        rig.limiter.admit(chain, demand()).settle(0, 0)
    refusal = refused(rig.limiter, chain, demand())
    assert refusal is not None
    assert (refusal.status, refusal.type, refusal.code) == (429, "requests", "rate_limit_exceeded")
    assert refusal.hit == ("key", "rpm")
    assert refusal.retry_after_s == 80.0, "3 of this minute weigh 2 once a third of the next is over"
    rig.clock.at += 79.9
    assert refused(rig.limiter, chain, demand()) is not None
    rig.clock.at += 0.2
    rig.limiter.admit(chain, demand())


def test_one_counter_for_everything_beneath(rig: Rig) -> None:
    team = scope(ScopeKind.TEAM, "ml", limits=Limits(rpm=2), tenant="acme")
    other = scope(ScopeKind.TEAM, "web", tenant="acme")
    tenant = scope(ScopeKind.TENANT, "acme", limits=Limits(rpm=3))
    chains = [
        chain_of(key(name, team=of), team, other, tenant) for name, of in (("a", "ml"), ("b", "ml"), ("c", "web"))
    ]
    rig.limiter.admit(chains[0], demand())
    rig.limiter.admit(chains[1], demand())
    refusal = refused(rig.limiter, chains[0], demand())
    assert refusal is not None
    assert refusal.hit == ("team", "rpm")
    assert "team 'ml'" in refusal.message
    rig.limiter.admit(chains[2], demand())
    refusal = refused(rig.limiter, chains[2], demand())
    assert refusal is not None
    assert refusal.hit == ("tenant", "rpm")


def test_a_refusal_leaves_every_counter_as_it_was(rig: Rig) -> None:
    above = (
        scope(ScopeKind.TEAM, "ml", limits=ROOMY, budgets=month(10**9), tenant="acme"),
        scope(ScopeKind.TENANT, "acme", limits=Limits(parallel=1)),
    )
    chain = chain_of(key(limits=ROOMY, team="ml"), *above)
    held = rig.limiter.admit(chain, demand(10, output=5, worst=30))
    before = raw_rows(rig.counters)
    for seconds in (0.0, 10.0, 60.0, 86_400.0):
        rig.clock.at = NOON + seconds
        assert refused(rig.limiter, chain, demand(10, worst=30)) is not None
        assert raw_rows(rig.counters) == before
    rig.clock.at = NOON
    held.release()
    for place in range(3):
        assert figures(rig.counters, chain, place, NOON) == Figures(0, 0, 0, 0, 0, 0, 0, 0)


def test_settling_corrects_the_estimate(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(tpm=1000), budgets=month(10**6)))
    held = rig.limiter.admit(chain, demand(100, output=300, worst=5000))
    assert figures(rig.counters, chain, 0, NOON) == Figures(1, 400, 0, 0, 0, 0, 1, 5000)
    held.settle(150, 70)
    assert figures(rig.counters, chain, 0, NOON) == Figures(1, 150, 0, 0, 70, 70, 0, 0)
    held.settle(999, 999)
    held.release()
    assert figures(rig.counters, chain, 0, NOON) == Figures(1, 150, 0, 0, 70, 70, 0, 0)


def test_surplus_goes_back_to_its_own_minute_and_excess_into_this_one(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(tpm=10_000)))
    less, more, old = (rig.limiter.admit(chain, demand(100)) for _ in range(3))
    rig.clock.at += 60
    less.settle(40, 0)
    more.settle(130, 0)
    assert figures(rig.counters, chain, 0, rig.clock.at) == Figures(0, 30, 3, 240, 0, 0, 1, 0)
    rig.clock.at += 60
    old.settle(40, 0)
    assert figures(rig.counters, chain, 0, rig.clock.at) == Figures(0, 0, 0, 30, 0, 0, 0, 0)


def test_tokens_that_never_fit_are_told_what_would(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(tpm=1000)))
    refusal = refused(rig.limiter, chain, demand(100, output=4000))
    assert refusal is not None
    assert (refusal.type, refusal.hit, refusal.retry_after_s) == ("tokens", ("key", "tpm"), None)
    assert "max_tokens of at most 900 would fit" in refusal.message
    assert ("x-should-retry", "false") in refusal.headers
    rig.limiter.admit(chain, demand(100, output=900))


def test_a_guess_at_the_answer_refuses_nobody_for_ever(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(tpm=50)))
    held = rig.limiter.admit(chain, demand(10, output=256, asked=False))
    assert figures(rig.counters, chain, 0, NOON).tokens == 50
    held.settle(20, 0)
    refusal = refused(rig.limiter, chain, demand(10, output=256, asked=False))
    assert refusal is not None
    assert refusal.retry_after_s is not None


def test_at_once(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(parallel=2)))
    first, _ = rig.limiter.admit(chain, demand()), rig.limiter.admit(chain, demand())
    refusal = refused(rig.limiter, chain, demand())
    assert refusal is not None
    assert (refusal.hit, refusal.retry_after_s) == (("key", "parallel"), 1.0)
    first.settle(1, 0)
    rig.limiter.admit(chain, demand())
    assert refused(rig.limiter, chain, demand()) is not None


@pytest.mark.parametrize("limits", [Limits(rpm=0), Limits(tpm=0), Limits(parallel=0)])
def test_zero_refuses_everything(rig: Rig, limits: Limits) -> None:
    refusal = refused(rig.limiter, chain_of(key(limits=limits)), demand(1))
    assert refusal is not None
    assert refusal.status == 429
    assert ("x-should-retry", "false") in refusal.headers
    assert "is 0" in refusal.message
    assert "might fit" not in refusal.message


@pytest.mark.parametrize(("amount", "words"), [(0, "0.00 a month"), (99, "might fit")])
def test_what_no_period_has_money_for_is_not_told_to_come_back(rig: Rig, amount: int, words: str) -> None:
    refusal = refused(rig.limiter, chain_of(key(budgets=month(amount))), demand(worst=100))
    assert refusal is not None
    assert (refusal.code, refusal.retry_after_s) == ("insufficient_quota", None)
    assert ("x-should-retry", "false") in refusal.headers
    assert words in refusal.message
    assert "anew" not in refusal.message


def test_a_budget_is_never_exceeded_by_requests_at_once(rig: Rig) -> None:
    spent = Spending(day=day_number(NOON), day_micros=990, month=month_number(NOON), month_micros=990)
    chain = chain_of(key(budgets=month(1000), spent=spent))
    held = [rig.limiter.admit(chain, demand(worst=3)) for _ in range(3)]
    for _ in range(97):
        with pytest.raises(Refusal) as refusal:
            rig.limiter.admit(chain, demand(worst=3))
        assert (refusal.value.code, refusal.value.retry_after_s) == ("insufficient_quota", 1.0)
    for reservation in held:
        reservation.settle(1, 3)
    assert figures(rig.counters, chain, 0, NOON).month_micros == 999


def test_a_spent_budget_says_when_it_begins_anew(rig: Rig) -> None:
    spent = Spending(month=month_number(NOON), month_micros=50_000_000)
    chain = chain_of(key(budgets=month(50_000_000), spent=spent))
    refusal = refused(rig.limiter, chain, demand(worst=1))
    assert refusal is not None
    assert (refusal.status, refusal.type, refusal.code) == (429, "insufficient_quota", "insufficient_quota")
    assert refusal.hit == ("key", "budget")
    assert "50.00 a month" in refusal.message
    assert "2030-02-01 00:00 UTC" in refusal.message
    assert refusal.retry_after_s == 31 * 86_400 - 43_200
    assert refused(rig.limiter, chain, demand(worst=0)) is None, "what costs nothing needs no budget"
    rig.clock.at += refusal.retry_after_s
    assert refused(rig.limiter, chain, demand(worst=1)) is None


def test_the_day_and_the_month_are_counted_apart(rig: Rig) -> None:
    budgets = (Budget(amount_micros=100, period=Period.DAY), Budget(amount_micros=250, period=Period.MONTH))
    chain = chain_of(key(budgets=budgets))
    for _ in range(2):
        rig.limiter.admit(chain, demand(worst=100)).settle(0, 100)
        refusal = refused(rig.limiter, chain, demand(worst=1))
        assert refusal is not None
        assert "a day" in refusal.message
        rig.clock.at += 86_400
    rig.limiter.admit(chain, demand(worst=50)).settle(0, 50)
    refusal = refused(rig.limiter, chain, demand(worst=1))
    assert refusal is not None
    assert "a month" in refusal.message, "both are spent; the month keeps it out longer"


def test_what_the_store_says_raises_a_row_and_never_lowers_it(rig: Rig) -> None:
    """S128, S167."""
    day, this_month = day_number(NOON), month_number(NOON)

    def heard(micros: int) -> Spending:
        return Spending(day=day, day_micros=micros, month=this_month, month_micros=micros)

    first = chain_of(key(budgets=month(1000), spent=heard(100)))
    rig.limiter.admit(first, demand(worst=10)).settle(0, 10)
    assert figures(rig.counters, first, 0, NOON).month_micros == 110
    for said, right in ((50, 111), (700, 701), (400, 702)):
        chain = chain_of(key(budgets=month(1000), spent=heard(said)))
        rig.limiter.admit(chain, demand(worst=1)).settle(0, 1)
        assert figures(rig.counters, chain, 0, NOON).month_micros == right


def test_a_limit_that_changes_keeps_what_was_counted(rig: Rig) -> None:
    rig.limiter.admit(chain_of(key(limits=Limits(rpm=100))), demand())
    lowered = chain_of(key(limits=Limits(rpm=1)))
    assert refused(rig.limiter, lowered, demand()) is not None


def test_headers_name_the_nearest_limit(rig: Rig) -> None:
    team = scope(ScopeKind.TEAM, "ml", limits=Limits(rpm=10, tpm=100_000))
    chain = chain_of(key(limits=Limits(rpm=60, tpm=1000), team="ml"), team)
    held = rig.limiter.admit(chain, demand(100, output=50))
    headers = dict(line.split(": ") for line in held.head_lines.decode().split("\r\n") if line)
    assert headers["x-ratelimit-limit-requests"] == "10"
    assert headers["x-ratelimit-remaining-requests"] == "9"
    assert headers["x-ratelimit-reset-requests"] == "120s"
    assert headers["x-ratelimit-limit-tokens"] == "1000"
    assert headers["x-ratelimit-remaining-tokens"] == "850"


def test_a_refusal_as_it_is_sent(rig: Rig) -> None:
    chain = chain_of(key(limits=Limits(rpm=1)))
    rig.limiter.admit(chain, demand())
    refusal = refused(rig.limiter, chain, demand())
    assert refusal is not None
    head = response_of(refusal).split(b"\r\n\r\n")[0].decode().lower().split("\r\n")
    assert "retry-after: 120" in head
    assert "x-ratelimit-limit-requests: 1" in head
    assert "x-ratelimit-remaining-requests: 0" in head
    assert "x-should-retry: false" in head
    assert "k1" in refusal.message


def test_whoever_is_kept_out_by_several_is_told_the_longest(rig: Rig) -> None:
    team = scope(ScopeKind.TEAM, "ml", limits=Limits(parallel=1))
    chain = chain_of(key(limits=Limits(rpm=1), team="ml"), team)
    rig.limiter.admit(chain, demand())
    refusal = refused(rig.limiter, chain, demand())
    assert refusal is not None
    assert refusal.hit == ("key", "rpm")


def test_a_full_table_refuses_what_it_cannot_count() -> None:
    limiter = Limiter(Counters.private(rows=2), clock=Clock())
    for name in "ab":
        limiter.admit(chain_of(key(name, limits=ROOMY)), demand())
    refusal = refused(limiter, chain_of(key("c", limits=ROOMY)), demand())
    assert refusal is not None
    assert refusal.status == 503


def test_figures_beyond_any_end_nothing(rig: Rig) -> None:
    chain = chain_of(key(limits=ROOMY))
    held = rig.limiter.admit(chain, demand())
    held.settle(0, 2**63)
    rig.limiter.admit(chain, demand()).settle(1, 1)
