"""Where a replica goes, and for every place it does not go, why. Never more is promised of a card or node than it has.

Profiles are tried from the highest priority down; within one, the node with the fewest replicas of the model wins
(one machine's loss costs least), then the one that is left with the most room, then the name.
"""

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from llmgw.core.catalog import ModelFacts, Profile
from llmgw.core.cluster import Card, Node, NodeLink, Replica, ShardState
from llmgw.core.fit import MemoryNeed, estimate
from llmgw.core.snapshot import CatalogEntry, Snapshot
from llmgw.core.units import GB, MIB, plural, size
from llmgw.core.verdicts import CardVerdict, NodeVerdict

NODE_RESERVE_BYTES = 512 * MIB
"""Memory of a node that is never promised: the system's own, and the agent's."""
CARD_RESERVE_BYTES = 256 * MIB
"""Memory of a card that is never promised: contexts and fragmentation."""


class Placement(msgspec.Struct, frozen=True, kw_only=True):
    """A place for one replica."""

    node: str
    profile: Profile
    cards: tuple[str, ...]
    memory_bytes: int
    """Reserved on each card, or on the node for a CPU profile."""


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
    held = held_by_node(snapshot.replicas)
    for profile in profiles:
        profile_need = _need(entry, profile)
        need = need or profile_need
        candidates: list[tuple[_Rank, Placement]] = []
        for node in snapshot.nodes:
            here = held.get(node.name, ())
            verdicts.append(_judge(node, profile, profile_need, here, snapshot.now))
            spot = _spot(node, profile, profile_need, here)
            if spot is not None:
                candidates.append((_rank(entry, node, spot, here), spot.placement))
        if candidates:
            best = min(candidates, key=lambda c: c[0])[1]
            message = f"goes to {best.node} with profile {profile.name}"
            return Decision(placement=best, need=profile_need, verdicts=tuple(verdicts), message=message)
    return Decision(placement=None, need=need, verdicts=tuple(verdicts), message=summarise(verdicts))


def place_many(entry: CatalogEntry, snapshot: Snapshot, count: int) -> list[Placement]:
    """Places for up to `count` more replicas: what `place` would choose, one after the other, without its reasons.

    A node is looked at once a profile, and again when it was chosen, so a thousand nodes cost what they have to.
    """
    held: dict[str, list[Replica]] = defaultdict(list, {k: list(v) for k, v in held_by_node(snapshot.replicas).items()})
    found: list[Placement] = []
    for profile in sorted(entry.model.profiles, key=lambda p: (-p.priority, p.name)):
        need = _need(entry, profile)
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


def held_by_node(replicas: Sequence[Replica]) -> Mapping[str, Sequence[Replica]]:
    """Live replicas by the node they are on."""
    held: defaultdict[str, list[Replica]] = defaultdict(list)
    for replica in replicas:
        if replica.live:
            held[replica.node].append(replica)
    return dict(held)


def summarise(verdicts: Sequence[NodeVerdict]) -> str:
    """One sentence for a model that fits nowhere, the nearest miss first."""
    if not verdicts:
        return "no node has joined: make one with `llmgw ctl join-token`"
    nearest = min(verdicts, key=lambda v: (_NEARNESS.get(v.rule, 9), v.missing_bytes, v.node))
    others = len({v.node for v in verdicts} - {nearest.node})
    tail = f"; {plural(others, 'other node')} refused too" if others else ""
    return f"{nearest.node}: {nearest.message}{tail}"


_NEARNESS = {"memory": 0, "cards": 1, "class": 2, "shape": 3, "engine": 4, "cordoned": 5, "link": 6}


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
        memory_bytes=place.memory_bytes,
    )


def _need(entry: CatalogEntry, profile: Profile) -> MemoryNeed:
    return estimate(
        entry.facts or ModelFacts(),
        engine=profile.engine,
        context_length=entry.context_length,
        slots=profile.slots,
        tp=profile.tp,
    )


class _Spot(NamedTuple):
    """A place on a node, with the bytes left beside it."""

    placement: Placement
    room: int


def _spot(node: Node, profile: Profile, need: MemoryNeed, held: Sequence[Replica]) -> _Spot | None:
    """The best place on the node; none exactly when `_judge` says that it does not fit, and why."""
    if node.link is not NodeLink.CONNECTED or node.cordoned or need.refusal or _missing_engine(node, profile):
        return None
    if profile.gpu_class is None:
        wanted, room = _memory_wanted(profile, need), node_room(node, held)
        place = Placement(node=node.name, profile=profile, cards=(), memory_bytes=wanted)
        return _Spot(place, room - wanted) if wanted <= room else None
    share = need.per_card_bytes
    taken = _fitting(node, profile, share, held)[: profile.tp]
    if len(taken) < profile.tp:
        return None
    uuids = tuple(uuid for _, _, uuid in taken)
    place = Placement(node=node.name, profile=profile, cards=uuids, memory_bytes=share)
    return _Spot(place, taken[0][0] - share)


def _fitting(node: Node, profile: Profile, share: int, held: Sequence[Replica]) -> list[tuple[int, int, str]]:
    """Cards with room for the share, the fullest first: room, index, uuid."""
    found = []
    for card in node.cards:
        if card.gpu_class == profile.gpu_class and card.healthy and card.memory_total_bytes is not None:
            room = card_room(card, held)
            if share <= room:
                found.append((room, card.index, card.uuid))
    return sorted(found)


def _memory_wanted(profile: Profile, need: MemoryNeed) -> int:
    return max(need.total_bytes, round(profile.min_memory_gb * GB))


def _missing_engine(node: Node, profile: Profile) -> str:
    """Why the node cannot start the profile's engine, if it cannot."""
    build = next((b for b in node.engines if b.engine == profile.engine), None)
    if build is not None and build.usable:
        return ""
    return build.why_not if build and build.why_not else "not installed"


def _judge(node: Node, profile: Profile, need: MemoryNeed, held: Sequence[Replica], now: float) -> NodeVerdict:
    """Whether the profile fits on the node, and if not what stands against it."""
    trial = _Trial(node=node, profile=profile, need=need, held=held)
    if node.link is not NodeLink.CONNECTED:
        age = max(0, round(now - node.heard_at))
        return trial.refuse("link", f"its agent is {node.link.value}, last heard {age} s ago")
    if node.cordoned:
        return trial.refuse("cordoned", f"cordoned; `llmgw ctl node uncordon {node.name}` opens it")
    if need.refusal:
        return trial.refuse("shape", need.refusal)
    if missing := _missing_engine(node, profile):
        return trial.refuse("engine", f"engine {profile.engine}: {missing}")
    return _judge_memory(trial) if profile.gpu_class is None else _judge_cards(trial)


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One profile tried on one node."""

    node: Node
    profile: Profile
    need: MemoryNeed
    held: Sequence[Replica]
    """Live replicas on the node."""

    def refuse(self, rule: str, message: str, missing: int = 0, cards: tuple[CardVerdict, ...] = ()) -> NodeVerdict:
        return self._verdict(False, rule, message, missing, cards)

    def accept(self, message: str, cards: tuple[CardVerdict, ...] = ()) -> NodeVerdict:
        return self._verdict(True, "", message, 0, cards)

    def _verdict(
        self, fits: bool, rule: str, message: str, missing: int, cards: tuple[CardVerdict, ...]
    ) -> NodeVerdict:
        return NodeVerdict(
            node=self.node.name,
            profile=self.profile.name,
            fits=fits,
            rule=rule,
            missing_bytes=missing,
            message=message,
            cards=cards,
        )


def _judge_memory(trial: _Trial) -> NodeVerdict:
    free = node_room(trial.node, trial.held)
    wanted = _memory_wanted(trial.profile, trial.need)
    if wanted > free:
        missing = wanted - free
        text = f"needs {size(wanted)} of memory, {size(max(0, free))} free, {size(missing)} missing"
        return trial.refuse("memory", text, missing)
    return trial.accept(f"fits: needs {size(wanted)} of memory, {size(free)} free")


def _judge_cards(trial: _Trial) -> NodeVerdict:
    profile, share = trial.profile, trial.need.per_card_bytes
    rooms = {card.uuid: card_room(card, trial.held) for card in trial.node.cards}
    cards = tuple(_judge_card(card, profile, share, rooms[card.uuid]) for card in trial.node.cards)
    fitting = sorted((c for c in cards if c.fits), key=lambda c: (rooms[c.uuid], c.index))
    if len(fitting) >= profile.tp:
        listed = ", ".join(str(c.index) for c in fitting[: profile.tp])
        return trial.accept(f"fits: {size(share)} on card {listed}", cards)
    of_class = [c for c in cards if c.rule != "class"]
    if not of_class:
        return trial.refuse("class", f"has no card of class {profile.gpu_class}{_others(trial.node)}", cards=cards)
    if len(of_class) < profile.tp:
        text = f"has {plural(len(of_class), 'card')} of class {profile.gpu_class}, and {profile.tp} are needed"
        return trial.refuse("cards", text, cards=cards)
    short = sorted(c.missing_bytes for c in of_class if c.rule == "memory")
    missing = sum(short[: profile.tp - len(fitting)])
    text = (
        f"needs {plural(profile.tp, 'card')} of class {profile.gpu_class} with {size(share)} free each; "
        f"{len(fitting)} of its {len(of_class)} can give that"
    )
    if missing:
        text += f", {size(missing)} missing"
    return trial.refuse("memory" if missing else "cards", text, missing, cards)


def _others(node: Node) -> str:
    """The classes a node has, for whoever wrote another."""
    classes = sorted({card.gpu_class for card in node.cards if card.gpu_class})
    return f"; its cards are {', '.join(classes)}" if classes else ""


def _judge_card(card: Card, profile: Profile, share: int, room: int) -> CardVerdict:
    def verdict(rule: str, message: str, missing: int = 0) -> CardVerdict:
        return CardVerdict(
            uuid=card.uuid,
            index=card.index,
            name=card.name,
            fits=not rule,
            rule=rule,
            missing_bytes=missing,
            message=message,
        )

    if card.gpu_class != profile.gpu_class:
        return verdict("class", f"is {card.gpu_class}, not {profile.gpu_class}")
    if not card.healthy:
        return verdict("unhealthy", card.problem or "reported unhealthy")
    if card.memory_total_bytes is None:
        return verdict("unreadable", "does not report its memory")
    free = f"{size(max(0, room))} free of {size(card.memory_total_bytes)}"
    if share > room:
        return verdict("memory", f"{free}, {size(share - room)} missing", share - room)
    return verdict("", free)


def node_room(node: Node, held: Sequence[Replica]) -> int:
    """Bytes of node memory that may still be promised: by what was promised, and by what the node says is available.

    A Ready replica's memory has left `available` already; one still starting has not. Weights mapped from a file count
    as available, so neither bound alone is enough.
    """
    shared = {card.uuid for card in node.cards if card.unified}
    on_cpu = [r for r in held if not r.cards or not shared.isdisjoint(r.cards)]
    by_promise = node.memory_total_bytes - NODE_RESERVE_BYTES - sum(r.memory_bytes for r in on_cpu)
    if not node.memory_available_bytes:
        return by_promise
    coming = sum(r.memory_bytes for r in on_cpu if r.state is not ShardState.READY)
    return min(by_promise, node.memory_available_bytes - NODE_RESERVE_BYTES - coming)


def card_room(card: Card, held: Sequence[Replica]) -> int:
    """Bytes of the card that may still be promised; what strangers hold beyond our promises is not ours to give."""
    if card.memory_total_bytes is None:
        return 0
    # A unified card's memory is the node's: what replicas on CPU were promised is gone from it, too.
    promised = sum(r.memory_bytes for r in held if card.uuid in r.cards or (card.unified and not r.cards))
    return card.memory_total_bytes - CARD_RESERVE_BYTES - max(promised, card.memory_used_bytes or 0)
