"""`ctl logs`: lines of a replica's engine, a node's agent or the server, safe for a terminal."""

from contextlib import closing

from llmgw.api.paths import MAX_TAIL_LINES
from llmgw.api.problems import Usage
from llmgw.cli.context import Context, Handler
from llmgw.cli.groups import requests

TAB = " " * 4
_FILTERS = ("model", "key", "team", "failed", "status", "waited", "since")
"""Options that choose among requests."""


def logs(ctx: Context) -> None:
    """Print lines as they come, of a log or of the requests."""
    if ctx.args.requests:
        if ctx.args.target is not None:
            raise Usage(f"--requests are those of the whole machine: leave {ctx.args.target!r} out")
        requests.log(ctx)
        return
    _refuse_filters(ctx)
    if ctx.args.target is None:
        raise Usage("name a replica, a node or `server`, or say --requests")
    tail = ctx.args.tail
    if tail is not None and tail > MAX_TAIL_LINES:
        raise Usage(f"--tail {tail} is above {MAX_TAIL_LINES}")
    lines = ctx.client.logs(ctx.args.target, tail=tail, follow=ctx.args.follow)
    with closing(lines):
        for line in lines:
            if ctx.out.json:
                ctx.out.document_line({"line": line})
            else:
                ctx.out.line(line.replace("\t", TAB))


def _refuse_filters(ctx: Context) -> None:
    given = [name for name in _FILTERS if getattr(ctx.args, name) not in (None, False)]
    if given:
        raise Usage(f"--{given[0]} is for requests: say --requests too")


HANDLERS: dict[tuple[str, ...], Handler] = {("logs",): logs}
