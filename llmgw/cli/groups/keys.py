"""`ctl keys list|create|limits|budget|move|revoke`."""

from collections.abc import Sequence

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused
from llmgw.api.types import KeyCreate, KeyInfo, Result
from llmgw.cli.context import Context, Handler
from llmgw.cli.format import when
from llmgw.cli.limit_arguments import (
    budgets_given,
    limit_cells,
    limit_facts,
    limits_change,
    limits_given,
    spending,
)
from llmgw.core.money import NONE, budgets_text, money
from llmgw.core.near import did_you_mean

_HEADERS = ["ID", "NAME", "TEAM", "MODELS", "STATE", "RPM", "TPM", "PARALLEL", "BUDGET", "SPENT", "BAND", "LAST USED"]
_HEADERS += ["REQUESTS", "INPUT", "OUTPUT"]


def keys(ctx: Context) -> None:
    """Every key, without the key."""
    answer = ctx.client.keys()
    if ctx.out.json:
        ctx.out.document(answer)
        return
    ctx.out.table(_HEADERS, [_row(key) for key in answer], empty="there is no key: `llmgw ctl keys create NAME`")


def _row(key: KeyInfo) -> list[str]:
    return [
        key.id,
        key.name,
        key.team or "-",
        "all" if key.models is None else ",".join(key.models),
        "in force" if key.revoked is None else f"revoked {when(key.revoked)}",
        *limit_cells(key.limits, key.budgets),
        money(key.spent_month_micros),
        key.band or "-",
        when(key.last_used),
        str(key.requests),
        str(key.input_tokens),
        str(key.output_tokens),
    ]


def create(ctx: Context) -> None:
    """Make a key; stdout gets the key and nothing else."""
    args = ctx.args
    given = args.models
    models = (
        None if given is None else tuple(part.strip() for text in given for part in text.split(",") if part.strip())
    )
    request = KeyCreate(
        name=args.name,
        models=models,
        team=args.team,
        limits=limits_given(args),
        budgets=budgets_given(args.budget),
        band=args.band,
    )
    # Asked first: once the key is made nothing may stand between it and the reader, who sees it this once.
    notice = _unknown_models(ctx.client, models or ())
    created = ctx.client.create_key(request)
    if ctx.out.json:
        ctx.out.document(created)
    else:
        ctx.out.line(created.key)
        ctx.out.say(f"This is key {created.id} of {created.name}. It is not shown again.")
    if created.team_created:
        ctx.out.say(f"Team {created.team} was not there and is made, without limits.")
    if notice:
        ctx.out.say(notice)


def _unknown_models(client: AdminClient, names: Sequence[str]) -> str:
    """Which of the names are no model's yet, in a sentence; a key may be made before its models are."""
    known = {name for model in client.models() for name in model.spec.names} if names else set()
    unknown = [name for name in names if name not in known]
    if not unknown:
        return ""
    return f"No model is called {' or '.join(unknown)} so far{did_you_mean(unknown[0], sorted(known)) or '.'}"


def limits(ctx: Context) -> None:
    """Change a key's limits, or show them."""
    change = limits_change(ctx.args)
    if change is not None:
        result = ctx.client.key_limits(ctx.args.id, change)
        ctx.done(result, result.message)
        return
    key = _find(ctx.client, ctx.args.id)
    if ctx.out.json:
        ctx.out.document(key.limits)
    else:
        ctx.out.facts([("key", f"{key.id} ({key.name})"), ("team", key.team or NONE), *limit_facts(key.limits)])


def budget(ctx: Context) -> None:
    """Set a key's budgets, or show them."""
    if ctx.args.budget is not None:
        result = ctx.client.key_budget(ctx.args.id, budgets_given(ctx.args.budget))
        ctx.done(result, result.message)
        return
    key = _find(ctx.client, ctx.args.id)
    if ctx.out.json:
        ctx.out.document(key.budgets)
        return
    spent = spending(key.budgets, key.spent_day_micros, key.spent_month_micros)
    ctx.out.facts([("key", f"{key.id} ({key.name})"), ("budget", budgets_text(key.budgets)), ("spent", spent)])


def move(ctx: Context) -> None:
    """Put a key under a team, or under none."""
    team = ctx.args.team
    result = ctx.client.move_key(ctx.args.id, None if team == NONE else team)
    ctx.done(result, result.message)


def revoke(ctx: Context) -> None:
    """Refuse keys from now on; stops at the first that cannot be."""
    ids: Sequence[str] = ctx.args.id
    ctx.confirm(lambda client: _in_figures(client, ids))
    results: list[Result] = []
    for key_id in ids:
        results.append(ctx.client.revoke_key(key_id))
        if not ctx.out.json:
            ctx.out.say(results[-1].message)
    if ctx.out.json:
        ctx.out.document(results[0] if len(results) == 1 else results)


def _in_figures(client: AdminClient, ids: Sequence[str]) -> str:
    listed = client.keys()
    return " ".join(_one_in_figures(listed, key_id) for key_id in ids)


def _one_in_figures(listed: Sequence[KeyInfo], key_id: str) -> str:
    found = _named(listed, key_id)
    if len(found) != 1:
        return f"Revokes key {key_id}, which is not listed."
    key = found[0]
    return f"Revokes key {key.id} of {key.name}, last used {when(key.last_used)}, {key.requests} requests so far."


def _find(client: AdminClient, key_id: str) -> KeyInfo:
    found = _named(client.keys(), key_id)
    if not found:
        raise Refused(f"there is no key with id or name {key_id!r}: see llmgw ctl keys list")
    if len(found) > 1:
        raise Refused(f"{len(found)} keys are called {key_id!r}: give an id ({', '.join(key.id for key in found[:5])})")
    return found[0]


def _named(listed: Sequence[KeyInfo], key_id: str) -> list[KeyInfo]:
    """The key of that id, else the living keys of that name, else the revoked ones: as the server reads it."""
    same_id = [key for key in listed if key.id == key_id]
    same_name = [key for key in listed if key.name == key_id]
    return same_id or [key for key in same_name if key.revoked is None] or same_name


HANDLERS: dict[tuple[str, ...], Handler] = {
    ("keys", "list"): keys,
    ("keys", "create"): create,
    ("keys", "limits"): limits,
    ("keys", "budget"): budget,
    ("keys", "move"): move,
    ("keys", "revoke"): revoke,
}
