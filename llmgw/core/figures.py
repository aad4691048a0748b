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
    network_in_bytes_per_s: float | None = None
    """Of all network ports together, as the next one."""
    network_out_bytes_per_s: float | None = None
    infiniband_in_bytes_per_s: float | None = None
    """Of all InfiniBand ports together, as the next one."""
    infiniband_out_bytes_per_s: float | None = None
    cards: dict[str, CardFigures] = {}
    replicas: dict[str, ReplicaFigures] = {}
    """By replica id."""


LOAD_HOLDS_S = 15.0
"""What an engine said of its work is as good as unknown once it is so old; nothing is decided by it any more."""
LOAD_TOLD_EVERY_S = 5.0
"""What did not change is said again this often, so that it does not grow old."""


class EngineLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine says of its own work; none is what it does not say."""

    running: int | None = None
    """Requests it works on."""
    waiting: int | None = None
    """Requests in its own queue."""
    slots: int | None = None
    """Requests it works on at once, at most."""
    kv_used: float | None = None
    """Share of its KV cache that is taken, 0 to 1."""

    @property
    def silent(self) -> bool:
        """Whether it says nothing of what moves: slots alone are no load."""
        return self.running is None and self.waiting is None and self.kv_used is None


NOTHING_SAID = EngineLoad()
"""Of an engine nobody heard of, or not for long."""


class ToldLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What a node says of one of its engines' work."""

    load: EngineLoad = EngineLoad()
    age_s: float = 0.0
    """Seconds since the engine said so."""
    failures: int = 0
    """Times the engine was asked in vain since its agent watches it."""
