"""Whether a node is meant for an engine, and what it lacks if it is: one is no fault, the other is, and they never mix.

The same agent.yaml may lie on every node. Where an engine's kernels cannot run nothing is said of it; where they could,
but for a driver or a toolkit, that is said with what to install.
"""

import os
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.discovery.cuda import Toolkit
from agent.discovery.cuda import toolkit as cuda_toolkit
from llmgw.core.capability import Capability, capability_of
from llmgw.core.cluster import Card

COMPILER = "g++"
_MAJOR = re.compile(r"([0-9]{1,5})\.")


@dataclass(frozen=True, kw_only=True)
class Requirements:
    """What an engine's kernels need of a machine."""

    architecture: str
    """As `uname -m` says it."""
    drivers: tuple[tuple[Capability, int], ...]
    """From which compute capability on which series of the driver is needed; the first is the least it runs on."""
    toolkit: int = 0
    """Major version of the CUDA toolkit that it compiles its kernels with; 0 compiles none."""

    @property
    def capability(self) -> Capability:
        """Of one card, at least."""
        return self.drivers[0][0]

    def driver_for(self, there: Capability) -> int:
        """Series of the driver that a card of this capability needs at least."""
        return [series for least, series in self.drivers if least <= there][-1]


@dataclass(frozen=True, kw_only=True)
class Standing:
    """What an engine is to a machine."""

    elsewhere: str = ""
    """Why the machine is not meant for it; empty where it is."""
    lacks: str = ""
    """What is missing, with what to install; empty where nothing is."""


def _here(major: int) -> Toolkit | None:
    return cuda_toolkit(major, os.environ)


def _nobody_looked() -> None:
    return None


@dataclass(kw_only=True)
class Machine:
    """This machine, as far as engines ask. What is found is looked up anew each time: an operator may install it."""

    architecture: str = platform.machine()
    cards: Callable[[], Sequence[Card] | None] = _nobody_looked
    """None while nobody has looked for cards."""
    toolkit: Callable[[int], Toolkit | None] = _here
    """The CUDA toolkit of a major version. Blocking."""
    program: Callable[[str], str | None] = shutil.which
    """Where a program is. Blocking."""

    def card(self, uuid: str) -> Card | None:
        """A card by UUID, where it is known."""
        return next((card for card in self.cards() or () if card.uuid == uuid), None)


def standing(wanted: Requirements, machine: Machine) -> Standing:
    """What stands against an engine on a machine, first whether it is meant for it at all. Blocking."""
    if machine.architecture != wanted.architecture:
        return Standing(elsewhere=f"its machine is {machine.architecture}, not {wanted.architecture}")
    cards = machine.cards()
    if cards is not None:
        able = [
            card for card in cards if (capability_of(card.compute_capability) or wanted.capability) >= wanted.capability
        ]
        if not able:
            needed = ".".join(map(str, wanted.capability))
            return Standing(elsewhere=f"it has no card of compute capability {needed} or newer")
        for card in able:
            series = _MAJOR.match(card.driver)
            needed_series = wanted.driver_for(capability_of(card.compute_capability) or wanted.capability)
            if series and int(series[1]) < needed_series:
                return Standing(
                    lacks=f"it needs driver {needed_series} or newer and this node has {card.driver}: "
                    f"install the NVIDIA driver of the {needed_series} series or a newer one"
                )
    if not wanted.toolkit:
        return Standing()
    if machine.toolkit(wanted.toolkit) is None:
        return Standing(
            lacks=f"it compiles its kernels with a CUDA {wanted.toolkit} toolkit, and there is none in CUDA_HOME or "
            f"/usr/local/cuda*: install the package cuda-toolkit-{wanted.toolkit}"
        )
    if machine.program(COMPILER) is None:
        return Standing(lacks=f"it compiles its kernels with {COMPILER}, which is not there: install the package g++")
    return Standing()
