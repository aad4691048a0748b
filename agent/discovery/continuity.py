"""A card that fell off the bus is lost and not gone: it is listed until the agent starts anew, and takes no work."""

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from agent.discovery.gpu import CardReading, LostCard
from agent.discovery.gpu_class import gpu_class
from llmgw.core.cluster import Card

GONE = "the driver does not list it any more"


def carried_on(before: Sequence[Card], now: CardReading, known: Sequence[LostCard]) -> CardReading:
    """The reading with the cards that were there before, or that the driver counts, and are not in it.

    `known` are the kernel's cards, reachable or not. They say who does not answer, and no more: in a container the
    kernel knows cards that are not this agent's. An instance of a card that is there was taken away on purpose.
    """
    here = {card.uuid for card in now.cards}
    at = {card.bus_id for card in now.cards if card.bus_id}
    lost = {card.bus_id: card for card in now.lost if card.bus_id}
    kept: list[Card] = []
    problems = list(now.problems)
    for card in before:
        # A card that was replaced in its slot is another card, and the old one is gone for good.
        if card.uuid in here or card.parent in here or (not card.parent and card.bus_id and card.bus_id in at):
            continue
        if (now.partial and card.bus_id not in lost) or not card.healthy:
            kept.append(card)
        elif not card.parent:
            kept.append(_lost(card, lost[card.bus_id].why if card.bus_id in lost else GONE))
    if now.partial and any(card.healthy for card in kept):
        problems.append("Not every card could be read now; the others are listed as they were last.")
    named = {card.uuid for card in kept} | here
    places = at | {card.bus_id for card in kept}
    silent = known if now.unread and not now.partial else ()
    for stranger in [*lost.values(), *silent]:
        if stranger.bus_id in places or stranger.uuid in named:
            continue
        places.add(stranger.bus_id)
        told = next((card for card in known if card.bus_id == stranger.bus_id), stranger)
        if told.uuid:
            kept.append(_never_seen(told, stranger.why, len(now.cards) + len(kept)))
        else:
            problems.append(f"The card at {stranger.bus_id} is lost: {stranger.why}.")
    return replace(now, cards=(*now.cards, *_numbered(now.cards, kept)), problems=tuple(problems))


def _numbered(here: Sequence[Card], kept: Sequence[Card]) -> list[Card]:
    """The kept cards; one whose index another card took over gets the next that nobody has."""
    taken = {card.index for card in here}
    found = []
    for card in kept:
        if card.index in taken:
            card = msgspec.structs.replace(card, index=max(index for index in taken if index < 1000) + 1)
        taken.add(card.index)
        found.append(card)
    return found


def _lost(card: Card, why: str) -> Card:
    return msgspec.structs.replace(card, healthy=False, problem=_sentence(card.bus_id, why))


def _never_seen(card: LostCard, why: str, index: int) -> Card:
    return Card(
        uuid=card.uuid,
        index=index,
        name=card.name,
        gpu_class=gpu_class(card.name, None),
        healthy=False,
        problem=_sentence(card.bus_id, why),
        bus_id=card.bus_id,
    )


def _sentence(bus_id: str, why: str) -> str:
    return f"The card{f' at {bus_id}' if bus_id else ''} is lost: {why.rstrip('.')}. Restart the node, then look at it."
