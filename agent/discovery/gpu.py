"""The GPU reader: where the cards' facts and figures come from. One file an implementation, one reader a node."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from llmgw.core.cluster import Card

_DRIVER_SIGNS = (Path("/proc/driver/nvidia/version"), Path("/dev/nvidiactl"))
"""With one of these there is a driver, so a machine without readable cards has a problem worth a sentence."""


class ReaderFailed(Exception):
    """The reader cannot tell anything now; the text is a sentence for the operator."""


@dataclass(frozen=True, kw_only=True)
class CardSample:
    """Figures of one card at one moment; none is "not reported", which is never zero."""

    uuid: str
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None


@dataclass(frozen=True, kw_only=True)
class CardReading:
    """The cards a reader sees."""

    cards: tuple[Card, ...] = ()
    problems: tuple[str, ...] = field(default=())
    """Sentences on cards that could not be read."""


class GpuReader(Protocol):
    """Reads this node's cards.

    Life cycle, every call from one worker thread at a time:

    1. `open()` once. Raises ReaderFailed when the reader cannot be used here, and then nothing else is called.
    2. `cards()` right after, and again whenever the inventory is rebuilt. Raises ReaderFailed when nothing can be told
       now; the last inventory then stands. One unreadable card is a problem in the reading, not an exception.
    3. `sample()` at most every `sample_every_s` seconds. Raises ReaderFailed likewise.
    4. `close()` once, at the end.
    """

    name: str
    sample_every_s: float
    """Least time between two samples: what a sample costs decides it."""

    def open(self) -> None:
        """Load what is needed."""

    def cards(self) -> CardReading:
        """Facts that hold until a reboot or a repair."""

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of this moment, in the order of `cards()`."""

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
    """The reading without the cards that are named by UUID or index."""
    left = tuple(card for card in reading.cards if card.uuid not in skip and str(card.index) not in skip)
    return CardReading(cards=left, problems=reading.problems)


def unplaceable(card: Card, why: str) -> Card:
    """The card as one that is shown and not given work."""
    return msgspec.structs.replace(card, memory_total_bytes=None, memory_used_bytes=None, problem=why)
