"""Cards through `nvidia-smi`'s CSV. A cell without a figure is absent; a row that cannot be read loses only itself."""

from collections.abc import Mapping, Sequence

from agent.discovery.gpu import ERRORS, MAX_CARDS, NO_MEMORY, SPLIT, CardReading, CardSample, ReaderFailed
from agent.discovery.gpu_class import gpu_class
from agent.discovery.smi import SAMPLE_EVERY_S, Smi, lines, lost_cards, rows, warning
from agent.discovery.words import UUID, broken, bus_id, count, figure, mebibytes, percent, positive, said
from llmgw.core.cluster import Card
from llmgw.core.wear import CardWear

FACTS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "utilization.gpu",
    "driver_version",
    "compute_cap",
    "mig.mode.current",
    "pci.bus_id",
)
OLD_FACTS = FACTS[:6]
"""What drivers before 2021 know, too."""
FIGURES = (
    "uuid",
    "memory.used",
    "utilization.gpu",
    "temperature.gpu",
    "power.draw",
    "memory.total",
    "utilization.memory",
    "power.limit",
    "clocks.sm",
    "clocks.mem",
)
OLD_FIGURES = FIGURES[:5]
"""What every driver knows: one unknown field refuses the whole question."""


class NvidiaSmi:
    """A GpuReader over the command-line tool's CSV; MIG instances are not in it, and no wear."""

    name = "nvidia-smi"
    sample_every_s = asked_every_s = SAMPLE_EVERY_S

    def __init__(self, smi: Smi | None = None) -> None:
        self._smi = smi or Smi()
        self._facts: Sequence[str] = FACTS
        self._figures: Sequence[str] = FIGURES

    def open(self) -> None:
        """See whether the tool answers with cards; raises ReaderFailed."""
        self.cards()

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed."""
        reading = parse_cards(self._query_facts(), self._facts)
        if not reading.cards and not reading.lost:
            raise ReaderFailed(next(iter(reading.problems), "it lists no card"))
        return reading

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        try:
            return parse_samples(self._query(self._figures), self._figures)
        except ReaderFailed:
            if self._figures is OLD_FIGURES:
                raise
        text = self._query(OLD_FIGURES)
        self._figures = OLD_FIGURES
        return parse_samples(text, OLD_FIGURES)

    def wear(self) -> Mapping[str, CardWear]:
        """The CSV has none of a kind that all drivers know."""
        return {}

    def close(self) -> None:
        """Nothing is kept open."""

    def _query_facts(self) -> str:
        try:
            return self._query(self._facts)
        except ReaderFailed:
            if self._facts is OLD_FACTS:
                raise
        text = self._query(OLD_FACTS)
        self._facts = OLD_FACTS
        return text

    def _query(self, fields: Sequence[str]) -> str:
        return self._smi.say(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")


def parse_cards(text: str, fields: Sequence[str]) -> CardReading:
    """Cards from CSV rows of `fields`, with a sentence for each row that is none."""
    cards: list[Card] = []
    problems: list[str] = []
    unread = False
    lost = lost_cards(text)
    for line, row in zip(lines(text), rows(text, fields), strict=True):
        index = count(row.get("index"))
        if index is not None and UUID.fullmatch(row.get("uuid", "")):
            cards.append(_card(row, index))
        elif warning(line):
            problems.append(f"nvidia-smi warns: {line.partition(':')[2].strip()[:120]}")
        elif not lost_cards(line):
            unread = True
            problems.append(f"nvidia-smi wrote a line that is no card: {line[:120]}")
    return CardReading(
        cards=tuple(cards[:MAX_CARDS]), problems=tuple(problems[:MAX_CARDS]), lost=lost, partial=unread or bool(lost)
    )


def parse_samples(text: str, fields: Sequence[str]) -> tuple[CardSample, ...]:
    """Figures from CSV rows of `fields`; rows without a UUID are left out."""
    named = [row for row in rows(text, fields) if UUID.fullmatch(row.get("uuid", ""))]
    return tuple(sample_of(row, row["uuid"]) for row in named[:MAX_CARDS])


def sample_of(row: Mapping[str, str], uuid: str) -> CardSample:
    """The figures that a row has."""
    whole = not any(broken(row.get(name)) for name in ("memory.total", "utilization.gpu"))
    return CardSample(
        uuid=uuid,
        memory_used_bytes=mebibytes(row.get("memory.used")) if whole else None,
        utilization_percent=percent(row.get("utilization.gpu")) if whole else None,
        memory_utilization_percent=percent(row.get("utilization.memory")) if whole else None,
        temperature_c=figure(row.get("temperature.gpu")),
        power_w=figure(row.get("power.draw")),
        power_limit_w=positive(row.get("power.limit")),
        sm_clock_mhz=positive(row.get("clocks.sm")),
        memory_clock_mhz=positive(row.get("clocks.mem")),
    )


def _card(row: Mapping[str, str], index: int) -> Card:
    name = said(row.get("name"))
    memory = mebibytes(row.get("memory.total")) or None
    split = row.get("mig.mode.current", "").lower() == "enabled"
    errors = [name for name in ("memory.total", "utilization.gpu", "name") if broken(row.get(name))]
    problem = ""
    if errors:
        problem = ERRORS.format(errors=", ".join(errors))
    elif split:
        problem = SPLIT
    elif memory is None:
        problem = NO_MEMORY
    return Card(
        uuid=row["uuid"],
        index=index,
        name=name,
        gpu_class=gpu_class(name, memory),
        memory_total_bytes=None if errors or split else memory,
        compute_capability=said(row.get("compute_cap")),
        driver=said(row.get("driver_version")),
        healthy=not errors,
        problem=problem,
        bus_id=bus_id(row.get("pci.bus_id")),
    )
