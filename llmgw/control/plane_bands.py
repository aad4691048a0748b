"""The part of the plane that is about bands."""

from collections.abc import Sequence

from llmgw.api import types as t
from llmgw.control.bands import BandService


class BandPlane:
    """`web.band_ports.BandControl` over the service of one server."""

    def __init__(self, bands: BandService) -> None:
        self._bands = bands

    async def bands(self) -> Sequence[t.BandInfo]:
        """Every band."""
        return await self._bands.list()

    async def set_band(self, name: str, change: t.BandChange, *, actor: str) -> t.Result:
        """Make or change a band."""
        return await self._bands.set(name, change, actor=actor)

    async def remove_band(self, name: str, *, actor: str) -> t.Result:
        """Remove a band that nobody is in."""
        return await self._bands.remove(name, actor=actor)

    async def key_band(self, key_id: str, band: str | None, *, actor: str) -> t.Result:
        """Put a key in a band."""
        return await self._bands.set_key(key_id, band, actor=actor)

    async def team_band(self, team: str, band: str | None, *, actor: str) -> t.Result:
        """Put a team's keys in a band."""
        return await self._bands.set_team(team, band, actor=actor)
