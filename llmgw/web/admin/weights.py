"""Weights on the mirror: list, fetch, verify, remove, and what nobody needs."""

from quart import Response, request

from llmgw.api.types import OrphansRemove, WeightsFetch, WeightsVerify
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, actor, query_text
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def weights() -> Response:
        return document(list(await control.weights()))

    async def fetch() -> Response:
        body = await read_body(request, WeightsFetch)
        return document(await control.fetch_weights(body, actor=actor()), status=202)

    async def verify() -> Response:
        body = await read_body(request, WeightsVerify)
        return document(await control.verify_weights(body, actor=actor()), status=202)

    async def orphans() -> Response:
        return document(await control.orphans())

    async def remove_orphans() -> Response:
        body = await read_body(request, OrphansRemove)
        return document(await control.remove_orphans(body, actor=actor()))

    async def remove() -> Response:
        source = query_text("source", ("source",))
        if not source:
            raise InvalidInput("name the set to remove, as `weights` lists it", field="source")
        return document(await control.remove_weights(source, actor=actor()))

    routes.handle("weights.list", weights)
    routes.handle("weights.fetch", fetch)
    routes.handle("weights.verify", verify)
    routes.handle("weights.remove", remove)
    routes.handle("weights.orphans", orphans)
    routes.handle("weights.remove-orphans", remove_orphans)
