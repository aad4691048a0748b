"""Nodes as their agents describe them. Nothing enters the cluster's state unless it is plausible and harmless.

Counts and names over their limits refuse the whole message (InvalidInput: the session ends); figures that cannot be
(NaN, negative, over a limit) count as not reported; texts lose control characters and what is over their length.
"""

import re

from llmgw.agents.plausible import (
    HOST_PATTERN,
    MAX_BYTES,
    MAX_CARDS,
    MAX_CPUS,
    MAX_ENGINES,
    MAX_PARTS,
    MAX_PID,
    MAX_PROBLEMS,
    MAX_TOOLKITS,
    NAME_CHARS,
    bounded,
    clean,
    identity,
    size_of,
    whole,
)
from llmgw.core.cluster import Card, EngineBuild, MachinePart, Node
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw import v1 as wire

_LOCAL_PATTERN = re.compile(r"(localhost|127\..*|0\..*|0|::1?|::ffff:127\..*)\Z", re.IGNORECASE)
"""What would mean the control plane's machine and not the node's."""


def node_from_hello(hello: wire.Hello, *, node: str, peer_address: str) -> Node:
    """A node as it introduces itself; `node` is the name in its certificate. Raises InvalidInput."""
    inventory = hello.inventory or wire.Inventory()
    described = node_from_inventory(inventory, node=node, peer_address=peer_address)
    return Node(
        name=node,
        address=described.address,
        agent_version=clean(hello.agent_version, NAME_CHARS),
        agent_pid=whole(hello.pid, MAX_PID),
        boot_id=clean(hello.boot_id, NAME_CHARS),
        cpus=described.cpus,
        cpu_model=described.cpu_model,
        memory_total_bytes=described.memory_total_bytes,
        memory_available_bytes=described.memory_total_bytes,
        disk_total_bytes=described.disk_total_bytes,
        cards=described.cards,
        engines=described.engines,
        numa_nodes=described.numa_nodes,
        cuda_toolkits=described.cuda_toolkits,
        parts=described.parts,
        simulated=hello.simulated,
    )


def node_from_inventory(inventory: wire.Inventory, *, node: str, peer_address: str) -> Node:
    """The parts of a node that an inventory describes. Raises InvalidInput."""
    cards = tuple(_card(card, f"cards[{i}]") for i, card in bounded(inventory.cards, MAX_CARDS, "cards"))
    if len({card.uuid for card in cards}) != len(cards):
        raise InvalidInput("two cards have the same uuid", field="cards")
    engines = tuple(_engine(e, f"engines[{i}]") for i, e in bounded(inventory.engines, MAX_ENGINES, "engines"))
    address = inventory.address or peer_address
    if not HOST_PATTERN.fullmatch(address):
        raise InvalidInput(f"{clean(address, 80)!r} is neither a host name nor an address", field="address")
    if _LOCAL_PATTERN.match(address) and peer_address and not _LOCAL_PATTERN.match(peer_address):
        raise InvalidInput(
            f"{address} is this machine's own address, and the node is at {peer_address}: set address in agent.yaml",
            field="address",
        )
    return Node(
        name=node,
        address=address,
        cpus=whole(inventory.cpus, MAX_CPUS),
        cpu_model=clean(inventory.cpu_model, NAME_CHARS),
        memory_total_bytes=whole(inventory.memory_total_bytes, MAX_BYTES),
        disk_total_bytes=whole(inventory.disk_total_bytes, MAX_BYTES),
        cards=cards,
        engines=engines,
        numa_nodes=whole(inventory.numa_nodes, MAX_CPUS),
        cuda_toolkits=tuple(clean(version, 16) for version in inventory.cuda_toolkits[:MAX_TOOLKITS]),
        parts=tuple(_part(part) for part in inventory.parts[:MAX_PARTS]),
    )


def problems(inventory: wire.Inventory | None) -> tuple[str, ...]:
    """What the agent complains of; more than MAX_PROBLEMS are left out."""
    return tuple(clean(text) for text in inventory.problems[:MAX_PROBLEMS]) if inventory else ()


def _card(card: wire.Card, where: str) -> Card:
    return Card(
        uuid=identity(card.uuid, f"{where}.uuid"),
        index=whole(card.index, MAX_CPUS),
        name=clean(card.name, NAME_CHARS),
        gpu_class=clean(card.gpu_class, NAME_CHARS),
        memory_total_bytes=size_of(card.memory_total_bytes),
        compute_capability=clean(card.compute_capability, 16),
        driver=clean(card.driver, 64),
        healthy=card.healthy,
        problem=clean(card.problem),
        bus_id=clean(card.bus_id, 32),
        parent=identity(card.parent, f"{where}.parent") if card.parent else "",
        mig_profile=clean(card.mig_profile, 32),
        unified=card.unified,
        pcie_generation=whole(card.pcie_generation, 100) or None,
        pcie_width=whole(card.pcie_width, 100) or None,
        numa_node=card.numa_node if card.numa_node is not None and card.numa_node <= MAX_CPUS else None,
        nvlink_peers=tuple(
            identity(uuid, f"{where}.nvlink_peers[{i}]")
            for i, uuid in bounded(card.nvlink_peers, MAX_CARDS, f"{where}.nvlink_peers")
        )
        if card.nvlink_read
        else None,
    )


def _part(part: wire.MachinePart) -> MachinePart:
    return MachinePart(
        kind=clean(part.kind, 16),
        name=clean(part.name, NAME_CHARS),
        state=clean(part.state, 32),
        size_bytes=whole(part.size_bytes, MAX_BYTES),
        rate_bps=whole(part.rate_bps, MAX_BYTES),
        errors=size_of(part.errors),
        link_downs=size_of(part.link_downs),
    )


def _engine(engine: wire.Engine, where: str) -> EngineBuild:
    return EngineBuild(
        engine=identity(engine.name, f"{where}.name"),
        version=clean(engine.version, NAME_CHARS),
        usable=engine.usable,
        why_not=clean(engine.why_not),
        installing=clean(engine.installing),
    )
