"""Places for replicas that span several nodes: all of the nodes or none, each with the same number of cards.

Nodes that have InfiniBand at work are taken before others, when there are enough of them: what the shards say to one
another with every token goes over the network between them.
"""

from collections.abc import Collection, Sequence

import msgspec

from llmgw.core.catalog import Profile
from llmgw.core.cluster import Node
from llmgw.core.fit import MemoryNeed
from llmgw.core.judging import nearness
from llmgw.core.units import plural, size
from llmgw.core.verdicts import NodeVerdict


class NodePlace(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part of a place."""

    node: str
    cards: tuple[str, ...]


def with_fabric(nodes: Sequence[Node]) -> frozenset[str]:
    """Nodes with an InfiniBand port that is up."""
    return frozenset(
        node.name for node in nodes if any(p.kind == "infiniband" and p.state == "active" for p in node.parts)
    )


def chosen(ranked: Sequence[NodePlace], profile: Profile, fabric: Collection[str]) -> tuple[NodePlace, ...]:
    """As many of the nodes as the profile spans, the first of them for the head; none when there are too few.

    `ranked` are all nodes with room for their part, the best first.
    """
    preferred = [place for place in ranked if place.node in fabric]
    pool = preferred if len(preferred) >= profile.nodes else list(ranked)
    return tuple(pool[: profile.nodes]) if len(pool) >= profile.nodes else ()


def held_back(verdicts: Sequence[NodeVerdict], profile: Profile) -> list[NodeVerdict]:
    """The verdicts when too few nodes have room: one that has it is of no use alone."""
    able = sum(1 for verdict in verdicts if verdict.fits)
    text = f"; {plural(profile.nodes, 'node')} are needed and {able} can"
    return [
        msgspec.structs.replace(verdict, fits=False, rule="nodes", message=verdict.message + text)
        if verdict.fits
        else verdict
        for verdict in verdicts
    ]


def too_few(verdicts: Sequence[NodeVerdict], profile: Profile, need: MemoryNeed) -> str:
    """Why the profile has no place, in one sentence: what is needed, who has it, and who comes nearest."""
    if need.refusal:
        return need.refusal
    able = [verdict.node for verdict in verdicts if verdict.rule == "nodes"]
    have = " and ".join((", ".join(able[:-1]), able[-1])) if len(able) > 1 else "".join(able)
    others = [verdict for verdict in verdicts if verdict.rule != "nodes"]
    nearest = min(others, key=nearness, default=None)
    missing = f"; nearest of the others is {nearest.node}: {nearest.message}" if nearest else "; there is no other node"
    has = f"{have} {'have' if len(able) > 1 else 'has'} them" if able else "none has them"
    return (
        f"needs {plural(profile.nodes, 'node')} with {plural(profile.cards_per_node, 'card')} of class "
        f"{profile.gpu_class} each, {size(need.per_card_bytes)} free on every one; {has}{missing}"
    )
