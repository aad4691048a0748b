"""Sensor readings as the leader keeps them: the newest of each figure, absent where it was not reported."""

import msgspec


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


class NodeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """A node's newest sensor readings; none is "unchanged"."""

    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    cards: dict[str, CardFigures] = {}
