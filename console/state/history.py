"""Figures of the last quarter of an hour, for sparklines. Bounded whatever the cluster's size: rings, packed a node.

What was never reported is NaN, and so is the time before the console came.
"""

import math
from array import array
from collections import deque
from collections.abc import Callable, Iterator

from console.state.cluster import ALL, ClusterState
from console.state.loads import column
from console.state.rates import Rates
from llmgw.api.card_uses import UNHEARD
from llmgw.api.watch import FiguresRow, TrafficRow
from llmgw.api.watch import History as Past

SAMPLE_S = 2.0
"""Time between two samples of the cluster and of a model."""
SAMPLES = 450
"""Quarter of an hour at SAMPLE_S."""
NODE_SAMPLE_S = 10.0
"""Time between two samples of a node's cards; agents report about as often."""
NODE_SAMPLES = 90
NODES_AT_ONCE = 50
"""Nodes sampled with one message: a thousand at once would keep a key waiting."""
ROUND_MESSAGES = 10
"""Messages, one tenth of a second apart, over which the nodes of a cluster are sampled at most."""
MAX_MODELS = 2000
"""Models with a ring of their own; 22 MB when all are taken."""

TRAFFIC: dict[str, Callable[[TrafficRow], float | None]] = {
    "requests": lambda row: row.requests_per_s,
    "tokens": lambda row: row.output_tokens_per_s,
    "first_p50": lambda row: row.first_token_p50_ms,
    "first_p95": lambda row: row.first_token_p95_ms,
    "open": lambda row: row.open_requests,
    "inter_p95": lambda row: row.inter_token_p95_ms,
}
"""Figures kept of each model and of all together."""
CARD_FIGURES = ("work", "busy", "memory", "temperature", "power")
"""Figures kept of each card: percent, percent, percent, degrees, watts."""
_UNKNOWN = 0xFFFF
_TENTHS = 10


class Ring:
    """The newest `size` figures in single precision."""

    def __init__(self, size: int = SAMPLES) -> None:
        self._values = array("f", [math.nan]) * size
        self._next = 0
        self._rounds = 0
        """How often the ring was filled."""
        self._means: dict[tuple[int, int], tuple[tuple[int, int], list[float]]] = {}
        """Means by how many of how many, and the group that was under way when they were taken."""

    def add(self, value: float | None) -> None:
        """One more figure; none is unknown."""
        self._values[self._next] = math.nan if value is None else value
        self._next += 1
        if self._next == len(self._values):
            self._next, self._rounds = 0, self._rounds + 1

    def last(self, count: int) -> list[float]:
        """The newest `count`, oldest first."""
        values = self._values[self._next :].tolist() + self._values[: self._next].tolist()
        return values[-count:] if count > 0 else []

    def means(self, count: int, each: int) -> list[float]:
        """Means of the newest `count` groups of `each` figures that are full, oldest first; `size` is a multiple of it.

        A group begins where a ring does: a figure more changes no mean that was there before.
        """
        group, under_way = divmod(self._next, each)
        at, means = self._means.get((count, each), ((-1, -1), []))
        if at != (self._rounds, group):
            at, means = (self._rounds, group), self._full_groups(count, each, under_way)
            self._means[count, each] = at, means
        return means

    def _full_groups(self, count: int, each: int, under_way: int) -> list[float]:
        values = self.last(len(self._values))
        full = values[: len(values) - under_way]
        groups = [full[end - each : end] for end in range(len(full), each - 1, -each)][:count]
        return [_mean(group) for group in reversed(groups)]


def _mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan


class History:
    """Samples of a cluster. Its one writer calls `record` after every message; reading changes nothing."""

    def __init__(self) -> None:
        self.rates = Rates()
        """What those with limits were answered in the last minute."""
        self._models: dict[str, dict[str, Ring]] = {}
        self._cluster: dict[str, Ring] = {name: Ring() for name in ("working", "idle", "power", "work")}
        self._nodes: dict[str, deque[array[int]]] = {}
        self._due: list[str] = []
        """Nodes whose sample of this round is still to be taken."""
        self._sampled_at = self._nodes_at = -math.inf

    def record(self, state: ClusterState, now: float) -> bool:
        """Take the samples that are due at `now`; whether any was."""
        if not state.heard:
            return False
        self._sample_nodes(state, now)
        if now - self._sampled_at < SAMPLE_S:
            return False
        self._sampled_at = now
        self._sample_traffic(state)
        load = state.load
        for name, value in (
            ("working", load.working),
            ("idle", load.idle),
            ("power", load.power_w),
            ("work", load.mean_work_percent),
        ):
            self._cluster[name].add(value)
        return True

    def backfill(self, past: Past) -> None:
        """Put what a model's traffic was before the console came under what has been sampled since."""
        sampled = self._models.get(past.model)
        since = {name: [v for v in ring.last(SAMPLES) if math.isfinite(v)] for name, ring in (sampled or {}).items()}
        if len(self._models) >= MAX_MODELS and sampled is None:
            return
        each = max(1, round(past.step_s / SAMPLE_S))
        rings = self._models[past.model] = {name: Ring() for name in TRAFFIC}
        for name, values in (
            ("requests", past.requests_per_s),
            ("tokens", past.output_tokens_per_s),
            ("first_p50", past.first_token_p50_ms),
            ("first_p95", past.first_token_p95_ms),
            ("open", past.open_requests),
            ("inter_p95", ()),
        ):
            for value in values[-(SAMPLES // each + 1) :]:
                for _ in range(each):
                    rings[name].add(value)
            for value in since.get(name, ()):
                rings[name].add(value)

    def traffic(self, figure: str, count: int, model: str = ALL) -> list[float]:
        """The newest `count` of a model's figure (TRAFFIC's names)."""
        rings = self._models.get(model)
        return rings[figure].last(count) if rings else []

    def traffic_means(self, figure: str, count: int, model: str = ALL, *, each: int) -> list[float]:
        """The newest `count` means of `each` samples of a model's figure; one that is under way does not count."""
        rings = self._models.get(model)
        return rings[figure].means(count, each) if rings else []

    def cluster(self, figure: str, count: int) -> list[float]:
        """The newest `count` of `working`, `idle` (cards), `power` (W) or `work` (percent)."""
        return self._cluster[figure].last(count)

    def card(self, node: str, index: int, figure: str) -> list[float]:
        """All samples of one card's figure (CARD_FIGURES' names), oldest first."""
        place = index * len(CARD_FIGURES) + CARD_FIGURES.index(figure) + 1
        return [_opened(packed[place]) if place < len(packed) else math.nan for packed in self._nodes.get(node, ())]

    def node(self, node: str, figure: str) -> list[float]:
        """All samples of a node: `cpu` percent, `power` summed, the other card figures as means."""
        return [_of_node(packed, figure) for packed in self._nodes.get(node, ())]

    def _sample_traffic(self, state: ClusterState) -> None:
        for model in self._models.keys() - state.traffic.keys() - state.models.keys():
            del self._models[model]
        for model, row in state.traffic.items():
            rings = self._models.get(model)
            if rings is None:
                if len(self._models) >= MAX_MODELS:
                    continue
                rings = self._models[model] = {name: Ring() for name in TRAFFIC}
            for name, read in TRAFFIC.items():
                rings[name].add(read(row))

    def _sample_nodes(self, state: ClusterState, now: float) -> None:
        if not self._due and now - self._nodes_at >= NODE_SAMPLE_S:
            self._nodes_at, self._due = now, list(state.nodes)
            for name in self._nodes.keys() - state.nodes.keys():
                del self._nodes[name]
        if not self._due:
            return
        count = max(NODES_AT_ONCE, -(-len(state.nodes) // ROUND_MESSAGES))
        taken, self._due = self._due[:count], self._due[count:]
        for name in taken:
            node = state.nodes.get(name)
            if node is None:
                continue
            # A line that stops says more than one that goes on with what was true once.
            figures = None if node.state in UNHEARD else state.figures.get(name)
            totals = [card.memory_total_bytes for card in node.cards]
            ring = self._nodes.setdefault(name, deque(maxlen=NODE_SAMPLES))
            ring.append(array("H", _packed(figures, totals)))


def _packed(figures: FiguresRow | None, totals: list[int | None]) -> Iterator[int]:
    if figures is None:
        yield _UNKNOWN
        return
    yield _closed(figures.cpu_percent)
    for index, total in enumerate(totals):
        used = column(figures.memory_used_bytes, index)
        yield _closed(column(figures.work_percent, index))
        yield _closed(column(figures.utilization_percent, index))
        yield _closed(100 * used / total if used is not None and total else None)
        yield _closed(column(figures.temperature_c, index))
        yield _closed(column(figures.power_w, index))


def _closed(value: float | None) -> int:
    if value is None or not math.isfinite(value):
        return _UNKNOWN
    return max(0, min(_UNKNOWN - 1, round(value * _TENTHS)))


def _opened(value: int) -> float:
    return math.nan if value == _UNKNOWN else value / _TENTHS


def _of_node(packed: "array[int]", figure: str) -> float:
    if figure == "cpu":
        return _opened(packed[0])
    first = CARD_FIGURES.index(figure) + 1
    values = [value for value in map(_opened, packed[first :: len(CARD_FIGURES)]) if math.isfinite(value)]
    if not values:
        return math.nan
    return sum(values) if figure == "power" else sum(values) / len(values)
