"""Where llama.cpp says it computes: its words while it loads, of several years' versions, and our launcher's line."""

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from agent.engines.compute import ComputeWords, devices_of, shown
from agent.engines.llamacpp_words import CARDS_SEEN, NO_CARD_ASKED, NO_CARD_SEEN
from llmgw.core.compute import Compute

MIB = 1024**2
MAX_NAMES = 64
"""Different buffers of one load that are told apart."""
_NEXT_LOAD = re.compile(r"load_tensors: loading model tensors")
_OFFLOADED = re.compile(r"load_tensors: offloaded ([0-9]{1,5})/([0-9]{1,5}) layers to GPU")
_BUFFER = re.compile(
    r"load_tensors: {1,40}([A-Za-z][A-Za-z0-9_.:\[\]-]{0,60}) (?:model )?buffer size = {1,20}"
    r"([0-9]{1,9}\.[0-9]{1,3}) MiB"
)
_NO_CARD = re.compile(
    r"no usable GPU found|warning: no GPU\b|failed to initialize CUDA|no CUDA-capable device|"
    r"not compiled with (?:GPU|CUDA) (?:offload )?support"
)
_SEEN = re.compile(re.escape(CARDS_SEEN) + r"([A-Za-z0-9_.:, \[\]-]{1,400})$")


def _in_memory(name: str) -> bool:
    """Whether a buffer of that name is in the machine's memory: the CPU's own, and what a card's driver pins there."""
    return name.startswith(("CPU", "AMX", "BLAS")) or name.endswith("_Host")


class _Load:
    """What is said of one load of a model. A dry run before it, to try sizes, says the same with no bytes."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}
        self.layers: tuple[int, int] | None = None
        self.line = ""

    @property
    def real(self) -> bool:
        """Whether it holds anything."""
        return any(self.sizes.values())

    def read(self, line: str) -> None:
        """Take in a line."""
        if match := _OFFLOADED.search(line):
            self.layers, self.line = (int(match[1]), int(match[2])), line
        elif match := _BUFFER.search(line):
            name = match[1]
            if name in self.sizes or len(self.sizes) < MAX_NAMES:
                # A model in several files has a buffer for each.
                self.sizes[name] = self.sizes.get(name, 0) + int(float(match[2]) * MIB)
            self.line = self.line or line


def _said(lines: Iterable[str]) -> Compute | None:
    load, complete = _Load(), False
    no_card = told = ""
    seen: tuple[str, ...] = ()
    for line in lines:
        if _NEXT_LOAD.search(line):
            # What is loaded after the model is a smaller one that helps it.
            complete = complete or load.real
            load = load if complete else _Load()
        if not complete:
            load.read(line)
        if NO_CARD_SEEN in line or NO_CARD_ASKED in line:
            told = line
        elif match := _SEEN.search(line):
            seen, told = tuple(match[1].split(", ")), line
        elif not no_card and _NO_CARD.search(line):
            no_card = line
    if load.layers is not None or load.sizes:
        return _of_load(load, no_card or told)
    if seen:
        return Compute(devices=devices_of((name, None) for name in seen), line=shown(told))
    return Compute(cpu_only=True, line=shown(no_card or told)) if no_card or told else None


def _of_load(load: _Load, why_none: str) -> Compute:
    on_cards, layers = load.layers or (None, None)
    none_on_cards = on_cards == 0 if on_cards is not None else all(_in_memory(name) for name in load.sizes)
    return Compute(
        cpu_only=none_on_cards,
        layers_on_cards=on_cards,
        layers=layers,
        devices=devices_of((name, held) for name, held in load.sizes.items() if held),
        line=shown(why_none if none_on_cards and why_none else load.line),
    )


def _layers_asked(args: Sequence[str]) -> int | None:
    """What the last `--n-gpu-layers` says.

    Below 0 the engine chooses: that some are on a card is all that is asked then. Experts kept in memory change
    nothing, for the engine counts their layers as being on the card.
    """
    given = [value for flag, value in pairwise(args) if flag == "--n-gpu-layers"]
    if not given:
        return None
    try:
        asked = int(given[-1])
    except ValueError:
        return 1
    return asked if asked >= 0 else 1


LLAMACPP = ComputeWords(said=_said, layers_asked=_layers_asked)
