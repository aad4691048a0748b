"""Figures over time, `GET /api/v1/series`: their names, what they are of, and the document that is answered.

The names are the whole vocabulary: recorder, metrics store, `ctl series` and the console's Monitor read this table. A
point that nobody reported is null, and a figure is never zero for want of a report.
"""

from enum import StrEnum

import msgspec

from llmgw.core.errors import InvalidInput

MAX_SERIES = 64
"""Series of one answer: figures times what they are of."""
MAX_POINTS = 2_000
"""Points of one series."""
DEFAULT_POINTS = 300
"""Points of one series at most where no step is asked for."""
OWN_SPAN_S = 24 * 3600.0
"""What the control plane remembers by itself; what is older comes from the metrics store."""


class Scope(StrEnum):
    """What a figure can be of."""

    CLUSTER = "cluster"
    MODEL = "model"
    NODE = "node"
    CARD = "card"


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A figure one may ask for."""

    name: str
    unit: str
    doc: str
    scopes: tuple[Scope, ...]


_C, _M, _N, _G = Scope.CLUSTER, Scope.MODEL, Scope.NODE, Scope.CARD
_CARDS = (_C, _M, _N, _G)


def _figure(name: str, unit: str, doc: str, *scopes: Scope) -> Figure:
    return Figure(name=name, unit=unit, doc=doc, scopes=scopes)


FIGURES: tuple[Figure, ...] = (
    _figure("work", "%", "how much of the chip works, mean of the cards", *_CARDS),
    _figure("busy", "%", "share of time in which any kernel ran, mean of the cards", *_CARDS),
    _figure("memory", "%", "memory of the card in use, mean of the cards", *_CARDS),
    _figure("temperature", "°C", "temperature, of the hottest card", *_CARDS),
    _figure("power", "W", "power draw, sum of the cards", *_CARDS),
    _figure("power_cards", "", "cards that report their draw: those whose sum `power` is", _C, _M, _N),
    _figure("memory_temperature", "°C", "temperature of the card's memory, the hottest", _N, _G),
    _figure("clock", "MHz", "clock of the multiprocessors, mean of the cards", _N, _G),
    _figure("tensor", "%", "tensor cores at work, mean of the cards", _N, _G),
    _figure("dram", "%", "memory traffic against the most there could be, mean of the cards", _N, _G),
    _figure("occupancy", "%", "warps in flight against what there is room for, mean of the cards", _N, _G),
    _figure("cpu", "%", "CPU in use", _N),
    _figure("host_memory", "%", "memory of the machine that is not available", _N),
    _figure("load", "", "load over a minute", _N),
    _figure("cpu_temperature", "°C", "hottest CPU package", _N),
    _figure("cpu_power", "W", "power draw of all sockets", _N),
    _figure("inlet", "°C", "air that goes in", _N),
    _figure("network_in", "MB/s", "what comes in through all network ports", _N),
    _figure("network_out", "MB/s", "what goes out through all network ports", _N),
    _figure("infiniband_in", "MB/s", "what comes in through all InfiniBand ports", _N),
    _figure("infiniband_out", "MB/s", "what goes out through all InfiniBand ports", _N),
    _figure("requests", "/s", "requests that ended", _C, _M),
    _figure("errors", "/s", "requests that failed", _C, _M),
    _figure("input_tokens", "/s", "tokens read", _C, _M),
    _figure("output_tokens", "/s", "tokens written", _C, _M),
    _figure("first_token_p50", "ms", "time to the first token that half of the requests stayed within", _C, _M),
    _figure("first_token_p95", "ms", "time to the first token that 95% of the requests stayed within", _C, _M),
    _figure("gap_p95", "ms", "gap between tokens that 95% of the gaps stayed within", _C, _M),
    _figure("open", "", "requests being answered or waiting", _C, _M),
    _figure("waiting", "", "requests in the engines' own queues", _C, _M),
    _figure("kv", "%", "KV cache of the engines that is taken, mean of those that say", _M),
    _figure("ready", "", "replicas that answer", _C, _M),
    _figure("tokens_per_wh", "/Wh", "tokens written for a watt-hour of the cards", _C, _M),
    _figure("cards_working", "", "cards that a replica holds and that work", _C),
    _figure("cards_idle", "", "cards that a replica holds and that do nothing", _C),
    _figure("cards_free", "", "cards that take work and that nobody holds", _C),
)
"""Every figure, the first of a scope being those worth most."""
BY_NAME: dict[str, Figure] = {figure.name: figure for figure in FIGURES}


class Of(msgspec.Struct, frozen=True):
    """What a series is of: a scope and, but for the cluster, a name. A card's is its UUID or `NODE/INDEX`."""

    scope: Scope
    name: str = ""

    def __str__(self) -> str:
        return f"{self.scope.value}:{self.name}" if self.name else self.scope.value


CLUSTER = Of(Scope.CLUSTER)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of one thing."""

    of: str
    """As it was asked for: `cluster`, `model:NAME`, `node:NAME`, `card:UUID` or `card:NODE/INDEX`."""
    figure: str
    unit: str
    points: tuple[float | None, ...]
    """The first spans `start` to `start + step_s`; null is "not reported"."""


class SeriesAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Series over one span of time; all have the same number of points."""

    start: float
    """Unix seconds at which the first point begins."""
    step_s: float
    """Seconds a point spans; it holds their mean."""
    since: float | None = None
    """Unix seconds since when this server has figures of its own; null while it has none."""
    source: str = "own"
    """`own` (what this server saw) or `metrics` (the operator's metrics store)."""
    note: str = ""
    """What is not as it was asked for, as a sentence."""
    series: tuple[Series, ...] = ()


def parse_of(text: str) -> Of:
    """What `text` means; raises InvalidInput."""
    scope, colon, name = text.partition(":")
    if text == Scope.CLUSTER:
        return CLUSTER
    if not colon or not name or scope not in (Scope.MODEL, Scope.NODE, Scope.CARD):
        raise InvalidInput(
            f"{text[:80]!r} is none of cluster, model:NAME, node:NAME, card:UUID and card:NODE/INDEX", field="of"
        )
    return Of(Scope(scope), name)


def figures_of(scope: Scope) -> tuple[str, ...]:
    """Names of the figures there are of a scope."""
    return tuple(figure.name for figure in FIGURES if scope in figure.scopes)


def check_figure(name: str, scopes: tuple[Scope, ...]) -> Figure:
    """The figure of that name, which must be one of each of `scopes`; raises InvalidInput naming those there are."""
    figure = BY_NAME.get(name)
    for scope in scopes:
        if figure is None or scope not in figure.scopes:
            what = "there is no such figure" if figure is None else f"there is none of a {scope.value}"
            raise InvalidInput(f"{name[:40]!r}: {what}; known are {', '.join(figures_of(scope))}", field="figure")
    assert figure is not None, "a question is about something"
    return figure
