"""`nvidia-smi topo -m`: which cards are joined by NVLink, and on which NUMA node each hangs."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.discovery.gpu import ReaderFailed
from agent.discovery.smi import Smi

_NVLINK = re.compile(r"NV[0-9]{1,2}")
_CPUS = re.compile(r"[0-9]+([,-][0-9]+)*")


@dataclass(frozen=True, kw_only=True)
class Joined:
    """One card's row."""

    links: Mapping[str, str]
    """Other device (`GPU1`, `NIC0`) → kind of way to it (`NV18`, `PHB`; `OK` or `GNS` of a matrix of peer access)."""
    numa_node: int | None = None

    @property
    def peers(self) -> tuple[int, ...]:
        """Indexes of the cards it reaches over NVLink."""
        return tuple(int(name[3:]) for name, way in self.links.items() if _card(name) and _NVLINK.fullmatch(way))


def parse_topology(text: str) -> dict[int, Joined]:
    """Rows of the cards by index. Columns are told apart by their order: headings are spaced or tabbed, as it comes."""
    columns: Sequence[str] = ()
    cards: dict[int, Joined] = {}
    for line in text.splitlines():
        words = line.split()
        if not columns:
            # The heading is the first line that begins with a card.
            columns = _columns(words)
            continue
        if not words or not _card(words[0]) or len(words) < len(columns) + 1:
            continue
        ways, rest = words[1 : len(columns) + 1], words[len(columns) + 1 :]
        links = {name: way for name, way in zip(columns, ways, strict=True) if name != words[0]}
        placed = len(rest) > 1 and _CPUS.fullmatch(rest[0]) and rest[1].isdigit()
        cards[int(words[0][3:])] = Joined(links=links, numa_node=int(rest[1]) if placed else None)
    return cards


def read_topology(smi: Smi) -> dict[int, Joined]:
    """What the tool says; nothing where it does not say. Blocking."""
    try:
        return parse_topology(smi.say("topo", "-m"))
    except ReaderFailed:
        return {}


def _columns(words: Sequence[str]) -> Sequence[str]:
    if not words or not _card(words[0]):
        return ()
    end = next((place for place, word in enumerate(words) if word in ("CPU", "NUMA")), len(words))
    return words[:end]


def _card(word: str) -> bool:
    return word.startswith("GPU") and word[3:].isdigit() and word.isascii() and len(word) < 8
