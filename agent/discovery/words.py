"""What a driver's text says: a figure, or nothing. Every way of not knowing is absent, and never zero."""

import re

MIB = 1024 * 1024
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?")
_BUS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?")
_ERRORS = frozenset(
    (
        *("err!", "unknown error", "gpu is lost", "gpu requires reset", "reset required", "timeout"),
        *("gpu requires restart", "interrupt request issue", "insufficient external power"),
        "the operating system has blocked the request",
        *("uninitialized", "gpu not found", "driver not loaded", "system is not in ready state"),
        "gpu access blocked by the operating system",
    )
)
"""What stands in a figure's place when the card does not answer; other words mean that it does not have the figure."""
_NOTHING = frozenset(("n/a", "not supported", "not available", "unknown", "insufficient permissions"))
UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{1,80}(/[0-9]{1,4}){0,2}")
"""What every driver's names of cards and instances look like."""


def figure(text: str | None) -> float | None:
    """A number, with or without a unit (`11.17 W`, `16x`, `0 %`, `35`); none for everything else."""
    word = next(iter((text or "").split()), "").removesuffix("x").removesuffix("MiB").removesuffix("%")
    return float(word) if _NUMBER.fullmatch(word) else None


def count(text: str | None) -> int | None:
    """A whole number that is not negative."""
    value = figure(text)
    return None if value is None or value < 0 or value != int(value) else int(value)


def mebibytes(text: str | None) -> int | None:
    """Bytes of a figure in MiB."""
    value = figure(text)
    return None if value is None or value < 0 else int(value * MIB)


def percent(text: str | None) -> float | None:
    """A share, 0 to 100; anything outside is no share."""
    value = figure(text)
    return value if value is not None and 0 <= value <= 100 else None


def positive(text: str | None) -> float | None:
    """A figure over zero: a limit or a clock of 0 says nothing."""
    value = figure(text)
    return value if value is not None and value > 0 else None


def yes(text: str | None) -> bool | None:
    """`Yes` or `No`, or `1` and `0`."""
    return {"yes": True, "no": False, "1": True, "0": False}.get((text or "").strip().lower())


def said(text: str | None) -> str:
    """A word that says something: not `N/A`, `Not Supported`, an error, or whatever else stands in brackets."""
    word = (text or "").strip()
    bracketed = word.startswith("[") and word.endswith("]")
    return "" if bracketed or broken(word) or _plain(word) in _NOTHING else word


def broken(text: str | None) -> bool:
    """Whether the driver had an error where a figure belongs, which is more than not having the figure."""
    return _plain(text or "") in _ERRORS


def _plain(text: str) -> str:
    return text.strip().strip("[]").strip().rstrip(".").lower()


def bus_id(text: str | None) -> str:
    """A PCI address in one spelling, `0000:0b:00.0`; empty when the text holds none."""
    match = _BUS.search(text or "")
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function or '0'}"
