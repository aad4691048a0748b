"""What the admin app needs of the control plane for bands; see `llmgw.web.ports`."""

from collections.abc import Sequence
from typing import Protocol

from llmgw.api.types import BandChange, BandInfo, Result


class BandControl(Protocol):
    """In which order requests wait."""

    async def bands(self) -> Sequence[BandInfo]:
        """Every band, those that go first first."""
        ...

    async def set_band(self, name: str, change: BandChange, *, actor: str) -> Result:
        """Make or change a band; raises InvalidInput, Conflict when there are too many."""
        ...

    async def remove_band(self, name: str, *, actor: str) -> Result:
        """Remove a band; raises NotFound, or Conflict naming keys and teams that are in it."""
        ...

    async def key_band(self, key_id: str, band: str | None, *, actor: str) -> Result:
        """Put a key in a band; raises NotFound, InvalidInput for a band that is not there."""
        ...

    async def team_band(self, team: str, band: str | None, *, actor: str) -> Result:
        """Put a team's keys in a band; raises NotFound, InvalidInput for a band that is not there."""
        ...
