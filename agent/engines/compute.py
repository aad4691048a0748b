"""How engines say where they compute: what to read in the log of one start. What is not said is not known.

A log is text from outside: whatever stands in it, reading it takes time in proportion to its length and raises nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import msgspec

from llmgw.core.compute import MAX_DEVICES, MAX_LINE_CHARS, MAX_NAME_CHARS, Compute, ComputeDevice, less_than_asked
from llmgw.wire.llmgw.v1 import ComputeDeviceSaid, ComputeSaid


def all_layers(args: Sequence[str]) -> int | None:
    """What an engine is asked to put on its cards that knows no other way: all."""
    return None


@dataclass(frozen=True, kw_only=True)
class ComputeWords:
    """How one kind of engine says where it computes."""

    said: Callable[[Iterable[str]], Compute | None]
    """What the lines of one start say, plain text each; none where they say nothing of it."""
    layers_asked: Callable[[Sequence[str]], int | None] = all_layers
    """Layers that checked flags want on cards; none is all of them."""

    def report(self, lines: Iterable[str], *, cards: int, args: Sequence[str]) -> Compute | None:
        """What one start said, judged by the cards and flags it was given."""
        said = self.said(lines)
        if said is None:
            return None
        short = less_than_asked(said, cards=cards, asked=self.layers_asked(args))
        return msgspec.structs.replace(said, less_than_asked=short)


def devices_of(sizes: Iterable[tuple[str, int | None]]) -> tuple[ComputeDevice, ...]:
    """Devices by name, no more and no longer than are told."""
    return tuple(ComputeDevice(name=name[:MAX_NAME_CHARS], held_bytes=held) for name, held in list(sizes)[:MAX_DEVICES])


def compute_message(said: Compute) -> ComputeSaid:
    """What an engine said, in the protocol's words."""
    return ComputeSaid(
        cpu_only=said.cpu_only,
        layers_on_cards=said.layers_on_cards,
        layers=said.layers,
        devices=[ComputeDeviceSaid(name=device.name, held_bytes=device.held_bytes) for device in said.devices],
        less_than_asked=said.less_than_asked,
        line=said.line,
    )


def shown(line: str) -> str:
    """A line of the log, as it is told."""
    text = " ".join(line.split())
    return text if len(text) <= MAX_LINE_CHARS else text[: MAX_LINE_CHARS - 1] + "…"
