"""`ctl watch` and `ctl history`: what changes as it changes, and what traffic was lately."""

from collections.abc import Sequence
from datetime import UTC, datetime

from llmgw.api.problems import Usage
from llmgw.api.watch import MAX_INTERVAL_MS, MIN_INTERVAL_MS, TOPICS, Subscription
from llmgw.cli.context import Context, Handler

ROW_S = 60.0
"""Seconds a line of `ctl history` spans."""


def watch(ctx: Context) -> None:
    """Messages of the live feed, one a line, until interrupted."""
    topics = _names(ctx.args.topics)
    unknown = [topic for topic in topics or () if topic not in TOPICS]
    if unknown:
        raise Usage(f"--topics {unknown[0][:40]!r} is not one of {', '.join(TOPICS)}")
    interval_ms = MIN_INTERVAL_MS if ctx.args.interval_ms is None else ctx.args.interval_ms
    if not MIN_INTERVAL_MS <= interval_ms <= MAX_INTERVAL_MS:
        raise Usage(f"--interval-ms {interval_ms} is outside {MIN_INTERVAL_MS} to {MAX_INTERVAL_MS}")
    subscription = Subscription(topics=topics or TOPICS, nodes=_names(ctx.args.nodes), interval_ms=interval_ms)
    for message in ctx.client.watch(subscription):
        ctx.out.document_line(message)


def history(ctx: Context) -> None:
    """A line a minute, oldest first."""
    answer = ctx.client.history(ctx.args.model)
    if ctx.out.json:
        ctx.out.document(answer)
        return
    per_row = max(1, round(ROW_S / answer.step_s))
    rows: list[list[str]] = []
    for begin in range(0, len(answer.requests_per_s), per_row):
        part = slice(begin, begin + per_row)
        ends = answer.end - answer.step_s * (len(answer.requests_per_s) - begin - per_row)
        p95 = [value for value in answer.first_token_p95_ms[part] if value is not None]
        rows.append(
            [
                datetime.fromtimestamp(ends, UTC).strftime("%H:%M:%S"),
                f"{_mean(answer.requests_per_s[part]):.2f}",
                f"{_mean(answer.errors_per_s[part]):.2f}",
                f"{_mean(answer.input_tokens_per_s[part]):.0f}",
                f"{_mean(answer.output_tokens_per_s[part]):.0f}",
                f"{max(p95):.0f} ms" if p95 else "-",
                str(max(answer.open_requests[part], default=0)),
            ]
        )
    ctx.out.table(["UTC", "REQ/S", "ERR/S", "IN TOK/S", "OUT TOK/S", "FIRST TOKEN P95", "OPEN"], rows)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def _names(given: list[str] | None) -> tuple[str, ...] | None:
    if given is None:
        return None
    return tuple(part.strip() for text in given for part in text.split(",") if part.strip())


HANDLERS: dict[tuple[str, ...], Handler] = {("watch",): watch, ("history",): history}
