"""Bands in memory, as `llmgw.web.band_ports.BandControl` has them."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from llmgw.api import types as t
from llmgw.core.errors import Conflict, InvalidInput


def _usual() -> list[t.BandInfo]:
    return [
        t.BandInfo(name="gold", priority=10, queue_ttl=5.0, own_ttl=True, keys=2),
        t.BandInfo(name="default", priority=0, queue_ttl=30.0),
    ]


@dataclass
class FakeBands:
    """Keeps what it was asked, in `band_calls`."""

    bands_made: list[t.BandInfo] = field(default_factory=_usual)
    band_calls: list[tuple[object, ...]] = field(default_factory=list)

    async def bands(self) -> Sequence[t.BandInfo]:
        return self.bands_made

    async def set_band(self, name: str, change: t.BandChange, *, actor: str) -> t.Result:
        self.band_calls.append(("set_band", name, change, actor))
        priority = 0 if change.priority is msgspec.UNSET else change.priority
        ttl_s = 30.0 if change.queue_ttl is msgspec.UNSET or change.queue_ttl is None else change.queue_ttl
        self.bands_made.append(t.BandInfo(name=name, priority=priority, queue_ttl=ttl_s))
        return t.Result(message=f"band {name} made")

    async def remove_band(self, name: str, *, actor: str) -> t.Result:
        self.band_calls.append(("remove_band", name, actor))
        if any(band.name == name and band.keys for band in self.bands_made):
            raise Conflict(f"band {name!r} is used by key k1")
        return t.Result(message=f"band {name} removed")

    async def key_band(self, key_id: str, band: str | None, *, actor: str) -> t.Result:
        self._check(band)
        self.band_calls.append(("key_band", key_id, band, actor))
        return t.Result(message=f"{key_id}: band {band}; 1 router was told")

    async def team_band(self, team: str, band: str | None, *, actor: str) -> t.Result:
        self._check(band)
        self.band_calls.append(("team_band", team, band, actor))
        return t.Result(message=f"team {team}: band {band}; 1 router was told")

    def _check(self, band: str | None) -> None:
        there = [known.name for known in self.bands_made]
        if band is not None and band not in there:
            raise InvalidInput(f"there is no band {band!r}: there are {', '.join(there)}", field="band")
