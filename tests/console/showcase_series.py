"""The past of the cluster that the pictures are of: gentle waves, a gap, and a card that reports no profile."""

import math
from collections.abc import Sequence

from llmgw.api.series import BY_NAME, Series, SeriesAnswer
from tests.support.fleet_rows import NOW

POINTS = 300
LEVELS: dict[str, tuple[float, float]] = {
    # figure: its middle, and how far it swings
    "work": (58, 22),
    "busy": (78, 18),
    "memory": (71, 4),
    "temperature": (63, 9),
    "memory_temperature": (71, 8),
    "power": (410, 130),
    "clock": (1740, 120),
    "cpu": (31, 12),
    "host_memory": (44, 3),
    "load": (24, 9),
    "inlet": (24, 1),
    "requests": (103, 38),
    "errors": (0.4, 0.4),
    "input_tokens": (14_900, 6_000),
    "output_tokens": (7_100, 2_800),
    "first_token_p50": (180, 60),
    "first_token_p95": (610, 260),
    "gap_p95": (41, 12),
    "open": (34, 18),
    "waiting": (6, 6),
    "kv": (52, 20),
    "ready": (4, 0),
    "tokens_per_wh": (62_000, 9_000),
    "cards_working": (52, 4),
    "cards_idle": (6, 3),
    "cards_free": (28, 1),
}
"""Tensor cores, DRAM and CPU temperature are reported by nobody."""
SCALE = {"cluster": 30.0, "node": 8.0, "model": 5.0}
"""What a scope's watts are more than a card's."""


def charted(
    figures: Sequence[str], of: str, start: float, step_s: float | None, *, reported: bool = True
) -> SeriesAnswer:
    """A figure each, in waves; the tenth before the last is missing, as after a restart."""
    step = step_s or max(5.0, round((NOW - start) / POINTS / 5) * 5)
    count = int((NOW - start) // step) + 1
    return SeriesAnswer(
        start=start,
        step_s=step,
        since=NOW - 80_000,
        series=tuple(
            Series(of=of, figure=name, unit=BY_NAME[name].unit, points=_points(name, of, count) if reported else ())
            for name in figures
        ),
    )


def _points(name: str, of: str, count: int) -> tuple[float | None, ...]:
    if name not in LEVELS:
        return (None,) * count
    middle, swing = LEVELS[name]
    scale = SCALE.get(of.partition(":")[0], 1.0) if name == "power" else 1.0
    gap = range(round(count * 0.7), round(count * 0.74))
    phase = sum(map(ord, name))
    return tuple(
        None
        if place in gap
        else round(
            scale
            * max(
                0.0,
                middle
                + swing * (0.7 * math.sin(place / count * 11 + phase) + 0.3 * math.sin(place / count * 47 + phase)),
            ),
            2,
        )
        for place in range(count)
    )
