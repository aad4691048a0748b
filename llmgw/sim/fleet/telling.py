"""A simulated node's facts and figures as messages."""

import math
from collections.abc import Sequence

import llmgw
from llmgw.sim.fleet.load import CardFigures
from llmgw.sim.fleet.roster import CardPlan, NodePlan
from llmgw.wire.llmgw.v1 import Card, CardWear, Engine, MachinePart, Sensors

OS_BYTES = 4 * 10**9
"""Memory the made-up operating system takes."""
OS_DISK_BYTES = 60 * 10**9
NO_OTHER_ENGINE = "a simulated node runs the sim engine only: serve it a sim: source"


def card_message(card: CardPlan) -> Card:
    """What a card is."""
    return Card(
        uuid=card.uuid,
        index=card.index,
        name=card.model.name,
        gpu_class=card.model.gpu_class,
        memory_total_bytes=card.model.memory_bytes,
        compute_capability=card.model.compute_capability,
        driver="simulated",
        healthy=not card.problem,
        problem=card.problem,
        bus_id=card.bus_id,
        pcie_generation=card.model.pcie_generation,
        pcie_width=16,
        numa_node=card.numa_node,
        nvlink_peers=list(card.nvlink_peers),
        nvlink_read=True,
    )


def part_messages(plan: NodePlan) -> list[MachinePart]:
    """Its disk and its ports."""
    return [
        MachinePart(kind="disk", name="nvme0n1 (simulated)", size_bytes=plan.disk_bytes),
        MachinePart(kind="network", name="eth0 (simulated)", state="up", rate_bps=100 * 10**9, errors=0, link_downs=0),
    ]


def wear_message(plan: NodePlan) -> CardWear:
    """Counts of what wears out, which stand still."""
    cards = plan.cards
    return CardWear(
        uuids=[card.uuid for card in cards],
        pcie_replays=_column([card.wear.pcie_replays for card in cards]),
        remapped_rows=_column([card.wear.remapped_rows for card in cards]),
        remap_pending=_column([card.wear.remap_pending for card in cards]),
        remap_failed=_column([card.wear.remap_failed for card in cards]),
        nvlink_recovery_errors=_column([card.wear.nvlink_recovery_errors for card in cards]),
        xid_count=_column([card.wear.xid_count for card in cards]),
        xid_last=_column([card.wear.xid_last for card in cards]),
    )


def engine_messages() -> list[Engine]:
    """What it can start."""
    return [
        Engine(name="sim", version=llmgw.__version__, usable=True),
        Engine(name="llamacpp", version="", usable=False, why_not=NO_OTHER_ENGINE),
    ]


def sensors_message(
    plan: NodePlan,
    figures: Sequence[CardFigures],
    *,
    with_uuids: bool,
    cpu_percent: float,
    fetched_bytes: int,
) -> Sensors:
    """All figures in columns; `with_uuids` says whose, which the receiver remembers."""
    return Sensors(
        uuids=[card.uuid for card in plan.cards] if with_uuids else [],
        memory_used_bytes=[float(card.memory_used_bytes) for card in figures],
        utilization_percent=[card.utilization_percent for card in figures],
        temperature_c=[card.temperature_c for card in figures],
        power_w=[card.power_w for card in figures],
        sm_active_percent=_column([card.sm_active_percent for card in figures]),
        power_limit_w=[card.power_limit_w for card in figures],
        memory_temperature_c=_column([card.memory_temperature_c for card in figures]),
        memory_utilization_percent=[card.memory_utilization_percent for card in figures],
        sm_clock_mhz=[card.sm_clock_mhz for card in figures],
        memory_clock_mhz=[card.memory_clock_mhz for card in figures],
        throttle_reasons=[card.throttle_reasons for card in figures],
        ecc_uncorrected=_column([card.ecc_uncorrected for card in figures]),
        sm_occupancy_percent=_column([card.sm_occupancy_percent for card in figures]),
        tensor_active_percent=_column([card.tensor_active_percent for card in figures]),
        dram_active_percent=_column([card.dram_active_percent for card in figures]),
        profile_source=[card.profile_source for card in figures],
        cpu_temperature_c=float(round(34 + 0.4 * cpu_percent)),
        cpu_power_w=float(round(110 + 6 * cpu_percent)),
        inlet_temperature_c=23.0,
        network_in_bytes_per_s=float(round(cpu_percent) * 400_000),
        network_out_bytes_per_s=float(round(cpu_percent) * 1_100_000),
        cpu_percent=float(round(cpu_percent)),
        load_1m=round(plan.cpus * cpu_percent / 100, 1),
        memory_available_bytes=plan.memory_bytes - OS_BYTES,
        disk_free_bytes=max(0, plan.disk_bytes - OS_DISK_BYTES - fetched_bytes),
    )


def _column(values: Sequence[float | None]) -> list[float]:
    """One entry a card, NaN for "not reported"; empty when no card reports it."""
    if all(value is None for value in values):
        return []
    return [math.nan if value is None else value for value in values]
