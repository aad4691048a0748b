"""Teams and tenants: list, create, limits, budget, move, remove. Both kinds have the same routes."""

from quart import Response, request

from llmgw.api.types import BudgetChange, LimitsChange, TeamCreate, TeamMove, TenantCreate
from llmgw.core.limits import ScopeKind
from llmgw.web.admin.routes import Routes, actor, checked_name
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def create_team() -> Response:
        body = await read_body(request, TeamCreate)
        return document(await control.create_team(body, actor=actor()), status=201)

    async def create_tenant() -> Response:
        body = await read_body(request, TenantCreate)
        return document(await control.create_tenant(body, actor=actor()), status=201)

    async def move(name: str) -> Response:
        body = await read_body(request, TeamMove)
        return document(await control.move_team(checked_name(name), body.tenant, actor=actor()))

    routes.handle("team.create", create_team)
    routes.handle("tenant.create", create_tenant)
    routes.handle("team.move", move)
    _register_kind(routes, ScopeKind.TEAM)
    _register_kind(routes, ScopeKind.TENANT)


def _register_kind(routes: Routes, kind: ScopeKind) -> None:
    control = routes.control

    async def scopes() -> Response:
        return document(list(await control.scopes(kind)))

    async def limits(name: str) -> Response:
        body = await read_body(request, LimitsChange)
        return document(await control.scope_limits(kind, checked_name(name), body, actor=actor()))

    async def budget(name: str) -> Response:
        body = await read_body(request, BudgetChange)
        return document(await control.scope_budget(kind, checked_name(name), body.budgets, actor=actor()))

    async def remove(name: str) -> Response:
        return document(await control.remove_scope(kind, checked_name(name), actor=actor()))

    routes.handle(f"{kind}.list", scopes)
    routes.handle(f"{kind}.limits", limits)
    routes.handle(f"{kind}.budget", budget)
    routes.handle(f"{kind}.remove", remove)
