"""`nvidia-smi -L`: which MIG instance has which name. Its place within its card joins it to the XML."""

import re
from dataclasses import dataclass

_CARD = re.compile(r"GPU \d+: .*\(UUID: (GPU-[0-9A-Za-z-]{1,120})\)")
_INSTANCE = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: (MIG-[0-9A-Za-z/-]{1,120})\)")


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One MIG instance."""

    uuid: str
    profile: str
    """As the driver names it: `3g.40gb`, `1c.3g.40gb`."""


def parse_list(text: str) -> dict[str, Listed]:
    """Instances by their card's UUID and their place on it: `GPU-a/0`."""
    found: dict[str, Listed] = {}
    card = ""
    for line in text.splitlines():
        if match := _CARD.match(line):
            card = match[1]
        elif (match := _INSTANCE.match(line)) and card:
            found[f"{card}/{match[2]}"] = Listed(uuid=match[3], profile=match[1])
    return found
