"""The catalog: list, show, serve, add, stop, start, scale, remove, explain."""

from quart import Response, request

from llmgw.api.actions import Permission
from llmgw.api.types import FallbacksChange, ModelAdd, ScaleRequest, ServeRequest
from llmgw.core.catalog import MAX_REPLICAS, Model, check_model
from llmgw.core.errors import InvalidInput, NotAllowed
from llmgw.web.access import Caller
from llmgw.web.admin.routes import Routes, actor, caller, checked_name, query_flag
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    _register_reading(routes)
    _register_changing(routes)


def _register_reading(routes: Routes) -> None:
    control = routes.control

    async def models() -> Response:
        return document(list(await control.models()))

    async def model(name: str) -> Response:
        return document(await control.model(checked_name(name)))

    async def explain(name: str) -> Response:
        return document(await control.explain(checked_name(name)))

    async def explain_serve() -> Response:
        return document(await control.explain_serve(await read_body(request, ServeRequest)))

    routes.handle("model.list", models)
    routes.handle("model.show", model)
    routes.handle("model.explain", explain)
    routes.handle("model.explain-serve", explain_serve)


def _register_changing(routes: Routes) -> None:
    control = routes.control

    async def serve() -> Response:
        body = await read_body(request, ServeRequest)
        return document(await control.serve(body, actor=actor()), status=201)

    async def add() -> Response:
        body = await read_body(request, ModelAdd)
        check_model(body.model)
        _refuse_others_keys(body.model, caller())
        return document(await control.add(body.model, actor=actor(), replace=body.replace), status=201)

    async def remove(name: str) -> Response:
        purge = query_flag("purge", ("purge",))
        return document(await control.remove(checked_name(name), purge=purge, actor=actor()))

    async def stop(name: str) -> Response:
        return document(await control.stop(checked_name(name), actor=actor()))

    async def start(name: str) -> Response:
        return document(await control.start(checked_name(name), actor=actor()))

    async def scale(name: str) -> Response:
        body = await read_body(request, ScaleRequest)
        if not 0 <= body.min <= MAX_REPLICAS:
            raise InvalidInput(f"{body.min} is outside 0 to {MAX_REPLICAS}", field="min")
        if not max(1, body.min) <= body.max <= MAX_REPLICAS:
            raise InvalidInput(f"{body.max} is outside {max(1, body.min)} to {MAX_REPLICAS}", field="max")
        return document(await control.scale(checked_name(name), body.min, body.max, actor=actor()))

    async def fallbacks(name: str) -> Response:
        body = await read_body(request, FallbacksChange)
        return document(await control.set_fallbacks(checked_name(name), body.fallbacks, actor=actor()))

    routes.handle("model.serve", serve)
    routes.handle("model.add", add)
    routes.handle("model.remove", remove)
    routes.handle("model.stop", stop)
    routes.handle("model.start", start)
    routes.handle("model.scale", scale)
    routes.handle("model.fallbacks", fallbacks)


def _refuse_others_keys(model: Model, who: Caller) -> None:
    """Whoever names a file of keys and where they are sent could send any token of this machine away."""
    if who.permission < Permission.ADMIN and any(endpoint.api_keys_file for endpoint in model.endpoints):
        raise NotAllowed(
            f"{who.actor} is {who.permission.role}; a model with api_keys_file needs the role {Permission.ADMIN.role}"
        )
