"""What sensors of a simulated card show: load follows the tokens its replicas made, everything else follows load.

Deterministic for a given source of chance and history. Idle figures stand still, so that an idle fleet has no news.
"""

import random
from dataclasses import dataclass

from llmgw.core import throttle
from llmgw.core.figures import PROFILE_SOURCES
from llmgw.sim.fleet.cards import MIB, CardModel

SMOOTHING = 0.6
"""Part of the way to its new load that a card goes in one sample."""
WARMING = 0.25
"""Part of the way to its new temperature that a card goes in one sample."""
AMBIENT_C = 29.0
HOT_C = 47.0
"""Degrees over ambient at the power limit."""
HELD_W = 26.0
"""What a loaded model costs while nobody asks: memory and clocks stay up."""
CONTEXT_BYTES = 520 * MIB
"""Driver's context on a card that a process uses."""
STEP_BYTES = 64 * MIB
"""Memory figures are rounded to this, as real allocators move in blocks."""
CAPPED = 0.94
"""Part of its power limit from which a card's clocks are held back."""
IDLE_CLOCK_MHZ = 345.0
IDLE = 0.004
"""Load below this is none."""


@dataclass(frozen=True, kw_only=True)
class CardFigures:
    """One sample; None is "this card does not tell"."""

    memory_used_bytes: int
    utilization_percent: float
    temperature_c: float
    power_w: float
    sm_active_percent: float | None
    power_limit_w: float
    memory_temperature_c: float | None
    memory_utilization_percent: float
    sm_clock_mhz: float
    memory_clock_mhz: float
    throttle_reasons: int
    ecc_uncorrected: float | None
    sm_occupancy_percent: float | None
    tensor_active_percent: float | None
    dram_active_percent: float | None
    profile_source: int


class CardLoad:
    """One card's memory of its last samples."""

    def __init__(self, model: CardModel, chance: random.Random) -> None:
        self._model = model
        self._chance = chance
        self._work = 0.0
        self._busy = 0.0
        self._temperature = AMBIENT_C + HOT_C * model.idle_w / model.power_limit_w

    def sample(self, *, streams: float, slots: int, held_bytes: int) -> CardFigures:
        """Figures after an interval in which `streams` answers (on average) were worked on.

        `held_bytes` is what replicas reserved on the card, 0 for a card that nobody holds.
        """
        model = self._model
        wanted = 0.16 + 0.78 * min(1.0, streams / max(1, slots)) ** 0.8 if streams > IDLE else 0.0
        wanted *= min(1.0, streams) if streams < 1 else 1.0
        self._work = _toward(self._work, wanted, SMOOTHING)
        self._busy = _toward(self._busy, min(1.0, streams * 0.97), SMOOTHING)
        noise = self._chance.uniform(-0.025, 0.025) if self._work > 0 else 0.0
        work = min(1.0, max(0.0, self._work + noise)) if self._work > 0 else 0.0
        busy = min(1.0, max(self._busy, work))
        floor_w = model.idle_w + (HELD_W if held_bytes else 0.0)
        power_w = floor_w + (model.power_limit_w * 0.97 - floor_w) * work**0.85
        goal_c = AMBIENT_C + HOT_C * power_w / model.power_limit_w
        self._temperature = _toward(self._temperature, goal_c, WARMING, near=0.5)
        capped = power_w >= CAPPED * model.power_limit_w
        return CardFigures(
            memory_used_bytes=self._memory(held_bytes),
            utilization_percent=float(round(100 * busy)),
            temperature_c=float(round(self._temperature)),
            power_w=float(round(power_w)),
            sm_active_percent=float(round(100 * work * 0.82)) if model.reads_sm_active else None,
            power_limit_w=model.power_limit_w,
            memory_temperature_c=float(round(self._temperature + 7)) if model.reads_memory_temperature else None,
            memory_utilization_percent=float(round(70 * busy)),
            sm_clock_mhz=model.clock_mhz * (0.92 if capped else 1.0) if work > 0 else IDLE_CLOCK_MHZ,
            memory_clock_mhz=model.memory_clock_mhz,
            throttle_reasons=throttle.READ | (throttle.POWER_CAP if capped else 0),
            ecc_uncorrected=0.0 if model.reads_memory_temperature else None,
            sm_occupancy_percent=float(round(100 * work * 0.31)) if model.reads_sm_active else None,
            tensor_active_percent=float(round(100 * work * 0.24)) if model.reads_sm_active else None,
            dram_active_percent=float(round(100 * work * 0.66)) if model.reads_sm_active else None,
            profile_source=PROFILE_SOURCES.index(model.profile_source),
        )

    def _memory(self, held_bytes: int) -> int:
        """Engines take what was reserved for them, and their context beside it."""
        if not held_bytes:
            return 0
        used = min(held_bytes + CONTEXT_BYTES, self._model.memory_bytes)
        return used - used % STEP_BYTES


def _toward(value: float, goal: float, part: float, *, near: float = IDLE) -> float:
    """Part of the way to `goal`; all of it when it is near."""
    moved = value + (goal - value) * part
    return goal if abs(goal - moved) < near else moved
