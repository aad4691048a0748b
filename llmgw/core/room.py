"""What may still be promised of a node and its cards, and what keeps a profile off them whatever room they have."""

from collections.abc import Sequence

from llmgw.core.capability import too_old
from llmgw.core.catalog import ONE_CARD_ENGINES, Profile
from llmgw.core.cluster import RUNTIME, Card, Node, Replica, ShardState
from llmgw.core.fit import MemoryNeed
from llmgw.core.units import GB, MIB

NODE_RESERVE_BYTES = 512 * MIB
"""Memory of a node that is never promised: the system's own, and the agent's."""
CARD_RESERVE_BYTES = 256 * MIB
"""Memory of a card that is never promised: contexts and fragmentation."""


def node_room(node: Node, held: Sequence[Replica]) -> int:
    """Bytes of node memory that may still be promised: by what was promised, and by what the node says is available.

    A Ready replica's memory has left `available` already; one still starting has not. Weights mapped from a file count
    as available, so neither bound alone is enough.
    """
    shared = {card.uuid for card in node.cards if card.unified}
    promised = {
        r.id: r.host_bytes + (r.memory_bytes if not r.cards or not shared.isdisjoint(r.cards) else 0) for r in held
    }
    by_promise = node.memory_total_bytes - NODE_RESERVE_BYTES - sum(promised.values())
    if not node.memory_available_bytes:
        return by_promise
    coming = sum(promised[r.id] for r in held if r.state is not ShardState.READY)
    return min(by_promise, node.memory_available_bytes - NODE_RESERVE_BYTES - coming)


def card_room(card: Card, held: Sequence[Replica]) -> int:
    """Bytes of the card that may still be promised; what strangers hold beyond our promises is not ours to give."""
    if card.memory_total_bytes is None:
        return 0
    # A unified card's memory is the node's: what replicas were promised of that is gone from it, too.
    promised = sum(r.memory_bytes for r in held if card.uuid in r.cards or (card.unified and not r.cards))
    promised += sum(r.host_bytes for r in held) if card.unified else 0
    return card.memory_total_bytes - CARD_RESERVE_BYTES - max(promised, card.memory_used_bytes or 0)


def room_on(card: Card, profile: Profile, need: MemoryNeed, held: Sequence[Replica]) -> int:
    """Room on a card for its part: where card and node share their memory, without what goes beside the card."""
    return card_room(card, held) - (beside_wanted(profile, need) if card.unified else 0)


def why_not_card(card: Card, profile: Profile, need: MemoryNeed, held: Sequence[Replica]) -> tuple[str, str] | None:
    """Rule and sentence that keep the replica off a card, however much room it has."""
    if need.capability is not None:
        old = too_old(card.compute_capability, need.capability, what=f"{profile.engine} with these weights")
        if old:
            return "capability", old
    if card.parent and profile.nodes > 1:
        return "part", "is part of a card, and a replica that spans nodes takes whole ones"
    if card.parent and profile.cards_per_node > 1:
        # CUDA shows a process one MIG instance, however many it is given.
        return "part", "is part of a card, and a process sees only one part: a replica on parts of cards has tp 1"
    if need.whole_card and any(card.uuid in replica.cards for replica in held):
        return "taken", f"a replica holds it, and {profile.engine} needs one for itself"
    # What it may grow to is not in its promise: a stranger may have held a part of the card when that was given.
    owner = next((r for r in held if r.engine in ONE_CARD_ENGINES and card.uuid in r.cards), None)
    return None if owner is None else ("taken", f"{owner.engine} holds it for itself")


def memory_wanted(profile: Profile, need: MemoryNeed) -> int:
    """Node memory a profile without cards needs."""
    return max(need.total_bytes, round(profile.min_memory_gb * GB))


def beside_wanted(profile: Profile, need: MemoryNeed) -> int:
    """Node memory a profile on cards needs."""
    return max(need.host_bytes, round(profile.min_memory_gb * GB))


def missing_engine(node: Node, profile: Profile) -> str:
    """Why the node cannot start what the profile needs, if it cannot."""
    for engine in (profile.engine, RUNTIME) if profile.nodes > 1 else (profile.engine,):
        build = next((b for b in node.engines if b.engine == engine), None)
        if build is None or not build.usable:
            return f"engine {engine}: {build.why_not if build and build.why_not else 'not installed'}"
    return ""
