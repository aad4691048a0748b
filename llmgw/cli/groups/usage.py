"""`ctl usage`: requests, tokens and cost, summed over UTC days."""

from datetime import date

import msgspec

from llmgw.api.problems import Usage
from llmgw.api.types import UsageInfo
from llmgw.cli.context import Context, Handler
from llmgw.core.money import money

_COLUMNS = {
    "key_model": ("key", "key_id", "model"),
    "key": ("key", "key_id"),
    "team": ("team",),
    "tenant": ("tenant",),
    "model": ("model",),
}
"""What a row is of, by what rows are summed by."""
_FIGURES = ("requests", "input_tokens", "cached_tokens", "output_tokens", "cost_micros", "failed")


def usage(ctx: Context) -> None:
    """Sums by key and model, or by what --by names."""
    args = ctx.args
    by = args.by or "key_model"
    rows = ctx.client.usage(by, since=_day("--since", args.since), until=_day("--until", args.until))
    columns = _COLUMNS[by]
    if ctx.out.json:
        ctx.out.document([_document(row, columns) for row in rows])
        return
    headers = [name.removeprefix("key_").upper() for name in columns]
    headers += ["REQUESTS", "INPUT", "CACHED", "OUTPUT", "COST", "FAILED"]
    ctx.out.table(headers, [_row(row, columns) for row in rows], empty="nothing was used in that time")


def _document(row: UsageInfo, columns: tuple[str, ...]) -> dict[str, object]:
    """Key and model always, empty where they are summed over; then what the row is of, and its figures."""
    fields = msgspec.structs.asdict(row)
    return {name: fields[name] for name in ("key_id", "key", "model", *columns, *_FIGURES)}


def _row(row: UsageInfo, columns: tuple[str, ...]) -> list[str]:
    return [
        *(getattr(row, name) or "-" for name in columns),
        str(row.requests),
        str(row.input_tokens),
        str(row.cached_tokens),
        str(row.output_tokens),
        money(row.cost_micros),
        str(row.failed),
    ]


def _day(option: str, text: str | None) -> date | None:
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise Usage(f"{option}: {text[:40]!r} is not a day: write it as 2026-01-31") from error


HANDLERS: dict[tuple[str, ...], Handler] = {("usage",): usage}
