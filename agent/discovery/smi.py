"""`nvidia-smi` as a tool: run under a deadline, its complaints told apart from its answers."""

import re
from collections.abc import Callable, Sequence
from functools import partial

from agent.command import ToolFailed, ToolResult, run_tool
from agent.discovery.gpu import LostCard, ReaderFailed
from agent.discovery.words import bus_id

TOOL = "nvidia-smi"
TIMEOUT_S = 10.0
"""It takes a second or two without persistence mode, and hangs on a card that fell off the bus."""
SAMPLE_EVERY_S = 10.0
"""Each call loads the driver's libraries anew and costs CPU, so it is asked no oftener."""
MAX_OUTPUT_BYTES = 4 * 1024 * 1024
"""What it says of 16 cards in XML is a megabyte and a half: each lists the clocks it supports."""
ONE_CARDS_TROUBLE = frozenset((8, 10, 14, 15))
"""Exit statuses about one card, its power cables, interrupt, infoROM or place on the bus; the others are told of."""
Run = Callable[..., ToolResult]
RUN: Run = partial(run_tool, max_bytes=MAX_OUTPUT_BYTES)

_BUS = r"([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
_LOST = re.compile(rf"device handle for GPU[^\n]*?{_BUS}[^\n:]*:[^\S\n]*([^\n]*)", re.IGNORECASE)
_WARNING = re.compile(r"\s*warning:", re.IGNORECASE)
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
"""Headings are underlined for a terminal, whether there is one or not."""


class Smi:
    """The tool under a name, `run` standing in for it in tests."""

    def __init__(self, tool: str = TOOL, *, run: Run = RUN) -> None:
        self._tool = tool
        self._run = run

    def say(self, *arguments: str) -> str:
        """What it says, also when it ended for one card's trouble and told of the others; raises ReaderFailed."""
        try:
            result = self._run([self._tool, *arguments], timeout_s=TIMEOUT_S)
        except ToolFailed as error:
            raise ReaderFailed(str(error)) from error
        told = result.code in ONE_CARDS_TROUBLE and len(lines(result.output)) > 1
        if result.code != 0 and not told and not lost_cards(result.output):
            raise ReaderFailed(f"{self._tool} ended with {result.code}: {first_line(result.output)}")
        return _STYLE.sub("", result.output)


def lost_cards(text: str) -> tuple[LostCard, ...]:
    """Cards it could not get hold of: they are there, on the bus or just off it."""
    return tuple(
        LostCard(bus_id=bus_id(match[1]), why=" ".join(match[2].split())[:120]) for match in _LOST.finditer(text)
    )


def warning(line: str) -> bool:
    """Whether a line is a word of warning beside the answer, and no part of it."""
    return _WARNING.match(line) is not None


def lines(text: str) -> list[str]:
    """Lines that hold something."""
    return [line for line in text.splitlines() if line.strip()]


def first_line(text: str) -> str:
    """The first line that holds something, cut."""
    return next(iter(lines(text)), "it said nothing")[:200]


def rows(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    """CSV lines by field; a line with another number of cells is an empty row."""
    return [
        dict(zip(fields, cells, strict=True)) if len(cells) == len(fields) else {}
        for cells in ([cell.strip() for cell in line.split(",")] for line in lines(text))
    ]


def fields_of(heading: str) -> tuple[str, ...]:
    """Field names of a CSV heading, without their units: `memory.total [MiB]` is `memory.total`."""
    return tuple(cell.split("[")[0].strip() for cell in heading.split(","))
