"""What goes through a machine's ports, and what is wrong with them, as facts of its page."""

from collections.abc import Iterable

from console.figures import size
from console.screens.states import aged
from console.widgets.facts import Fact
from console.widgets.paint import Span
from llmgw.api.watch import FiguresRow
from llmgw.core.cluster import MachinePart

UP = ("up", "active")
"""States of a port that passes packets on, as the kernel says them."""


def traffic_facts(figures: FiguresRow | None, ago: str = "") -> list[Fact]:
    """Bytes a second of all ports of a kind, said so long `ago` where that is not now; nothing where none is told."""
    if figures is None:
        return []
    return [
        ("network", aged(_through(figures.network_in_bytes_per_s, figures.network_out_bytes_per_s), ago)),
        ("InfiniBand", aged(_through(figures.infiniband_in_bytes_per_s, figures.infiniband_out_bytes_per_s), ago)),
    ]


def port_spans(parts: Iterable[MachinePart]) -> list[Span]:
    """`eth0 up 100 Gb/s  12 errors, link down 3×`, one port after the other."""
    spans: list[Span] = []
    for part in parts:
        if part.kind == "disk":
            continue
        rate = f" {part.rate_bps / 10**9:g} Gb/s" if part.rate_bps else ""
        trouble = ", ".join(
            words
            for words in (
                f"{part.errors:,} errors" if part.errors else "",
                f"link down {part.link_downs:,}×" if part.link_downs else "",
            )
            if words
        )
        spans += [(f"{part.name} ", ""), (f"{part.state}{rate}  ", "dim" if part.state in UP else "warn")]
        spans += [(f"{trouble}  ", "warn")] if trouble else []
    return spans


def _through(into: float | None, out: float | None) -> list[Span]:
    ways = (("in", into), ("out", out))
    told = [(way, value) for way, value in ways if value is not None]
    return [span for way, value in told for span in ((f"{size(value)}/s", "strong"), (f" {way}  ", "dim"))]
