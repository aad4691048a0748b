"""Engines on nodes."""

from llmgw.api import types as t
from llmgw.api.actions.words import OP, Action, Argument, Target, V, option
from llmgw.api.paths import PREFIX
from llmgw.core.engine_builds import INSTALLED, OWN

_ENGINE = option("--engine", "only this one; every engine that is there when none is named", metavar="ENGINE")
_NAMED = Argument(name="named", help="the same as --engine ENGINE", metavar="ENGINE", required=False)
_NODE = option("--node", "only on this node", metavar="NODE")
_ON = Argument(name="node", help="name of the node", metavar="NODE")

ENGINES: tuple[Action, ...] = (
    Action(
        id="engine.check",
        key="v",
        label="Check engines",
        help="ask engines on nodes whether they take every flag they are given; ends with 1 if one does not",
        target=Target.NODE,
        permission=OP,
        method="GET",
        path=f"{PREFIX}/engine-check",
        query=(_ENGINE, _NODE),
        response=list[t.EngineVerdict],
        verb=("engine-check",),
        arguments=(_NAMED, _ENGINE, _NODE),
    ),
    Action(
        id="node.builds",
        label="Engine builds",
        help="engines a node may have installed: what is asked for, what is there, and how far it is",
        target=Target.NODE,
        permission=V,
        method="GET",
        path=f"{PREFIX}/nodes/{{node}}/builds",
        response=list[t.BuildInfo],
        verb=("node", "builds"),
        arguments=(_ON,),
    ),
    Action(
        id="node.build",
        label="Install engine",
        help="have a node install a version of an engine, whatever its own agent.yaml says",
        target=Target.NODE,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/nodes/{{node}}/builds",
        request=t.BuildRequest,
        response=t.Result,
        verb=("node", "build"),
        arguments=(
            _ON,
            # Of one that operators install themselves the server says what to do instead.
            Argument(
                name="engine", help=f"one of {', '.join(INSTALLED)}", metavar="ENGINE", choices=(*INSTALLED, *OWN)
            ),
            Argument(
                name="version",
                help="0.30.0, b10991 (llama.cpp), `default`, `none`, or `auto` for what the node's agent.yaml says",
                metavar="VERSION",
            ),
        ),
    ),
)
