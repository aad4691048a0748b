"""The inventory the control plane gets: facts only, in the wire's words; figures that change are sensors."""

from collections.abc import Sequence

from agent.discovery.cuda import Toolkit
from agent.discovery.gpu import CardReading
from agent.discovery.host import HostFacts
from llmgw.core.cluster import MAX_NODE_CARDS, Card, EngineBuild, MachinePart
from llmgw.wire.llmgw import v1 as wire

MAX_PROBLEMS = 64
"""Sentences sent at most, so that a broken tool cannot fill a message."""


def build_inventory(
    *,
    address: str,
    host: HostFacts,
    reserve_bytes: int,
    reading: CardReading,
    engines: Sequence[EngineBuild],
    toolkits: Sequence[Toolkit] = (),
    cpu_nodes: int = 0,
    parts: Sequence[MachinePart] = (),
    problems: Sequence[str] = (),
) -> wire.Inventory:
    """All that is known of this node; `reserve_bytes` of its memory are kept back."""
    cards = reading.cards[:MAX_NODE_CARDS]
    left_out = len(reading.cards) - len(cards)
    more = [f"{left_out} cards and instances past {MAX_NODE_CARDS} are left out."] if left_out else []
    return wire.Inventory(
        address=address,
        cpus=host.cpus,
        cpu_model=host.cpu_model,
        memory_total_bytes=max(0, host.memory_total_bytes - reserve_bytes),
        disk_total_bytes=host.disk_total_bytes,
        kernel=host.kernel,
        os=host.os,
        cards=[wire_card(card) for card in cards],
        engines=[wire_engine(build) for build in engines],
        problems=[*problems, *more, *reading.problems][:MAX_PROBLEMS],
        cuda_toolkits=[toolkit.version for toolkit in toolkits],
        numa_nodes=cpu_nodes,
        parts=[wire_part(part) for part in parts],
    )


def wire_card(card: Card) -> wire.Card:
    """A card in the wire's words."""
    return wire.Card(
        uuid=card.uuid,
        index=card.index,
        name=card.name,
        gpu_class=card.gpu_class,
        memory_total_bytes=card.memory_total_bytes,
        compute_capability=card.compute_capability,
        driver=card.driver,
        healthy=card.healthy,
        problem=card.problem,
        bus_id=card.bus_id,
        parent=card.parent,
        mig_profile=card.mig_profile,
        unified=card.unified,
        pcie_generation=card.pcie_generation or 0,
        pcie_width=card.pcie_width or 0,
        numa_node=card.numa_node,
        nvlink_peers=list(card.nvlink_peers or ()),
        nvlink_read=card.nvlink_peers is not None,
    )


def wire_part(part: MachinePart) -> wire.MachinePart:
    """A disk or a port in the wire's words."""
    return wire.MachinePart(
        kind=part.kind,
        name=part.name,
        state=part.state,
        size_bytes=part.size_bytes,
        rate_bps=part.rate_bps,
        errors=part.errors,
        link_downs=part.link_downs,
    )


def wire_engine(build: EngineBuild) -> wire.Engine:
    """An engine in the wire's words."""
    return wire.Engine(
        name=build.engine,
        version=build.version,
        usable=build.usable,
        why_not=build.why_not,
        installing=build.installing,
    )
