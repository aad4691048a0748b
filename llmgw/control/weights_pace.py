"""How fast weights may move, as the settings have it: the mirror from outside, and nodes from the mirror."""

from typing import NamedTuple

from llmgw.core.cluster import FetchProgress
from llmgw.core.units import size
from llmgw.mirror.service import Mirror

MB = 1_000_000
LEAST_MB_S = 0.1
MOST_MB_S = 100_000.0
KEYS = {"download_mb_s": "weights.download_mb_s", "serve_mb_s": "weights.serve_mb_s"}
"""Field of `Pace` → its key."""


class Pace(NamedTuple):
    """Megabytes a second, of 10**6 bytes; 0 is no limit."""

    download_mb_s: float = 0.0
    """What the mirror takes from outside, all sets together."""
    serve_mb_s: float = 0.0
    """What it gives to nodes, all nodes together."""

    def apply(self, mirror: Mirror) -> None:
        """Have the mirror keep to it, also in what is on its way."""
        mirror.downloads.set(round(self.download_mb_s * MB))
        mirror.serving.set(round(self.serve_mb_s * MB))


def check_speed(mb_s: float) -> str:
    """What is wrong with a speed in MB/s, or nothing."""
    if mb_s == 0 or LEAST_MB_S <= mb_s <= MOST_MB_S:
        return ""
    return f"{mb_s:g} MB/s is neither 0, which is no limit, nor within {LEAST_MB_S:g} to {MOST_MB_S:,.0f}"


def limited(bytes_s: int) -> str:
    """`limited to 20 MB/s in all`; nothing without a limit."""
    return f"limited to {size(bytes_s)}/s in all" if bytes_s else ""


def limited_fetch(mirror: Mirror, progress: FetchProgress | None) -> str:
    """Likewise of weights on their way to a node, by which limit they move now."""
    moving = {"mirror": mirror.downloads, "fetching": mirror.serving}.get(progress.phase if progress else "")
    return limited(moving.bytes_s) if moving is not None else ""
