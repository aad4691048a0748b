"""Bands: in which order requests wait where a model takes no more."""

from llmgw.api import types as t
from llmgw.api.actions.words import A, Action, Argument, Danger, Target, V, option
from llmgw.api.paths import PREFIX

_NAME = Argument(name="name", help="name of the band", metavar="NAME")
_BAND = Argument(name="band", help="a band, or none", metavar="BAND|none")

BANDS: tuple[Action, ...] = (
    Action(
        id="band.list",
        label="Bands",
        help="in which order requests wait, and how long",
        target=Target.SETTING,
        permission=V,
        method="GET",
        path=f"{PREFIX}/bands",
        response=list[t.BandInfo],
        verb=("bands", "list"),
    ),
    Action(
        id="band.set",
        label="Change a band…",
        help="make a band or change one; what is not given stays as it is",
        target=Target.SETTING,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/bands/{{name}}",
        request=t.BandChange,
        response=t.Result,
        verb=("bands", "set"),
        arguments=(
            _NAME,
            option("--priority", "a higher one goes first; 0 for a new one", metavar="N"),
            option("--queue-ttl", "how long its requests may wait; none is router.timeouts.queue", metavar="S|none"),
        ),
    ),
    Action(
        id="band.remove",
        label="Remove a band…",
        help="remove a band that no key and no team is in",
        target=Target.SETTING,
        permission=A,
        danger=Danger.DESTROYS,
        method="DELETE",
        path=f"{PREFIX}/bands/{{name}}",
        response=t.Result,
        verb=("bands", "remove"),
        arguments=(_NAME,),
    ),
    Action(
        id="key.band",
        key="B",
        label="Band…",
        help="let a key's requests wait in a band, or in its team's",
        target=Target.KEY,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/keys/{{id}}/band",
        request=t.BandChoice,
        response=t.Result,
        verb=("keys", "band"),
        arguments=(
            Argument(name="id", help="id of the key, or its name where no other living key has it", metavar="ID"),
            _BAND,
        ),
    ),
    Action(
        id="team.band",
        key="B",
        label="Band…",
        help="let requests of a team's keys wait in a band, where the key names none itself",
        target=Target.TEAM,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/teams/{{name}}/band",
        request=t.BandChoice,
        response=t.Result,
        verb=("teams", "band"),
        arguments=(Argument(name="name", help="name of the team", metavar="NAME"), _BAND),
    ),
)
