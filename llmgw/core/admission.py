"""Who waits when a model has more to do than it takes: the rules, as operators set them and routers follow them.

Bands are the order in which requests are let in. There is always one called `default`; a key in a band that is not
there waits in it.
"""

import math
import re

import msgspec

from llmgw.core.units import MIB

DEFAULT_BAND = "default"
_BAND_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,31}")


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that wait in one line."""

    name: str
    priority: int = 0
    """Lines of a higher one go first."""
    queue_ttl: float | None = None
    """Seconds a request may wait; none is `router.timeouts.queue`."""


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """When a model takes no more, and how much may wait for it; `ctl config set router.admission.…`."""

    waiting_per_replica: float = 4.0
    """Requests in an engine's own queue at which it counts as fully loaded."""
    kv_ceiling: float = 0.9
    """Share of an engine's KV cache in use at which it counts as fully loaded."""
    saturation: float = 0.85
    """Mean load of a model's replicas, 0 to 1, from which on further requests wait in the router."""
    max_waiting: int = 1024
    """Requests that may wait in one router."""
    max_waiting_bytes: int = 256 * MIB
    """Bodies of waiting requests that one router may hold."""
    bands: tuple[Band, ...] = ()
    """Those that operators set, by name."""


def default_band(bands: tuple[Band, ...]) -> Band:
    """The band of keys that are in no other."""
    return next((band for band in bands if band.name == DEFAULT_BAND), Band(name=DEFAULT_BAND))


def is_band_name(name: str) -> bool:
    """Whether a band may be called that."""
    return _BAND_NAME.fullmatch(name) is not None


def band_names(bands: tuple[Band, ...]) -> tuple[str, ...]:
    """All bands there are, those that go first first."""
    every = {DEFAULT_BAND: Band(name=DEFAULT_BAND)} | {band.name: band for band in bands}
    return tuple(sorted(every, key=lambda name: (-every[name].priority, name)))


class _BandValue(msgspec.Struct, frozen=True, kw_only=True):
    priority: int = 0
    queue_ttl: float | None = None


def read_bands(raw: bytes) -> tuple[Band, ...]:
    """Bands as the setting `router.bands` has them, by name; what cannot be read is none."""
    try:
        values = msgspec.json.decode(raw, type=dict[str, _BandValue])
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ()
    return tuple(
        Band(name=name, priority=value.priority, queue_ttl=value.queue_ttl) for name, value in sorted(values.items())
    )


def retry_after_s(ahead: int, interval_s: float | None, *, unknown_s: float, most_s: float) -> float:
    """Seconds until somebody who lines up behind `ahead` others may expect to be let in.

    `interval_s` is the measured time between two that were let in; none has been measured: `unknown_s`.
    """
    if interval_s is None or not math.isfinite(interval_s):
        return unknown_s
    return min(max(1.0, (ahead + 1) * interval_s), most_s)
