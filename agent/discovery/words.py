"""What a driver's text says: a figure, or nothing. Every way of not knowing is absent, and never zero."""

import re

MIB = 1024 * 1024
_NUMBER = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,6})?")
_BUS = re.compile(r"(?:([0-9A-Fa-f]{4,8}):)?([0-9A-Fa-f]{2}):([0-9A-Fa-f]{2})(?:\.([0-7]))?")
_ERRORS = frozenset({"err!", "unknown error", "gpu is lost", "gpu requires reset"})
UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z-]{1,80}(/[0-9]{1,4}){0,2}")
"""What every driver's names of cards and instances look like."""


def figure(text: str | None) -> float | None:
    """A number, with or without a unit (`11.17 W`, `16x`, `0 %`, `35`); none for everything else."""
    word = (text or "").strip().split(" ")[0].removesuffix("x").removesuffix("MiB").removesuffix("%")
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
    """A word that says something: not `N/A`, `[N/A]`, `Not Supported` or an error."""
    word = (text or "").strip()
    plain = word.strip("[]").lower()
    return "" if plain in _ERRORS or plain in ("n/a", "not supported", "unknown", "insufficient permissions") else word


def broken(text: str | None) -> bool:
    """Whether the driver had an error where a figure belongs, which is more than not having the figure."""
    return (text or "").strip().strip("[]").lower() in _ERRORS


def bus_id(text: str | None) -> str:
    """A PCI address in one spelling, `0000:0b:00.0`; empty when the text holds none."""
    match = _BUS.search(text or "")
    if match is None:
        return ""
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{bus.lower()}:{device.lower()}.{function or '0'}"
