"""The live feed: the table is brought up to date while somebody reads, row by row, and only the rows that were touched.

At 1,000 nodes a second's changes are a few hundred rows; all rows together are made once, for the first reader.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import trio

from llmgw.api.watch import ALL_MODELS, MAX_PER_S, TOPICS, ClusterRow, Subscription, TrafficRow
from llmgw.control import views
from llmgw.control.breakers import Breaker
from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.live_counts import ShownCounts
from llmgw.control.live_index import ReplicaIndex
from llmgw.control.live_reader import Reader
from llmgw.control.live_rows import Moments, figures_row, model_row, node_row, replica_row
from llmgw.control.live_stored import StoredRows
from llmgw.control.live_table import Cursor, LiveTable, Wanted
from llmgw.control.reconciler import Reconciler
from llmgw.control.touched import Touched, Touches
from llmgw.control.traffic import TrafficMeter, by_model
from llmgw.control.weights_service import WeightsService
from llmgw.core.cluster import NodeLink
from llmgw.core.errors import Unavailable
from llmgw.core.external import model_of_external
from llmgw.core.snapshot import CatalogEntry, Snapshot
from llmgw.store.catalog import CatalogEntry as StoredModel
from llmgw.store.store import Store

SWEEP_S = 1.0
"""What changes without a word (time, traffic, downloads) is looked at this often."""
MAX_READERS = 200
"""Readers at once; a further one is refused."""
ROWS_AT_A_TIME = 100
"""Rows made before others may run: 5 to 10 ms."""
SETTLED = frozenset({"ready", "idle", "stopped"})
"""States a model leaves only by an event; the others' sentences move with time."""


class LiveFeed:
    """The table, its upkeep and its readers."""

    def __init__(
        self,
        *,
        store: Store,
        touched: Touched,
        inventory: Inventory,
        catalog: Catalog,
        reconciler: Reconciler,
        weights: WeightsService,
        traffic: TrafficMeter,
        in_flight: Callable[[], Mapping[str, int]],
        open_requests: Callable[[], int],
        cluster: Callable[[], ClusterRow],
        costs: Callable[[], Mapping[str, int]] = dict,
        breakers: Callable[[], Mapping[str, Breaker]] = dict,
    ) -> None:
        """`costs` is micros spent by model since the UTC day began, another object whenever that changed."""
        self.table = LiveTable(TOPICS)
        self._touched = touched
        self._inventory = inventory
        self._catalog = catalog
        self._reconciler = reconciler
        self._weights = weights
        self._traffic = traffic
        self._in_flight = in_flight
        self._open_requests = open_requests
        self._cluster = cluster
        self._costs = costs
        self._breakers = breakers
        self._stored = StoredRows(store, self.table)
        self._moments = Moments(trio.current_time, time.time)
        self._readers: list[Wanted] = []
        self._arrived = trio.Event()
        self._refreshing = trio.Lock()
        self._index = ReplicaIndex()
        self._entries: dict[str, CatalogEntry] = {}
        self._stored_models: dict[str, StoredModel] = {}
        self._links: dict[str, NodeLink] = {}
        self._shown = ShownCounts()
        self._unsettled: set[str] = set()
        self._dirty: dict[str, set[str]] = {topic: set() for topic in ("nodes", "figures", "replicas", "models")}
        self._swept_at = float("-inf")

    @property
    def readers(self) -> int:
        """How many read."""
        return len(self._readers)

    def written(self) -> None:
        """Something was written to the store, here or elsewhere."""
        self._stored.changed()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the table while somebody reads, and the history always; until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._stored.run)
            await nursery.start(self._traffic.run, self._open_by_model)
            task_status.started()
            while True:
                while not self._readers:
                    self._arrived = trio.Event()
                    await self._arrived.wait()
                await self._touched.wake.wait(SWEEP_S)
                await self._refresh()
                await trio.sleep(1 / MAX_PER_S)

    def watch(
        self, subscription: Subscription, *, actor: str, role: str, hidden: frozenset[str] = frozenset()
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Lines of JSON for one reader while the context is open; `hidden` topics it gets nothing of.

        Raises Unavailable when MAX_READERS read.
        """
        if len(self._readers) >= MAX_READERS:
            raise Unavailable(f"{MAX_READERS} readers follow the cluster already")
        nodes = None if subscription.nodes is None else frozenset(subscription.nodes)
        wanted = {t: nodes if t == "figures" else None for t in subscription.topics if t not in hidden}
        return self._watching(wanted, subscription, actor, role)

    @asynccontextmanager
    async def _watching(
        self, wanted: Wanted, subscription: Subscription, actor: str, role: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        self._readers.append(wanted)
        self._arrived.set()
        # It may be the first to read a topic that only a sweep fills.
        self._swept_at = float("-inf")
        try:
            await self._refresh()
            await self._stored.begin(wanted)
            try:
                cursor = Cursor(self.table, wanted, epoch=subscription.epoch, since=subscription.since)
                yield Reader(self.table, cursor, interval_s=subscription.interval_ms / 1000, actor=actor, role=role)
            finally:
                self._stored.end(wanted)
        finally:
            self._readers.remove(wanted)

    # -- bringing the table up to date

    async def _refresh(self) -> None:
        """All that was touched, of the topics somebody reads."""
        async with self._refreshing:
            self._absorb(self._touched.take())
            if trio.current_time() - self._swept_at >= SWEEP_S:
                self._swept_at = trio.current_time()
                self._sweep()
            for topic, build in self._builders():
                await self._build(topic, build)
            self.table.announce()

    def _builders(self) -> Iterable[tuple[str, Callable[[str], None]]]:
        # Models last: they look at what nodes and replicas have become.
        return (
            ("nodes", self._node),
            ("figures", self._figures),
            ("replicas", self._replica),
            ("models", self._model),
        )

    async def _build(self, topic: str, build: Callable[[str], None]) -> None:
        """Make the topic's dirty rows that somebody reads; the others stay dirty."""
        dirty = self._dirty[topic]
        wanted = [reader[topic] for reader in self._readers if topic in reader]
        due = dirty & frozenset().union(*(dirty if keys is None else keys for keys in wanted))
        for number, name in enumerate(due, 1):
            # One by one: whoever is cancelled in between leaves the rest for the next.
            dirty.discard(name)
            build(name)
            if number % ROWS_AT_A_TIME == 0:
                await trio.lowlevel.checkpoint()

    def _absorb(self, touches: Touches) -> None:
        """Turn what was touched into rows to make; what is gone is gone at once."""
        if touches.everything:
            names = self._inventory.node_names()
            touches.nodes = set(names | self.table.keys("nodes") | self._links.keys())
            touches.figures = set(names | self.table.keys("figures"))
            touches.replicas = {r.id for r in self._inventory.replicas()} | self._index.ids()
        if touches.everything or touches.catalog:
            self._read_catalog()
        for replica_id in touches.replicas:
            self._note_replica(replica_id)
        for name in touches.nodes:
            self._note_node(name)
        known = self._inventory.node_names()
        self._dirty["figures"] |= touches.figures & known
        for name in touches.figures - known:
            self._gone("figures", name)
        if touches.sources:
            # Few models have sources that move at once: each is asked rather than indexed.
            self._dirty["models"] |= self._weights.models_of(touches.sources)

    def _note_replica(self, replica_id: str) -> None:
        replica = self._inventory.replica(replica_id)
        nodes, models = self._index.note(replica_id, replica)
        self._dirty["nodes"] |= nodes & self._inventory.node_names()
        self._dirty["models"] |= models & self._entries.keys()
        if replica is None:
            self._shown.forget(replica_id)
            self._gone("replicas", replica_id)
        else:
            self._dirty["replicas"].add(replica_id)

    def _note_node(self, name: str) -> None:
        node = self._inventory.node(name)
        if node is None:
            self._links.pop(name, None)
            self._gone("nodes", name)
            self._gone("figures", name)
            return
        self._dirty["nodes"].add(name)
        if self._links.get(name) is not node.link:
            self._links[name] = node.link
            self._dirty["models"] |= {r.model for r in self._index.on_node(name)} & self._entries.keys()

    def _read_catalog(self) -> None:
        self._entries = {entry.model.name: entry for entry in self._catalog.entries()}
        self._stored_models = {name: self._catalog.find(name) for name in self._entries}
        for topic in ("models", "traffic"):
            for name in self.table.keys(topic) - self._entries.keys() - {ALL_MODELS}:
                self._gone(topic, name)
        self._unsettled &= self._entries.keys()
        self._dirty["models"] = set(self._entries)

    def _gone(self, topic: str, key: str) -> None:
        self._dirty.get(topic, set[str]()).discard(key)
        self.table.remove(topic, key)

    def _sweep(self) -> None:
        """What nobody tells of."""
        read = {topic for readers in self._readers for topic in readers}
        for name in self._inventory.unconnected():
            node = self._inventory.node(name)
            if node is not None and self._links.get(name) is not node.link:
                self._note_node(name)
        self._dirty["models"] |= self._unsettled | self._shown.costs_moved(self._costs(), self._entries.__contains__)
        if "cluster" in read:
            self.table.put("cluster", "cluster", self._cluster())
        if "weights" in read:
            self.table.publish("weights", self._weights.rows())
        if "traffic" in read:
            self._sweep_traffic()
        if "replicas" in read:
            self._dirty["replicas"] |= self._shown.requests_moved(self._in_flight(), self._has_replica)
            self._dirty["replicas"] |= self._shown.breakers_moved(self._breakers(), self._has_replica)
            self._dirty["replicas"] |= self._shown.loads_moved(self._inventory.loads.loads(), self._has_replica)

    def traffic_now(self) -> Mapping[str, TrafficRow]:
        """What each model used lately is asked, and all together."""
        return self._traffic.rows(*self._open_by_model())

    def _sweep_traffic(self) -> None:
        rows = self.traffic_now()
        for name, row in rows.items():
            self.table.put("traffic", name, row)
        for name in self._entries.keys() - rows.keys():
            self.table.put("traffic", name, _REST)

    def _has_replica(self, replica_id: str) -> bool:
        return self._index.get(replica_id) is not None

    def _open_by_model(self) -> tuple[Mapping[str, int], int]:
        return by_model(self._in_flight(), self._model_of), self._open_requests()

    def _model_of(self, replica_id: str) -> str | None:
        replica = self._inventory.replica(replica_id)
        return model_of_external(replica_id) if replica is None else replica.model

    # -- one row each

    def _node(self, name: str) -> None:
        node = self._inventory.node(name)
        if node is not None:
            held = [replica for replica in self._index.on_node(name) if name in replica.holding]
            self.table.put("nodes", name, node_row(views.node_info(node, held, trio.current_time(), self._inventory)))

    def _figures(self, name: str) -> None:
        node = self._inventory.node(name)
        if node is not None:
            self.table.put(
                "figures",
                name,
                figures_row(
                    node,
                    self._inventory.figures,
                    self._moments,
                    self._inventory.engines(name),
                    self._inventory.resting_since,
                ),
            )

    def _replica(self, replica_id: str) -> None:
        replica = self._index.get(replica_id)
        if replica is not None:
            counts = self._shown
            row = replica_row(
                replica,
                counts.open_requests(replica_id),
                self._moments,
                counts.breaker(replica_id),
                counts.load(replica_id),
                self._weights.limit_of(replica.progress),
            )
            self.table.put("replicas", replica_id, row)

    def _model(self, name: str) -> None:
        entry = self._entries.get(name)
        if entry is None:
            return
        mine = tuple(self._index.of_model(name))
        names = dict.fromkeys(node for replica in mine for node in replica.nodes)
        nodes = tuple(node for known in names if (node := self._inventory.node(known)) is not None)
        part = Snapshot(now=trio.current_time(), nodes=nodes, replicas=mine)
        info = views.model_info(
            self._reconciler.entry(entry),
            self._stored_models.get(name),
            part,
            self._reconciler.unplaced(name),
            cost_today_micros=self._shown.cost_micros(name),
        )
        (self._unsettled.discard if info.state in SETTLED else self._unsettled.add)(name)
        self.table.put("models", name, model_row(info))


_REST = TrafficRow()
