"""What Monitor shows: which charts there are of what, and points that the feed goes on with after the server told them.

Free of any screen. A figure that nobody reported is NaN, never zero.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from console.state.cards import CardAt, card_at, cards_of, heard_figures
from console.state.cluster import ALL, ClusterState
from console.state.index import nodes_of
from llmgw.api.card_uses import UNHEARD
from llmgw.api.series import BY_NAME, Of, Scope, SeriesAnswer
from llmgw.api.watch import ReplicaRow, TrafficRow

STEP_S = 5.0
"""Seconds between two points that the feed goes on with; the server samples as often."""


@dataclass(frozen=True, kw_only=True)
class Span:
    """How far back one looks."""

    name: str
    seconds: float
    again_s: float
    """The server is asked again after this long."""

    @property
    def live(self) -> bool:
        """Whether the feed goes on with it."""
        return self.seconds <= 300


SPANS: tuple[Span, ...] = (
    Span(name="5 min", seconds=300, again_s=120),
    Span(name="1 h", seconds=3600, again_s=15),
    Span(name="6 h", seconds=6 * 3600, again_s=60),
    Span(name="24 h", seconds=24 * 3600, again_s=120),
    Span(name="7 d", seconds=7 * 24 * 3600, again_s=600),
)


@dataclass(frozen=True, kw_only=True)
class Chart:
    """One chart: figures of the same unit over one another, each with the word that names it."""

    name: str
    lines: tuple[tuple[str, str], ...]
    top: float | None = None
    """Full height; the highest point where it has none."""

    @property
    def unit(self) -> str:
        """Of all its lines."""
        return BY_NAME[self.lines[0][0]].unit


def _chart(name: str, *figures: str, top: float | None = None) -> Chart:
    lines = [figure.partition("=") for figure in figures]
    return Chart(name=name, lines=tuple((figure, word or name) for figure, _, word in lines), top=top)


_WORK = _chart("work and busy", "work=work", "busy=busy", top=100.0)
_POWER = _chart("power", "power")
_HEAT = _chart("temperature", "temperature=hottest")
_MEMORY = _chart("GPU memory", "memory=used", top=100.0)
_REQUESTS = _chart("requests", "requests=requests", "errors=errors")
_TOKENS = _chart("tokens", "output_tokens=written", "input_tokens=read")
_FIRST = _chart("first token", "first_token_p95=p95", "first_token_p50=p50")
_OPEN = _chart("requests under way", "open=open", "waiting=queued")
_KV = _chart("KV cache", "kv=taken", top=100.0)
_GAP = _chart("gap between tokens", "gap_p95=p95")
_PER_WH = _chart("tokens for a watt-hour", "tokens_per_wh")

CHARTS: Mapping[Scope, tuple[Chart, ...]] = {
    Scope.CLUSTER: (
        *(_REQUESTS, _WORK, _TOKENS, _POWER, _FIRST, _HEAT, _OPEN, _MEMORY),
        _chart("cards", "cards_working=at work", "cards_idle=idle", "cards_free=free"),
        *(_GAP, _PER_WH),
        _chart("replicas", "ready=ready"),
    ),
    Scope.MODEL: (
        *(_REQUESTS, _TOKENS, _FIRST, _OPEN, _WORK, _POWER, _GAP, _KV, _MEMORY, _PER_WH, _HEAT),
        _chart("replicas", "ready=ready"),
    ),
    Scope.NODE: (
        *(_WORK, _POWER, _HEAT, _MEMORY),
        _chart("machine", "cpu=CPU", "host_memory=memory", top=100.0),
        _chart("load", "load"),
        _chart("tensor cores and DRAM", "tensor=tensor", "dram=DRAM", top=100.0),
        _chart("network", "network_in=in", "network_out=out"),
        _chart("InfiniBand", "infiniband_in=in", "infiniband_out=out"),
        _chart("air and processors", "inlet=air in", "cpu_temperature=CPU"),
    ),
    Scope.CARD: (
        *(_WORK, _POWER),
        _chart("temperature", "temperature=card", "memory_temperature=memory"),
        *(_MEMORY, _chart("tensor cores and DRAM", "tensor=tensor", "dram=DRAM", top=100.0)),
        _chart("clock", "clock"),
    ),
}
"""Scope → its charts, those worth most first."""


def figures_shown(scope: Scope) -> tuple[str, ...]:
    """Every figure of the scope's charts, once."""
    return tuple(dict.fromkeys(name for chart in CHARTS[scope] for name, _ in chart.lines))


@dataclass
class Points:
    """Points of every figure over one span; the newest is last."""

    start: float = 0.0
    step_s: float = STEP_S
    of: dict[str, list[float]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Points of each figure."""
        return max(map(len, self.of.values()), default=0)

    @property
    def end(self) -> float:
        """Unix seconds at which the newest point ends."""
        return self.start + self.step_s * self.count

    def known(self, figure: str) -> bool:
        """Whether it was reported at all."""
        return any(map(math.isfinite, self.of.get(figure, ())))

    def go_on(self, now: float, values: Mapping[str, float | None], seconds: float) -> bool:
        """The feed's figures of `now`; what was missed in between is not known. Whether a new point began."""
        place = int((now - self.start) // self.step_s)
        missed = place - self.count
        if not self.of or missed < 0 or missed * self.step_s > seconds:
            return False
        most = int(seconds // self.step_s) + 1
        for name, points in self.of.items():
            value = values.get(name)
            points.extend([math.nan] * missed)
            points.append(math.nan if value is None else float(value))
            del points[:-most]
        self.start = (now - now % self.step_s) + self.step_s - self.step_s * self.count
        return True


def points_of(answer: SeriesAnswer) -> Points:
    """What the server told of one thing."""
    found = {each.figure: [math.nan if p is None else p for p in each.points] for each in answer.series}
    return Points(start=answer.start, step_s=answer.step_s, of=found)


# -- the feed's figures of this moment


def card_of(state: ClusterState, name: str) -> CardAt | None:
    """The card called `NODE/INDEX`; none when there is none."""
    node, _, index = name.rpartition("/")
    row = state.nodes.get(node)
    place = next((p for p, card in enumerate(row.cards) if str(card.index) == index), None) if row else None
    return None if place is None else card_at(state, node, place)


def values_of(state: ClusterState, of: Of) -> dict[str, float | None]:
    """Every figure of something as the feed has it now."""
    if of.scope is Scope.CLUSTER:
        return {**_asked(state.traffic.get(ALL)), **_cluster(state)}
    if of.scope is Scope.MODEL:
        return _model(state, of.name)
    if of.scope is Scope.NODE:
        return {**_cards(cards_of(state, of.name)), **_machine(state, of.name)}
    card = card_of(state, of.name)
    return _cards([card]) if card is not None else {}


def _asked(row: TrafficRow | None) -> dict[str, float | None]:
    row = row or TrafficRow()
    return {
        "requests": row.requests_per_s,
        "errors": row.errors_per_s,
        "input_tokens": row.input_tokens_per_s,
        "output_tokens": row.output_tokens_per_s,
        "first_token_p50": row.first_token_p50_ms,
        "first_token_p95": row.first_token_p95_ms,
        "gap_p95": row.inter_token_p95_ms,
        "open": row.open_requests,
    }


def _cluster(state: ClusterState) -> dict[str, float | None]:
    load = state.load
    heat = [value for row in heard_figures(state) for value in row.temperature_c if value is not None]
    made = state.traffic[ALL].output_tokens_per_s if ALL in state.traffic else 0.0
    return {
        "work": load.mean_work_percent,
        "busy": load.busy_percent / load.reporting if load.reporting else None,
        "power": load.power_w,
        "memory": 100 * load.memory_used_bytes / load.memory_total_bytes if load.memory_total_bytes else None,
        "temperature": max(heat, default=None),
        "cards_working": load.working,
        "cards_idle": load.idle,
        "cards_free": load.free,
        **_engines(state.replicas.values()),
        "tokens_per_wh": _per_wh(made, load.power_w),
    }


def _model(state: ClusterState, name: str) -> dict[str, float | None]:
    replicas = state.replicas_of(name)
    held = {uuid for replica in replicas for uuid in replica.cards}
    on = [
        card
        for node in {n for r in replicas for n in nodes_of(r)}
        for card in cards_of(state, node)
        if card.card.uuid in held
    ]
    values = {**_asked(state.traffic.get(name)), **_cards(on)}
    values |= _engines(replicas)
    values["tokens_per_wh"] = _per_wh(values["output_tokens"], values["power"])
    return values


def _engines(replicas: Iterable[ReplicaRow]) -> dict[str, float | None]:
    ready = [replica for replica in replicas if replica.state == "ready"]
    kv = _mean(replica.kv_used for replica in ready)
    return {
        "ready": len(ready),
        "waiting": _sum(replica.waiting for replica in ready),
        "kv": None if kv is None else 100 * kv,
    }


def _machine(state: ClusterState, name: str) -> dict[str, float | None]:
    row, node = state.figures.get(name), state.nodes.get(name)
    if row is None or node is None or node.state in UNHEARD:
        return {}
    total, free = node.memory_total_bytes, row.memory_available_bytes
    return {
        "cpu": row.cpu_percent,
        "host_memory": 100 * (total - free) / total if total and free else None,
        "load": row.load_1m,
        "cpu_temperature": row.cpu_temperature_c,
        "inlet": row.inlet_temperature_c,
        "network_in": _megabytes(row.network_in_bytes_per_s),
        "network_out": _megabytes(row.network_out_bytes_per_s),
        "infiniband_in": _megabytes(row.infiniband_in_bytes_per_s),
        "infiniband_out": _megabytes(row.infiniband_out_bytes_per_s),
    }


def _cards(cards: Iterable[CardAt]) -> dict[str, float | None]:
    told = [card for card in cards if not card.stale]
    return {
        "work": _mean(card.work for card in told),
        "busy": _mean(card.busy for card in told),
        "memory": _mean(card.memory for card in told),
        "temperature": _most(card.temperature for card in told),
        "memory_temperature": _most(card.memory_temperature for card in told),
        "power": _sum(card.power for card in told),
        "clock": _mean(card.clock_mhz for card in told),
        "tensor": _mean(card.tensor for card in told),
        "dram": _mean(card.dram for card in told),
    }


def _megabytes(value: float | None) -> float | None:
    return None if value is None else value / 1e6


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _mean(values: Iterable[float | None]) -> float | None:
    found = _known(values)
    return sum(found) / len(found) if found else None


def _sum(values: Iterable[float | None]) -> float | None:
    found = _known(values)
    return sum(found) if found else None


def _most(values: Iterable[float | None]) -> float | None:
    return max(_known(values), default=None)


def _per_wh(tokens_per_s: float | None, power_w: float | None) -> float | None:
    return 3600 * tokens_per_s / power_w if tokens_per_s and power_w else None
