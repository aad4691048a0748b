"""Figures as an operator reads them: three digits that matter, their unit, a dash for what nobody reported."""

import math
import time

from console.signs import signs

_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
_COUNTS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def known(value: float | None) -> bool:
    """Whether there is a figure at all."""
    return value is not None and math.isfinite(value)


def size(count: float | None) -> str:
    """Bytes in decimal units: `188 GB`, `1.2 GB`."""
    if count is None or not math.isfinite(count):
        return signs().dash
    for unit, name in _SIZES:
        if count >= unit:
            value = count / unit
            return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"
    return f"{count:.0f} B"


def pair(used: float | None, total: float | None) -> str:
    """`61/188 GB`, both in the unit of the total; a little of it has two decimals, the least is `<0.01`."""
    if not total or used is None:
        return signs().dash
    for unit, name in _SIZES:
        if total >= unit:
            return f"{_part(used / unit)}/{total / unit:.3g} {name}"
    return f"{used:.0f}/{total:.0f} B"


def _part(value: float) -> str:
    if 0 < value < 0.1:
        return "<0.01" if value < 0.01 else f"{value:.2f}"
    return f"{value:.3g}"


def count(value: float | None) -> str:
    """`412`, `0.4`, `28.4k`."""
    if value is None or not math.isfinite(value):
        return signs().dash
    for unit, name in _COUNTS:
        if abs(value) >= unit:
            return f"{value / unit:.3g}{name}"
    return f"{value:.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.1f}"


def money(micros: int | None) -> str:
    """`12.40`, `0.0042`, `12.4k`: two decimals, more where they say nothing, fewer of thousands."""
    if micros is None:
        return signs().dash
    units = micros / 1_000_000
    if abs(units) >= 10_000:
        return count(units)
    if micros and abs(units) < 0.1:
        return f"{units:.6f}".rstrip("0").ljust(4, "0") if abs(units) < 0.0001 else f"{units:.4f}"
    return f"{units:,.2f}"


def percent(value: float | None) -> str:
    """`61%`."""
    return signs().dash if value is None or not math.isfinite(value) else f"{value:.0f}%"


def rate(share: float) -> str:
    """A share in percent of which little matters: `0.02%`, `3.3%`, `100%`."""
    return f"{share:.2g}%" if share < 10 else f"{share:.0f}%"


def millis(value: float | None) -> str:
    """`180 ms`, `2.4 s`."""
    if value is None or not math.isfinite(value):
        return signs().dash
    return f"{value:.0f} ms" if value < 1000 else f"{value / 1000:.3g} s"


def watts(value: float | None) -> str:
    """`310 W`, `14.2 kW`, `2.6 MW`."""
    if value is None or not math.isfinite(value):
        return signs().dash
    if value < 1000:
        return f"{value:.0f} W"
    return f"{value / 1000:.3g} kW" if value < 999_500 else f"{value / 1_000_000:.3g} MW"


def age(seconds: float | None) -> str:
    """`43 s`, `3 min`, `5 h 12 min`, `3 d`: rounded down, two units where the second one matters."""
    if seconds is None or not math.isfinite(seconds):
        return signs().dash
    whole = max(0, int(seconds))
    if whole < 120:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    if minutes < 120:
        return f"{minutes} min"
    if hours < 24:
        return f"{hours} h {minutes % 60} min" if minutes % 60 and hours < 10 else f"{hours} h"
    return f"{whole // 86400} d"


def short_age(seconds: float | None) -> str:
    """`43s`, `3m`, `5h`, `3d`: for a column."""
    if seconds is None or not math.isfinite(seconds):
        return signs().dash
    whole = max(0, int(seconds))
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if whole >= 2 * unit:
            return f"{whole // unit}{name}"
    return f"{whole}s"


def clock(seconds: float) -> str:
    """`0:43`, `12:07`: how long something under way takes."""
    whole = max(0, int(seconds))
    return (
        f"{whole // 60}:{whole % 60:02d}"
        if whole < 3600
        else f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"
    )


def moment(unix_s: float | None) -> str:
    """A server's moment in local time, `2026-03-01 12:41:07`."""
    if not unix_s or not math.isfinite(unix_s) or abs(unix_s) > 1e11:
        return signs().dash
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(unix_s))


def plural(number: int, word: str, words: str = "") -> str:
    """`1 replica`, `3 replicas`."""
    return f"{number:,} {word if number == 1 else words or word + 's'}"


def spark(values: list[float], columns: int, *, top: float | None = None) -> str:
    """The newest `columns` of `values` as one line of bars; unknown figures are gaps."""
    rows = spark_rows(values, columns, 1, top=top)
    return rows[0]


def spark_rows(values: list[float], columns: int, rows: int, *, top: float | None = None) -> list[str]:
    """Bars `rows` lines high, the newest at the right; `top` is the full height, by default the highest value."""
    bars = signs().bar
    steps = len(bars) - 1
    shown = values[-columns:] if columns > 0 else []
    finite = [value for value in shown if math.isfinite(value)]
    full = top or max(finite, default=0.0) or 1.0
    # A figure above zero is always seen: it gets the lowest bar at least.
    heights = [
        -1
        if not math.isfinite(value)
        else min(rows * steps, max(round(value / full * rows * steps), 1 if value > 0 else 0))
        for value in shown
    ]
    lines: list[str] = []
    for row in range(rows - 1, -1, -1):
        floor = row * steps
        lowest = bars[1] if row == 0 else bars[0]
        line = "".join(
            [
                " " if height < 0 else lowest if height <= floor else bars[min(steps, height - floor)]
                for height in heights
            ]
        )
        lines.append(line.rjust(columns))
    return lines
