"""Sensor readings as the leader keeps them: the newest of each figure, absent where it was not reported."""

import msgspec

PROFILE_SOURCES = ("", "gpm", "dcgm")
"""Where a card's profile comes from, by its number on the wire: nowhere, the driver itself, a dcgm-exporter."""


class CardFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A card's newest sensor readings; none is "not reported"."""

    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_active_percent: float | None = None
    """Share of the multiprocessors at work: `utilization_percent` only says that any kernel ran."""
    power_limit_w: float | None = None
    memory_temperature_c: float | None = None
    memory_utilization_percent: float | None = None
    """Share of time in which memory was read or written, however little of it."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttle_reasons: int = 0
    """A mask of `llmgw.core.throttle`; 0 is "not reported"."""
    ecc_uncorrected: int | None = None
    """Memory errors since the driver was loaded that could not be corrected."""
    sm_occupancy_percent: float | None = None
    """Warps in flight against what the multiprocessors could hold."""
    tensor_active_percent: float | None = None
    """Share of time in which tensor cores worked."""
    dram_active_percent: float | None = None
    """Memory traffic against the most there could be."""
    profile_source: str = ""
    """One of PROFILE_SOURCES; empty when the card has no profile."""


class ReplicaFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine and its children take of their node."""

    cpu_percent: float | None = None
    """Of one CPU: 250 is two and a half CPUs."""
    memory_bytes: int | None = None
    """Resident, files it maps included."""


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A node's newest sensor readings; none is "unchanged"."""

    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    inlet_temperature_c: float | None = None
    cards: dict[str, CardFigures] = {}
    replicas: dict[str, ReplicaFigures] = {}
    """By replica id."""
