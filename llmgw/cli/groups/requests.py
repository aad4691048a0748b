"""`ctl logs --requests` and `ctl why`: requests a line each, and one request's story in sentences."""

import time
from collections import deque
from datetime import UTC, datetime

import msgspec

from llmgw.api.paths import MAX_TAIL_LINES
from llmgw.api.problems import Usage
from llmgw.api.request_types import RequestQuery
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import when
from llmgw.cli.groups.audit import parse_since
from llmgw.core import why
from llmgw.core.money import money
from llmgw.core.requests import RequestLine

TAIL_REQUESTS = 50
"""Requests shown at first where nobody says how many."""
PAGE_REQUESTS = 1000
FOLLOW_S = 1.0
"""How often newer requests are asked for."""
OVERLAP_S = 5.0
"""Routers write in turns of half a second, so that a request may appear behind one that ended later."""
REMEMBERED = 20_000
"""Ids of requests shown, so that none is shown twice."""
BAR_COLUMNS = 40


def log(ctx: Context) -> None:
    """Requests, the oldest first, and more as they end with --follow."""
    args = ctx.args
    if args.tail is not None and args.tail > MAX_TAIL_LINES:
        raise Usage(f"--tail {args.tail} is above {MAX_TAIL_LINES}")
    if args.failed and args.status is not None:
        raise Usage("--failed is --status failed: give one of them")
    since = None if args.since is None else parse_since(args.since, now=datetime.now(UTC)).timestamp()
    query = RequestQuery(
        model=args.model,
        key=args.key,
        team=args.team,
        status="failed" if args.failed else args.status,
        waited_ms=args.waited or 0,
        since=since,
    )
    most = args.tail if args.tail is not None else MAX_TAIL_LINES if since is not None else TAIL_REQUESTS
    newest = time.time() - OVERLAP_S
    found = _last(ctx, query, most)
    shown: deque[str] = deque((line.id for line in found), maxlen=REMEMBERED)
    for line in found:
        _print(ctx, line)
    if not found and not args.follow and not ctx.out.json:
        ctx.out.say("no such request is in the log of this server's machine")
    while args.follow:
        time.sleep(FOLLOW_S)
        known = set(shown)
        for line in _last(ctx, msgspec.structs.replace(query, since=newest), MAX_TAIL_LINES):
            if line.id not in known:
                shown.append(line.id)
                _print(ctx, line)
            newest = max(newest, line.at - OVERLAP_S)


def _last(ctx: Context, query: RequestQuery, most: int) -> list[RequestLine]:
    """The newest `most` requests, the oldest of them first."""
    found: list[RequestLine] = []
    while len(found) < most:
        page = ctx.client.requests(msgspec.structs.replace(query, limit=min(PAGE_REQUESTS, most - len(found))))
        found += page.requests
        if page.cursor is None:
            break
        query = msgspec.structs.replace(query, cursor=page.cursor)
    return found[::-1]


def _print(ctx: Context, line: RequestLine) -> None:
    if ctx.out.json:
        ctx.out.document_line(line)
    else:
        ctx.out.line(request_text(line))


def request_text(line: RequestLine) -> str:
    """One request as a line of a log: when, how, what, whose, how long, and what was remarkable about it."""
    first = f", first token {why.length(line.first_token_ms)}" if line.first_token_ms and line.stream else ""
    tokens = f" {line.input_tokens}+{line.output_tokens} tokens" if line.input_tokens or line.output_tokens else ""
    whose = line.key or line.key_id or line.client or "-"
    model = line.model or line.asked or "-"
    remark = why.headline(line)
    told = f"{when(datetime.fromtimestamp(line.at, UTC))} {line.id} {line.status} {model} {whose}"
    return f"{told} {why.length(line.duration_ms)}{first}{tokens}{f': {remark}' if remark else ''}"


def reason(ctx: Context) -> None:
    """One request's sentences, its time as bars, and its figures."""
    told = ctx.client.request(ctx.args.id)
    if ctx.out.json:
        ctx.out.document(told)
        return
    line, out = told.request, ctx.out
    for sentence in told.why:
        out.line(sentence)
    rows = [[phase.name, why.length(phase.to_ms - phase.from_ms), _bar(phase, line)] for phase in why.phases(line)]
    out.table(["PHASE", "TOOK", "WHEN"], rows, apart=True)
    out.gap()
    out.facts(
        [
            ("request", f"{line.id} on router {line.router}"),
            ("ended", f"{when(datetime.fromtimestamp(line.at, UTC))} UTC, {line.end} with {line.status}"),
            ("model", line.model if not line.asked else f"{line.model}, asked for as {line.asked}"),
            ("key", f"{line.key} ({line.key_id})" if line.key_id else ""),
            ("team", " of ".join(part for part in (line.team, line.tenant) if part)),
            ("client", line.client),
            ("tokens", _tokens(line)),
            ("cost", money(line.cost_micros) if line.cost_micros else ""),
            ("trace", line.trace),
        ]
    )


def _tokens(line: RequestLine) -> str:
    if not (line.input_tokens or line.output_tokens):
        return ""
    cached = f" ({line.cached_tokens} cached)" if line.cached_tokens else ""
    estimated = ", estimated" if line.estimated else ""
    return f"{line.input_tokens} in{cached}, {line.output_tokens} out{estimated}"


def _bar(phase: why.Phase, line: RequestLine) -> str:
    whole = line.duration_ms or 1.0
    start = round(phase.from_ms / whole * BAR_COLUMNS)
    end = max(start + 1, round(phase.to_ms / whole * BAR_COLUMNS))
    return " " * min(start, BAR_COLUMNS - 1) + "=" * (end - start)


HANDLERS: dict[tuple[str, ...], Handler] = {("requests",): log, ("why",): reason}
