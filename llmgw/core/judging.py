"""Why a node or card is taken or refused for a profile: a verdict a node, with the rule and the missing figure."""

from collections.abc import Sequence

import msgspec

from llmgw.core.catalog import Profile
from llmgw.core.cluster import Card, Node, NodeLink, Replica
from llmgw.core.fit import MemoryNeed
from llmgw.core.room import beside_wanted, memory_wanted, missing_engine, node_room, room_on, why_not_card
from llmgw.core.units import plural, size, span
from llmgw.core.verdicts import CardVerdict, NodeVerdict


def judge(node: Node, profile: Profile, need: MemoryNeed, held: Sequence[Replica], now: float) -> NodeVerdict:
    """Whether the profile fits on the node, and if not what stands against it."""
    trial = _Trial(node=node, profile=profile, need=need, held=held)
    told = node.cards or node.link is NodeLink.CONNECTED  # one that was not heard yet may have any card
    if profile.gpu_class and told and all(card.gpu_class != profile.gpu_class for card in node.cards):
        # Before what may pass: nothing that happens to the node makes it one for this profile.
        cards = tuple(_judge_card(card, trial, 0) for card in node.cards)
        return trial.refuse("class", f"has no card of class {profile.gpu_class}{_others(node)}", cards=cards)
    if node.link is not NodeLink.CONNECTED:
        return trial.refuse("link", f"its agent is {node.link.value}, last heard {span(now - node.heard_at)} ago")
    if node.cordoned:
        return trial.refuse("cordoned", f"cordoned; `llmgw ctl node uncordon {node.name}` opens it")
    if need.refusal:
        return trial.refuse("shape", need.refusal)
    if missing := missing_engine(node, profile):
        return trial.refuse("engine", missing)
    return _judge_memory(trial) if profile.gpu_class is None else _judge_cards(trial)


def summarise(verdicts: Sequence[NodeVerdict]) -> str:
    """One sentence for a model that fits nowhere, the nearest miss first."""
    if not verdicts:
        return "no node has joined: make one with `llmgw ctl join-token`"
    nearest = min(verdicts, key=nearness)
    others = len({v.node for v in verdicts} - {nearest.node})
    tail = f"; {plural(others, 'other node')} refused too" if others else ""
    return f"{nearest.node}: {nearest.message}{tail}"


def nearness(verdict: NodeVerdict) -> tuple[int, int, str]:
    """The lower, the less it would take for the node to be one that fits."""
    return (_NEARNESS.get(verdict.rule, 9), verdict.missing_bytes, verdict.node)


_NEARNESS = {"memory": 0, "cards": 1, "shape": 2, "engine": 3, "cordoned": 4, "link": 5, "class": 6}
"""Rules that refuse, from what an operator is closest to mending to what is out of reach."""


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
    wanted = memory_wanted(trial.profile, trial.need)
    if wanted > free:
        missing = wanted - free
        text = f"needs {size(wanted)} of memory, {size(max(0, free))} free, {size(missing)} missing"
        return trial.refuse("memory", text, missing)
    return trial.accept(f"fits: needs {size(wanted)} of memory, {size(free)} free")


def _judge_cards(trial: _Trial) -> NodeVerdict:
    profile, need, share = trial.profile, trial.need, trial.need.per_card_bytes
    wanted = profile.cards_per_node
    rooms = {card.uuid: room_on(card, profile, need, trial.held) for card in trial.node.cards}
    cards = tuple(_judge_card(card, trial, rooms[card.uuid]) for card in trial.node.cards)
    fitting = sorted((c for c in cards if c.fits), key=lambda c: (rooms[c.uuid], c.index))
    if len(fitting) >= wanted:
        listed = ", ".join(str(c.index) for c in fitting[:wanted])
        on_cards = f"card {listed} for itself" if need.whole_card else f"{size(share)} on card {listed}"
        return _judge_beside(trial, on_cards, cards)
    of_class = [c for c in cards if c.rule != "class"]
    if len(of_class) < wanted:
        text = f"has {plural(len(of_class), 'card')} of class {profile.gpu_class}, and {wanted} are needed"
        return trial.refuse("cards", text, cards=cards)
    if all(c.rule == of_class[0].rule for c in of_class) and of_class[0].rule in ("capability", "part"):
        return trial.refuse("class", f"its cards of class {profile.gpu_class}: {of_class[0].message}", cards=cards)
    short = sorted(c.missing_bytes for c in of_class if c.rule == "memory")
    missing = sum(short[: wanted - len(fitting)])
    alone = " and nobody else on it" if need.whole_card else ""
    each = "" if wanted == 1 else " each"
    able = f"{len(fitting)} of its {len(of_class)} can" if len(of_class) > 1 else "the one it has cannot"
    text = (
        f"needs {plural(wanted, 'card')} of class {profile.gpu_class} with {size(share)} free{each}{alone}; "
        f"{able} give that"
    )
    if missing:
        text += f", {size(missing)} missing"
    return trial.refuse("memory" if missing else "cards", text, missing, cards)


def _judge_beside(trial: _Trial, on_cards: str, cards: tuple[CardVerdict, ...]) -> NodeVerdict:
    """The cards have room; whether the node's memory has it for what goes beside them."""
    # A node may be short of memory without that being in the way of what needs none of it.
    wanted, free = beside_wanted(trial.profile, trial.need), max(0, node_room(trial.node, trial.held))
    beside = "the card" if trial.profile.cards_per_node == 1 else "the cards"
    if wanted > free:
        missing = wanted - free
        text = f"needs {size(wanted)} of memory beside {beside}, has {size(free)} free, {size(missing)} missing"
        return trial.refuse("memory", text, missing, cards)
    in_memory = f", {size(wanted)} of {size(free)} free memory beside {beside}" if wanted else ""
    return trial.accept(f"fits: {on_cards}{in_memory}", cards)


def _others(node: Node) -> str:
    """The classes a node has, for whoever wrote another."""
    classes = sorted({card.gpu_class for card in node.cards if card.gpu_class})
    if classes:
        return f"; its cards are {', '.join(classes)}"
    return "" if node.cards else ", nor any other"


def _judge_card(card: Card, trial: _Trial, room: int) -> CardVerdict:
    profile, share = trial.profile, trial.need.per_card_bytes

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
    if refused := why_not_card(card, profile, trial.need, trial.held):
        return verdict(*refused)
    free = f"{size(max(0, room))} free of {size(card.memory_total_bytes)}"
    if share > room:
        return verdict("memory", f"{free}, {size(share - room)} missing", share - room)
    return verdict("", free)
