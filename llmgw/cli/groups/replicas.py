"""`ctl replicas` and `ctl restart`."""

from collections.abc import Mapping, Sequence

from llmgw.api.card_uses import UNHEARD
from llmgw.api.client import AdminClient
from llmgw.api.types import NodeInfo, ReplicaInfo, ShardInfo
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import duration
from llmgw.cli.output import Output
from llmgw.core.compute import Compute, compute_words


def replicas(ctx: Context) -> None:
    """Every replica, a line each."""
    answer = ctx.client.replicas(ctx.args.model)
    if ctx.out.json:
        ctx.out.document(answer)
    else:
        replica_table(ctx.out, answer, nodes=ctx.client.nodes() if answer else ())


def replica_table(
    out: Output, answer: Sequence[ReplicaInfo], *, nodes: Sequence[NodeInfo] = (), apart: bool = False
) -> None:
    """A line a replica, whose message begins with which of `nodes` it is on is not heard."""
    unheard = {node.name: _unheard_words(node) for node in nodes if node.state in UNHEARD}
    rows = [row for replica in answer for row in (_row(replica, unheard), *_shards(replica, unheard))]
    headers = ["REPLICA", "MODEL", "NODE", "ENGINE", "STATE", "FOR", "PID", "OPEN", "QUEUE", "RESTARTS", "MESSAGE"]
    out.table(headers, rows, empty="no replica runs", apart=apart)


def _unheard_words(node: NodeInfo) -> str:
    """`gpu07 is lost, heard 12m ago`: what stands there is what the node said last."""
    heard = "" if node.heartbeat_age_s is None else f", heard {duration(node.heartbeat_age_s)} ago"
    return f"{node.name} is {node.state}{heard}"


def _behind(unheard: str, message: str) -> str:
    return "; ".join(part for part in (unheard, message) if part)


def _row(r: ReplicaInfo, unheard: Mapping[str, str]) -> list[str]:
    places = [shard.node for shard in r.shards] or [r.node]
    of_node = next((unheard[name] for name in places if name in unheard), "")
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
        _behind(of_node, _word(r.message, r.compute)),
    ]


def _shards(replica: ReplicaInfo, unheard: Mapping[str, str]) -> list[list[str]]:
    """A line for each of its parts, where it spans several nodes; `ctl logs REPLICA/1` reads that one's log."""
    return [
        [f"  /{rank} {s.role}", "", s.node, "", s.state, "", str(s.pid or "-"), "", "", "", _shard_word(s, unheard)]
        for rank, s in enumerate(replica.shards)
    ]


def _shard_word(shard: ShardInfo, unheard: Mapping[str, str]) -> str:
    return _behind(unheard.get(shard.node, ""), _word(shard.message, shard.compute))


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
