"""Where wheels are installed from: the index, a directory of this node, or a directory of the mirror's machine.

One on the mirror is a set like any weights: fetched file by file, checked against its manifest, and taken as it was
when it was first asked for. Newer wheels go into another directory.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

from agent.config import MIRROR_WHEELS
from agent.provision.progress import Progress
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import InvalidInput


class HeldSet(Protocol):
    """A set that is on this node, whole and checked."""

    @property
    def path(self) -> Path:
        """Its directory."""
        ...


Fetch = Callable[[str, Callable[[FetchProgress], None]], Awaitable[HeldSet]]
"""Brings a source's set here; raises LlmgwError."""


def mirror_source(wheelhouse: str) -> str:
    """The mirror's source that agent.yaml names; empty for a wheelhouse that is not on the mirror."""
    return f"file:{wheelhouse.removeprefix(MIRROR_WHEELS)}" if wheelhouse.startswith(MIRROR_WHEELS) else ""


async def wheels(wheelhouse: str, fetch: Fetch | None, progress: Progress) -> str:
    """The directory for uv, fetched first if it is the mirror's; raises LlmgwError."""
    source = mirror_source(wheelhouse)
    if not source:
        return wheelhouse
    if fetch is None:
        raise InvalidInput(f"{wheelhouse} is on the mirror, and this process fetches nothing", field="wheelhouse")

    def told(now: FetchProgress) -> None:
        progress.report(now.done_bytes, now.total_bytes)

    return str((await fetch(source, told)).path)
