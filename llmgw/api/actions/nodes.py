"""Nodes: list, cordon, sample, join."""

from llmgw.api import types as t
from llmgw.api.actions.words import OP, A, Action, Argument, Kind, Target, V, option
from llmgw.api.paths import PREFIX

_NODE = Argument(name="node", help="name of the node", metavar="NODE")

NODES: tuple[Action, ...] = (
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
        arguments=(
            option("--gpus", "a line a card: work, busy, memory, heat, power, who holds it, problems", Kind.FLAG),
        ),
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
        id="node.sample",
        label="Fresh sample",
        help="have a node measure now, for everyone who looks at it; once a second at most, however many ask",
        target=Target.NODE,
        permission=V,
        method="POST",
        path=f"{PREFIX}/nodes/{{node}}/sample",
        response=t.Result,
        verb=("node", "sample"),
        arguments=(_NODE,),
    ),
)
JOIN: tuple[Action, ...] = (
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
        arguments=(option("--minutes", "how long it is good for (15)", Kind.INTEGER, metavar="N"),),
    ),
)
