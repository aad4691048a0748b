"""What is there and what runs, as the agents last said it. Memory only: after a takeover it is told again in seconds.

Written by the session loop (what agents say) and the reconciler (what it ordered); everyone else reads snapshots.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from llmgw.control.loads import LoadBook
from llmgw.control.replica_book import ReplicaBook
from llmgw.control.sensor_book import SensorBook
from llmgw.control.touched import Touched
from llmgw.core.cluster import (
    HEARTBEAT_S,
    LOST_AFTER_S,
    FetchProgress,
    Node,
    NodeLink,
    Replica,
)
from llmgw.core.figures import CardFigures, NodeFigures, ReplicaFigures
from llmgw.core.wear import CardWear

ROUTING_HOLD_S = 10.0
"""After a takeover routers go on by what they heard last until the nodes spoke, which takes them a few seconds."""
SETTLE_S = LOST_AFTER_S
"""Known nodes have this long after a takeover to say what they run."""
MOMENTARY_FIELDS = (
    *("cpu_temperature_c", "cpu_power_w", "inlet_temperature_c"),
    *("network_in_bytes_per_s", "network_out_bytes_per_s", "infiniband_in_bytes_per_s", "infiniband_out_bytes_per_s"),
)
"""Readings of a node that have no last word that outlives their sensor."""
NODE_FIELDS = ("cpu_percent", "load_1m", "memory_available_bytes", "disk_free_bytes")
"""Readings of a node of which the last one stays where a sample has none."""


class Inventory:
    """Nodes and replicas. All times are the leader's monotonic seconds, given by `clock`."""

    def __init__(self, clock: Callable[[], float], changed: Callable[[], None], touched: Touched | None = None) -> None:
        """`changed` is called when there is something to decide; `touched` notes what any call changed."""
        self._clock = clock
        self._changed = changed
        self._touched = touched or Touched()
        self._told: dict[str, float] = {}
        """When each node's figures were last noted as changed."""
        self._nodes: dict[str, Node] = {}
        self._connected: set[str] = set()
        self._heard: set[str] = set()
        """Nodes that spoke since this process leads."""
        self._replicas = ReplicaBook(clock, self._touched, spoke=self._spoke)
        self._sensors = SensorBook(clock)
        self._problems: dict[str, tuple[str, ...]] = {}
        self.loads = LoadBook(clock, self.replica)
        """What engines say of their own work."""
        self._since = clock()

    def new_term(self) -> None:
        """This process begins to lead: what it heard in an earlier term is forgotten, nodes are waited for anew."""
        self._heard = set()
        self._replicas.clear()
        self.loads.clear()
        self._since = self._clock()
        self._touched.everything()

    # -- what the store says

    def expect(self, enrolled: Iterable[tuple[str, bool]]) -> None:
        """The enrolled nodes and whether each is cordoned; those not in it are forgotten with their replicas."""
        names: set[str] = set()
        for name, cordoned in enrolled:
            names.add(name)
            if name not in self._nodes:
                self._nodes[name] = Node(name=name, link=NodeLink.SILENT, heard_at=self._clock(), cordoned=cordoned)
                self._touch_node(name)
            elif self._nodes[name].cordoned != cordoned:
                self._nodes[name] = msgspec.structs.replace(self._nodes[name], cordoned=cordoned)
                self._touched.node(name)
        for gone in self._nodes.keys() - names - self._connected:
            self._forget_cards(Node(name=gone))
            del self._nodes[gone]
            self._told.pop(gone, None)
            self._sensors.forget_node(gone)
            self.loads.forget(gone)
            self._replicas.left(gone, self._replicas.on(gone))
            self._touched.everything()
        self._changed()

    def cordon(self, name: str, on: bool) -> None:
        """The node takes nothing new, or does again."""
        node = self._nodes.get(name)
        if node is not None:
            self._nodes[name] = msgspec.structs.replace(node, cordoned=on)
            self._touched.node(name)
            self._changed()

    # -- what agents say

    def connected(self, node: Node, replicas: Sequence[Replica], problems: Sequence[str] = ()) -> None:
        """An agent's Hello: the node as it is, and everything it runs. What it does not name, it does not run."""
        now = self._clock()
        self._forget_cards(node)
        cordoned = self._nodes[node.name].cordoned if node.name in self._nodes else False
        self._nodes[node.name] = msgspec.structs.replace(node, heard_at=now, link=NodeLink.CONNECTED, cordoned=cordoned)
        self._problems[node.name] = tuple(problems)
        self._connected.add(node.name)
        self._heard.add(node.name)
        self._replicas.told(node.name, replicas)
        self._touch_node(node.name)
        self._changed()

    def disconnected(self, name: str) -> None:
        """The agent's stream ended; its engines most likely run on."""
        self._connected.discard(name)
        self._touch_node(name)
        self._changed()

    def heard(self, name: str) -> None:
        """The agent said something."""
        node = self._nodes.get(name)
        if node is not None:
            now = self._clock()
            self._nodes[name] = msgspec.structs.replace(node, heard_at=now)
            # A word between two samples is no news; a node whose readings rest is heard all the same.
            if now - self._told.get(name, 0.0) >= HEARTBEAT_S:
                self._told[name] = now
                self._touched.figures(name)

    def inventory_changed(self, node: Node, problems: Sequence[str] = ()) -> None:
        """New hardware or engines on a connected node."""
        known = self._nodes.get(node.name)
        if known is None:
            return
        self._forget_cards(node)
        self._nodes[node.name] = msgspec.structs.replace(
            known,
            address=node.address,
            cpus=node.cpus,
            cpu_model=node.cpu_model,
            memory_total_bytes=node.memory_total_bytes,
            disk_total_bytes=node.disk_total_bytes,
            cards=node.cards,
            engines=node.engines,
            numa_nodes=node.numa_nodes,
            cuda_toolkits=node.cuda_toolkits,
            parts=node.parts,
        )
        self._problems[node.name] = tuple(problems)
        self._touch_node(node.name)
        self._changed()

    def sensed(self, name: str, figures: NodeFigures) -> None:
        """Newest sensor readings; no reason to reconcile."""
        node = self._nodes.get(name)
        if node is None:
            return
        given = {k: v for k in NODE_FIELDS if (v := getattr(figures, k)) is not None}
        cards = tuple(
            msgspec.structs.replace(card, memory_used_bytes=used)
            if (used := _used(figures, card.uuid)) is not None
            else card
            for card in node.cards
        )
        momentary = {k: getattr(figures, k) for k in MOMENTARY_FIELDS}
        self._nodes[name] = msgspec.structs.replace(node, cards=cards, **given, **momentary)
        if self._sensors.sensed(name, [card.uuid for card in cards], figures):
            self._touched.node(name)
        self._told[name] = self._clock()
        self._touched.figures(name)

    def worn(self, name: str, wear: Mapping[str, CardWear]) -> None:
        """Newest counts of what wears out, of the node's own cards."""
        node = self._nodes.get(name)
        if node is not None:
            self._sensors.worn([card.uuid for card in node.cards], wear)
            self._touched.node(name)

    def shard_changed(self, node: str, replica: Replica) -> None:
        """A status of a shard the agent has; one the leader never heard of is taken in when it says what it is."""
        if self._replicas.changed(node, replica):
            self._changed()

    def progressed(self, node: str, replica_ids: Sequence[str], progress: FetchProgress) -> None:
        """A download moved; not a transition. Replicas that are gone are ignored."""
        self._replicas.progressed(node, replica_ids, progress)

    # -- what the reconciler does

    def ordered(self, replica: Replica) -> None:
        """A start was sent."""
        self._replicas.ordered(replica)

    def draining(self, replica_id: str, reason: str) -> None:
        """A drain was sent; the replica leaves routing now, whatever the agent answers."""
        self._replicas.draining(replica_id, reason)

    def restart(self, replica_id: str) -> None:
        """The replica no longer counts as what is wanted; the reconciler replaces it."""
        if self._replicas.unwanted(replica_id):
            self._changed()

    def forget(self, replica_id: str) -> None:
        """A failed replica was cleared."""
        self._replicas.forget(replica_id)

    def forgive(self, model: str) -> None:
        """The next replica of the model starts without a pause."""
        self._replicas.forgive(model)

    # -- what anyone may read

    def nodes(self) -> tuple[Node, ...]:
        """Every node with its link as of now, by name."""
        now = self._clock()
        return tuple(
            msgspec.structs.replace(node, link=self._link(node, now)) for _, node in sorted(self._nodes.items())
        )

    def node(self, name: str) -> Node | None:
        """One node with its link as of now."""
        node = self._nodes.get(name)
        return None if node is None else msgspec.structs.replace(node, link=self._link(node, self._clock()))

    def node_names(self) -> frozenset[str]:
        """Names of all nodes."""
        return frozenset(self._nodes)

    def unconnected(self) -> frozenset[str]:
        """Nodes whose link may change by time alone."""
        return frozenset(self._nodes.keys() - self._connected)

    def replicas(self) -> tuple[Replica, ...]:
        """Every replica, by id."""
        return self._replicas.all()

    def replica(self, replica_id: str) -> Replica | None:
        """One replica."""
        return self._replicas.get(replica_id)

    def failures(self, model: str) -> int:
        """Replicas of the model that failed in a row."""
        return self._replicas.failures(model)

    def figures(self, card_uuid: str) -> CardFigures:
        """A card's newest readings."""
        return self._sensors.figures(card_uuid)

    def resting_since(self, card_uuid: str) -> float | None:
        """The moment from which a card did nothing; none while it works or does not tell."""
        return self._sensors.resting_since(card_uuid)

    def wear(self, card_uuid: str) -> CardWear | None:
        """A card's newest counts; none where it keeps none."""
        return self._sensors.wear(card_uuid)

    def takes(self, replica: Replica) -> ReplicaFigures:
        """What a replica's engine takes of its node."""
        return self._sensors.takes(replica)

    def engines(self, node: str) -> Mapping[str, ReplicaFigures]:
        """What the node's engines take, by replica."""
        return self._sensors.engines(node)

    def problems(self, node: str) -> tuple[str, ...]:
        """What the node's agent complains of."""
        return self._problems.get(node, ())

    def complaints(self, name: str) -> tuple[str, ...]:
        """What needs attention on the node: its agent's words, and cards that wear out while they still work."""
        node = self._nodes.get(name)
        worn = (
            f"card {card.index}: {text}"
            for card in (node.cards if node is not None else ())
            if card.healthy
            for text in self._sensors.complaints(card.uuid)
        )
        return (*self.problems(name), *worn)

    def is_connected(self, node: str) -> bool:
        """Whether orders reach the node."""
        return node in self._connected

    def settled(self) -> bool:
        """Every known node spoke since this process leads, or had SETTLE_S to."""
        return self._nodes.keys() <= self._heard or self._clock() - self._since >= SETTLE_S

    def worth_routing_by(self) -> bool:
        """Every known node spoke since this process leads, or had ROUTING_HOLD_S to: what is not here is not there."""
        return self._nodes.keys() <= self._heard or self._clock() - self._since >= ROUTING_HOLD_S

    def _forget_cards(self, node: Node) -> None:
        """Readings of cards that the node, as it now describes itself, does not have any more."""
        known = self._nodes.get(node.name)
        if known is not None:
            self._sensors.forget_cards({card.uuid for card in known.cards} - {card.uuid for card in node.cards})

    def _spoke(self, node: str) -> bool:
        """Whether the node is connected and spoke since this process leads."""
        return node in self._heard and node in self._connected

    def _touch_node(self, name: str) -> None:
        """The node itself changed, or whether it is heard."""
        self._told[name] = self._clock()
        self._touched.node(name)
        self._touched.figures(name)

    def _link(self, node: Node, now: float) -> NodeLink:
        if node.name in self._connected:
            return NodeLink.CONNECTED
        return NodeLink.LOST if now - node.heard_at >= LOST_AFTER_S else NodeLink.SILENT


def _used(figures: NodeFigures, uuid: str) -> int | None:
    card = figures.cards.get(uuid)
    return card.memory_used_bytes if card is not None else None
