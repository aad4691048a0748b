"""Wheels for nodes without a package index: a directory below the one that server.yaml names, and of it wheels alone.

Whoever may name a source could otherwise have any directory of this machine searched for what ends with `.whl`.
"""

from collections.abc import Callable
from pathlib import Path

from llmgw.core.errors import InvalidInput
from llmgw.mirror.source import MirrorConfig

_ZIP = b"PK\x03\x04"


def in_wheelhouse(directory: Path, config: MirrorConfig) -> bool:
    """Whether a directory is one that wheels may be served from, links followed."""
    return config.wheelhouse is not None and directory.resolve().is_relative_to(config.wheelhouse.resolve())


def wheels_of(names: list[str]) -> list[str]:
    """Of a directory's files the wheels; raises InvalidInput where there are none."""
    wheels = sorted(name for name in names if name.endswith(".whl"))
    if not wheels:
        raise InvalidInput("it is in the wheelhouse and holds no wheels", field="source")
    return wheels


def wheel_check(name: str) -> Callable[[bytes], str | None]:
    """A check of a wheel's first bytes."""

    def check(head: bytes) -> str | None:
        return None if head.startswith(_ZIP) else f"{name} is not a wheel inside; the file is damaged"

    return check
