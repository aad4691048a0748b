"""Every five seconds: what is there now, put into the book.

Sampling is cut into pieces between which others run, and a node that has not spoken lately has no figures: a line that
stops says more than one that goes on with what was true once.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import trio

from llmgw.api.series import Scope
from llmgw.api.watch import ALL_MODELS, TrafficRow
from llmgw.control.history.book import Book, Columns, step_of
from llmgw.control.history.packing import Row
from llmgw.control.history.rings import SHORT_S
from llmgw.control.inventory import Inventory
from llmgw.core.card_use import rests, work_of
from llmgw.core.cluster import SILENT_AFTER_S, Card, Node, NodeLink, ShardState
from llmgw.core.figures import CardFigures, EngineLoad

NODES_AT_A_TIME = 50
"""Nodes sampled before others may run: 400 cards, a few milliseconds."""
TRAFFIC: Mapping[str, Callable[[TrafficRow], float | None]] = {
    "requests": lambda row: row.requests_per_s,
    "errors": lambda row: row.errors_per_s,
    "input_tokens": lambda row: row.input_tokens_per_s,
    "output_tokens": lambda row: row.output_tokens_per_s,
    "first_token_p50": lambda row: row.first_token_p50_ms,
    "first_token_p95": lambda row: row.first_token_p95_ms,
    "gap_p95": lambda row: row.inter_token_p95_ms,
    "open": lambda row: row.open_requests,
}
CARD: Mapping[str, Callable[[Card, CardFigures], float | None]] = {
    "work": lambda _, f: work_of(f.sm_active_percent, f.power_w, f.power_limit_w),
    "busy": lambda _, f: f.utilization_percent,
    "power": lambda _, f: f.power_w,
    "temperature": lambda _, f: f.temperature_c,
    "memory": lambda card, f: share(f.memory_used_bytes, card.memory_total_bytes),
    "memory_temperature": lambda _, f: f.memory_temperature_c,
    "tensor": lambda _, f: f.tensor_active_percent,
    "dram": lambda _, f: f.dram_active_percent,
    "clock": lambda _, f: f.sm_clock_mhz,
    "occupancy": lambda _, f: f.sm_occupancy_percent,
}
NODE: Mapping[str, Callable[[Node], float | None]] = {
    "cpu": lambda node: node.cpu_percent,
    "host_memory": lambda node: share(
        node.memory_total_bytes - node.memory_available_bytes if node.memory_available_bytes else None,
        node.memory_total_bytes,
    ),
    "load": lambda node: node.load_1m,
    "cpu_temperature": lambda node: node.cpu_temperature_c,
    "cpu_power": lambda node: node.cpu_power_w,
    "inlet": lambda node: node.inlet_temperature_c,
    "network_in": lambda node: megabytes(node.network_in_bytes_per_s),
    "network_out": lambda node: megabytes(node.network_out_bytes_per_s),
    "infiniband_in": lambda node: megabytes(node.infiniband_in_bytes_per_s),
    "infiniband_out": lambda node: megabytes(node.infiniband_out_bytes_per_s),
}


def share(used: float | None, total: float | None) -> float | None:
    """Percent of the total; none where either is not known."""
    return 100 * used / total if used is not None and total else None


def megabytes(value: float | None) -> float | None:
    """Of bytes."""
    return None if value is None else value / 1e6


@dataclass(slots=True)
class Sum:
    """Cards added up: means of percents, the sum of power, the hottest."""

    totals: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, figure: str, value: float) -> None:
        """One card's."""
        if figure == "temperature":
            self.totals[figure] = max(value, self.totals.get(figure, value))
        else:
            self.totals[figure] = self.totals.get(figure, 0.0) + value
        self.counts[figure] = self.counts.get(figure, 0) + 1

    def values(self) -> dict[str, float]:
        """Each figure that some card reported."""
        means = ("work", "busy", "memory")
        found = {name: value / self.counts[name] if name in means else value for name, value in self.totals.items()}
        return {**found, "power_cards": self.counts["power"]} if "power" in self.counts else found


SUMMED = frozenset(("work", "busy", "memory", "temperature", "power"))
"""Figures of cards that are added up for models and for the cluster."""


@dataclass(slots=True)
class _Engines:
    """What a model's engines say of themselves; none is what none of them says."""

    ready: int = 0
    waiting: int | None = None
    kv_used: float = 0.0
    kv_told: int = 0

    def add(self, load: EngineLoad) -> None:
        """One more replica that answers."""
        self.ready += 1
        if load.waiting is not None:
            self.waiting = (self.waiting or 0) + load.waiting
        if load.kv_used is not None:
            self.kv_used += load.kv_used
            self.kv_told += 1

    @property
    def kv_percent(self) -> float | None:
        """Mean of those that say."""
        return 100 * self.kv_used / self.kv_told if self.kv_told else None


@dataclass(slots=True)
class _Sample:
    """What one round has seen so far."""

    cards: dict[str, Row]
    nodes: dict[str, Row]
    held: Mapping[str, str]
    """Card → model."""
    cluster: Sum = field(default_factory=Sum)
    models: dict[str, Sum] = field(default_factory=dict)
    working: int = 0
    idle: int = 0
    free: int = 0


class Recorder:
    """Keeps the book while this server leads."""

    def __init__(
        self,
        book: Book,
        *,
        inventory: Inventory,
        models: Callable[[], Iterable[str]],
        traffic: Callable[[], Mapping[str, TrafficRow]],
        wall: Callable[[], float] = time.time,
    ) -> None:
        """`models` are the catalog's names; `traffic` is what each was asked lately, ALL_MODELS among them."""
        self.book = book
        self._inventory = inventory
        self._models = models
        self._traffic = traffic
        self._wall = wall
        self._encoders = {s: {n: p.encoder() for n, p in sheet.packings.items()} for s, sheet in book.sheets.items()}

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: a sample at the beginning of every step; nothing at all when the operator gave it no memory."""
        task_status.started()
        if not self.book.limit_bytes:
            await trio.sleep_forever()
        while True:
            await trio.sleep(SHORT_S - self._wall() % SHORT_S)
            await self.sample()

    async def sample(self) -> None:
        """One sample of everything; only a whole one is put into the book."""
        book, step = self.book, step_of(self._wall())
        for track, minute in book.begin(step):
            track.fold(minute)
            await trio.lowlevel.checkpoint()
        nodes, cards, models = (book.sheets[scope] for scope in (Scope.NODE, Scope.CARD, Scope.MODEL))
        names = sorted(self._inventory.node_names())
        nodes.names(names, step)
        cards.names((c.uuid for name in names if (n := self._inventory.node(name)) is not None for c in n.cards), step)
        sample = _Sample(cards=cards.blanks(), nodes=nodes.blanks(), held=self._held())
        for number, name in enumerate(names, 1):
            self._node(name, sample)
            if number % NODES_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()
        nodes.put(step, sample.nodes)
        cards.put(step, sample.cards)
        models.names(self._models(), step)
        traffic, engines = self._traffic(), self._engines()
        models.put(step, self._model_rows(sample, traffic, engines))
        cluster = book.sheets[Scope.CLUSTER]
        cluster.names(("",), step)
        cluster.put(step, self._cluster_rows(sample, traffic, engines.values()))

    def _held(self) -> dict[str, str]:
        return {uuid: r.model for r in self._inventory.replicas() if r.live for uuid in r.cards}

    def _engines(self) -> dict[str, "_Engines"]:
        found = {name: _Engines() for name in self._models()}
        for replica in self._inventory.replicas():
            if replica.state is ShardState.READY and replica.model in found:
                found[replica.model].add(self._inventory.loads.of(replica.id))
        return found

    def _node(self, name: str, sample: _Sample) -> None:
        node = self._inventory.node(name)
        if node is None:
            return
        told = node.link is NodeLink.CONNECTED and trio.current_time() - node.heard_at < SILENT_AFTER_S
        if told:
            self._write(Scope.NODE, sample.nodes, name, {key: read(node) for key, read in NODE.items()})
        for card in node.cards:
            figures = self._inventory.figures(card.uuid) if told else CardFigures()
            self._card(card, figures, sample, open_to_work=told and not node.cordoned)

    def _card(self, card: Card, figures: CardFigures, sample: _Sample, *, open_to_work: bool) -> None:
        values = {name: read(card, figures) for name, read in CARD.items()}
        self._write(Scope.CARD, sample.cards, card.uuid, values)
        model = sample.held.get(card.uuid)
        of_model = sample.models.setdefault(model, Sum()) if model is not None else None
        for figure in SUMMED:
            value = values[figure]
            if value is not None:
                sample.cluster.add(figure, value)
                if of_model is not None:
                    of_model.add(figure, value)
        if model is None:
            sample.free += open_to_work and card.healthy and card.memory_total_bytes is not None
        elif rests(values["busy"], values["work"]):
            sample.idle += 1
        else:
            sample.working += 1

    def _write(self, scope: Scope, rows: dict[str, Row], name: str, values: Mapping[str, float | None]) -> None:
        slot = self.book.sheets[scope].slots.get(name)
        if slot is None:
            # It came while this sample was under way; the next one has it.
            return
        encoders = self._encoders[scope]
        for figure, row in rows.items():
            value = values.get(figure)
            if value is not None:
                row[slot] = encoders[figure](value)

    def _model_rows(
        self, sample: _Sample, traffic: Mapping[str, TrafficRow], engines: Mapping[str, "_Engines"]
    ) -> Columns:
        rows = self.book.sheets[Scope.MODEL].blanks()
        for name in self.book.sheets[Scope.MODEL].slots:
            values = _asked(traffic.get(name, _REST))
            told = engines.get(name, _Engines())
            values |= {"ready": told.ready, "waiting": told.waiting, "kv": told.kv_percent}
            values |= sample.models[name].values() if name in sample.models else {}
            self._write(Scope.MODEL, rows, name, values)
        return rows

    def _cluster_rows(
        self, sample: _Sample, traffic: Mapping[str, TrafficRow], engines: Collection["_Engines"]
    ) -> Columns:
        rows = self.book.sheets[Scope.CLUSTER].blanks()
        values = {**_asked(traffic.get(ALL_MODELS, _REST)), **sample.cluster.values()}
        queues = [each.waiting for each in engines if each.waiting is not None]
        values |= {"ready": sum(each.ready for each in engines), "waiting": sum(queues) if queues else None}
        values |= {"cards_working": sample.working, "cards_idle": sample.idle, "cards_free": sample.free}
        self._write(Scope.CLUSTER, rows, "", values)
        return rows


_REST = TrafficRow()


def _asked(row: TrafficRow) -> dict[str, float | None]:
    return {name: read(row) for name, read in TRAFFIC.items()}
