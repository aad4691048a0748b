"""The admin client's calls about bands."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from llmgw.api import types as t

T = TypeVar("T")
Query = Mapping[str, str | int | bool | None]


class BandCalls(ABC):
    """One method an action; `_call` is the client's."""

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

    @abstractmethod
    def _call(
        self,
        action_id: str,
        type_: type[T],
        params: Mapping[str, str] | None = None,
        query: Query | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        """Ask for what the action answers."""
