"""Bands for operators: which there are, and who is in which. Routers follow them with the routing."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable

import msgspec

from llmgw.api.band_types import BandChange, BandInfo
from llmgw.api.types import Result
from llmgw.control import settings
from llmgw.control.feed import FeedServer
from llmgw.control.leadership import Leadership
from llmgw.core.admission import DEFAULT_BAND, Band, band_names, is_band_name
from llmgw.core.errors import InvalidInput
from llmgw.core.money import NONE
from llmgw.core.units import plural
from llmgw.store import bands as stored
from llmgw.store import keys as stored_keys
from llmgw.store import scopes as stored_scopes
from llmgw.store import settings as stored_settings
from llmgw.store.store import Store

MAX_BANDS = 16
"""Each is a line in every router, and a label in metrics."""
MAX_PRIORITY = 1_000_000
MIN_TTL_S, MAX_TTL_S = 0.1, 86_400.0


class BandService:
    """Bands, and the bands of keys and teams."""

    def __init__(
        self,
        *,
        store: Store,
        leadership: Leadership,
        feed: FeedServer,
        read_settings: Callable[[], Awaitable[None]],
    ) -> None:
        self._store = store
        self._leadership = leadership
        self._feed = feed
        self._read_settings = read_settings

    async def list(self) -> tuple[BandInfo, ...]:
        """Every band, those that go first first."""
        bands = await self._store.run(stored.bands)
        users = Counter((user.kind, user.band) for user in await self._store.run(stored.users))
        values = await self._store.run(stored_settings.load_settings)
        usual_s = settings.timeouts({key: bytes(value) for key, value in values.items()}).queue
        known = {band.name: band for band in bands}
        return tuple(
            _info(known.get(name, Band(name=name)), usual_s, users[("key", name)], users[("team", name)])
            for name in band_names(bands)
        )

    async def set(self, name: str, change: BandChange, *, actor: str) -> Result:
        """Make or change a band."""
        given = _checked(name, change)
        before, after = await self._leadership.lead(stored.put, name, given, most=MAX_BANDS, actor=actor)
        await self._tell()
        if before is None:
            return Result(message=f"band {name} made: {_words(after)}")
        return Result(message=f"band {name}: {_words(before)} → {_words(after)}")

    async def remove(self, name: str, *, actor: str) -> Result:
        """Remove a band that nobody is in."""
        await self._leadership.lead(stored.remove, name, actor=actor)
        await self._tell()
        done = "is as it always is again" if name == DEFAULT_BAND else "removed"
        return Result(message=f"band {name} {done}")

    async def set_key(self, key_id: str, band: str | None, *, actor: str) -> Result:
        """Put a key in a band, or in its team's."""
        before, after = await self._leadership.lead(stored_keys.set_band, key_id, band, actor=actor)
        if before.band == after.band:
            return Result(message=f"{after.called} is in {_key_band(band)} already")
        self._feed.key_changed(after.digest)
        sentence = f"{after.called}: {_key_band(before.band)} → {_key_band(after.band)}"
        return Result(message=f"{sentence}; {self._feed.told()}")

    async def set_team(self, team: str, band: str | None, *, actor: str) -> Result:
        """Put all keys of a team that name no band in one."""
        before, after, digests = await self._leadership.lead(stored_scopes.set_team_band, team, band, actor=actor)
        if before.band == after.band:
            return Result(message=f"team {team} is in {_team_band(band)} already")
        for digest in digests:
            self._feed.key_changed(digest)
        sentence = f"team {team}: {_team_band(before.band)} → {_team_band(after.band)}"
        return Result(message=f"{sentence}, {plural(len(digests), 'living key')}; {self._feed.told()}")

    async def _tell(self) -> None:
        await self._read_settings()


def _checked(name: str, change: BandChange) -> dict[str, int | float | None]:
    """What is to be changed; raises InvalidInput."""
    if name == NONE:
        raise InvalidInput(f"{name!r} means that a key or a team names no band: choose another name", field="name")
    if not is_band_name(name):
        raise InvalidInput(f"{name[:64]!r} is no band's name: 1 to 32 of a-z, 0-9, - and _", field="name")
    given: dict[str, int | float | None] = {}
    if change.priority is not msgspec.UNSET:
        if abs(change.priority) > MAX_PRIORITY:
            raise InvalidInput(f"{change.priority} is outside -{MAX_PRIORITY} to {MAX_PRIORITY}", field="priority")
        given["priority"] = change.priority
    if change.queue_ttl is not msgspec.UNSET:
        ttl_s = change.queue_ttl
        if ttl_s is not None and not (math.isfinite(ttl_s) and MIN_TTL_S <= ttl_s <= MAX_TTL_S):
            raise InvalidInput(f"{ttl_s:g} s is outside {MIN_TTL_S:g} to {MAX_TTL_S:g} s", field="queue_ttl")
        given["queue_ttl"] = ttl_s
    return given


def _info(band: Band, usual_s: float, keys: int, teams: int) -> BandInfo:
    return BandInfo(
        name=band.name,
        priority=band.priority,
        queue_ttl=usual_s if band.queue_ttl is None else band.queue_ttl,
        own_ttl=band.queue_ttl is not None,
        keys=keys,
        teams=teams,
    )


def _words(band: Band) -> str:
    waits = "waits as long as router.timeouts.queue" if band.queue_ttl is None else f"waits {band.queue_ttl:g} s"
    return f"priority {band.priority}, {waits}"


def _key_band(name: str | None) -> str:
    return f"band {name}" if name else "its team's band"


def _team_band(name: str | None) -> str:
    return f"band {name or DEFAULT_BAND}"
