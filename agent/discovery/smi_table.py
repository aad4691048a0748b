"""Cards through nvidia-smi's plain table and `-q`: the last way, where XML and CSV say nothing (Jetson does that).

The table has no UUIDs; `-q` has. A chip with none (an integrated GPU) is named after its machine and its place.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

from agent.discovery.gpu import ERRORS, MAX_CARDS, NO_MEMORY, CardReading, CardSample, ReaderFailed
from agent.discovery.gpu_class import gpu_class
from agent.discovery.nameless import name_of
from agent.discovery.smi import SAMPLE_EVERY_S, Smi
from agent.discovery.words import UUID, broken, bus_id, figure, mebibytes, percent, said
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear

_NAMED = re.compile(r"\s*(\d{1,3})\s+(\S.*?)\s+(?:On|Off|N/A|ERR!|Enabled|Disabled)\s*")
_CUT = re.compile(r"[\s-]+[^\s\d-]*\.\.\.$|\.\.\.$")
"""A name that is longer than its column ends in the middle of a word, of which a part of a number is kept."""
_DRIVER = re.compile(r"Driver Version: (\S+)")
_DEGREES = re.compile(r"(\d{1,3})C\b")
_POWER = re.compile(r"(\S+)\s*/\s*(\S+)\s*$")
_MEMORY = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_HEADING = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])")


@dataclass(frozen=True, kw_only=True)
class Row:
    """What the table says of one card."""

    index: int
    name: str
    bus_id: str
    driver: str
    errors: tuple[str, ...]
    """Where an error stands that means that the card does not answer."""
    memory_total_bytes: int | None
    memory_used_bytes: int | None
    utilization_percent: float | None
    temperature_c: float | None
    power_w: float | None
    power_limit_w: float | None


class SmiTable:
    """A GpuReader over the table."""

    name = "nvidia-smi's table"
    sample_every_s = asked_every_s = SAMPLE_EVERY_S

    def __init__(self, smi: Smi | None = None) -> None:
        self._smi = smi or Smi()
        self._uuids: dict[str, str] = {}

    def open(self) -> None:
        """See whether there is a table with cards; raises ReaderFailed."""
        self._rows()

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed."""
        rows = self._rows()
        try:
            sections = parse_query(self._smi.say("-q"))
        except ReaderFailed:
            sections = {}
        self._uuids = {bus: uuid for bus, told in sections.items() if UUID.fullmatch(uuid := told.get("GPU UUID", ""))}
        return CardReading(cards=tuple(self._card(row, sections.get(row.bus_id, {})) for row in rows))

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        return tuple(
            CardSample(
                uuid=self._uuid(row),
                memory_used_bytes=row.memory_used_bytes,
                utilization_percent=row.utilization_percent,
                temperature_c=row.temperature_c,
                power_w=row.power_w,
                power_limit_w=row.power_limit_w,
            )
            for row in parse_table(self._smi.say())
        )

    def wear(self) -> Mapping[str, CardWear]:
        """A table has none."""
        return {}

    def close(self) -> None:
        """Nothing is kept open."""

    def _rows(self) -> tuple[Row, ...]:
        """The table's cards; raises ReaderFailed: words without one do not say that there is none."""
        rows = parse_table(self._smi.say())
        if not rows:
            raise ReaderFailed("its table lists no card")
        return rows

    def _uuid(self, row: Row) -> str:
        return self._uuids.get(row.bus_id) or name_of(row.index)

    def _card(self, row: Row, told: Mapping[str, str]) -> Card:
        name = told.get("Product Name") or _CUT.sub("", row.name)
        memory = row.memory_total_bytes or mebibytes(told.get("FB Memory Usage/Total")) or None
        errors = ", ".join(row.errors)
        problem = ERRORS.format(errors=errors)
        return Card(
            uuid=self._uuid(row),
            index=row.index,
            name=name,
            gpu_class=gpu_class(name, memory),
            memory_total_bytes=None if errors else memory,
            driver=row.driver,
            healthy=not errors,
            problem=problem if errors else "" if memory else NO_MEMORY,
            bus_id=row.bus_id,
        )


def parse_table(text: str) -> tuple[Row, ...]:
    """The table's rows; what is no row is passed over."""
    driver = _DRIVER.search(text)
    rows = []
    lines = [line.strip().strip("|").split("|") for line in text.splitlines() if line.strip().startswith("|")]
    for head, figures in pairwise(lines):
        if len(head) == len(figures) == 3 and (named := _NAMED.fullmatch(head[0])):
            rows.append(_row(int(named[1]), named[2], head, figures, said(driver[1]) if driver else ""))
    return tuple(rows[:MAX_CARDS])


def parse_query(text: str) -> dict[str, dict[str, str]]:
    """What `-q` says of each card by its bus address; the two lines of memory under their heading, by path."""
    cards: dict[str, dict[str, str]] = {}
    bus, section = "", ""
    for line in text.splitlines():
        if match := _HEADING.match(line):
            bus = bus_id(match[1])
        key, colon, value = (part.strip() for part in line.partition(" : "))
        if not colon:
            section = key
            continue
        depth = len(line) - len(line.lstrip())
        # Facts of the card stand at the first level, everything below belongs to the heading above it.
        name = key if depth <= 4 else f"{section}/{key}"
        cards.setdefault(bus, {}).setdefault(name, said(value))
    return cards


def _row(index: int, name: str, head: list[str], figures: list[str], driver: str) -> Row:
    vital = {"memory": figures[1], "utilization": figures[2].split()[0] if figures[2].split() else "", "name": name}
    errors = tuple(key for key, cell in vital.items() if broken(cell.strip()))
    memory = None if errors else _MEMORY.search(figures[1])
    power = _POWER.search(figures[0].rstrip())
    heat = _DEGREES.search(figures[0])
    return Row(
        index=index,
        name=said(name),
        bus_id=bus_id(head[1]),
        driver=driver,
        errors=errors,
        memory_total_bytes=mebibytes(memory[2]) or None if memory else None,
        memory_used_bytes=mebibytes(memory[1]) if memory else None,
        utilization_percent=None if errors else percent(vital["utilization"]),
        temperature_c=float(heat[1]) if heat else None,
        power_w=figure(power[1].removesuffix("W")) if power else None,
        power_limit_w=figure(power[2].removesuffix("W")) or None if power else None,
    )
