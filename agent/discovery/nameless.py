"""A chip whose driver gives it no UUID (an integrated GPU) is named after its machine and its place in it."""

import hashlib
import re
from pathlib import Path

_MACHINE_ID = Path("etc/machine-id")
_NAME = re.compile(r"GPU-index-([0-9]{1,3})-at-[0-9a-f]{12}")


def name_of(index: int, *, root: Path = Path("/")) -> str:
    """`GPU-index-0-at-3f2a91c07b55`: the same after a restart, and another on every machine."""
    try:
        machine = (root / _MACHINE_ID).read_bytes().strip()
    except OSError:
        machine = b""
    return f"GPU-index-{index}-at-{hashlib.sha256(machine).hexdigest()[:12]}"


def index_of(uuid: str) -> str:
    """The index CUDA knows such a chip by; empty for a card with a UUID of its own."""
    match = _NAME.fullmatch(uuid)
    return match[1] if match else ""
