"""`ctl engine-check`, `ctl node builds`, `ctl node build`."""

from llmgw.api.problems import Refused, Usage
from llmgw.cli.context import Context, Handler
from llmgw.core.units import plural


def check(ctx: Context) -> None:
    """Each verdict as a sentence; raises Refused when one is not good, after all were told."""
    named, option = ctx.args.named, ctx.args.engine
    if named and option and named != option:
        raise Usage(f"{named} and --engine {option} are two engines: name one")
    verdicts = ctx.client.check_engines(engine=named or option, node=ctx.args.node)
    if ctx.out.json:
        ctx.out.document(verdicts)
    else:
        for verdict in verdicts:
            ctx.out.line(verdict.message)
        if not verdicts:
            ctx.out.say("no node has joined, so there is no engine to ask")
    bad = [verdict for verdict in verdicts if not verdict.good]
    if bad:
        raise Refused(f"{len(bad)} of {plural(len(verdicts), 'answer')} {'is' if len(bad) == 1 else 'are'} not good")


def builds(ctx: Context) -> None:
    """A line an engine."""
    answer = ctx.client.node_builds(ctx.args.node)
    if ctx.out.json:
        ctx.out.document(answer)
        return
    rows = [[build.engine, build.asked, build.version or "-", build.state] for build in answer]
    ctx.out.table(["ENGINE", "ASKED", "THERE", "STATE"], rows)


def build(ctx: Context) -> None:
    """Ask for one."""
    result = ctx.client.ask_build(ctx.args.node, ctx.args.engine, ctx.args.version)
    ctx.done(result, result.message)


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("engine-check",): check,
    ("node", "builds"): builds,
    ("node", "build"): build,
}
