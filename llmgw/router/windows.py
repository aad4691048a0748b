"""Sliding-window arithmetic, pure: a count is this minute's and as much of the last minute's as is still in view.

At `elapsed` seconds into a minute, `last` minute's count weighs (60 - elapsed) / 60. Without new charges a count only
falls, so what is let in at a moment is let in at any later one too.
"""

from typing import NamedTuple

MINUTE_S = 60.0


class Window(NamedTuple):
    """Requests and tokens of `minute` (minutes since the epoch) and of the one before it."""

    minute: int
    requests: int
    tokens: int
    last_requests: int
    last_tokens: int


def rolled(window: Window, minute: int) -> Window:
    """The window as seen from `minute`.

    A clock that is one minute behind another router's sees the row's own minute; one set back further keeps what was
    counted as if it were of now, so that setting clocks lets nobody in.
    """
    ahead = minute - window.minute
    if ahead == 0 or ahead == -1:
        return window
    if ahead == 1:
        return Window(minute, 0, 0, window.requests, window.tokens)
    if ahead > 1:
        return Window(minute, 0, 0, 0, 0)
    return window._replace(minute=minute)


def used(count: int, last: int, elapsed: float) -> float:
    """What counts `elapsed` seconds into the minute."""
    return count + last * (MINUTE_S - elapsed) / MINUTE_S


def fits(count: int, last: int, elapsed: float, amount: int, limit: int) -> bool:
    """Whether `amount` more stay within `limit`."""
    return MINUTE_S * (count + amount - limit) + last * (MINUTE_S - elapsed) <= 0.0


def wait_s(count: int, last: int, elapsed: float, amount: int, limit: int) -> float | None:
    """Seconds until `amount` more fit if nothing else is charged; none when they never do."""
    if amount > limit:
        return None
    if fits(count, last, elapsed, amount, limit):
        return 0.0
    spare = limit - amount - count
    if spare >= 0:
        # Within this minute, once enough of the last is out of view.
        return max(0.0, MINUTE_S * (last - spare) / last - elapsed)
    # In the next, of which this minute is then the last.
    spare = limit - amount
    return MINUTE_S - elapsed + max(0.0, MINUTE_S * (count - spare) / count)


def clear_s(count: int, last: int, elapsed: float) -> float:
    """Seconds until nothing counts any more if nothing else is charged."""
    if count:
        return 2 * MINUTE_S - elapsed
    return MINUTE_S - elapsed if last else 0.0


def take_back(window: Window, minute: int, requests: int, tokens: int) -> Window:
    """The window without what was charged to `minute`, as far as that is in view and there."""
    now, counted, tokens_counted, last, last_tokens = window
    if minute == now:
        return Window(now, max(0, counted - requests), max(0, tokens_counted - tokens), last, last_tokens)
    if minute == now - 1:
        return Window(now, counted, tokens_counted, max(0, last - requests), max(0, last_tokens - tokens))
    return window


class Spent(NamedTuple):
    """Micros spent in a day and a month, which are numbers as in `core.limits`."""

    day_micros: int
    day: int
    month_micros: int
    month: int


def begun_anew(spent: Spent, day: int, month: int) -> Spent:
    """What is spent as of `day` and `month`: a period that is over counts nothing.

    A clock that is a day ahead of this one wrote its own day: that is kept, else each of the two would undo the other.
    """
    if spent.day == day + 1:
        return spent
    return Spent(
        spent.day_micros if spent.day == day else 0,
        day,
        spent.month_micros if spent.month == month else 0,
        month,
    )


def raised(spent: Spent, day_micros: int, day: int, month_micros: int, month: int) -> Spent:
    """What is spent after hearing that it was so much: raised, never lowered, each figure only in its own period."""
    return Spent(
        max(spent.day_micros, day_micros) if day == spent.day else spent.day_micros,
        spent.day,
        max(spent.month_micros, month_micros) if month == spent.month else spent.month_micros,
        spent.month,
    )
