"""Cards through `nvidia-smi`'s CSV. A cell without a figure is absent; a row that cannot be read loses only itself."""

import re
from collections.abc import Callable, Sequence

from agent.command import ToolFailed, ToolResult, run_tool
from agent.discovery.gpu import CardReading, CardSample, ReaderFailed
from agent.discovery.gpu_class import gpu_class
from llmgw.core.cluster import Card

TIMEOUT_S = 10.0
"""`nvidia-smi` takes a second or two without persistence mode, and hangs on a card that fell off the bus."""
SAMPLE_EVERY_S = 10.0
"""Each call loads the driver's libraries anew and costs CPU, so it is asked no oftener."""
MAX_CARDS = 256

FACTS = (
    "index",
    "uuid",
    "name",
    "memory.total",
    "utilization.gpu",
    "driver_version",
    "compute_cap",
    "mig.mode.current",
)
OLD_FACTS = FACTS[:6]
"""What drivers before 2021 know, too."""
FIGURES = ("uuid", "memory.used", "utilization.gpu", "temperature.gpu", "power.draw")

_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
_UUID = re.compile(r"(GPU|MIG)-[0-9A-Za-z/-]{1,120}")
_BROKEN = frozenset({"err!", "[err!]", "[unknown error]", "unknown error", "[gpu is lost]"})
_MIB = 1024 * 1024


class NvidiaSmi:
    """A GpuReader over the command-line tool."""

    name = "nvidia-smi"
    sample_every_s = SAMPLE_EVERY_S

    def __init__(self, tool: str = "nvidia-smi", *, run: Callable[..., ToolResult] = run_tool) -> None:
        self._tool = tool
        self._run = run
        self._facts: Sequence[str] = FACTS

    def open(self) -> None:
        """See whether the tool answers; raises ReaderFailed."""
        self._query_facts()

    def cards(self) -> CardReading:
        """Facts of each card; raises ReaderFailed."""
        return parse_cards(self._query_facts(), self._facts)

    def sample(self) -> tuple[CardSample, ...]:
        """Figures of each card; raises ReaderFailed."""
        return parse_samples(self._query(FIGURES), FIGURES)

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
        argv = [self._tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
        try:
            result = self._run(argv, timeout_s=TIMEOUT_S)
        except ToolFailed as error:
            raise ReaderFailed(str(error)) from error
        if result.code != 0:
            raise ReaderFailed(f"{self._tool} ended with {result.code}: {_first_line(result.output)}")
        return result.output


def parse_cards(text: str, fields: Sequence[str]) -> CardReading:
    """Cards from CSV rows of `fields`, with a sentence for each row that is none."""
    cards: list[Card] = []
    problems: list[str] = []
    for line in _lines(text):
        row = _row(line, fields)
        index = _figure(row.get("index", ""))
        if index is None or index < 0 or not _UUID.fullmatch(row.get("uuid", "")):
            problems.append(f"nvidia-smi wrote a line that is no card: {line[:120]}")
            continue
        cards.append(_card(row, int(index)))
    return CardReading(cards=tuple(cards[:MAX_CARDS]), problems=tuple(problems[:MAX_CARDS]))


def parse_samples(text: str, fields: Sequence[str]) -> tuple[CardSample, ...]:
    """Figures from CSV rows of `fields`; rows without a UUID are left out."""
    samples = []
    for line in _lines(text)[:MAX_CARDS]:
        row = _row(line, fields)
        if not _UUID.fullmatch(row.get("uuid", "")):
            continue
        used_mib = _figure(row.get("memory.used", ""))
        samples.append(
            CardSample(
                uuid=row["uuid"],
                memory_used_bytes=None if used_mib is None else int(used_mib * _MIB),
                utilization_percent=_percent(row.get("utilization.gpu", "")),
                temperature_c=_figure(row.get("temperature.gpu", "")),
                power_w=_figure(row.get("power.draw", "")),
            )
        )
    return tuple(samples)


def _card(row: dict[str, str], index: int) -> Card:
    total_mib = _figure(row.get("memory.total", ""))
    mig = row.get("mig.mode.current", "").lower() == "enabled"
    broken = [name for name in ("memory.total", "utilization.gpu") if row.get(name, "").lower() in _BROKEN]
    problem = ""
    if broken:
        problem = f"The driver reports an error for {', '.join(broken)}; the card takes no work until it answers."
    elif mig:
        problem = "The card is split into MIG instances; the instances take work, the card does not."
    elif total_mib is None:
        problem = "The driver reports no memory of its own for the card, so nothing can be placed on it."
    memory = None if total_mib is None or total_mib <= 0 or broken or mig else int(total_mib * _MIB)
    return Card(
        uuid=row["uuid"],
        index=index,
        name=row.get("name", ""),
        gpu_class=gpu_class(row.get("name", ""), memory),
        memory_total_bytes=memory,
        compute_capability=_plain(row.get("compute_cap", "")),
        driver=_plain(row.get("driver_version", "")),
        healthy=not broken,
        problem=problem,
    )


def _lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.strip()]


def _row(line: str, fields: Sequence[str]) -> dict[str, str]:
    cells = [cell.strip() for cell in line.split(",")]
    return dict(zip(fields, cells, strict=True)) if len(cells) == len(fields) else {}


def _figure(cell: str) -> float | None:
    """A number, with or without its unit; none for every way a driver says that it does not know."""
    number = cell.split(" ")[0] if cell else ""
    return float(number) if len(number) < 20 and _NUMBER.fullmatch(number) else None


def _percent(cell: str) -> float | None:
    value = _figure(cell)
    return value if value is not None and 0 <= value <= 100 else None


def _plain(cell: str) -> str:
    return "" if cell.startswith("[") or cell.lower() in _BROKEN else cell


def _first_line(text: str) -> str:
    return next(iter(_lines(text)), "it said nothing")[:200]
