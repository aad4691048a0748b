"""How much of each chip works, by a dcgm-exporter on this node: for cards whose driver does not tell it by itself."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec
import trio

from agent.discovery.exposition import samples
from agent.discovery.gpu import CardSample
from llmgw.transfer.errors import Refused, TransferError
from llmgw.transfer.http import Remote, Timeouts, request

TIMEOUT_S = 2.0
"""For the whole answer."""
MAX_BODY_BYTES = 4 * 1024 * 1024
ASK_EVERY_S = 10.0
"""An exporter reads its cards every 30 s as it comes; asking oftener helps nobody."""
LEAVE_ALONE_S = 300.0
"""One that does not answer is most likely not installed."""
OFF = "off"

_FIELDS = {
    "DCGM_FI_PROF_SM_ACTIVE": "sm_active_percent",
    "DCGM_FI_PROF_SM_OCCUPANCY": "sm_occupancy_percent",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "tensor_active_percent",
    "DCGM_FI_PROF_DRAM_ACTIVE": "dram_active_percent",
}
_MOST = 1.01
"""A ratio is read over a moment and may come out a little over 1; DCGM's numbers for "no value" are far over it."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """One card's ratios as percent; none was not sent, or has no value."""

    sm_active_percent: float | None = None
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None


def parse_profiles(text: str) -> dict[str, Profile]:
    """Profiles by UUID. A MIG instance's row is nobody's; an unprofiled card is left out."""
    found: dict[str, dict[str, float]] = {}
    for sample in samples(text):
        field = _FIELDS.get(sample.name)
        labels = {name.lower(): value for name, value in sample.labels.items()}
        uuid = labels.get("uuid", "")
        instance = labels.get("gpu_i_id") or labels.get("gpu_i_profile")
        if field is None or not uuid or instance or not 0 <= sample.value <= _MOST:
            continue
        found.setdefault(uuid, {}).setdefault(field, min(100.0, abs(round(100 * sample.value, 2))))
    return {uuid: Profile(**fields) for uuid, fields in found.items()}


def filled_in(cards: Sequence[CardSample], profiles: Mapping[str, Profile]) -> tuple[CardSample, ...]:
    """The samples, those without a profile with the exporter's. The driver's own wins where both exist."""
    return tuple(_filled(card, profiles.get(card.uuid)) for card in cards)


def _filled(card: CardSample, profile: Profile | None) -> CardSample:
    if profile is None or card.profile_source:
        return card
    return msgspec.structs.replace(
        card,
        sm_active_percent=profile.sm_active_percent,
        sm_occupancy_percent=profile.sm_occupancy_percent,
        tensor_active_percent=profile.tensor_active_percent,
        dram_active_percent=profile.dram_active_percent,
        profile_source="dcgm",
    )


class Exporter:
    """The node's exporter, if it has one."""

    def __init__(self, url: str, *, clock: Callable[[], float] = trio.current_time) -> None:
        self._url = url
        self._clock = clock
        self._ask_at = -math.inf
        self._profiles: dict[str, Profile] = {}

    async def profiles(self, wanted: Collection[str]) -> Mapping[str, Profile]:
        """Newest profiles, with one call for all cards and none when no card wants one. Never raises, never lasts."""
        if self._url == OFF or not wanted:
            return {}
        if self._clock() >= self._ask_at:
            self._ask_at = self._clock() + ASK_EVERY_S
            try:
                self._profiles = parse_profiles(await self._fetch())
            except (TransferError, trio.TooSlowError):
                self._profiles = {}
                self._ask_at = self._clock() + LEAVE_ALONE_S
        return self._profiles

    async def _fetch(self) -> str:
        """The page; raises TransferError or TooSlowError."""
        timeouts = Timeouts(connect_s=TIMEOUT_S, stall_s=TIMEOUT_S)
        with trio.fail_after(TIMEOUT_S):
            async with request(Remote(url=self._url, proxies=False, timeouts=timeouts)) as response:
                body = await response.read(MAX_BODY_BYTES)
        if response.status != 200:
            raise Refused(f"the exporter answers {response.status}", status=response.status)
        return body.decode(errors="replace")
