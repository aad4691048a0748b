"""`ctl series`: figures over time, a line of bars each, or a row a point."""

import time
from collections.abc import Sequence
from datetime import UTC, datetime

from llmgw.api.problems import Usage
from llmgw.api.series import Series, SeriesAnswer
from llmgw.cli.context import Context, Handler
from llmgw.cli.spans import seconds_of

BARS = 48
"""Bars of a line."""
_HEIGHTS = "▁▂▃▄▅▆▇█"


def series(ctx: Context) -> None:
    """What was asked for, over the span that ends now."""
    args = ctx.args
    now = time.time()
    answer = ctx.client.series(
        _names(args.figures),
        _names(args.of or ["cluster"]),
        start=now - _seconds("--last", args.last or "1h"),
        step_s=None if args.step is None else _seconds("--step", args.step),
    )
    if ctx.out.json:
        ctx.out.document(answer)
        return
    if answer.note:
        ctx.out.say(answer.note)
    if args.out == "table":
        _table(ctx, answer)
    else:
        _sparks(ctx, answer)
    if answer.source == "own" and answer.since is not None and answer.since > answer.start + answer.step_s:
        ctx.out.say(f"this server has figures since {_clock(answer.since)} UTC")


def _sparks(ctx: Context, answer: SeriesAnswer) -> None:
    rows = [
        [each.of, f"{each.figure} {each.unit}".strip(), bars(each.points, BARS), *_figures(each)]
        for each in answer.series
    ]
    ctx.out.table(["OF", "FIGURE", "", "LEAST", "MEAN", "MOST", "NOW"], rows)


def _figures(each: Series) -> list[str]:
    known = [value for value in each.points if value is not None]
    if not known:
        return ["-"] * 4
    return [_number(value) for value in (min(known), sum(known) / len(known), max(known))] + [_number(each.points[-1])]


def _table(ctx: Context, answer: SeriesAnswer) -> None:
    headers = ["UTC", *(f"{each.figure.upper()} {each.unit} {each.of}" for each in answer.series)]
    rows = [
        [_clock(answer.start + place * answer.step_s), *(_number(value) for value in values)]
        for place, values in enumerate(zip(*(each.points for each in answer.series), strict=True))
    ]
    ctx.out.table(headers, rows)


def bars(points: Sequence[float | None], count: int) -> str:
    """At most `count` bars, each the mean of its part, from zero to the highest; a space where nothing is known."""
    each = max(1, -(-len(points) // count))
    parts = [[v for v in points[at : at + each] if v is not None] for at in range(0, len(points), each)]
    means = [sum(part) / len(part) if part else None for part in parts]
    most = max((mean for mean in means if mean is not None), default=0.0)
    return "".join(
        " " if mean is None else _HEIGHTS[min(7, int(8 * max(0.0, mean) / most)) if most > 0 else 0] for mean in means
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%m-%d %H:%M:%S")


def _names(given: Sequence[str]) -> tuple[str, ...]:
    return tuple(part for text in given for part in text.split(",") if part)


def _seconds(option: str, text: str) -> float:
    seconds = seconds_of(text)
    if not seconds:
        raise Usage(f"{option} {text[:40]!r} is not like 30s, 15m, 24h or 7d")
    return float(seconds)


HANDLERS: dict[tuple[str, ...], Handler] = {("series",): series}
