"""The admin client's calls about bands."""

from llmgw.api import types as t
from llmgw.api.calls import Calls


class BandCalls(Calls):
    """One method an action."""

    def bands(self) -> list[t.BandInfo]:
        """Every band, those that go first first."""
        return self._call("band.list", list[t.BandInfo])

    def set_band(self, name: str, change: t.BandChange) -> t.Result:
        """Make or change a band."""
        return self._call("band.set", t.Result, {"name": name}, body=change)

    def remove_band(self, name: str) -> t.Result:
        """Remove a band that nobody is in."""
        return self._call("band.remove", t.Result, {"name": name})

    def key_band(self, key_id: str, band: str | None) -> t.Result:
        """Put a key in a band, or in its team's."""
        return self._call("key.band", t.Result, {"id": key_id}, body=t.BandChoice(band=band))

    def team_band(self, team: str, band: str | None) -> t.Result:
        """Put a team's keys in a band."""
        return self._call("team.band", t.Result, {"name": team}, body=t.BandChoice(band=band))
