"""The 429s of limits and budgets: whose limit, its figure, what is left of it, and when to come back."""

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from llmgw.core.limits import Period, ScopeKind
from llmgw.core.money import money
from llmgw.router.ports import Refusal
from llmgw.router.scopes import Demand, Scope
from llmgw.router.windows import MINUTE_S, Window, clear_s, used

SOON_S = 1.0
"""When to come back if it takes another request's end: nobody knows when that is."""
CLIENTS_WAIT_S = 60.0
"""Clients told to wait longer come back sooner on their own: they are told that it is of no use."""


Counts = Sequence[int]
"""A row's requests, tokens, and the same of the last minute; more may follow."""


class Standing(NamedTuple):
    """A scope's row as it was when a request asked, `elapsed` seconds into the window's minute."""

    scope: Scope
    window: Window
    elapsed: float


class Shortfall(NamedTuple):
    """One limit that a request does not fit under."""

    standing: Standing
    limit: str
    """`rpm`, `tpm`, `parallel` or `budget`."""
    wait_s: float | None
    """Until it would fit; none is never."""
    message: str


Rate = tuple[str, int, int, int]
"""`requests` or `tokens`, the limit, what is left of it, and the seconds until nothing of it is used."""


Charge = tuple[Scope, object, Counts]
"""A scope and its row's counts with the request in them; what stands between is the limiter's."""


def rates(charges: Sequence[Charge], elapsed: float) -> list[Rate]:
    """The limit nearest to being reached, of requests and of tokens, where there are such limits."""
    view = (MINUTE_S - elapsed) / MINUTE_S
    found: list[Rate] = []
    for kind in (0, 1):
        least, nearest, count, last = math.inf, 0, 0, 0
        for scope, _, counts in charges:
            limit = scope.tpm if kind else scope.rpm
            if limit is not None:
                left = limit - counts[kind] - counts[kind + 2] * view
                if left < least:
                    least, nearest, count, last = left, limit, counts[kind], counts[kind + 2]
        if least < math.inf:
            left_whole = max(0, math.floor(least))
            reset_s = math.ceil(clear_s(count, last, elapsed))
            found.append(("tokens" if kind else "requests", nearest, left_whole, reset_s))
    return found


def rate_lines(charges: Sequence[Charge], elapsed: float) -> bytes:
    """`x-ratelimit-*` lines for the head of an answer."""
    lines = ""
    for what, limit, left, reset_s in rates(charges, elapsed):
        lines += (
            f"x-ratelimit-limit-{what}: {limit}\r\nx-ratelimit-remaining-{what}: {left}\r\n"
            f"x-ratelimit-reset-{what}: {reset_s}s\r\n"
        )
    return lines.encode()


def refusal_of(shortfalls: list[Shortfall]) -> Refusal:
    """The refusal for a request that does not fit, naming the limit that keeps it out longest."""
    worst = max(shortfalls, key=lambda shortfall: math.inf if shortfall.wait_s is None else shortfall.wait_s)
    headers: list[tuple[str, str]] = []
    scope, window, elapsed = worst.standing
    counts = (window.requests, window.tokens, window.last_requests, window.last_tokens)
    for what, limit, left, reset_s in rates([(scope, None, counts)], elapsed):
        headers.append((f"x-ratelimit-limit-{what}", str(limit)))
        headers.append((f"x-ratelimit-remaining-{what}", str(left)))
        headers.append((f"x-ratelimit-reset-{what}", f"{reset_s}s"))
    if worst.wait_s is None or worst.wait_s > CLIENTS_WAIT_S:
        headers.append(("x-should-retry", "false"))
    budget = worst.limit == "budget"
    refusal = Refusal(
        429,
        worst.message,
        type="insufficient_quota" if budget else "tokens" if worst.limit == "tpm" else "requests",
        code="insufficient_quota" if budget else "rate_limit_exceeded",
        retry_after_s=worst.wait_s,
        headers=headers,
    )
    refusal.hit = (str(scope.kind), worst.limit)
    return refusal


def table_full() -> Refusal:
    """There is no row left to count in, here or elsewhere: what cannot be counted cannot be limited."""
    return Refusal(
        503,
        "Too many keys with limits are in use at once to count for yours; try again shortly.",
        type="service_unavailable_error",
        code="counters_full",
        retry_after_s=5.0,
    )


def out_of_requests(standing: Standing, limit: int, wait_s: float | None) -> Shortfall:
    """Another request does not fit into the minute."""
    if wait_s is None:
        message = (
            f"The limit of {_who(standing.scope)} is {limit} requests a minute: none is let in until it is raised."
        )
    else:
        message = f"Rate limit of {_who(standing.scope)} reached: {limit} requests a minute, 0 left. {_again(wait_s)}"
    return Shortfall(standing, "rpm", wait_s, message)


def out_of_tokens(standing: Standing, limit: int, wait_s: float | None, tokens: int, demand: Demand) -> Shortfall:
    """The request's tokens do not fit into the minute, or into none."""
    who = _who(standing.scope)
    if limit <= 0:
        return Shortfall(standing, "tpm", None, f"The limit of {who} is 0 tokens a minute: none is let in.")
    needs = f"{tokens} tokens (about {demand.input_tokens} to read, up to {tokens - demand.input_tokens} to write)"
    if wait_s is None:
        most = (limit - demand.input_tokens) // demand.choices
        remedy = f"max_tokens of at most {most} would fit" if most > 0 else "a shorter prompt might fit"
        message = f"This request may take {needs}, and the limit of {who} is {limit} tokens a minute: {remedy}."
    else:
        window = standing.window
        left = _left(limit, window.tokens, window.last_tokens, standing.elapsed)
        message = (
            f"Rate limit of {who} reached: {limit} tokens a minute, {left} left, and this request may take {needs}. "
            f"{_again(wait_s)}"
        )
    return Shortfall(standing, "tpm", wait_s, message)


def too_many_open(standing: Standing, limit: int, open_requests: int) -> Shortfall:
    """As many requests are open as may be at once."""
    who = _who(standing.scope)
    if limit <= 0:
        return Shortfall(standing, "parallel", None, f"The limit of {who} is 0 requests at once: none is let in.")
    message = (
        f"Limit of {who} reached: {limit} requests at once, {open_requests} are open, 0 left. "
        "Try again when one has ended."
    )
    return Shortfall(standing, "parallel", SOON_S, message)


def out_of_money(
    standing: Standing, period: Period, amount: int, spent: int, reserved: int, worst: int, ends_at: float, now: float
) -> Shortfall:
    """What the request may cost is more than is left; all in micros, `ends_at` and `now` in Unix seconds."""
    who = _who(standing.scope)
    begin = datetime.fromtimestamp(ends_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    of = f"{money(amount)} a {period}"
    left = max(0, amount - spent)
    if amount <= 0:
        return Shortfall(standing, "budget", None, f"Budget of {who}: {of}, and this request costs something.")
    if worst > amount:
        message = f"Budget of {who}: {of}, and this request may cost {money(worst)}. A smaller max_tokens might fit."
        return Shortfall(standing, "budget", None, message)
    if left and spent + worst <= amount:
        message = (
            f"Budget of {who}: {of}, {money(left)} left, of which {money(reserved)} is reserved for requests in "
            f"progress; this one may cost {money(worst)}. Try again when they have ended."
        )
        return Shortfall(standing, "budget", SOON_S, message)
    if left:
        message = (
            f"Budget of {who}: {of}, {money(left)} left, and this request may cost {money(worst)}. "
            f"A smaller max_tokens might fit; the budget begins anew at {begin}."
        )
    else:
        message = f"Budget of {who} is spent: {of}, 0.00 left. It begins anew at {begin}."
    return Shortfall(standing, "budget", ends_at - now, message)


def _left(limit: int, count: int, last: int, elapsed: float) -> int:
    return max(0, math.floor(limit - used(count, last, elapsed)))


def _who(scope: Scope) -> str:
    if scope.kind is ScopeKind.KEY:
        return f"key {scope.name[:100]!r} ({scope.id})"
    return f"{scope.kind} {scope.id[:100]!r}"


def _again(wait_s: float) -> str:
    return f"Try again in {max(1, math.ceil(wait_s))} s."
