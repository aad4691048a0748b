"""`ctl logs`: lines of a replica's engine, a node's agent or the server, safe for a terminal."""

from contextlib import closing

from llmgw.api.paths import MAX_TAIL_LINES
from llmgw.api.problems import Usage
from llmgw.cli.context import Context, Handler

TAB = " " * 4


def logs(ctx: Context) -> None:
    """Print lines as they come."""
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


HANDLERS: dict[tuple[str, ...], Handler] = {("logs",): logs}
