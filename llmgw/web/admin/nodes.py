"""Nodes: list, show, cordon, uncordon, a fresh sample."""

from quart import Response

from llmgw.web.admin.routes import Routes, actor, checked_name
from llmgw.web.bodies import document


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def nodes() -> Response:
        return document(list(await control.nodes()))

    async def node(node: str) -> Response:
        return document(await control.node(checked_name(node)))

    async def cordon(node: str) -> Response:
        return document(await control.cordon(checked_name(node), True, actor=actor()))

    async def uncordon(node: str) -> Response:
        return document(await control.cordon(checked_name(node), False, actor=actor()))

    async def sample(node: str) -> Response:
        return document(await control.sample(checked_name(node)))

    routes.handle("node.list", nodes)
    routes.handle("node.show", node)
    routes.handle("node.cordon", cordon)
    routes.handle("node.uncordon", uncordon)
    routes.handle("node.sample", sample)
