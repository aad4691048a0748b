"""Where an engine said that it computes, and whether that is less of its cards than it was asked to use. Pure.

All of it is read in the engine's own log: what an engine did not say is unknown here, and nothing is guessed.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import msgspec

from llmgw.core.units import size

MAX_LINE_CHARS = 200
"""Of the line in which it was said."""
MAX_DEVICES = 32
MAX_NAME_CHARS = 32


class ComputeDevice(msgspec.Struct, frozen=True, kw_only=True):
    """Something that computes or holds weights, as the engine calls it: `CUDA0`, `CPU_Mapped`, `cuda`."""

    name: str
    held_bytes: int | None = None
    """Of weights there; on each of them where the name stands for several; none where it is not said."""


class Compute(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine said of one start."""

    cpu_only: bool = False
    """It said that all of it runs on the CPU."""
    layers_on_cards: int | None = None
    layers: int | None = None
    """Of the model, as the engine counts them."""
    devices: tuple[ComputeDevice, ...] = ()
    less_than_asked: bool = False
    """It was promised cards, and uses none or puts fewer layers on them than its profile asks for."""
    line: str = ""
    """The line of its log that says so."""


def less_than_asked(said: Compute, *, cards: int, asked: int | None) -> bool:
    """Whether it uses less of its `cards` cards than asked: `asked` is a number of layers, none is all of them."""
    if not cards or asked == 0:
        return False
    if said.cpu_only:
        return True
    if said.layers is None or said.layers_on_cards is None:
        return False
    return said.layers_on_cards < (said.layers if asked is None else min(asked, said.layers))


def compute_words(said: Compute) -> str:
    """`33 of 33 layers on cards (CUDA0 4.9 GB, CPU_Mapped 74 MB)`, `on the CPU`, `on cuda (16.1 GB)`."""
    if said.layers is not None and said.layers_on_cards:
        words = f"{said.layers_on_cards:,} of {said.layers:,} layers on cards"
        held = ", ".join(_device_words(device) for device in said.devices)
        return f"{words} ({held})" if held else words
    if said.cpu_only:
        return "on the CPU"
    return f"on {', '.join(_device_words(device) for device in said.devices)}" if said.devices else "not said"


def shortfall(said: Compute, cards: Sequence[int]) -> str:
    """The sentence that is worth attention, with the indexes of the cards it has; empty when nothing is wrong."""
    if not said.less_than_asked:
        return ""
    named = f"card{'s' if len(cards) > 1 else ''} {', '.join(map(str, cards))}" if cards else "cards of its own"
    words = f"the engine runs it on the CPU although it has {named}"
    if said.layers is not None and said.layers_on_cards:
        words = f"the engine put {said.layers_on_cards:,} of {said.layers:,} layers on {named}, fewer than asked for"
    return f"{words} (its log: {said.line})" if said.line else words


def _device_words(device: ComputeDevice) -> str:
    return f"{device.name} {size(device.held_bytes)}" if device.held_bytes else device.name


class Part(Protocol):
    """A replica or one of its shards, as the leader holds it or as the admin API tells it."""

    @property
    def node(self) -> str:
        """The machine it is on."""

    @property
    def cards(self) -> tuple[str, ...]:
        """UUIDs of the cards it has."""

    @property
    def compute(self) -> Compute | None:
        """Where it said that it computes."""


def shortfalls(
    replica: Part, shards: Sequence[Part], index_of: Callable[[str], int | None]
) -> Iterator[tuple[str, str]]:
    """The node and the sentence of each part that uses less of its cards than it was asked to."""
    for part in shards or (replica,):
        if part.compute is not None:
            found = (index_of(uuid) for uuid in part.cards)
            sentence = shortfall(part.compute, [index for index in found if index is not None])
            if sentence:
                yield part.node, sentence
