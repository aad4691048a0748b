"""Fresh samples for whoever looks: a node is asked for one, and tells it as it tells every other, to everyone.

However many screens ask, a node is asked once a second at most, and not again before it answered. Nothing is changed
anywhere, so nothing is audited.
"""

from collections.abc import Callable
from typing import Protocol

from llmgw.api.types import Result
from llmgw.control.inventory import Inventory
from llmgw.core.cluster import SILENT_AFTER_S, NodeLink
from llmgw.core.errors import NotFound, Unavailable
from llmgw.core.near import did_you_mean

ASK_EVERY_S = 0.95
"""Screens ask every second, by clocks that may be a little early; the agent itself keeps to a whole second."""
ANSWER_S = 15.0
"""An answer that takes longer is lost with the order: the node may be asked again."""


class SampleOrders(Protocol):
    """The agents, as far as samples go."""

    def take_sample(self, node: str) -> bool:
        """Ask a node for a fresh sample; False when it is not connected."""


class SampleService:
    """Asks nodes for samples, at a pace that does not depend on how many look."""

    def __init__(self, *, inventory: Inventory, orders: SampleOrders, clock: Callable[[], float]) -> None:
        """`clock` is the inventory's."""
        self._inventory = inventory
        self._orders = orders
        self._clock = clock
        self._able: set[str] = set()
        """Connected nodes whose agents know what is asked."""
        self._asked_at: dict[str, float] = {}
        self._awaited: set[str] = set()
        """Nodes that were asked and have not answered."""

    def connected(self, node: str, *, able: bool) -> None:
        """A node has a new stream: what the one before was asked is lost."""
        self.lost(node)
        if able:
            self._able.add(node)

    def lost(self, node: str) -> None:
        """A node's stream ended."""
        self._able.discard(node)
        self._awaited.discard(node)
        self._asked_at.pop(node, None)

    def told(self, node: str) -> None:
        """A node told a sample."""
        self._awaited.discard(node)

    def ask(self, name: str) -> Result:
        """Ask a node unless it was just now; what became of it. Raises NotFound, and Unavailable for a silent node."""
        node = self._inventory.node(name)
        if node is None:
            hint = did_you_mean(name, self._inventory.node_names()) or "; `llmgw ctl nodes` lists them"
            raise NotFound(f"there is no node {name!r}{hint}")
        now = self._clock()
        if node.link is not NodeLink.CONNECTED:
            raise Unavailable(f"{name} cannot be asked for a sample: it is not connected")
        if now - node.heard_at >= SILENT_AFTER_S:
            raise Unavailable(f"{name} cannot be asked for a sample: it said nothing for {now - node.heard_at:.0f} s")
        if name not in self._able:
            return Result(message=f"{name} is not asked: its agent is older than this server, and tells by itself")
        since_s = now - self._asked_at.get(name, -ANSWER_S)
        if since_s < (ANSWER_S if name in self._awaited else ASK_EVERY_S):
            return Result(message=f"{name} was asked for a sample {since_s:.1f} s ago, and tells everyone who looks")
        if not self._orders.take_sample(name):
            raise Unavailable(f"{name} cannot be asked for a sample: its connection was just lost")
        self._asked_at[name] = now
        self._awaited.add(name)
        return Result(message=f"{name} was asked for a fresh sample")
