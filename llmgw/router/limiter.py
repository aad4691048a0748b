"""Whether a request is let in, and what it is charged: all its scopes at once, or none.

`admit` charges an estimate to every scope, or raises and leaves each as it was; `Reservation.settle` corrects it by
what was used, `Reservation.release` takes it back whole.
"""

import time
from collections.abc import Callable

from llmgw.core.limits import Period, period_end
from llmgw.router import slots
from llmgw.router.counters import Counters, Hash
from llmgw.router.refusals import (
    Shortfall,
    Standing,
    out_of_money,
    out_of_requests,
    out_of_tokens,
    rate_lines,
    refusal_of,
    table_full,
    too_many_open,
)
from llmgw.router.rows import Counts, Moment, Row
from llmgw.router.scopes import Chain, Demand, Scope
from llmgw.router.windows import Window, fits, take_back, wait_s

MAX_TURNS = 5
"""Times a section is begun anew because its rows were given to others, or it was gone past, meanwhile."""
REAP_EVERY_S = 0.25
"""Before a refusal that may be a dead router's fault the dead are looked for, but not more often than this."""
MAX_ROWS_KNOWN = 20_000
"""Rows whose place is remembered; past it all are forgotten and looked up again."""

_Charge = tuple[Scope, Row, Counts]


class Bound:
    """A chain's scopes with their rows, in the order in which rows are locked."""

    __slots__ = ("bases", "legs", "tightest_tpm")

    def __init__(self, legs: list[tuple[Scope, Row]]) -> None:
        legs.sort(key=lambda leg: leg[1].base)
        self.legs = legs
        self.bases = tuple(row.base for _, row in legs if row.counters.shared)
        self.tightest_tpm = min((scope.tpm for scope, _ in legs if scope.tpm is not None), default=None)

    def tokens_of(self, demand: Demand) -> int:
        """Tokens to charge: a request that named no number is not refused for what we guess that it might write."""
        tokens = demand.input_tokens + demand.output_tokens
        if not demand.asked and self.tightest_tpm is not None and tokens > self.tightest_tpm:
            return max(demand.input_tokens, self.tightest_tpm)
        return tokens


class Reservation:
    """What a request was charged. The first call of `settle` or `release` counts; neither raises."""

    __slots__ = ("_bases", "_charges", "_elapsed", "_limiter", "_tokens", "_worst")

    def __init__(
        self,
        limiter: "Limiter",
        charges: list[_Charge],
        bases: tuple[int, ...],
        elapsed: float,
        tokens: int,
        worst: int,
    ) -> None:
        self._limiter: Limiter | None = limiter
        self._charges = charges
        self._bases = bases
        self._elapsed = elapsed
        self._tokens = tokens
        self._worst = worst

    @property
    def head_lines(self) -> bytes:
        """`x-ratelimit-*` for the head of the answer, as of the moment the request was let in."""
        return rate_lines(self._charges, self._elapsed)

    def settle(self, tokens: int, cost_micros: int) -> None:
        """The request ended and took this much."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter.close(self._charges, self._bases, 0, tokens - self._tokens, cost_micros, self._worst)

    def release(self) -> None:
        """The request was refused after all: nothing is left of it."""
        limiter, self._limiter = self._limiter, None
        if limiter is not None:
            limiter.close(self._charges, self._bases, 1, -self._tokens, 0, self._worst)


class Limiter:
    """Admits requests against a machine's counters. Single-threaded; waits only for a row's lock, and not for long."""

    def __init__(self, counters: Counters | None = None, *, clock: Callable[[], float] = time.time) -> None:
        """Count in `counters`, or in this process alone; `clock` is Unix seconds."""
        self._counters = counters if counters is not None else Counters.private()
        self._overflow = None if self._counters.shared else self._counters
        self._clock = clock
        self._moment = Moment()
        self._rows: dict[Hash, Row] = {}
        self._reaped_at = float("-inf")

    def admit(self, chain: Chain, demand: Demand) -> Reservation:
        """Charge every scope of `chain`; raises Refusal (429) when one has no room, (503) when none can be counted."""
        counters, moment = self._counters, self._moment
        for turn in range(MAX_TURNS):
            moment.move(self._clock())
            bound = chain.bound if turn == 0 and isinstance(chain.bound, Bound) else self._bind(chain)
            tokens = bound.tokens_of(demand)
            shortfalls: list[Shortfall] = []
            counters.lock(bound.bases)
            try:
                charges = self._weigh(bound, tokens, demand, shortfalls)
                if charges is not None and not shortfalls:
                    worst = demand.worst_micros
                    for scope, row, counts in charges:
                        row.budgeted = scope.budgeted
                        row.write(counts, moment, 1, worst)
                        row.heard = scope.spent
                    return Reservation(self, charges, bound.bases, moment.elapsed, tokens, worst)
            finally:
                counters.unlock()
            if charges is not None and not self._reap(shortfalls):
                raise refusal_of(shortfalls)
        raise table_full()

    def close(
        self,
        charges: list[_Charge],
        bases: tuple[int, ...],
        requests_back: int,
        more_tokens: int,
        cost_micros: int,
        worst_micros: int,
    ) -> None:
        """End what `admit` charged; `more_tokens` is what was used beyond the estimate, negative if it was less."""
        moment = self._moment
        moment.move(self._clock())
        self._counters.lock(bases)
        try:
            for _, row, charged in charges:
                for _ in range(MAX_TURNS):
                    loaded = row.load(moment)
                    if loaded is None:
                        break
                    requests, tokens, last, last_tokens, minute, day_micros, day, month_micros, month = loaded
                    if more_tokens >= 0 and not requests_back:
                        tokens += more_tokens
                    elif charged[4] == minute:
                        requests = requests - requests_back if requests > requests_back else 0
                        tokens = tokens + more_tokens if tokens > -more_tokens else 0
                    else:
                        window = Window(minute, requests, tokens, last, last_tokens)
                        window = take_back(window, charged[4], requests_back, -more_tokens)
                        _, requests, tokens, last, last_tokens = window
                    day_micros += cost_micros
                    month_micros += cost_micros
                    counts = requests, tokens, last, last_tokens, minute, day_micros, day, month_micros, month
                    if row.undisturbed:
                        row.write(counts, moment, -1, -worst_micros)
                        break
        finally:
            self._counters.unlock()

    def _weigh(self, bound: Bound, tokens: int, demand: Demand, shortfalls: list[Shortfall]) -> list[_Charge] | None:
        """The counts with the request in them, and what it does not fit under; none when rows must be found again."""
        moment = self._moment
        charges: list[_Charge] = []
        for scope, row in bound.legs:
            loaded = row.load(moment)
            if loaded is None:
                return None
            if row.heard is not scope.spent:
                loaded = row.catch_up(loaded, scope.spent)
            requests, so_far, last, last_tokens, minute, day_micros, day, month_micros, month = loaded
            # A row that a clock ahead of this one rolled already is at the beginning of its minute.
            elapsed = moment.elapsed if minute == moment.minute else 0.0
            rpm, tpm, parallel = scope.rpm, scope.tpm, scope.parallel
            if rpm is not None and not fits(requests, last, elapsed, 1, rpm):
                wait = wait_s(requests, last, elapsed, 1, rpm)
                shortfalls.append(out_of_requests(standing_of(scope, loaded, elapsed), rpm, wait))
            if tpm is not None and not fits(so_far, last_tokens, elapsed, tokens, tpm):
                wait = wait_s(so_far, last_tokens, elapsed, tokens, tpm)
                shortfalls.append(out_of_tokens(standing_of(scope, loaded, elapsed), tpm, wait, tokens, demand))
            if parallel is not None and (open_requests := row.open_requests) >= parallel:
                shortfalls.append(too_many_open(standing_of(scope, loaded, elapsed), parallel, open_requests))
            if scope.budgeted and demand.worst_micros:
                reserved = row.reserved_micros
                most = demand.worst_micros + reserved
                if scope.day_budget is not None and day_micros + most > scope.day_budget:
                    standing = standing_of(scope, loaded, elapsed)
                    shortfalls.append(_out_of_money(standing, Period.DAY, day_micros, reserved, demand, moment))
                if scope.month_budget is not None and month_micros + most > scope.month_budget:
                    standing = standing_of(scope, loaded, elapsed)
                    shortfalls.append(_out_of_money(standing, Period.MONTH, month_micros, reserved, demand, moment))
            counts = requests + 1, so_far + tokens, last, last_tokens, minute, day_micros, day, month_micros, month
            charges.append((scope, row, counts))
        for _, row in bound.legs:
            if not row.undisturbed:
                return None
        return charges

    def _bind(self, chain: Chain) -> Bound:
        """Find the rows of a chain, or give it some; raises Refusal (503)."""
        legs = []
        for scope in chain.scopes:
            row = self._rows.get(scope.hash)
            if row is None or not row.ours:
                row = self._find(scope, row.seen if row is not None else None)
            legs.append((scope, row))
        chain.bound = bound = Bound(legs)
        return bound

    def _find(self, scope: Scope, seen: Counts | None) -> Row:
        now = self._moment.seconds
        counters = self._counters
        base = counters.find(scope.hash, budgeted=scope.budgeted, now=now)
        if base is None:
            # Better counted here alone than not at all.
            if self._overflow is None:
                self._overflow = Counters.private()
            counters = self._overflow
            base = counters.find(scope.hash, budgeted=scope.budgeted, now=now)
        if base is None:
            raise table_full()
        if len(self._rows) >= MAX_ROWS_KNOWN:
            self._rows = {}
        row = self._rows[scope.hash] = Row(counters, base, scope.hash, seen)
        return row

    def _reap(self, shortfalls: list[Shortfall]) -> bool:
        """Whether dead routers were found that may have held what the request did not get."""
        counters = self._counters
        if not counters.shared or not any(s.limit in ("parallel", "budget") for s in shortfalls):
            return False
        now = time.monotonic()
        if now - self._reaped_at < REAP_EVERY_S:
            return False
        self._reaped_at = now
        return slots.reap(counters) > 0


def standing_of(scope: Scope, counts: Counts, elapsed: float) -> Standing:
    """The counts as refusals and headers speak of them."""
    requests, tokens, last, last_tokens, minute = counts[:5]
    return Standing(scope, Window(minute, requests, tokens, last, last_tokens), elapsed)


def _out_of_money(
    standing: Standing, period: Period, spent: int, reserved: int, demand: Demand, moment: Moment
) -> Shortfall:
    amount = standing.scope.day_budget if period is Period.DAY else standing.scope.month_budget
    ends_at = period_end(period, moment.at)
    return out_of_money(standing, period, amount or 0, spent, reserved, demand.worst_micros, ends_at, moment.at)
