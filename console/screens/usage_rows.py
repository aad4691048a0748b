"""Usage as the server sums it: the spans of time one may ask for, the columns it is shown in, and sums of it."""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime

import msgspec

from console.figures import count, money
from console.signs import signs
from console.state.scopes import Row
from console.widgets.columns import Cell, Column, Seen
from llmgw.api.types import UsageInfo
from llmgw.api.watch import KeyRow

SPANS = ("this month", "today", "ever")
"""Spans of time, in the order a key walks them; days and months are UTC's."""
NO_USE = UsageInfo()


def since(span: str, now: float) -> date | None:
    """The first UTC day of a span; none is the beginning."""
    today = datetime.fromtimestamp(now, UTC).date()
    return {"today": today, "this month": today.replace(day=1)}.get(span)


def next_of(choices: tuple[str, ...], chosen: str) -> str:
    """The choice after `chosen`, the first after the last."""
    return choices[(choices.index(chosen) + 1) % len(choices)]


def total(rows: Iterable[UsageInfo], **names: str) -> UsageInfo:
    """The sum of `rows`, under these names."""
    found = list(rows)
    return UsageInfo(
        requests=sum(row.requests for row in found),
        input_tokens=sum(row.input_tokens for row in found),
        cached_tokens=sum(row.cached_tokens for row in found),
        output_tokens=sum(row.output_tokens for row in found),
        cost_micros=sum(row.cost_micros for row in found),
        failed=sum(row.failed for row in found),
        **names,
    )


def by_model(rows: Iterable[UsageInfo], keys: Iterable[str]) -> dict[str, UsageInfo]:
    """What these keys used of each model."""
    wanted = frozenset(keys)
    parts: dict[str, list[UsageInfo]] = {}
    for row in rows:
        if row.key_id in wanted:
            parts.setdefault(row.model, []).append(row)
    return {model: total(some, model=model) for model, some in parts.items()}


def in_words(used: UsageInfo) -> str:
    """`1,204 requests, 12.40 spent`."""
    requests = f"{used.requests:,} request{'' if used.requests == 1 else 's'}"
    return f"{requests}, {money(used.cost_micros)} spent"


def spent_now(row: Row) -> str:
    """`1.20 today, 12.40 this month`."""
    return f"{money(row.spent_day_micros)} today, {money(row.spent_month_micros)} this month"


def columns(title: str, name: Callable[[UsageInfo, Seen], Cell]) -> tuple[Column[UsageInfo], ...]:
    """Columns of usage, the first of which names what it is of."""
    return (
        Column(
            key="name",
            title=title,
            width=20,
            grow=3,
            most=60,
            cell=name,
            sort=lambda row, seen: Column.spans_of(name(row, seen))[0][0].casefold(),
        ),
        _figure("cost", "cost", 10, 0, lambda row: row.cost_micros, lambda row: money(row.cost_micros)),
        _figure("requests", "requests", 8, 0, lambda row: row.requests),
        Column(
            key="failed",
            title="failed",
            width=7,
            align="right",
            descending=True,
            priority=1,
            cell=lambda row, _: (count(row.failed), "warn") if row.failed else (signs().dash, "dim"),
            sort=lambda row, _: row.failed,
        ),
        _figure("input", "tok in", 7, 2, lambda row: row.input_tokens),
        _figure("cached", "cached", 7, 4, lambda row: row.cached_tokens),
        _figure("output", "tok out", 7, 3, lambda row: row.output_tokens),
    )


def _figure(
    key: str,
    title: str,
    width: int,
    priority: int,
    value: Callable[[UsageInfo], int],
    shown: Callable[[UsageInfo], str] | None = None,
) -> Column[UsageInfo]:
    write = shown or (lambda row: count(value(row)))
    return Column(
        key=key,
        title=title,
        width=width,
        align="right",
        descending=True,
        priority=priority,
        cell=lambda row, _: (write(row), ""),
        sort=lambda row, _: value(row),
    )


def facts(row: UsageInfo) -> dict[str, str]:
    """What `/model:qwen` looks at."""
    named = msgspec.structs.asdict(row)
    return {name: named[name] for name in ("model", "team", "tenant")}


def key_name(key_id: str, rows: Mapping[str, KeyRow]) -> str:
    """A key's name, its id where it is not known any more."""
    row = rows.get(key_id)
    return key_id if row is None else row.name
