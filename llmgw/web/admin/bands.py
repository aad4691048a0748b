"""Bands: list, set, remove, and the bands of keys and teams."""

from quart import Response, request

from llmgw.api.types import BandChange, BandChoice
from llmgw.web.admin.routes import Routes, actor, checked_name
from llmgw.web.bodies import document, read_body


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def bands() -> Response:
        return document(list(await control.bands()))

    async def change(name: str) -> Response:
        body = await read_body(request, BandChange)
        return document(await control.set_band(checked_name(name), body, actor=actor()))

    async def remove(name: str) -> Response:
        return document(await control.remove_band(checked_name(name), actor=actor()))

    async def of_key(id: str) -> Response:
        body = await read_body(request, BandChoice)
        return document(await control.key_band(checked_name(id), body.band, actor=actor()))

    async def of_team(name: str) -> Response:
        body = await read_body(request, BandChoice)
        return document(await control.team_band(checked_name(name), body.band, actor=actor()))

    routes.handle("band.list", bands)
    routes.handle("band.set", change)
    routes.handle("band.remove", remove)
    routes.handle("key.band", of_key)
    routes.handle("team.band", of_team)
