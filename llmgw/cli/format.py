"""Figures as people read them."""

from datetime import UTC, datetime

_SIZES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: int | None) -> str:
    """Bytes in decimal units, three figures; `-` for none."""
    if count is None:
        return "-"
    for unit, name in _SIZES:
        if count >= unit:
            value = count / unit
            return f"{value:.0f} {name}" if value >= 100 else f"{value:.3g} {name}"
    return f"{count} B"


def duration(seconds: float | None) -> str:
    """`43s`, `12m`, `5h`, `3d`: one unit, rounded down; `-` for none."""
    if seconds is None:
        return "-"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * unit:
            return f"{int(seconds // unit)}{name}"
    return f"{max(0, int(seconds))}s"


def when(time: datetime | None) -> str:
    """A time in UTC to the second; `-` for none."""
    return "-" if time is None else time.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def share(used: int, total: int) -> str:
    """`6.1/16 GB`; `-` while the total is not known."""
    if total <= 0:
        return "-"
    return f"{_gigabytes(used)}/{_gigabytes(total)} GB"


def _gigabytes(count: int) -> str:
    value = count / 10**9
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
