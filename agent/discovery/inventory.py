"""The inventory the control plane gets: facts only, in the wire's words; figures that change are sensors."""

from collections.abc import Sequence

from agent.discovery.gpu import CardReading
from agent.discovery.host import HostFacts
from llmgw.core.cluster import Card, EngineBuild
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
    problems: Sequence[str] = (),
) -> wire.Inventory:
    """All that is known of this node; `reserve_bytes` of its memory are kept back."""
    return wire.Inventory(
        address=address,
        cpus=host.cpus,
        cpu_model=host.cpu_model,
        memory_total_bytes=max(0, host.memory_total_bytes - reserve_bytes),
        disk_total_bytes=host.disk_total_bytes,
        kernel=host.kernel,
        os=host.os,
        cards=[wire_card(card) for card in reading.cards],
        engines=[wire_engine(build) for build in engines],
        problems=[*problems, *reading.problems][:MAX_PROBLEMS],
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
    )


def wire_engine(build: EngineBuild) -> wire.Engine:
    """An engine in the wire's words."""
    return wire.Engine(name=build.engine, version=build.version, usable=build.usable, why_not=build.why_not)
