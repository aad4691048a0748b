"""Replicas: list, restart."""

from quart import Response, request

from llmgw.api.types import RestartRequest
from llmgw.web.admin.routes import Routes, actor, checked_name, query_text
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def replicas() -> Response:
        return document(list(await control.replicas(query_text("model", ("model",)))))

    async def restart() -> Response:
        body = await read_body(request, RestartRequest)
        return document(await control.restart(checked_name(body.target), actor=actor()))

    routes.handle("replica.list", replicas)
    routes.handle("replica.restart", restart)
