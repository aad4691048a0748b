"""Cluster settings: list, get, set."""

from quart import Response, request

from llmgw.api.types import SettingChange
from llmgw.web.admin.routes import Routes, actor, checked_name
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def settings() -> Response:
        return document(list(await control.settings()))

    async def setting(key: str) -> Response:
        return document(await control.setting(checked_name(key)))

    async def change(key: str) -> Response:
        body = await read_body(request, SettingChange)
        return document(await control.set_setting(checked_name(key), body.value, actor=actor()))

    routes.handle("setting.list", settings)
    routes.handle("setting.get", setting)
    routes.handle("setting.set", change)
