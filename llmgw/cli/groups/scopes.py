"""`ctl teams|tenants list|create|limits|budget|move|remove`."""

from llmgw.api.client import AdminClient
from llmgw.api.problems import Refused
from llmgw.api.types import ScopeInfo, TeamCreate, TenantCreate
from llmgw.cli.context import Context, Handler
from llmgw.cli.limit_arguments import (
    budgets_given,
    limit_cells,
    limit_facts,
    limits_change,
    limits_given,
    spending,
)
from llmgw.core.limits import ScopeKind
from llmgw.core.money import NONE, budgets_text, money


class _Verbs:
    """The verbs of one kind."""

    def __init__(self, kind: ScopeKind) -> None:
        self._kind = kind

    def overview(self, ctx: Context) -> None:
        """Every one, a line each."""
        answer = ctx.client.scopes(self._kind)
        if ctx.out.json:
            ctx.out.document(answer)
            return
        headers = ["NAME", "TENANT", "KEYS", "RPM", "TPM", "PARALLEL", "BUDGET", "SPENT", "REQUESTS", "INPUT", "OUTPUT"]
        rows = [self._row(info) for info in answer]
        if self._kind is ScopeKind.TENANT:
            headers, rows = headers[:1] + headers[2:], [row[:1] + row[2:] for row in rows]
        ctx.out.table(headers, rows, empty=f"there is no {self._kind}: `llmgw ctl {self._kind}s create NAME`")

    @staticmethod
    def _row(info: ScopeInfo) -> list[str]:
        return [
            info.name,
            info.tenant or "-",
            str(info.keys),
            *limit_cells(info.limits, info.budgets),
            money(info.spent_month_micros),
            str(info.requests),
            str(info.input_tokens),
            str(info.output_tokens),
        ]

    def create(self, ctx: Context) -> None:
        """Make one."""
        args = ctx.args
        limits, budgets = limits_given(args), budgets_given(args.budget)
        if self._kind is ScopeKind.TEAM:
            team = TeamCreate(name=args.name, tenant=args.tenant, limits=limits, budgets=budgets)
            result = ctx.client.create_team(team)
        else:
            result = ctx.client.create_tenant(TenantCreate(name=args.name, limits=limits, budgets=budgets))
        ctx.done(result, result.message)

    def limits(self, ctx: Context) -> None:
        """Change the limits, or show them."""
        change = limits_change(ctx.args)
        if change is not None:
            result = ctx.client.scope_limits(self._kind, ctx.args.name, change)
            ctx.done(result, result.message)
            return
        info = self._find(ctx.client, ctx.args.name)
        if ctx.out.json:
            ctx.out.document(info.limits)
        else:
            ctx.out.facts([(self._kind.value, info.name), ("tenant", info.tenant or ""), *limit_facts(info.limits)])

    def budget(self, ctx: Context) -> None:
        """Set the budgets, or show them."""
        if ctx.args.budget is not None:
            result = ctx.client.scope_budget(self._kind, ctx.args.name, budgets_given(ctx.args.budget))
            ctx.done(result, result.message)
            return
        info = self._find(ctx.client, ctx.args.name)
        if ctx.out.json:
            ctx.out.document(info.budgets)
            return
        spent = spending(info.budgets, info.spent_day_micros, info.spent_month_micros)
        facts = [(self._kind.value, info.name), ("budget", budgets_text(info.budgets)), ("spent", spent)]
        ctx.out.facts(facts)

    def remove(self, ctx: Context) -> None:
        """Remove one that nothing is beneath."""
        ctx.confirm(lambda client: self._in_figures(self._find(client, ctx.args.name)))
        result = ctx.client.remove_scope(self._kind, ctx.args.name)
        ctx.done(result, result.message)

    def _in_figures(self, info: ScopeInfo) -> str:
        return (
            f"Removes {self._kind} {info.name}: {info.keys} living keys beneath it, {info.requests} requests so far, "
            f"{money(info.cost_micros)} spent."
        )

    def _find(self, client: AdminClient, name: str) -> ScopeInfo:
        found = next((info for info in client.scopes(self._kind) if info.name == name), None)
        if found is None:
            raise Refused(f"there is no {self._kind} {name!r}: see llmgw ctl {self._kind}s list")
        return found


def move(ctx: Context) -> None:
    """Put a team under a tenant, or under none."""
    tenant = ctx.args.tenant
    result = ctx.client.move_team(ctx.args.name, None if tenant == NONE else tenant)
    ctx.done(result, result.message)


def _handlers(kind: ScopeKind) -> dict[tuple[str, ...], Handler]:
    verbs, group = _Verbs(kind), f"{kind}s"
    return {
        (group, "list"): verbs.overview,
        (group, "create"): verbs.create,
        (group, "limits"): verbs.limits,
        (group, "budget"): verbs.budget,
        (group, "remove"): verbs.remove,
    }


HANDLERS: dict[tuple[str, ...], Handler] = {
    **_handlers(ScopeKind.TEAM),
    **_handlers(ScopeKind.TENANT),
    ("teams", "move"): move,
}
