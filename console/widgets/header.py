"""The first line: which cluster, who leads it, and how fresh everything below is. Only what differs is repainted."""

import time
from dataclasses import dataclass

from textual.geometry import Region
from textual.strip import Strip

from console.figures import age
from console.signs import signs
from console.state.cluster import ClusterState
from console.state.store import Link
from console.widgets.paint import LineWidget, Span
from llmgw.api.watch import ClusterRow

CLOCK_COLUMNS = 9


@dataclass(frozen=True, kw_only=True)
class HeaderFacts:
    """What the header shows."""

    context: str
    state: ClusterState
    link: Link
    read_only: bool
    now: float
    """Our unix time."""


class Header(LineWidget):
    """Cluster, leader and version at the left; freshness and clock at the right."""

    def __init__(self) -> None:
        super().__init__(id="header")
        self._left: list[Span] = []
        self._right: list[Span] = []

    def set_facts(self, facts: HeaderFacts) -> None:
        """Show these."""
        left, right = _left(facts), _right(facts)
        if (left, right[:-1]) != (self._left, self._right[:-1]):
            self.refresh()
        elif right != self._right:
            self.refresh(Region(self.size.width - CLOCK_COLUMNS, 0, CLOCK_COLUMNS, 1))
        self._left, self._right = left, right

    def render_line(self, y: int) -> Strip:
        """The line."""
        return self.pair(self._left, self._right, self.size.width)


def _leader(head: ClusterRow) -> str:
    """The leader as people call it: its machine, or its id while the machine is not known here."""
    return next((server.host for server in head.servers if server.id == head.leader), head.leader or "")


def _left(facts: HeaderFacts) -> list[Span]:
    spans: list[Span] = [(f" {signs().logo} ", "accent"), ("llmgw", "accent"), (f"  {facts.context}", "strong")]
    head = facts.state.head
    if facts.read_only:
        spans += [("  ", ""), (f" {signs().lock} ", "chip")]
    if head is not None:
        spans += [("  leader ", "dim"), (_leader(head), "") if head.leader else ("none", "bad")]
        planes = len(head.servers)
        if planes > 1:
            spans.append((f" {signs().dot} {planes} control planes", "dim"))
        spans.append((f" {signs().dot} v{head.version}", "dim"))
    return spans


def _right(facts: HeaderFacts) -> list[Span]:
    link = facts.link
    since = age(max(0.0, facts.now - link.since)) if link.since else ""
    clock: Span = (time.strftime("%H:%M:%S ", time.localtime(facts.now)), "")
    if link.live:
        return [(f"{signs().live} live ", "good"), clock]
    if link.state == "lost":
        return [(f" {signs().lost} lost, data is {since} old, reconnecting ", "bad"), clock]
    return [(f"{signs().lost} connecting ", "warn"), clock]
