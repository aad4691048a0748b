"""Teams and tenants: what the keys beneath them may do and spend together."""

import msgspec

from llmgw.api import types as t
from llmgw.api.actions.keys import BUDGET, BUDGET_OPTION, LIMITS
from llmgw.api.actions.words import A, Action, Argument, Danger, Target, V, option
from llmgw.api.paths import PREFIX


def _actions(
    target: Target, create: type[msgspec.Struct], made_with: tuple[Argument, ...], beneath: str
) -> tuple[Action, ...]:
    """What both kinds have; `beneath` is what counts into such a scope."""
    kind, many = target.value, f"{target.value}s"
    name = Argument(name="name", help=f"name of the {kind}", metavar="NAME")
    return (
        Action(
            id=f"{kind}.list",
            label=many.capitalize(),
            help=f"{many} with their limits, budgets and spending",
            target=target,
            permission=V,
            method="GET",
            path=f"{PREFIX}/{many}",
            response=list[t.ScopeInfo],
            verb=(many, "list"),
        ),
        Action(
            id=f"{kind}.create",
            key="n",
            label=f"Create a {kind}…",
            help=f"make a {kind}",
            target=target,
            permission=A,
            method="POST",
            path=f"{PREFIX}/{many}",
            request=create,
            response=t.Result,
            verb=(many, "create"),
            arguments=(name, *made_with, *LIMITS, BUDGET_OPTION),
        ),
        Action(
            id=f"{kind}.limits",
            key="l",
            label="Limits…",
            help=f"limits of all {beneath} of a {kind} together; without options, shows them",
            target=target,
            permission=A,
            method="PUT",
            path=f"{PREFIX}/{many}/{{name}}/limits",
            request=t.LimitsChange,
            response=t.Result,
            verb=(many, "limits"),
            arguments=(name, *LIMITS),
        ),
        Action(
            id=f"{kind}.budget",
            key="b",
            label="Budget…",
            help=f"what all {beneath} of a {kind} may spend together; without one, shows it",
            target=target,
            permission=A,
            method="PUT",
            path=f"{PREFIX}/{many}/{{name}}/budget",
            request=t.BudgetChange,
            response=t.Result,
            verb=(many, "budget"),
            arguments=(name, BUDGET),
        ),
        Action(
            id=f"{kind}.remove",
            key="D",
            label="Remove…",
            help=f"remove a {kind} that has no {beneath} left",
            target=target,
            permission=A,
            danger=Danger.DESTROYS,
            method="DELETE",
            path=f"{PREFIX}/{many}/{{name}}",
            response=t.Result,
            verb=(many, "remove"),
            arguments=(name,),
        ),
    )


_MOVE = Action(
    id="team.move",
    key="t",
    label="Move to a tenant…",
    help="put a team under a tenant, or under none; what it spent before stays with the tenant it was spent in",
    target=Target.TEAM,
    permission=A,
    method="PUT",
    path=f"{PREFIX}/teams/{{name}}/tenant",
    request=t.TeamMove,
    response=t.Result,
    verb=("teams", "move"),
    arguments=(
        Argument(name="name", help="name of the team", metavar="NAME"),
        Argument(name="tenant", help="tenant, or none", metavar="TENANT|none"),
    ),
)

SCOPES: tuple[Action, ...] = (
    *_actions(Target.TEAM, t.TeamCreate, (option("--tenant", "tenant it belongs to", metavar="T"),), "keys"),
    _MOVE,
    *_actions(Target.TENANT, t.TenantCreate, (), "teams"),
)
