"""Everything that can be asked of a cluster, once. Routes, permissions, `ctl` verbs and console keys follow from it.

An action that is not here does not exist: the admin app serves no route without one, and `ctl` knows no other verb.
Pure data, no behaviour; importing it costs a few milliseconds.
"""

from enum import IntEnum, StrEnum

import msgspec

from llmgw.api import types as t
from llmgw.api import watch as w
from llmgw.api.paths import PREFIX


class Target(StrEnum):
    """What an action is about."""

    CLUSTER = "cluster"
    MODEL = "model"
    REPLICA = "replica"
    NODE = "node"
    KEY = "key"
    SETTING = "setting"
    WEIGHTS = "weights"


class Danger(StrEnum):
    """What a mistaken press costs; anything but none is asked about first."""

    NONE = "none"
    INTERRUPTS = "interrupts"
    """Requests in flight may end early; what was there comes back by the opposite action."""
    DESTROYS = "destroys"
    """Something is gone for good."""


class Permission(IntEnum):
    """Roles, each holding what the lower ones may do."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3

    @property
    def role(self) -> str:
        """The role's name: `viewer`, `operator`, `admin`."""
        return self.name.lower()


class Kind(StrEnum):
    """How an argument is written."""

    TEXT = "text"
    INTEGER = "integer"
    FLAG = "flag"
    LIST = "list"
    """`a,b`; may be given several times."""
    REPEAT = "repeat"
    """Given once for each value, commas being part of it."""


class Argument(msgspec.Struct, frozen=True, kw_only=True):
    """One argument of a verb."""

    name: str
    """`source` is positional SOURCE, `--max-output` an option."""
    help: str
    kind: Kind = Kind.TEXT
    required: bool = True
    """Of positionals; options never are."""
    default: str | int | None = None
    choices: tuple[str, ...] = ()
    metavar: str | None = None

    @property
    def is_option(self) -> bool:
        """Whether it is written with dashes."""
        return self.name.startswith("--")

    @property
    def key(self) -> str:
        """Its name as an identifier: `max_output`."""
        return self.name.lstrip("-").replace("-", "_")


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that can be asked or done."""

    id: str
    """Stable name, `model.serve`; what the audit records."""
    label: str
    """Words of a menu entry."""
    target: Target
    method: str
    path: str
    """Template with `{name}` for each path parameter."""
    permission: Permission
    danger: Danger = Danger.NONE
    request: type[msgspec.Struct] | None = None
    """Body, none for requests without one."""
    response: object = None
    """Type of the answer's document; none is plain text."""
    stream: bool = False
    """The answer is lines of such documents, for as long as the reader stays."""
    query: tuple[Argument, ...] = ()
    """Query parameters of the route."""
    verb: tuple[str, ...] = ()
    """How ctl spells it; empty when another action's verb covers it."""
    arguments: tuple[Argument, ...] = ()
    views: tuple[tuple[str, ...], ...] = ()
    """Further verbs that show the same answer in another form."""
    covers: tuple[str, ...] = ()
    """Actions the same verb does depending on its arguments."""
    key: str = ""
    """Key of the console, none for the palette alone. Unique among actions of one target."""
    help: str


def _option(name: str, help_: str, kind: Kind = Kind.TEXT, **more: str) -> Argument:
    return Argument(name=name, help=help_, kind=kind, required=False, metavar=more.get("metavar"))


_NAME = Argument(name="name", help="model, by name or alias", metavar="NAME")
_NODE = Argument(name="node", help="name of the node", metavar="NODE")
_ALIAS = _option("--alias", "further name clients may use; repeat or separate by commas", Kind.LIST, metavar="NAME")
_PLAN = (
    _option("--context", "tokens a request may span", Kind.INTEGER, metavar="TOKENS"),
    _option("--max-output", "longest answer in tokens", Kind.INTEGER, metavar="TOKENS"),
    _option("--slots", "requests a replica works on at once", Kind.INTEGER, metavar="N"),
    _option("--min", "replicas kept at all times (1)", Kind.INTEGER, metavar="N"),
    _option("--max", "replicas never exceeded", Kind.INTEGER, metavar="N"),
    _option("--engine", "engine that runs it", metavar="ENGINE"),
    _option("--gpu-class", "card it needs, such as h100-80g; none runs on the CPU", metavar="CLASS"),
    _option("--arg", "further engine flag, as --arg=--flag; repeat for several", Kind.REPEAT, metavar="FLAG"),
)
_FILE = Argument(name="--file", help="model file in YAML; - reads stdin", metavar="FILE", required=True)
_REPLACE = _option("--replace", "put it in place of the entry of that name", Kind.FLAG)
_WAIT = _option("--wait", "return when a replica answers, or has failed", Kind.FLAG)
_PURGE = _option("--purge", "delete its weights too", Kind.FLAG)
_MODEL_QUERY = _option("--model", "only this model's", metavar="NAME")
_TAIL = _option("--tail", "how many of the last lines (200)", Kind.INTEGER, metavar="N")
_FOLLOW = _option("--follow", "go on as lines come", Kind.FLAG)
_SINCE = _option("--since", "from then on: 30m, 12h, 7d, or an ISO time", metavar="WHEN")
_SINCE_TIME = _option("--since", "from then on: an ISO 8601 time with its offset from UTC", metavar="TIME")
_LIMIT = _option("--limit", "at most this many (200)", Kind.INTEGER, metavar="N")
_KEY = Argument(name="key", help="name of the setting", metavar="KEY")
_SOURCE = Argument(name="source", help="hf:ORG/REPO[@REV]  https://…  pypi:PKG==VER/PATH  file:/…", metavar="SOURCE")
_SOURCE_QUERY = _option("--source", "source of the set", metavar="SOURCE")
_TOPICS = _option("--topics", f"of {', '.join(w.TOPICS)} (all)", Kind.LIST, metavar="A,B")
_NODES = _option("--nodes", "figures of these nodes only", Kind.LIST, metavar="A,B")
_INTERVAL = _option("--interval-ms", "least time between two messages with rows (100)", Kind.INTEGER, metavar="MS")
_EPOCH = _option("--epoch", "epoch of the snapshot that is continued", metavar="EPOCH")
_SINCE_REV = _option("--since", "revision of the last message of that epoch", Kind.INTEGER, metavar="REV")

V, OP, A = Permission.VIEWER, Permission.OPERATOR, Permission.ADMIN

ACTIONS: tuple[Action, ...] = (
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
    Action(
        id="node.list",
        label="Nodes",
        help="every node with its hardware and load",
        target=Target.NODE,
        permission=V,
        method="GET",
        path=f"{PREFIX}/nodes",
        response=list[t.NodeInfo],
        verb=("nodes",),
    ),
    Action(
        id="node.show",
        label="Show",
        help="one node: hardware, cards, engines",
        target=Target.NODE,
        permission=V,
        method="GET",
        path=f"{PREFIX}/nodes/{{node}}",
        response=t.NodeInfo,
        verb=("node", "show"),
        arguments=(_NODE,),
    ),
    Action(
        id="node.cordon",
        key="x",
        label="Cordon",
        help="keep new replicas off a node; what runs there goes on",
        target=Target.NODE,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/nodes/{{node}}/cordon",
        response=t.Result,
        verb=("node", "cordon"),
        arguments=(_NODE,),
    ),
    Action(
        id="node.uncordon",
        key="u",
        label="Uncordon",
        help="allow new replicas on a node again",
        target=Target.NODE,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/nodes/{{node}}/uncordon",
        response=t.Result,
        verb=("node", "uncordon"),
        arguments=(_NODE,),
    ),
    Action(
        id="model.list",
        label="Models",
        help="the catalog, and what became of it",
        target=Target.MODEL,
        permission=V,
        method="GET",
        path=f"{PREFIX}/models",
        response=list[t.ModelInfo],
        verb=("models",),
    ),
    Action(
        id="model.serve",
        key="s",
        label="Serve a model…",
        help="serve a model from its source",
        target=Target.MODEL,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/serve",
        request=t.ServeRequest,
        response=t.ModelResult,
        verb=("model", "serve"),
        arguments=(
            Argument(
                name="source", help="hf:ORG/REPO[@REV]  https://…  pypi:PKG==VER/PATH  file:/…  sim:", metavar="SOURCE"
            ),
            _option("--name", "name clients use; from the source when not given", metavar="NAME"),
            _ALIAS,
            *_PLAN,
            _WAIT,
        ),
    ),
    Action(
        id="model.add",
        label="Add from a file…",
        help="add a whole catalog entry from a file",
        target=Target.MODEL,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/models",
        request=t.ModelAdd,
        response=t.ModelResult,
        verb=("model", "add"),
        arguments=(_FILE, _REPLACE, _WAIT),
    ),
    Action(
        id="model.show",
        label="Show",
        help="one catalog entry",
        target=Target.MODEL,
        permission=V,
        method="GET",
        path=f"{PREFIX}/models/{{name}}",
        response=t.ModelInfo,
        verb=("model", "show"),
        arguments=(_NAME,),
    ),
    Action(
        id="model.stop",
        key="x",
        label="Stop",
        help="end a model's replicas and keep its entry",
        target=Target.MODEL,
        permission=OP,
        danger=Danger.INTERRUPTS,
        method="POST",
        path=f"{PREFIX}/models/{{name}}/stop",
        response=t.ModelResult,
        verb=("model", "stop"),
        arguments=(_NAME,),
    ),
    Action(
        id="model.start",
        key="u",
        label="Start",
        help="serve a stopped model again",
        target=Target.MODEL,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/models/{{name}}/start",
        response=t.ModelResult,
        verb=("model", "start"),
        arguments=(_NAME, _WAIT),
    ),
    Action(
        id="model.scale",
        key="+",
        label="Scale…",
        help="how many replicas are kept",
        target=Target.MODEL,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/models/{{name}}/scale",
        request=t.ScaleRequest,
        response=t.ModelResult,
        verb=("model", "scale"),
        arguments=(
            _NAME,
            Argument(name="min", help="replicas kept at all times", kind=Kind.INTEGER, metavar="MIN"),
            Argument(name="max", help="replicas never exceeded", kind=Kind.INTEGER, metavar="MAX"),
        ),
    ),
    Action(
        id="model.remove",
        key="D",
        label="Remove…",
        help="take a model out of the catalog",
        target=Target.MODEL,
        permission=OP,
        danger=Danger.DESTROYS,
        method="DELETE",
        path=f"{PREFIX}/models/{{name}}",
        query=(_PURGE,),
        response=t.Result,
        verb=("model", "remove"),
        arguments=(_NAME, _PURGE),
    ),
    Action(
        id="replica.list",
        label="Replicas",
        help="every running copy and where it stands",
        target=Target.REPLICA,
        permission=V,
        method="GET",
        path=f"{PREFIX}/replicas",
        query=(_MODEL_QUERY,),
        response=list[t.ReplicaInfo],
        verb=("replicas",),
        arguments=(_MODEL_QUERY,),
    ),
    Action(
        id="replica.restart",
        key="r",
        label="Restart",
        help="restart a model's replicas one by one, or one replica",
        target=Target.REPLICA,
        permission=OP,
        danger=Danger.INTERRUPTS,
        method="POST",
        path=f"{PREFIX}/restart",
        request=t.RestartRequest,
        response=t.Result,
        verb=("restart",),
        arguments=(Argument(name="target", help="a model's name or a replica's id", metavar="MODEL|REPLICA"),),
    ),
    Action(
        id="model.explain",
        key="e",
        label="Explain",
        help="why a model is where it is, and why nowhere else; with --source, what would happen",
        target=Target.MODEL,
        permission=V,
        method="GET",
        path=f"{PREFIX}/explain/{{name}}",
        response=t.Explanation,
        verb=("explain",),
        arguments=(
            Argument(name="name", help="model, by name or alias; a new name with --source", metavar="MODEL"),
            _option("--source", "explain as if this were served", metavar="SOURCE"),
            *_PLAN,
        ),
        covers=("model.explain-serve",),
    ),
    Action(
        id="model.explain-serve",
        label="Explain before serving",
        help="where a model that is not in the catalog would be placed; changes nothing",
        target=Target.MODEL,
        permission=V,
        method="POST",
        path=f"{PREFIX}/explain",
        request=t.ServeRequest,
        response=t.Explanation,
    ),
    Action(
        id="key.list",
        label="Keys",
        help="API keys and their use",
        target=Target.KEY,
        permission=V,
        method="GET",
        path=f"{PREFIX}/keys",
        response=list[t.KeyInfo],
        verb=("keys", "list"),
    ),
    Action(
        id="key.create",
        key="n",
        label="Create a key…",
        help="make an API key; it is shown once",
        target=Target.KEY,
        permission=A,
        method="POST",
        path=f"{PREFIX}/keys",
        request=t.KeyCreate,
        response=t.KeyCreated,
        verb=("keys", "create"),
        arguments=(
            Argument(name="name", help="whose key it is", metavar="NAME"),
            _option("--models", "only these models", Kind.LIST, metavar="A,B"),
        ),
    ),
    Action(
        id="key.revoke",
        key="D",
        label="Revoke",
        help="refuse a key from now on",
        target=Target.KEY,
        permission=A,
        danger=Danger.DESTROYS,
        method="POST",
        path=f"{PREFIX}/keys/{{id}}/revoke",
        response=t.Result,
        verb=("keys", "revoke"),
        arguments=(Argument(name="id", help="id of the key, as `keys list` shows it", metavar="ID"),),
    ),
    Action(
        id="node.join-token",
        key="n",
        label="Join token",
        help="a token with which one node may join",
        target=Target.CLUSTER,
        permission=A,
        method="POST",
        path=f"{PREFIX}/join-tokens",
        request=t.JoinTokenCreate,
        response=t.JoinToken,
        verb=("join-token",),
        arguments=(_option("--minutes", "how long it is good for (15)", Kind.INTEGER, metavar="N"),),
    ),
    Action(
        id="cluster.logs",
        key="l",
        label="Logs",
        help="lines of a replica's engine, a node's agent or the server",
        target=Target.REPLICA,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/logs/{{target}}",
        query=(_TAIL, _FOLLOW),
        verb=("logs",),
        arguments=(
            Argument(name="target", help="replica, node or `server`", metavar="REPLICA|NODE|server"),
            _TAIL,
            _FOLLOW,
        ),
    ),
    Action(
        id="setting.list",
        label="Settings",
        help="every cluster setting with its value",
        target=Target.SETTING,
        permission=V,
        method="GET",
        path=f"{PREFIX}/settings",
        response=list[t.Setting],
        verb=("config", "list"),
        views=(("config", "reference"),),
    ),
    Action(
        id="setting.get",
        label="Setting",
        help="one cluster setting",
        target=Target.SETTING,
        permission=V,
        method="GET",
        path=f"{PREFIX}/settings/{{key}}",
        response=t.Setting,
        verb=("config", "get"),
        arguments=(_KEY,),
    ),
    Action(
        id="setting.set",
        label="Change…",
        help="change a cluster setting",
        target=Target.SETTING,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/settings/{{key}}",
        request=t.SettingChange,
        response=t.Result,
        verb=("config", "set"),
        arguments=(_KEY, Argument(name="value", help="JSON, or plain text", metavar="VALUE")),
    ),
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
    Action(
        id="weights.list",
        label="Weights",
        help="sets of weights on the mirror, and which models need them",
        target=Target.WEIGHTS,
        permission=V,
        method="GET",
        path=f"{PREFIX}/weights",
        response=list[t.WeightsInfo],
        verb=("weights", "list"),
    ),
    Action(
        id="weights.fetch",
        key="f",
        label="Fetch…",
        help="bring a set of weights to the mirror before a model needs it, or try again",
        target=Target.WEIGHTS,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/weights/fetch",
        request=t.WeightsFetch,
        response=t.Result,
        verb=("weights", "fetch"),
        arguments=(_SOURCE,),
    ),
    Action(
        id="weights.remove",
        key="D",
        label="Remove…",
        help="remove a set of weights that no model needs from the mirror",
        target=Target.WEIGHTS,
        permission=OP,
        danger=Danger.DESTROYS,
        method="DELETE",
        path=f"{PREFIX}/weights",
        query=(_SOURCE_QUERY,),
        response=t.Result,
        verb=("weights", "remove"),
        arguments=(_SOURCE,),
    ),
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

BY_ID: dict[str, Action] = {action.id: action for action in ACTIONS}


def action(action_id: str) -> Action:
    """The action of that id; raises KeyError."""
    return BY_ID[action_id]
