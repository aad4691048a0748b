"""Figures as people read them. Decimal units, as disks, cards and vendors' pages use them."""

KIB = 1024
MIB = 1024 * KIB
GB = 10**9

_STEPS = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def size(count: int) -> str:
    """`98 MB`, `1.2 GB`, `512 B`: three significant figures at most."""
    for step, unit in _STEPS:
        if count >= step:
            value = count / step
            return f"{value:.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{count} B"


def plural(count: int, noun: str) -> str:
    """`1 replica`, `2 replicas`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def span(seconds: float) -> str:
    """`30 s`, `7 min`, `3 h`, `2 d`: one unit, rounded down, changing the more seldom the longer it is."""
    for unit_s, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)} {unit}"
    return f"{max(0, int(seconds))} s"
