"""Small files in `run/` by which the control plane tells routers something that they follow by themselves."""

import os
from pathlib import Path

import msgspec


def tell(path: Path, told: msgspec.Struct) -> None:
    """Put `told` at `path` as JSON (0600), whole or not at all; raises OSError."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(told))
    part.replace(path)


def tell_nothing(path: Path) -> None:
    """Take back what was told at `path`; raises OSError."""
    path.unlink(missing_ok=True)
