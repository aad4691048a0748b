"""The cluster as a whole: status, logs, audit, the live feed."""

from llmgw.api import types as t
from llmgw.api import watch as w
from llmgw.api.actions import requests
from llmgw.api.actions.words import OP, Action, Argument, Kind, Target, V, View, option
from llmgw.api.paths import PREFIX

_TAIL = option("--tail", "how many of the last lines (200)", Kind.INTEGER, metavar="N")
_FOLLOW = option("--follow", "go on as lines come", Kind.FLAG)
_SINCE = option("--since", "from then on: 30m, 12h, 7d, or an ISO time", metavar="WHEN")
_SINCE_TIME = option("--since", "from then on: an ISO 8601 time with its offset from UTC", metavar="TIME")
_LIMIT = option("--limit", "at most this many (200)", Kind.INTEGER, metavar="N")
_TOPICS = option("--topics", f"of {', '.join(w.TOPICS)} (all)", Kind.LIST, metavar="A,B")
_NODES = option("--nodes", "figures of these nodes only", Kind.LIST, metavar="A,B")
_INTERVAL = option("--interval-ms", "least time between two messages with rows (100)", Kind.INTEGER, metavar="MS")
_EPOCH = option("--epoch", "epoch of the snapshot that is continued", metavar="EPOCH")
_SINCE_REV = option("--since", "revision of the last message of that epoch", Kind.INTEGER, metavar="REV")
_TOP = ("top",)
_BY = Argument(
    name="--by",
    help="what there is most of comes first: work, power or memory (work)",
    required=False,
    default="work",
    choices=("work", "power", "memory"),
    metavar="FIGURE",
)
_ONCE = option("--once", "print it and end, as where stdout is no terminal", Kind.FLAG)
_MODEL_QUERY = option("--model", "only this model's", metavar="NAME")

STATUS: tuple[Action, ...] = (
    Action(
        id="cluster.status",
        label="Status",
        help="what runs, and what needs attention",
        target=Target.CLUSTER,
        permission=V,
        method="GET",
        path=f"{PREFIX}/status",
        response=t.ClusterStatus,
        verb=("status",),
    ),
)
LOGS: tuple[Action, ...] = (
    Action(
        id="cluster.logs",
        key="l",
        label="Logs",
        help="lines of a replica's engine, a node's agent, an installation or the server, or served requests",
        target=Target.REPLICA,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/logs/{{target}}",
        query=(_TAIL, _FOLLOW),
        verb=("logs",),
        arguments=(
            Argument(
                name="target",
                help="replica, node, `NODE:vllm` for what installing it printed, or `server`; none with --requests",
                required=False,
                metavar="REPLICA|NODE|NODE:ENGINE|server",
            ),
            _TAIL,
            _FOLLOW,
            option("--requests", "requests that ended on this server's machine, a line each", Kind.FLAG),
            requests.MODEL,
            requests.KEY,
            requests.TEAM,
            requests.FAILED,
            requests.STATUS,
            requests.WAITED,
            requests.SINCE,
        ),
    ),
)
AUDIT: tuple[Action, ...] = (
    Action(
        id="audit.list",
        label="Audit",
        help="who changed what, newest first",
        target=Target.CLUSTER,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/audit",
        query=(_SINCE_TIME, _LIMIT),
        response=list[t.AuditEntry],
        verb=("audit",),
        arguments=(_SINCE, _LIMIT),
    ),
)
WATCH: tuple[Action, ...] = (
    Action(
        id="cluster.watch",
        label="Watch",
        help="all that changes, as it changes: a snapshot, then deltas, as lines of JSON",
        target=Target.CLUSTER,
        permission=V,
        method="GET",
        path=f"{PREFIX}/watch",
        query=(_TOPICS, _NODES, _INTERVAL, _EPOCH, _SINCE_REV),
        response=w.Message,
        stream=True,
        verb=("watch",),
        views=(_TOP,),
        view_words={
            _TOP: View(help="models, nodes and cards by what they do, drawn anew every 2 s", arguments=(_BY, _ONCE))
        },
        arguments=(_TOPICS, _NODES, _INTERVAL),
    ),
    Action(
        id="cluster.history",
        label="History",
        help="requests, tokens and first tokens of the last quarter of an hour",
        target=Target.CLUSTER,
        permission=V,
        method="GET",
        path=f"{PREFIX}/history",
        query=(_MODEL_QUERY,),
        response=w.History,
        verb=("history",),
        arguments=(_MODEL_QUERY,),
    ),
)
