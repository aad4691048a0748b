"""Engines on nodes: whether they take the flags they are given, and which are installed."""

from quart import Response, request

from llmgw.api.types import BuildRequest
from llmgw.web.admin.routes import Routes, actor, checked_name, query_text
from llmgw.web.bodies import document, read_body

_QUERY = ("engine", "node")


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def check() -> Response:
        engine, node = query_text("engine", _QUERY), query_text("node", _QUERY)
        return document(list(await control.check_engines(engine=engine, node=node)))

    async def builds(node: str) -> Response:
        return document(list(await control.node_builds(checked_name(node))))

    async def ask(node: str) -> Response:
        body = await read_body(request, BuildRequest)
        return document(await control.ask_build(checked_name(node), body, actor=actor()))

    routes.handle("engine.check", check)
    routes.handle("node.builds", builds)
    routes.handle("node.build", ask)
