"""`ctl status` and `ctl join-token`."""

from llmgw.api.types import ClusterStatus, JoinTokenCreate
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import when
from llmgw.cli.groups.models import model_table
from llmgw.cli.groups.nodes import node_table
from llmgw.cli.groups.replicas import replica_table
from llmgw.cli.output import Output

DEFAULT_MINUTES = 15


def status(ctx: Context) -> None:
    """Everything at a glance."""
    answer = ctx.client.status()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    ctx.out.facts(_facts(answer))
    for problem in answer.problems:
        ctx.out.line(f"! {problem}")
    _routers(ctx.out, answer)
    node_table(ctx.out, answer.nodes, apart=True)
    model_table(ctx.out, answer.models, apart=True)
    replica_table(ctx.out, answer.replicas, nodes=answer.nodes, apart=True)


def _facts(answer: ClusterStatus) -> list[tuple[str, str]]:
    leader = next((server for server in answer.servers if server.id == answer.leader), None)
    where = f"{leader.host} (pid {leader.pid}), epoch {answer.epoch}" if leader else answer.leader or "none"
    return [
        ("version", answer.version),
        ("cluster", answer.cluster_id),
        ("leader", where),
        ("database", answer.database),
        ("problems", str(len(answer.problems)) if answer.problems else "none"),
    ]


def _routers(out: Output, answer: ClusterStatus) -> None:
    rows = [
        [
            str(r.port),
            str(r.pid),
            str(r.requests),
            str(r.open_requests),
            "connected" if r.connected else "following alone",
        ]
        for r in answer.routers
    ]
    out.table(["ROUTER PORT", "PID", "REQUESTS", "OPEN", "FEED"], rows, empty="no router runs", apart=True)


def join_token(ctx: Context) -> None:
    """A token and the command to paste on the new node."""
    minutes = DEFAULT_MINUTES if ctx.args.minutes is None else ctx.args.minutes
    token = ctx.client.join_token(JoinTokenCreate(minutes=minutes))
    if ctx.out.json:
        ctx.out.document(token)
        return
    ctx.out.line(token.command)
    ctx.out.say(f"Run this on the new node. It works once, until {when(token.expires)} UTC.")


HANDLERS: dict[tuple[str, ...], Handler] = {("status",): status, ("join-token",): join_token}
