"""Readings as the wire's columns: one entry each, NaN for "not reported", no column when nothing in it is reported."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.discovery.gpu import CardSample
from agent.discovery.traffic import NO_TRAFFIC, Traffic
from llmgw.core.figures import PROFILE_SOURCES, ReplicaFigures, ToldLoad
from llmgw.core.wear import CardWear
from llmgw.wire.llmgw import v1 as wire

TRAFFIC_STEP = 100_000
"""Bytes a second are rounded to this, so that the agent's own words are no news."""
MEMORY_STEP = 16 * 1024 * 1024
"""Memory and disk figures of the machine and its engines are rounded down to this, so that noise is not news."""
_WHOLE = (
    "temperature_c",
    "power_w",
    "power_limit_w",
    "memory_temperature_c",
    "sm_clock_mhz",
    "memory_clock_mhz",
)
"""Figures of which a fraction is no news."""
_TENTHS = (
    "utilization_percent",
    "memory_utilization_percent",
    "sm_active_percent",
    "sm_occupancy_percent",
    "tensor_active_percent",
    "dram_active_percent",
)
_COUNTS = ("memory_used_bytes", "ecc_uncorrected")
_WEAR = (
    "pcie_replays",
    "retired_pages_sbe",
    "retired_pages_dbe",
    "retirement_pending",
    "remapped_rows",
    "remap_pending",
    "remap_failed",
    "nvlink_replay_errors",
    "nvlink_recovery_errors",
    "xid_count",
    "xid_last",
    "xid_at",
)


@dataclass(frozen=True, kw_only=True)
class MachineFigures:
    """The machine's own readings at one moment."""

    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    inlet_temperature_c: float | None = None
    traffic: Traffic = NO_TRAFFIC


def sensors_message(
    machine: MachineFigures, cards: Sequence[CardSample], engines: Mapping[str, ReplicaFigures]
) -> wire.Sensors:
    """All figures of one moment; `engines` by shard id."""
    columns = {name: column([_rounded(getattr(card, name), 0) for card in cards]) for name in _WHOLE}
    columns |= {name: column([_rounded(getattr(card, name), 1) for card in cards]) for name in _TENTHS}
    columns |= {name: column([getattr(card, name) for card in cards]) for name in _COUNTS}
    shards = sorted(engines)
    return wire.Sensors(
        uuids=[card.uuid for card in cards],
        **columns,
        throttle_reasons=_unless_all_zero([card.throttle_reasons for card in cards]),
        profile_source=_unless_all_zero([PROFILE_SOURCES.index(card.profile_source) for card in cards]),
        cpu_percent=_rounded(machine.cpu_percent, 0),
        load_1m=_rounded(machine.load_1m, 1),
        memory_available_bytes=stepped(machine.memory_available_bytes),
        disk_free_bytes=stepped(machine.disk_free_bytes),
        cpu_temperature_c=_rounded(machine.cpu_temperature_c, 0),
        cpu_power_w=_rounded(machine.cpu_power_w, 0),
        inlet_temperature_c=_rounded(machine.inlet_temperature_c, 0),
        network_in_bytes_per_s=_stepped_rate(machine.traffic.network_in),
        network_out_bytes_per_s=_stepped_rate(machine.traffic.network_out),
        infiniband_in_bytes_per_s=_stepped_rate(machine.traffic.infiniband_in),
        infiniband_out_bytes_per_s=_stepped_rate(machine.traffic.infiniband_out),
        shard_ids=shards,
        shard_cpu_percent=column([_rounded(engines[shard].cpu_percent, 0) for shard in shards]),
        shard_memory_bytes=column([stepped(engines[shard].memory_bytes) for shard in shards]),
    )


def wear_message(worn: Mapping[str, CardWear]) -> wire.CardWear:
    """All counts of one moment, by UUID."""
    cards = [worn[uuid] for uuid in sorted(worn)]
    return wire.CardWear(
        uuids=sorted(worn), **{name: column([getattr(card, name) for card in cards]) for name in _WEAR}
    )


def loads_message(loads: Mapping[str, ToldLoad]) -> wire.EngineLoads:
    """What engines say of their work at one moment, by shard id."""
    shards = sorted(loads)
    told = [loads[shard] for shard in shards]
    return wire.EngineLoads(
        shard_ids=shards,
        age_s=[round(one.age_s, 1) for one in told],
        running=column([one.load.running for one in told]),
        waiting=column([one.load.waiting for one in told]),
        slots=column([one.load.slots for one in told]),
        kv_used=column([one.load.kv_used for one in told]),
        failures=_unless_all_zero([one.failures for one in told]),
    )


def column(values: Sequence[float | int | None]) -> list[float]:
    """One entry each, NaN for "not reported"; empty when nothing is reported."""
    if all(value is None for value in values):
        return []
    return [math.nan if value is None else float(value) for value in values]


def stepped(value: int | None) -> int | None:
    """Bytes rounded down to MEMORY_STEP."""
    return None if value is None else value - value % MEMORY_STEP


def _stepped_rate(value: float | None) -> float | None:
    return None if value is None else float(round(value / TRAFFIC_STEP) * TRAFFIC_STEP)


def _unless_all_zero(values: Sequence[int]) -> list[int]:
    return list(values) if any(values) else []


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else float(round(value, digits))
