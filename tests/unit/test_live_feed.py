"""The live feed keeps its table by touched names alone: whatever happened, it equals one made from nothing."""

import random
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

from llmgw.api.watch import ClusterRow, Subscription
from llmgw.control.breakers import Breaker
from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.live import LiveFeed
from llmgw.control.live_table import LiveTable
from llmgw.control.reconciler import Reconciler
from llmgw.control.touched import Touched
from llmgw.control.traffic import TrafficMeter
from llmgw.control.wake import Wake
from llmgw.control.weights_service import WeightsService
from llmgw.core.cluster import HEARTBEAT_S, LOST_AFTER_S, FetchProgress, ShardState
from llmgw.core.errors import Unavailable
from llmgw.core.figures import CardFigures, EngineLoad, NodeFigures, ToldLoad
from llmgw.core.routing import Timeouts
from llmgw.mirror.service import Mirror
from llmgw.store.store import Store
from tests.bench.watch_server import AllWeights, NoOrders, OpenRequests, a_stored_model
from tests.support.builders import a_card, a_node, a_replica

FOLLOWED = ("nodes", "figures", "replicas", "models", "traffic")
NODES = ("n1", "n2", "n3")


class Site:
    """A small cluster without agents, and the feed over it."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.touched = Touched()
        self.inventory = Inventory(lambda: self.now, lambda: None, self.touched)
        self.catalog = Catalog(self.touched.catalog)
        self.open = OpenRequests()
        self.mirror = Mirror(directory)
        self.broken: dict[str, Breaker] = {}
        self.costs: Mapping[str, int] = {}
        self.live = self.feed(self.touched)

    def feed(self, touched: Touched) -> LiveFeed:
        """A feed over the same services."""
        traffic = TrafficMeter(known=self.catalog.holds)
        reconciler = Reconciler(
            catalog=self.catalog,
            inventory=self.inventory,
            weights=AllWeights(),
            orders=NoOrders(),
            traffic=self.open,
            timeouts=Timeouts,
            leading=lambda: False,
            wake=Wake(),
            owner="test",
            new_id=lambda model, node: f"{model}-{node}",
        )
        return LiveFeed(
            store=Store("host=127.0.0.1 port=1"),
            touched=touched,
            inventory=self.inventory,
            catalog=self.catalog,
            reconciler=reconciler,
            weights=WeightsService(mirror=self.mirror, catalog=self.catalog, leadership=None),  # type: ignore[arg-type]
            traffic=traffic,
            in_flight=self.open.in_flight,
            open_requests=lambda: 0,
            cluster=lambda: ClusterRow(version="1", cluster_id="c", leader=None, epoch=0),
            breakers=lambda: self.broken,
            costs=lambda: self.costs,
        )

    def step(self, choose: random.Random) -> None:
        """Something happens."""
        node, number = choose.choice(NODES), choose.randrange(6)
        replica = a_replica(id=f"r{number}", node=node, model=f"model-{number % 3}", state=choose.choice([*ShardState]))
        card = a_card(number % 2, node=node)
        self.now += choose.choice([0.1, 1.0, 6.0])
        match choose.randrange(16):
            case 0:
                self.inventory.expect((name, choose.random() < 0.3) for name in choose.sample(NODES, 2))
            case 1 | 2:
                held = [replica] if choose.random() < 0.7 else []
                self.inventory.connected(a_node(node, cards=(a_card(0, node=node), a_card(1, node=node))), held)
            case 3:
                self.inventory.disconnected(node)
            case 4:
                # A word sooner after the last is no news: `heard` is exact to a heartbeat.
                self.now += HEARTBEAT_S
                self.inventory.heard(node)
            case 5:
                self.inventory.inventory_changed(a_node(node, cpus=choose.randrange(9)), ["a disk is slow"])
            case 6:
                figures = CardFigures(power_w=choose.random() * 700, power_limit_w=700.0)
                self.inventory.sensed(node, NodeFigures(cpu_percent=5.0, cards={card.uuid: figures}))
            case 7:
                self.inventory.shard_changed(node, replica)
            case 8:
                progress = FetchProgress(phase="fetching", done_bytes=number, total_bytes=9)
                self.inventory.progressed(node, [replica.id], progress)
            case 9:
                self.inventory.draining(replica.id, "stopped")
            case 10:
                self.inventory.cordon(node, choose.random() < 0.5)
            case 11:
                self.catalog.replace([a_stored_model(n) for n in range(choose.randrange(4))])
            case 12:
                self.inventory.forget(replica.id)
                if choose.random() < 0.1:
                    self.inventory.new_term()
            case 13:
                self.broken = {replica.id: Breaker(choose.randrange(2), 2, "refused")} if number else {}
            case 14:
                self.costs = {f"model-{number % 3}": choose.randrange(3), "gone": 1} if number else {}
            case 15:
                load = EngineLoad(running=choose.randrange(3), kv_used=choose.choice([None, 0.5]))
                self.inventory.loads.heard(node, {replica.id: ToldLoad(load=load, age_s=choose.uniform(0, 16))})


def shown(table: LiveTable) -> Mapping[str, Mapping[str, object]]:
    """All rows, decoded."""
    wanted: dict[str, frozenset[str] | None] = dict.fromkeys(FOLLOWED)
    return {
        topic: {key: msgspec.json.decode(row) for key, row in rows.items()}
        for topic, rows in table.rows(wanted).items()
    }


async def refreshed(feed: LiveFeed) -> Mapping[str, Mapping[str, object]]:
    """The table after a look that includes what nobody tells of."""
    feed._swept_at = float("-inf")
    await feed._refresh()
    # What a sweep finds changed is made in the same look, a model it unsettles in the next.
    await feed._refresh()
    return shown(feed.table)


@pytest.mark.trio
@pytest.mark.parametrize("seed", range(12))
async def test_kept_by_touches_it_equals_one_made_from_nothing(tmp_path: Path, seed: int) -> None:
    choose, site = random.Random(seed), Site(tmp_path)
    wanted = Subscription(topics=FOLLOWED)
    async with site.live.watch(wanted, actor="me", role="viewer"):
        for _ in range(60):
            for _ in range(choose.randrange(4)):
                site.step(choose)
            kept = await refreshed(site.live)
            fresh = site.feed(Touched())
            fresh._moments = site.live._moments
            async with fresh.watch(wanted, actor="me", role="viewer"):
                assert await refreshed(fresh) == kept


@pytest.mark.trio
async def test_a_node_that_falls_silent_and_is_lost_is_told_without_a_word_from_anyone(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.catalog.replace([a_stored_model(0)])
    site.inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1", model="model-0")])
    async with site.live.watch(Subscription(topics=FOLLOWED), actor="me", role="viewer"):
        for state, ready, wait_s in (("connected", 1, 0.0), ("silent", 1, 1.0), ("lost", 0, LOST_AFTER_S)):
            if state == "silent":
                site.inventory.disconnected("n1")
            site.now += wait_s
            rows = await refreshed(site.live)
            node, model = rows["nodes"]["n1"], rows["models"]["model-0"]
            assert isinstance(node, dict)
            assert isinstance(model, dict)
            assert (node["state"], model["ready"]) == (state, ready)


@pytest.mark.trio
async def test_a_reading_makes_one_row_and_only_if_somebody_reads_that_node(tmp_path: Path) -> None:
    site = Site(tmp_path)
    for name in NODES:
        site.inventory.connected(a_node(name), [])
    some = Subscription(topics=("nodes", "figures"), nodes=("n1",))
    async with site.live.watch(some, actor="me", role="viewer"):
        assert set(shown(site.live.table)["figures"]) == {"n1"}
        before = site.live.table.rev
        for name in NODES:
            site.inventory.sensed(name, NodeFigures(cpu_percent=42.0))
        await refreshed(site.live)
        assert site.live.table.rev == before + 1
        async with site.live.watch(Subscription(topics=("figures",)), actor="me", role="viewer"):
            assert set(shown(site.live.table)["figures"]) == set(NODES)
    assert site.live.readers == 0


@pytest.mark.trio
async def test_a_replicas_row_says_what_routers_make_of_it(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.inventory.connected(a_node("n1"), [a_replica(id="r1", node="n1", model="m"), a_replica(id="r2", node="n1")])
    async with site.live.watch(Subscription(topics=FOLLOWED), actor="me", role="viewer"):
        for open_on, state in ((2, "open"), (0, "half-open"), (None, None)):
            site.broken = {} if open_on is None else {"r1": Breaker(open_on, 2, "refused"), "gone": Breaker(1, 2, "")}
            rows = (await refreshed(site.live))["replicas"]
            told = {name: row.get("breaker") for name, row in rows.items() if isinstance(row, dict)}
            assert told == {"r1": state, "r2": None}


@pytest.mark.trio
async def test_readers_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmgw.control.live.MAX_READERS", 1)
    site = Site(tmp_path)
    async with site.live.watch(Subscription(topics=FOLLOWED), actor="me", role="viewer"):
        with pytest.raises(Unavailable, match="1 readers"):
            site.live.watch(Subscription(topics=FOLLOWED), actor="me", role="viewer")
    site.live.watch(Subscription(topics=FOLLOWED), actor="me", role="viewer")
