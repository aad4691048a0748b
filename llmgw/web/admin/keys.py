"""API keys: list, create, limits, budget, move, revoke."""

from quart import Response, request

from llmgw.api.types import BudgetChange, KeyCreate, KeyMove, LimitsChange
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, actor, checked_name
from llmgw.web.bodies import document, read_body

MAX_KEY_NAME_CHARS = 128
MAX_KEY_MODELS = 1000


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def keys() -> Response:
        return document(list(await control.keys()))

    async def create() -> Response:
        body = await read_body(request, KeyCreate)
        if not body.name.strip() or len(body.name) > MAX_KEY_NAME_CHARS or not body.name.isprintable():
            raise InvalidInput(f"is not 1 to {MAX_KEY_NAME_CHARS} printable characters", field="name")
        if body.models is not None and not 1 <= len(body.models) <= MAX_KEY_MODELS:
            raise InvalidInput(
                f"lists {len(body.models)} models; 1 to {MAX_KEY_MODELS}, or null for all", field="models"
            )
        response = document(await control.create_key(body, actor=actor()), status=201)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def limits(id: str) -> Response:
        body = await read_body(request, LimitsChange)
        return document(await control.key_limits(checked_name(id), body, actor=actor()))

    async def budget(id: str) -> Response:
        body = await read_body(request, BudgetChange)
        return document(await control.key_budget(checked_name(id), body.budgets, actor=actor()))

    async def move(id: str) -> Response:
        body = await read_body(request, KeyMove)
        return document(await control.move_key(checked_name(id), body.team, actor=actor()))

    async def revoke(id: str) -> Response:
        return document(await control.revoke_key(checked_name(id), actor=actor()))

    routes.handle("key.list", keys)
    routes.handle("key.create", create)
    routes.handle("key.limits", limits)
    routes.handle("key.budget", budget)
    routes.handle("key.move", move)
    routes.handle("key.revoke", revoke)
