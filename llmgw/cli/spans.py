"""Spans of time as people type them: `30s`, `15m`, `24h`, `7d`, `2w`."""

import re

_SPAN = re.compile(r"([0-9]{1,6})([smhdw])")
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


def seconds_of(text: str) -> int | None:
    """The seconds of a span; none for anything else."""
    match = _SPAN.fullmatch(text)
    return None if match is None else int(match[1]) * _UNITS[match[2]]
