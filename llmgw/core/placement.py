"""Where a replica goes, and for every place it does not go, why. Never more is promised of a card or node than it has.

Profiles are tried from the highest priority down; within one, the node with the fewest replicas of the model wins
(one machine's loss costs least), then the one that is left with the most room, then the name.
"""

from collections.abc import Sequence
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
    for profile in profiles:
        profile_need = _need(entry, profile)
        need = need or profile_need
        candidates: list[tuple[tuple[int, int, str], Placement]] = []
        for node in snapshot.nodes:
            spot = _judge(node, profile, profile_need, snapshot)
            verdicts.append(spot.verdict)
            if spot.placement is not None:
                candidates.append(((_copies(entry, node, snapshot), -spot.room, node.name), spot.placement))
        if candidates:
            best = min(candidates, key=lambda c: c[0])[1]
            message = f"goes to {best.node} with profile {profile.name}"
            return Decision(placement=best, need=profile_need, verdicts=tuple(verdicts), message=message)
    return Decision(placement=None, need=need, verdicts=tuple(verdicts), message=summarise(verdicts))


def summarise(verdicts: Sequence[NodeVerdict]) -> str:
    """One sentence for a model that fits nowhere, the nearest miss first."""
    if not verdicts:
        return "no node has joined: make one with `llmgw ctl join-token`"
    nearest = min(verdicts, key=lambda v: (_NEARNESS.get(v.rule, 9), v.missing_bytes, v.node))
    others = len({v.node for v in verdicts} - {nearest.node})
    tail = f"; {plural(others, 'other node')} refused too" if others else ""
    return f"{nearest.node}: {nearest.message}{tail}"


_NEARNESS = {"memory": 0, "cards": 1, "class": 2, "engine": 3, "cordoned": 4, "link": 5}


def _copies(entry: CatalogEntry, node: Node, snapshot: Snapshot) -> int:
    return sum(1 for r in snapshot.replicas if r.live and r.node == node.name and r.model == entry.model.name)


def _need(entry: CatalogEntry, profile: Profile) -> MemoryNeed:
    return estimate(
        entry.facts or ModelFacts(),
        engine=profile.engine,
        context_length=entry.context_length,
        slots=profile.slots,
        tp=profile.tp,
    )


class _Spot(NamedTuple):
    """A verdict on a node, and when it fits the place with the bytes left beside it."""

    verdict: NodeVerdict
    placement: Placement | None = None
    room: int = 0


class _Trial(msgspec.Struct, frozen=True, kw_only=True):
    """One profile tried on one node."""

    node: Node
    profile: Profile
    need: MemoryNeed
    held: tuple[Replica, ...]
    """Live replicas on the node."""

    def refuse(self, rule: str, message: str, missing: int = 0, cards: tuple[CardVerdict, ...] = ()) -> _Spot:
        return _Spot(self._verdict(False, rule, message, missing, cards))

    def accept(
        self, message: str, room: int, memory_bytes: int, taken: Sequence[str] = (), cards: tuple[CardVerdict, ...] = ()
    ) -> _Spot:
        place = Placement(node=self.node.name, profile=self.profile, cards=tuple(taken), memory_bytes=memory_bytes)
        return _Spot(self._verdict(True, "", message, 0, cards), place, room)

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


def _judge(node: Node, profile: Profile, need: MemoryNeed, snapshot: Snapshot) -> _Spot:
    held = tuple(r for r in snapshot.replicas if r.node == node.name and r.live)
    trial = _Trial(node=node, profile=profile, need=need, held=held)
    if node.link is not NodeLink.CONNECTED:
        age = max(0, round(snapshot.now - node.heard_at))
        return trial.refuse("link", f"its agent is {node.link.value}, last heard {age} s ago")
    if node.cordoned:
        return trial.refuse("cordoned", f"cordoned; `llmgw ctl node uncordon {node.name}` opens it")
    build = next((b for b in node.engines if b.engine == profile.engine), None)
    if build is None or not build.usable:
        why = build.why_not if build and build.why_not else "not installed"
        return trial.refuse("engine", f"engine {profile.engine}: {why}")
    return _on_memory(trial) if profile.gpu_class is None else _on_cards(trial)


def _on_memory(trial: _Trial) -> _Spot:
    free = node_room(trial.node, trial.held)
    wanted = max(trial.need.total_bytes, round(trial.profile.min_memory_gb * GB))
    if wanted > free:
        missing = wanted - free
        text = f"needs {size(wanted)} of memory, {size(max(0, free))} free, {size(missing)} missing"
        return trial.refuse("memory", text, missing)
    return trial.accept(f"fits: needs {size(wanted)} of memory, {size(free)} free", free - wanted, wanted)


def _on_cards(trial: _Trial) -> _Spot:
    profile, share = trial.profile, trial.need.per_card_bytes
    rooms = {card.uuid: card_room(card, trial.held) for card in trial.node.cards}
    cards = tuple(_judge_card(card, profile, share, rooms[card.uuid]) for card in trial.node.cards)
    fitting = sorted((c for c in cards if c.fits), key=lambda c: (rooms[c.uuid], c.index))
    if len(fitting) >= profile.tp:
        taken = fitting[: profile.tp]
        room = min(rooms[c.uuid] for c in taken) - share
        listed = ", ".join(str(c.index) for c in taken)
        return trial.accept(f"fits: {size(share)} on card {listed}", room, share, [c.uuid for c in taken], cards)
    of_class = [c for c in cards if c.rule != "class"]
    if not of_class:
        return trial.refuse("class", f"has no card of class {profile.gpu_class}", cards=cards)
    short = sorted(c.missing_bytes for c in of_class if c.rule == "memory")
    missing = sum(short[: profile.tp - len(fitting)])
    text = (
        f"needs {plural(profile.tp, 'card')} of class {profile.gpu_class} with {size(share)} free each; "
        f"{len(fitting)} of its {len(of_class)} can give that"
    )
    if missing:
        text += f", {size(missing)} missing"
    return trial.refuse("memory" if missing else "cards", text, missing, cards)


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
    on_cpu = [r for r in held if not r.cards]
    by_promise = node.memory_total_bytes - NODE_RESERVE_BYTES - sum(r.memory_bytes for r in on_cpu)
    if not node.memory_available_bytes:
        return by_promise
    coming = sum(r.memory_bytes for r in on_cpu if r.state is not ShardState.READY)
    return min(by_promise, node.memory_available_bytes - NODE_RESERVE_BYTES - coming)


def card_room(card: Card, held: Sequence[Replica]) -> int:
    """Bytes of the card that may still be promised; what strangers hold beyond our promises is not ours to give."""
    if card.memory_total_bytes is None:
        return 0
    promised = sum(r.memory_bytes for r in held if card.uuid in r.cards)
    return card.memory_total_bytes - CARD_RESERVE_BYTES - max(promised, card.memory_used_bytes or 0)
