"""The GPU reader: where the cards' facts and figures come from. One file an implementation, one reader a node.

Identity is the UUID everywhere: an index moves when a card fails, and a bus address when a board is moved.
"""

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from llmgw.core.cluster import Card
from llmgw.core.figures import CardFigures
from llmgw.core.wear import CardWear

MAX_CARDS = 256
"""Cards and MIG instances a reader takes from a driver."""
SPLIT = "The card is split into MIG instances; the instances take work, the card does not."
ERRORS = "The driver reports an error for {errors}; the card takes no work until it answers."
NO_MEMORY = "The driver reports no memory of its own for the card, so nothing can be placed on it."

_DRIVER_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))
"""With one of these there is a driver, so a machine without readable cards has a problem worth a sentence."""


class ReaderFailed(Exception):
    """The reader cannot tell anything now; the text is a sentence for the operator."""


class CardSample(CardFigures, frozen=True, kw_only=True):
    """Figures of one card at one moment; none is "not reported", which is never zero."""

    uuid: str


@dataclass(frozen=True, kw_only=True)
class LostCard:
    """A card that the driver knows of and cannot reach."""

    bus_id: str
    why: str
    """As the driver says it."""
    uuid: str = ""
    name: str = ""


@dataclass(frozen=True, kw_only=True)
class CardReading:
    """The cards a reader sees."""

    cards: tuple[Card, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Sentences on cards that could not be read."""
    lost: tuple[LostCard, ...] = ()
    partial: bool = False
    """The reader was cut short: a card that is not here may well be there."""
    unread: int = 0
    """Cards that the driver counts and that did not answer."""


class GpuReader(Protocol):
    """Reads this node's cards.

    Life cycle, every call from one worker thread at a time:

    1. `open()` once. Raises ReaderFailed when the reader cannot be used here, and then nothing else is called.
    2. `cards()` right after, and again whenever the inventory is rebuilt. Raises ReaderFailed when nothing can be told
       now; the last inventory then stands. One unreadable card is a problem in the reading or `lost`, not an exception.
       What every reader would find the same way (NUMA node, host memory of a unified card, NVLink by `topo -m`) is not
       asked of it: `agent.discovery.completing` adds it.
    3. `sample()` at most every `sample_every_s` seconds, or `asked_every_s` while somebody looks. Raises ReaderFailed
       likewise. A MIG instance has its own memory and its card's heat and nothing else; its card has everything but
       memory, utilisation and profile. A reader that can count what multiprocessors do fills in the profile, from the
       second sample on.
    4. `wear()` every minute, by UUID; cards that keep no counts are left out. Raises ReaderFailed likewise.
    5. `close()` before another `open()`, when the driver was loaded anew. An agent that ends just ends.
    """

    name: str
    sample_every_s: float
    """Least time between two samples: what a sample costs decides it."""
    asked_every_s: float
    """The same while somebody looks, never longer: as long where a sample is dear."""

    def open(self) -> None:
        """Load what is needed."""

    def cards(self) -> CardReading:
        """Facts that hold until a reboot or a repair."""

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of this moment, in the order of `cards()`."""

    def wear(self) -> Mapping[str, CardWear]:
        """Counts of what wears out."""

    def close(self) -> None:
        """Let go of the library or tool."""


def open_reader(factories: Sequence[Callable[[], GpuReader]]) -> tuple[GpuReader | None, tuple[str, ...]]:
    """The first reader that opens, and why there is none where a driver is installed. Blocking."""
    reasons: list[str] = []
    for factory in factories:
        reader = factory()
        try:
            reader.open()
        except ReaderFailed as error:
            reasons.append(f"{reader.name}: {error}")
        else:
            return reader, ()
    if reasons and any(os.path.exists(sign) for sign in _DRIVER_SIGNS):
        return None, (f"A graphics driver is installed but no card can be read ({'; '.join(reasons)}).",)
    return None, ()


def without_skipped(reading: CardReading, skip: Sequence[str]) -> CardReading:
    """The reading without the cards that are named by UUID or index, and without their instances."""
    gone = {card.uuid for card in reading.cards if card.uuid in skip or str(card.index) in skip}
    left = tuple(card for card in reading.cards if card.uuid not in gone and card.parent not in gone)
    return replace(reading, cards=left)


def unplaceable(card: Card, why: str) -> Card:
    """The card as one that is shown and not given work."""
    return msgspec.structs.replace(card, memory_total_bytes=None, memory_used_bytes=None, problem=why)


def instance_index(parent_index: int, gpu_instance: int, compute_instance: int = 0) -> int:
    """Index of a MIG instance, made of ids that hold while it lives: 1003 is instance 3 of card 0."""
    return 1000 * (parent_index + 1) + 100 * compute_instance + gpu_instance


def sharers(cards: Sequence[Card]) -> dict[str, int]:
    """Compute instances that have their GPU instance's memory together with others, and how many have it."""
    groups = Counter((card.parent, card.index % 100) for card in cards if card.parent)
    found = {card.uuid: groups[card.parent, card.index % 100] for card in cards if card.parent}
    return {uuid: number for uuid, number in found.items() if number > 1}
