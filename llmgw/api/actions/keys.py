"""API keys, what they may do and spend, and what was used."""

from llmgw.api import types as t
from llmgw.api.actions.words import A, Action, Argument, Danger, Kind, Target, V, option
from llmgw.api.paths import PREFIX

LIMITS = (
    option("--rpm", "requests a minute", Kind.LIMIT, metavar="N|none"),
    option("--tpm", "tokens a minute, read and written", Kind.LIMIT, metavar="N|none"),
    option("--parallel", "requests open at once", Kind.LIMIT, metavar="N|none"),
)
"""Not given leaves a limit as it is, `none` takes it away, 0 refuses everything."""
BUDGET = Argument(
    name="budget",
    help="the whole set: 50/month, 5/day, 50/month,5/day, or none; shows it when not given",
    required=False,
    metavar="BUDGET",
)
BUDGET_OPTION = option("--budget", "what may be spent: 50/month, 5/day, or 50/month,5/day", metavar="BUDGET")
_ID = Argument(name="id", help="id of the key, or its name where no other living key has it", metavar="ID")
_BY = Argument(
    name="--by",
    help="what rows are of (key_model: a row for each key and model)",
    required=False,
    choices=("key_model", "key", "team", "tenant", "model"),
    metavar="key|team|tenant|model",
)
_SINCE_DAY = option("--since", "from that UTC day on, as 2026-01-31", metavar="DAY")
_UNTIL_DAY = option("--until", "to that UTC day, it included", metavar="DAY")

KEYS: tuple[Action, ...] = (
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
            option("--team", "team it belongs to; made, without limits, when there is none of that name", metavar="T"),
            option("--models", "only these models", Kind.LIST, metavar="A,B"),
            *LIMITS,
            BUDGET_OPTION,
            option("--band", "band its requests wait in; its team's when not given", metavar="BAND"),
        ),
    ),
    Action(
        id="key.limits",
        key="l",
        label="Limits…",
        help="requests and tokens a minute and requests at once of a key; without options, shows them",
        target=Target.KEY,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/keys/{{id}}/limits",
        request=t.LimitsChange,
        response=t.Result,
        verb=("keys", "limits"),
        arguments=(_ID, *LIMITS),
    ),
    Action(
        id="key.budget",
        key="b",
        label="Budget…",
        help="what a key may spend a day and a month; without one, shows it",
        target=Target.KEY,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/keys/{{id}}/budget",
        request=t.BudgetChange,
        response=t.Result,
        verb=("keys", "budget"),
        arguments=(_ID, BUDGET),
    ),
    Action(
        id="key.move",
        key="t",
        label="Move to a team…",
        help="put a key under a team, or under none; what it spent before stays with the team it was spent in",
        target=Target.KEY,
        permission=A,
        method="PUT",
        path=f"{PREFIX}/keys/{{id}}/team",
        request=t.KeyMove,
        response=t.Result,
        verb=("keys", "move"),
        arguments=(_ID, Argument(name="team", help="team, or none", metavar="TEAM|none")),
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
        arguments=(
            Argument(
                name="id",
                help="ids of the keys, or their names where no other living key has them",
                kind=Kind.MANY,
                metavar="ID",
            ),
        ),
    ),
)

USAGE: tuple[Action, ...] = (
    Action(
        id="usage.list",
        label="Usage",
        help="requests, tokens and cost by key, team, tenant or model",
        target=Target.KEY,
        permission=V,
        method="GET",
        path=f"{PREFIX}/usage",
        query=(_BY, _SINCE_DAY, _UNTIL_DAY),
        response=list[t.UsageInfo],
        verb=("usage",),
        arguments=(_BY, _SINCE_DAY, _UNTIL_DAY),
    ),
)
