"""Where a replica goes, and for every place it does not go, why. Never more is promised of a card or node than it has.

Profiles are tried from the highest priority down; within one, the node with the fewest replicas of the model wins
(one machine's loss costs least), then the one that is left with the most room, then the name. A profile that spans
several nodes takes as many of them in that order, or none (`spanning`).
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import Node, NodeLink, Replica, Shard
from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.judging import judge, summarise
from llmgw.core.room import beside_wanted, memory_wanted, missing_engine, node_room, room_on, why_not_card
from llmgw.core.snapshot import CatalogEntry, Snapshot
from llmgw.core.spanning import NodePlace, chosen, held_back, too_few, with_fabric
from llmgw.core.verdicts import NodeVerdict


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A place for one replica."""

    node: str
    """The node, or the head's."""
    profile: Profile
    cards: tuple[str, ...]
    """On all of its nodes."""
    memory_bytes: int
    """Reserved on each card, or on the node for a CPU profile."""
    host_bytes: int = 0
    """Reserved of the node's memory beside its cards."""
    places: tuple[NodePlace, ...] = ()
    """Every node's part, the head's first, where it spans several; none where it goes to one."""

    @property
    def where(self) -> str:
        """The node, or all of them, for people."""
        return " and ".join(place.node for place in self.places) or self.node

    @property
    def shards(self) -> tuple[Shard, ...]:
        """The shards of a replica that goes there."""
        return tuple(Shard(node=place.node, cards=place.cards) for place in self.places)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The place, if there is one, and a verdict on every node for every profile tried."""

    placement: Placement | None
    need: MemoryNeed | None
    verdicts: tuple[NodeVerdict, ...]
    message: str


def place(entry: CatalogEntry, snapshot: Snapshot) -> Decision:
    """Choose a node for one more replica of the entry's model."""
    profiles = sorted(entry.model.profiles, key=lambda p: (-p.priority, p.name))
    if not profiles:
        return Decision(placement=None, need=None, verdicts=(), message="the model has no profile")
    verdicts: list[NodeVerdict] = []
    need: MemoryNeed | None = None
    lacking = ""
    held = held_by_node(snapshot.replicas)
    for profile in profiles:
        profile_need = _need(entry, profile)
        need = need or profile_need
        judged: list[NodeVerdict] = []
        candidates: list[tuple[_Rank, Placement]] = []
        for node in snapshot.nodes:
            here = held.get(node.name, ())
            judged.append(judge(node, profile, profile_need, here, snapshot.now))
            spot = _spot(node, profile, profile_need, here)
            if spot is not None:
                candidates.append((_rank(entry, node, spot, here), spot.placement))
        best = _best(candidates, profile, with_fabric(snapshot.nodes) if profile.nodes > 1 else ())
        if best is not None:
            message = f"goes to {best.where} with profile {profile.name}"
            return Decision(placement=best, need=profile_need, verdicts=(*verdicts, *judged), message=message)
        if profile.nodes > 1 and judged:
            judged = held_back(judged, profile)
            lacking = lacking or too_few(judged, profile, profile_need)
        verdicts += judged
    message = lacking or summarise(verdicts)
    return Decision(placement=None, need=need, verdicts=tuple(verdicts), message=message)


def _best(
    candidates: Sequence[tuple["_Rank", Placement]], profile: Profile, fabric: Collection[str]
) -> Placement | None:
    """The best of the places found; of several nodes' parts together, where the profile spans several.

    `fabric` are nodes that such a profile prefers.
    """
    if profile.nodes == 1:
        return min(candidates, key=lambda c: c[0])[1] if candidates else None
    ranked = [placement for _, placement in sorted(candidates, key=lambda c: c[0])]
    parts = [NodePlace(node=place.node, cards=place.cards) for place in ranked]
    places = chosen(parts, profile, fabric)
    if not places:
        return None
    cards = tuple(uuid for place in places for uuid in place.cards)
    return msgspec.structs.replace(ranked[0], node=places[0].node, cards=cards, places=places)


def place_many(entry: CatalogEntry, snapshot: Snapshot, count: int) -> list[Placement]:
    """Places for up to `count` more replicas: what `place` would choose, one after the other, without its reasons.

    A node is looked at once a profile, and again when it was chosen, so a thousand nodes cost what they have to.
    """
    held: dict[str, list[Replica]] = defaultdict(list, {k: list(v) for k, v in held_by_node(snapshot.replicas).items()})
    found: list[Placement] = []
    for profile in sorted(entry.model.profiles, key=lambda p: (-p.priority, p.name)):
        need = _need(entry, profile)
        if profile.nodes > 1:
            _spread(entry, profile, snapshot, held, found, count)
            continue
        ranked: list[tuple[_Rank, int, Placement]] = []

        def consider(at: int, profile: Profile = profile, need: MemoryNeed = need) -> None:
            node = snapshot.nodes[at]
            spot = _spot(node, profile, need, held[node.name])
            if spot is not None:
                heapq.heappush(ranked, (_rank(entry, node, spot, held[node.name]), at, spot.placement))  # noqa: B023 - called in this turn

        for at in range(len(snapshot.nodes)):
            consider(at)
        while ranked and len(found) < count:
            _, at, placement = heapq.heappop(ranked)
            found.append(placement)
            held[placement.node].append(_promise(entry, placement, len(found)))
            consider(at)
    return found


def _spread(
    entry: CatalogEntry,
    profile: Profile,
    snapshot: Snapshot,
    held: Mapping[str, list[Replica]],
    found: list[Placement],
    count: int,
) -> None:
    """`place_many` for a profile that spans several nodes: adds to `found`, and to `held` what was promised."""
    need = _need(entry, profile)
    nodes, fabric = {node.name: node for node in snapshot.nodes}, with_fabric(snapshot.nodes)
    spots: dict[str, tuple[_Rank, Placement]] = {}

    def consider(name: str) -> None:
        spots.pop(name, None)
        spot = _spot(nodes[name], profile, need, held[name])
        if spot is not None:
            spots[name] = (_rank(entry, nodes[name], spot, held[name]), spot.placement)

    for name in nodes:
        consider(name)
    while len(found) < count and (best := _best(list(spots.values()), profile, fabric)) is not None:
        found.append(best)
        promised = _promise(entry, best, len(found))
        for place in best.places:
            held[place.node].append(promised)
            consider(place.node)


def held_by_node(replicas: Sequence[Replica]) -> Mapping[str, Sequence[Replica]]:
    """Live replicas by the node they are on."""
    held: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        for node in replica.holding:
            held[node].append(replica)
    return dict(held)


_Rank = tuple[int, int, str]


def _rank(entry: CatalogEntry, node: Node, spot: "_Spot", held: Sequence[Replica]) -> _Rank:
    """The lower, the better: fewest copies of the model, most room left beside it, name."""
    return (sum(1 for r in held if r.model == entry.model.name), -spot.room, node.name)


def _promise(entry: CatalogEntry, place: Placement, number: int) -> Replica:
    """A replica that was promised its place, as the next decision must see it."""
    return Replica(
        id=f"placed/{number}",
        model=entry.model.name,
        profile=place.profile.name,
        engine=place.profile.engine,
        node=place.node,
        spec_hash="",
        cards=place.cards,
        shards=place.shards,
        memory_bytes=place.memory_bytes,
        host_bytes=place.host_bytes,
    )


def _need(entry: CatalogEntry, profile: Profile) -> MemoryNeed:
    on_cards = profile.gpu_class is not None
    return estimate(
        entry.facts or ModelFacts(),
        engine=profile.engine,
        context_length=entry.context_length,
        slots=profile.slots,
        tp=profile.tp,
        pp=profile.pp,
        args=profile.args,
        env=profile.env if on_cards else {},
        on_cards=on_cards,
    )


class _Spot(NamedTuple):
    """A place on a node, with the bytes left beside it."""

    placement: Placement
    room: int


def _spot(node: Node, profile: Profile, need: MemoryNeed, held: Sequence[Replica]) -> _Spot | None:
    """The best place on the node; none exactly when `judge` says that it does not fit, and why."""
    if node.link is not NodeLink.CONNECTED or node.cordoned or need.refusal or missing_engine(node, profile):
        return None
    if profile.gpu_class is None:
        wanted, room = memory_wanted(profile, need), node_room(node, held)
        place = Placement(node=node.name, profile=profile, cards=(), memory_bytes=wanted)
        return _Spot(place, room - wanted) if wanted <= room else None
    host = beside_wanted(profile, need)
    taken = _fitting(node, profile, need, held)[: profile.cards_per_node]
    if len(taken) < profile.cards_per_node or host > max(0, node_room(node, held)):
        return None
    share = taken[0][0] if need.whole_card else need.per_card_bytes
    uuids = tuple(uuid for _, _, uuid in taken)
    place = Placement(node=node.name, profile=profile, cards=uuids, memory_bytes=share, host_bytes=host)
    return _Spot(place, taken[0][0] - share)


def _fitting(node: Node, profile: Profile, need: MemoryNeed, held: Sequence[Replica]) -> list[tuple[int, int, str]]:
    """Cards with room for the replica, the fullest first: room, index, uuid."""
    found = []
    for card in node.cards:
        if card.gpu_class == profile.gpu_class and card.healthy and card.memory_total_bytes is not None:
            room = room_on(card, profile, need, held)
            if need.per_card_bytes <= room and not why_not_card(card, profile, need, held):
                found.append((room, card.index, card.uuid))
    return sorted(found)
