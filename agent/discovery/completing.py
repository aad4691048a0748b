"""What every reader's cards get besides: where they hang, host memory where it is theirs, NVLink by the tool."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from agent.discovery.gpu import SPLIT, CardReading, sharers
from agent.discovery.gpu_class import uses_host_memory
from agent.discovery.topology import Joined
from llmgw.core.cluster import Card
from llmgw.core.units import size

UNIFIED = "Its memory is the node's own ({total}); what one of them holds the other lacks."
TWINS = "The cards at {here} and {there} both say that they are {uuid}: the second is left out."
TOGETHER = "{sharers} compute instances have {total} together; this is an equal part of it."


def completed(
    reading: CardReading, *, memory_bytes: int, topology: Callable[[], Mapping[int, Joined]], root: Path = Path("/")
) -> CardReading:
    """The reading with what no reader has to find out. `topology` is asked only when NVLink is not known otherwise.

    `memory_bytes` is what the node has to give, after what is kept back.
    """
    # One card is one UUID: what comes twice would be refused by the control plane, and all the others with it.
    once = {card.uuid: card for card in reversed(reading.cards)}
    cards = [_placed(_shared(card, memory_bytes), root) for card in reading.cards if once.get(card.uuid) is card]
    twins = [card for card in reading.cards if card.bus_id not in ("", once[card.uuid].bus_id)]
    problems = [TWINS.format(uuid=card.uuid, here=once[card.uuid].bus_id, there=card.bus_id) for card in twins]
    together = sharers(cards)
    cards = [_parted(card, together.get(card.uuid, 1)) for card in cards]
    whole = [card for card in cards if not card.parent]
    if len(whole) > 1 and any(card.nvlink_peers is None for card in whole):
        cards = _joined(cards, topology())
    return replace(reading, cards=tuple(cards), problems=(*reading.problems, *problems))


def _shared(card: Card, memory_bytes: int) -> Card:
    """A chip without memory of its own has the node's, and says so, whatever its driver tells of it."""
    if not card.healthy or card.parent or card.problem == SPLIT or not uses_host_memory(card.name):
        return card
    memory_bytes = min(memory_bytes, card.memory_total_bytes or memory_bytes)
    return msgspec.structs.replace(
        card,
        memory_total_bytes=memory_bytes or None,
        unified=True,
        problem=UNIFIED.format(total=size(memory_bytes)) if memory_bytes else card.problem,
    )


def _parted(card: Card, sharers: int) -> Card:
    """Of memory that several have together each gets a part, so that nobody is promised what another was."""
    if sharers == 1 or card.memory_total_bytes is None:
        return card
    return msgspec.structs.replace(
        card,
        memory_total_bytes=card.memory_total_bytes // sharers,
        problem=TOGETHER.format(total=size(card.memory_total_bytes), sharers=sharers),
    )


def _placed(card: Card, root: Path) -> Card:
    """The NUMA node by the kernel's word; -1 there is "none"."""
    if not card.bus_id or card.numa_node is not None:
        return card
    try:
        text = (root / "sys/bus/pci/devices" / card.bus_id / "numa_node").read_text().strip()
    except (OSError, ValueError):
        return card
    return msgspec.structs.replace(card, numa_node=int(text)) if text.isdigit() and len(text) < 6 else card


def _joined(cards: Sequence[Card], rows: Mapping[int, Joined]) -> list[Card]:
    uuids = {card.index: card.uuid for card in cards if not card.parent}
    found = []
    for card in cards:
        row = rows.get(card.index) if not card.parent else None
        if row is not None and card.nvlink_peers is None:
            peers = tuple(uuids[index] for index in row.peers if index in uuids)
            node = card.numa_node if card.numa_node is not None else row.numa_node
            card = msgspec.structs.replace(card, nvlink_peers=peers, numa_node=node)
        found.append(card)
    return found
