"""A chip whose driver gives it no UUID (an integrated GPU) is named after its machine and its place in it."""

import hashlib
import re
from pathlib import Path

from agent.discovery.gpu_class import uses_host_memory

_MACHINE_ID = Path("etc/machine-id")
_NAME = re.compile(r"GPU-index-([0-9]{1,3})-at-[0-9a-f]{12}")


def name_of(index: int, *, root: Path = Path("/")) -> str:
    """`GPU-index-0-at-3f2a91c07b55`: the same after a restart, and another on every machine."""
    try:
        machine = (root / _MACHINE_ID).read_bytes().strip()
    except OSError:
        machine = b""
    return f"GPU-index-{index}-at-{hashlib.sha256(machine).hexdigest()[:12]}"


def named(name: str, index: int) -> str:
    """The same for a chip of that model; empty for a model that has a UUID of its own, and should have told it."""
    return name_of(index) if uses_host_memory(name) else ""


def index_of(uuid: str) -> str:
    """The index CUDA knows such a chip by; empty for a card with a UUID of its own."""
    match = _NAME.fullmatch(uuid)
    return match[1] if match else ""
