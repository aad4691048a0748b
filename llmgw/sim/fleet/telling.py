"""A simulated node's facts and figures as messages."""

import math
from collections.abc import Sequence

import llmgw
from llmgw.sim.fleet.load import CardFigures
from llmgw.sim.fleet.roster import CardPlan, NodePlan
from llmgw.wire.llmgw.v1 import Card, Engine, Sensors

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
