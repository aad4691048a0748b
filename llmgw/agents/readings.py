"""A node's columns of figures to what the leader keeps. What cannot be counts as not reported."""

from collections.abc import Sequence

import msgspec

from llmgw.agents.plausible import MAX_BYTES, MAX_CARDS, MAX_SHARDS, bounded, column, figure, identity, size_of
from llmgw.core.errors import InvalidInput
from llmgw.core.figures import PROFILE_SOURCES, CardFigures, EngineLoad, NodeFigures, ReplicaFigures, ToldLoad
from llmgw.core.shards import replica_and_rank
from llmgw.core.throttle import READ
from llmgw.core.wear import CardWear
from llmgw.wire.llmgw import v1 as wire

_PERCENT = 100.0
_HEAT_C = 300.0
_WATTS = 20_000.0
_MHZ = 100_000.0
_BYTES_PER_S = 1e13
"""More than the ports of any node can pass on."""
_COUNT = 2.0**53
"""Largest count that a column holds exactly."""
_UNIX_S = 1e11
_MAX_XID = 10_000
_REQUESTS = 1e6
"""More requests at one engine are none of this world."""
_AGE_S = 3600.0
_WEAR_COUNTS = (
    "pcie_replays",
    "retired_pages_sbe",
    "retired_pages_dbe",
    "remapped_rows",
    "nvlink_replay_errors",
    "nvlink_recovery_errors",
    "xid_count",
)
_WEAR_FLAGS = ("retirement_pending", "remap_pending", "remap_failed")


def figures_from(sensors: wire.Sensors, uuids: Sequence[str]) -> tuple[NodeFigures, tuple[str, ...]]:
    """Sensor readings, and the order of cards that holds from here on; `uuids` is the one that held so far.

    Raises InvalidInput for a column that does not have one entry a card.
    """
    order = tuple(uuids)
    if sensors.uuids:
        order = _order(sensors.uuids)
    figures = NodeFigures(
        cpu_percent=figure(sensors.cpu_percent, _PERCENT),
        load_1m=figure(sensors.load_1m, 1e6),
        memory_available_bytes=size_of(sensors.memory_available_bytes),
        disk_free_bytes=size_of(sensors.disk_free_bytes),
        cpu_temperature_c=figure(sensors.cpu_temperature_c, _HEAT_C),
        cpu_power_w=figure(sensors.cpu_power_w, _WATTS),
        inlet_temperature_c=figure(sensors.inlet_temperature_c, _HEAT_C),
        network_in_bytes_per_s=figure(sensors.network_in_bytes_per_s, _BYTES_PER_S),
        network_out_bytes_per_s=figure(sensors.network_out_bytes_per_s, _BYTES_PER_S),
        infiniband_in_bytes_per_s=figure(sensors.infiniband_in_bytes_per_s, _BYTES_PER_S),
        infiniband_out_bytes_per_s=figure(sensors.infiniband_out_bytes_per_s, _BYTES_PER_S),
        cards=_cards(sensors, order),
        replicas=_replicas(sensors),
    )
    return figures, order


def wear_from(message: wire.CardWear) -> dict[str, CardWear]:
    """Counts by UUID. Raises InvalidInput for a column that does not have one entry a card."""
    order = _order(message.uuids)

    def counts(name: str, limit: float = _COUNT) -> list[int | None]:
        return _whole(column(getattr(message, name), len(order), name, limit))

    def flags(name: str) -> list[bool | None]:
        return [None if value is None else value > 0 for value in column(getattr(message, name), len(order), name, 1.0)]

    counted = {name: counts(name) for name in _WEAR_COUNTS}
    flagged = {name: flags(name) for name in _WEAR_FLAGS}
    last = counts("xid_last", _MAX_XID)
    at = column(message.xid_at, len(order), "xid_at", _UNIX_S)
    found = {}
    for i, uuid in enumerate(order):
        told: dict[str, int | float | bool | None] = {name: values[i] for name, values in counted.items()}
        told |= {name: values[i] for name, values in flagged.items()}
        found[uuid] = msgspec.convert({**told, "xid_last": last[i], "xid_at": at[i]}, CardWear)
    return found


def loads_from(message: wire.EngineLoads) -> dict[str, ToldLoad]:
    """What engines say of their work, by replica. Raises InvalidInput for a column without one entry a shard."""
    shards = [identity(shard, f"shard_ids[{i}]") for i, shard in bounded(message.shard_ids, MAX_SHARDS, "shard_ids")]

    def counts(name: str) -> list[int | None]:
        return _whole(column(getattr(message, name), len(shards), name, _REQUESTS))

    running, waiting, slots = counts("running"), counts("waiting"), counts("slots")
    kv_used = column(message.kv_used, len(shards), "kv_used", 1.0)
    ages = column(message.age_s, len(shards), "age_s", _AGE_S)
    failures = _whole(column(message.failures, len(shards), "failures", _COUNT))
    found = {}
    for i, shard in enumerate(shards):
        share = kv_used[i]
        load = EngineLoad(
            running=running[i],
            waiting=waiting[i],
            slots=slots[i] or None,
            kv_used=None if share is None else round(share, 4),
        )
        # Of an age that cannot be, it is too old.
        age_s = _AGE_S if (age := ages[i]) is None else age
        found[replica_and_rank(shard)[0]] = ToldLoad(load=load, age_s=age_s, failures=failures[i] or 0)
    return found


def _cards(sensors: wire.Sensors, order: Sequence[str]) -> dict[str, CardFigures]:
    limits = {
        "utilization_percent": _PERCENT,
        "temperature_c": _HEAT_C,
        "power_w": _WATTS,
        "sm_active_percent": _PERCENT,
        "power_limit_w": _WATTS,
        "memory_temperature_c": _HEAT_C,
        "memory_utilization_percent": _PERCENT,
        "sm_clock_mhz": _MHZ,
        "memory_clock_mhz": _MHZ,
        "sm_occupancy_percent": _PERCENT,
        "tensor_active_percent": _PERCENT,
        "dram_active_percent": _PERCENT,
    }
    columns = {name: column(getattr(sensors, name), len(order), name, limit) for name, limit in limits.items()}
    used = _whole(column(sensors.memory_used_bytes, len(order), "memory_used_bytes", MAX_BYTES))
    errors = _whole(column(sensors.ecc_uncorrected, len(order), "ecc_uncorrected", _COUNT))
    reasons = column(sensors.throttle_reasons, len(order), "throttle_reasons", 2.0**32)
    sources = column(sensors.profile_source, len(order), "profile_source", len(PROFILE_SOURCES) - 1)
    return {
        uuid: CardFigures(
            **{name: values[i] for name, values in columns.items()},
            memory_used_bytes=used[i],
            ecc_uncorrected=errors[i],
            throttle_reasons=_mask(reasons[i]),
            profile_source=PROFILE_SOURCES[int(sources[i] or 0)],
        )
        for i, uuid in enumerate(order)
    }


def _replicas(sensors: wire.Sensors) -> dict[str, ReplicaFigures]:
    shards = [identity(shard, f"shard_ids[{i}]") for i, shard in bounded(sensors.shard_ids, MAX_SHARDS, "shard_ids")]
    cpu = column(sensors.shard_cpu_percent, len(shards), "shard_cpu_percent", 1e7)
    memory = _whole(column(sensors.shard_memory_bytes, len(shards), "shard_memory_bytes", MAX_BYTES))
    return {
        replica_and_rank(shard)[0]: ReplicaFigures(cpu_percent=cpu[i], memory_bytes=memory[i])
        for i, shard in enumerate(shards)
    }


def _order(uuids: Sequence[str]) -> tuple[str, ...]:
    order = tuple(identity(uuid, f"uuids[{i}]") for i, uuid in bounded(uuids, MAX_CARDS, "uuids"))
    if len(set(order)) != len(order):
        raise InvalidInput("two cards have the same uuid", field="uuids")
    return order


def _whole(values: Sequence[float | None]) -> list[int | None]:
    return [None if value is None else int(value) for value in values]


def _mask(value: float | None) -> int:
    """Reasons are those that were read; without that bit the others mean nothing."""
    mask = int(value or 0)
    return mask if mask & READ else 0
