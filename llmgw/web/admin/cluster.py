"""The cluster as a whole: status, join tokens, metrics, and the API's own description."""

from quart import Response, request

from llmgw.api.actions import Permission
from llmgw.api.paths import METRICS, OPENAPI
from llmgw.api.types import JoinTokenCreate
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, actor
from llmgw.web.bodies import document, read_body

MAX_JOIN_MINUTES = 24 * 60
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def status() -> Response:
        return document(await control.status())

    async def join_token() -> Response:
        body = await read_body(request, JoinTokenCreate)
        if not 1 <= body.minutes <= MAX_JOIN_MINUTES:
            raise InvalidInput(f"{body.minutes} is outside 1 to {MAX_JOIN_MINUTES}", field="minutes")
        return document(await control.join_token(body, actor=actor()), status=201)

    async def metrics() -> Response:
        return Response(await control.metrics(), content_type=METRICS_TYPE)

    async def description() -> Response:
        from llmgw.web.openapi import openapi_json

        return Response(openapi_json(), content_type="application/json")

    routes.handle("cluster.status", status)
    routes.handle("node.join-token", join_token)
    routes.raw("metrics", METRICS, "GET", None, metrics)
    routes.raw("openapi", OPENAPI, "GET", Permission.VIEWER, description)
