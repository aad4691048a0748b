"""A server of the live feed over a made-up inventory: nodes with cards, each with new readings every 5 s.

    python -m tests.bench.watch_server SOCKET NODES CARDS

Everything between the inventory and the socket is the product's own; agents, reconciling and the store are left out, so
that what it costs is what the feed costs. `ready` is printed when it serves.
"""

import random
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trio

from llmgw.api.watch import ClusterRow, Subscription
from llmgw.control.catalog import Catalog
from llmgw.control.inventory import Inventory
from llmgw.control.live import LiveFeed
from llmgw.control.reconciler import Reconciler
from llmgw.control.touched import Touched
from llmgw.control.traffic import TrafficMeter
from llmgw.control.wake import Wake
from llmgw.control.weights_service import WeightsService
from llmgw.core.catalog import Model, ModelFacts, Profile, Scaling
from llmgw.core.cluster import Replica, ShardState
from llmgw.core.figures import CardFigures, NodeFigures
from llmgw.core.routing import Routing, Timeouts, UsageRow
from llmgw.core.snapshot import CatalogEntry, WeightsState
from llmgw.mirror.service import Mirror
from llmgw.store.catalog import CatalogEntry as StoredModel
from llmgw.store.store import Store
from llmgw.web.access import Access
from llmgw.web.admin import admin_app
from llmgw.web.serve import open_unix, serve
from tests.support.builders import GB, a_card, a_node
from tests.support.fake_control import FakeControl

SENSE_S = 5.0
"""Each node's readings change this often."""
MODELS = 50
CARDS_A_REPLICA = 2
REQUESTS_PER_S = 500
STEPS_PER_S = 50
"""How finely a second's readings are spread."""


class NoOrders:
    """No agent is there."""

    def start(self, replica: Replica, entry: CatalogEntry, profile: Profile) -> bool:
        return False

    def drain(self, replica: Replica, reason: str, deadline_s: float) -> bool:
        return False

    def stop(self, replica: Replica, reason: str, grace_s: float, *, rank: int = 0) -> bool:
        return False

    def rally(self, replica: Replica, rank: int) -> bool:
        return False


class AllWeights:
    """Every set is there."""

    def ensure(self, source: str) -> None:
        """It is there."""

    def state(self, source: str) -> WeightsState:
        return WeightsState(ready=True)

    def facts(self, source: str) -> ModelFacts | None:
        return ModelFacts(weights_bytes=40 * GB, kv_bytes_per_token=100_000, trained_context=32_768)


class OpenRequests:
    """Some requests are open on each replica."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def publish(self, routing: Routing) -> None:
        """Nobody is told."""

    def in_flight(self) -> dict[str, int]:
        return dict(self.counts)


@dataclass
class Control(FakeControl):
    """The control plane, as far as the watch route needs it."""

    live: LiveFeed | None = None

    def watch(
        self, subscription: Subscription, *, actor: str, role: str, hidden: frozenset[str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        assert self.live is not None
        return self.live.watch(subscription, actor=actor, role=role, hidden=hidden)


class Hall:
    """The made-up cluster and all that moves in it."""

    def __init__(self, nodes: int, cards: int, directory: Path) -> None:
        self.random = random.Random(7)
        self.touched = Touched()
        self.inventory = Inventory(trio.current_time, lambda: None, self.touched)
        self.catalog = Catalog(self.touched.catalog)
        self.traffic = TrafficMeter(known=self.catalog.holds)
        self.open = OpenRequests()
        self.levels: dict[tuple[str, str, str], float] = {}
        self.names = [f"gpu{number:04d}" for number in range(nodes)]
        self.cards = {name: tuple(a_card(i, node=name) for i in range(cards)) for name in self.names}
        self.catalog.replace([a_stored_model(number) for number in range(MODELS)])
        self.inventory.expect((name, False) for name in self.names)
        for number, name in enumerate(self.names):
            node = a_node(name, cards=self.cards[name], memory=2000 * GB, cpu_model="EPYC 9654", agent_version="0.1.0")
            self.inventory.connected(node, self._replicas(name, number))
            self.sense(name)
        reconciler = Reconciler(
            catalog=self.catalog,
            inventory=self.inventory,
            weights=AllWeights(),
            orders=NoOrders(),
            traffic=self.open,
            timeouts=Timeouts,
            leading=lambda: False,
            wake=Wake(),
            owner="bench",
            new_id=lambda model, node: f"{model}-{node}",
        )
        self.live = LiveFeed(
            store=Store("host=127.0.0.1 port=1"),
            touched=self.touched,
            inventory=self.inventory,
            catalog=self.catalog,
            reconciler=reconciler,
            weights=WeightsService(mirror=Mirror(directory), catalog=self.catalog, leadership=None),  # type: ignore[arg-type]
            traffic=self.traffic,
            in_flight=self.open.in_flight,
            open_requests=lambda: sum(self.open.counts.values()),
            cluster=lambda: ClusterRow(version="bench", cluster_id="bench", leader="bench", epoch=1),
        )

    def _replicas(self, node: str, number: int) -> Sequence[Replica]:
        cards = self.cards[node]
        found = []
        for begin in range(0, len(cards), CARDS_A_REPLICA):
            model = (number * 4 + begin // CARDS_A_REPLICA) % MODELS
            replica = Replica(
                id=f"model-{model}-{number:04x}{begin:02x}",
                model=f"model-{model}",
                profile="gpu",
                engine="vllm",
                node=node,
                spec_hash="x",
                state=ShardState.READY,
                cards=tuple(card.uuid for card in cards[begin : begin + CARDS_A_REPLICA]),
                memory_bytes=70 * GB,
                endpoint=f"http://{node}:18{begin:03d}",
                pid=1000 + begin,
                context_length=32_768,
                slots=64,
            )
            self.open.counts[replica.id] = self.random.randrange(8)
            found.append(replica)
        return found

    def sense(self, name: str) -> None:
        """New readings of every card of the node: each moves a little from where it was."""

        def draw(what: str, card: str = "") -> float:
            before = self.levels.get((name, card, what), self.random.random())
            level = min(1.0, max(0.0, before + 0.1 * (self.random.random() - 0.5)))
            self.levels[name, card, what] = level
            return level

        cards = {
            card.uuid: CardFigures(
                memory_used_bytes=70 * GB + int(draw("memory", card.uuid) * GB),
                utilization_percent=round(100 * draw("busy", card.uuid)),
                sm_active_percent=100 * draw("work", card.uuid),
                temperature_c=round(40 + 40 * draw("heat", card.uuid)),
                power_w=150 + 500 * draw("power", card.uuid),
                power_limit_w=700.0,
            )
            for card in self.cards[name]
        }
        self.inventory.heard(name)
        self.inventory.sensed(
            name,
            NodeFigures(
                cpu_percent=100 * draw("cpu"),
                load_1m=50 * draw("load"),
                memory_available_bytes=int(1500 * GB * draw("free")),
                disk_free_bytes=7000 * GB,
                cards=cards,
            ),
        )

    async def move(self) -> None:
        """Readings spread over SENSE_S, requests that end, open requests that change."""
        position, number, due = 0, 0, 0.0
        ids = list(self.open.counts)
        while True:
            due += len(self.names) / SENSE_S / STEPS_PER_S
            for _ in range(int(due)):
                self.sense(self.names[position % len(self.names)])
                position += 1
            due -= int(due)
            rows = []
            for _ in range(REQUESTS_PER_S // STEPS_PER_S):
                number += 1
                rows.append(
                    UsageRow(
                        id=f"u{number}",
                        at=time.time(),
                        key_id="k",
                        model=f"model-{number % MODELS}",
                        status=200,
                        input_tokens=200,
                        output_tokens=100,
                        first_token_ms=50 + 200 * self.random.random(),
                    )
                )
                self.open.counts[ids[number % len(ids)]] = self.random.randrange(8)
            self.traffic.count(rows)
            await trio.sleep(1 / STEPS_PER_S)


def a_stored_model(number: int) -> StoredModel:
    """A catalog entry."""
    now = datetime.now(UTC)
    model = Model(
        name=f"model-{number}",
        source=f"hf:org/model-{number}",
        scaling=Scaling(min=1, max=100),
        profiles=(Profile(name="gpu", engine="vllm", gpu_class="h100-80g", tp=CARDS_A_REPLICA),),
    )
    return StoredModel(spec=model, facts=None, declared=False, created=now, changed=now, generation=1)


async def main(path: Path, nodes: int, cards: int) -> None:
    """Serve until stdin ends."""
    hall = Hall(nodes, cards, path.parent)
    app = admin_app(Control(live=hall.live), Access())
    async with trio.open_nursery() as nursery:
        await nursery.start(hall.live.run)
        nursery.start_soon(hall.move)
        closing = trio.Event()

        async def serving(*, task_status: trio.TaskStatus[None]) -> None:
            await serve(app, [open_unix(path)], closing=closing, task_status=task_status)

        await nursery.start(serving)
        print("ready", flush=True)
        await trio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
