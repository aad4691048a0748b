"""`ctl replicas` and `ctl restart`."""

from collections.abc import Sequence

from llmgw.api.client import AdminClient
from llmgw.api.types import ProgressInfo, ReplicaInfo
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import duration, size
from llmgw.cli.output import Output
from llmgw.core.compute import Compute, compute_words


def replicas(ctx: Context) -> None:
    """Every replica, a line each."""
    answer = ctx.client.replicas(ctx.args.model)
    if ctx.out.json:
        ctx.out.document(answer)
    else:
        replica_table(ctx.out, answer)


def replica_table(out: Output, answer: Sequence[ReplicaInfo], *, apart: bool = False) -> None:
    """A line a replica."""
    rows = [row for replica in answer for row in (_row(replica), *_shards(replica))]
    headers = ["REPLICA", "MODEL", "NODE", "ENGINE", "STATE", "FOR", "PID", "OPEN", "QUEUE", "RESTARTS", "MESSAGE"]
    out.table(headers, rows, empty="no replica runs", apart=apart)


def _row(r: ReplicaInfo) -> list[str]:
    return [
        r.id,
        r.model,
        r.node,
        r.engine,
        r.state,
        duration(r.since_s),
        str(r.pid or "-"),
        str(r.in_flight),
        queue_words(r),
        str(r.restarts),
        _progress(r.progress) or _word(r.message, r.compute),
    ]


def _shards(replica: ReplicaInfo) -> list[list[str]]:
    """A line for each of its parts, where it spans several nodes; `ctl logs REPLICA/1` reads that one's log."""
    return [
        [f"  /{rank} {s.role}", "", s.node, "", s.state, "", str(s.pid or "-"), "", "", "", _word(s.message, s.compute)]
        for rank, s in enumerate(replica.shards)
    ]


def _word(message: str, said: Compute | None) -> str:
    """The last word on it; where there is none, or too few of its cards are used, where its engine computes."""
    if said is None or (message and not said.less_than_asked):
        return message
    words = f"computes {compute_words(said)}"
    return f"{words}, less than asked (its log: {said.line})" if said.less_than_asked else words


def queue_words(replica: ReplicaInfo) -> str:
    """What its engine says of its work: `4 running, 2 waiting, KV 61%`; `-` when it says nothing."""
    said = []
    if replica.running is not None:
        said.append(f"{replica.running} running")
    if replica.waiting is not None:
        said.append(f"{replica.waiting} waiting")
    if replica.kv_used is not None:
        said.append(f"KV {100 * replica.kv_used:.0f}%")
    return ", ".join(said) or "-"


def _progress(progress: ProgressInfo | None) -> str:
    if progress is None:
        return ""
    if progress.total_bytes <= 0:
        return f"{progress.phase} {size(progress.done_bytes)}"
    percent = 100 * progress.done_bytes // progress.total_bytes
    return f"{progress.phase} {percent}% of {size(progress.total_bytes)}"


def restart(ctx: Context) -> None:
    """Restart a model's replicas one by one, or one replica."""
    target = ctx.args.target
    ctx.confirm(lambda client: _in_figures(client, target))
    result = ctx.client.restart(target)
    ctx.done(result, result.message)


def _in_figures(client: AdminClient, target: str) -> str:
    models = {name: model.name for model in client.models() for name in model.spec.names}
    found = [r for r in client.replicas() if r.id == target or r.model == models.get(target)]
    in_flight = sum(replica.in_flight for replica in found)
    return f"Restarts {len(found)} replicas of {target} one by one; {in_flight} requests are in flight."


HANDLERS: dict[tuple[str, ...], Handler] = {("replicas",): replicas, ("restart",): restart}
