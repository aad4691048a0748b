"""A recorder over a real inventory, with a clock to set and traffic to say."""

from collections.abc import Sequence

import trio

from llmgw.api.series import Series
from llmgw.api.watch import ALL_MODELS, TrafficRow
from llmgw.control.history.book import MB, Book
from llmgw.control.history.recorder import Recorder
from llmgw.control.history.series import MetricsStore, SeriesService, Wanted
from llmgw.control.inventory import Inventory
from llmgw.core.cluster import ShardState
from llmgw.core.errors import NotFound
from llmgw.core.figures import CardFigures, NodeFigures
from tests.support.builders import GB, a_card, a_node, a_replica

START = 1_900_000_020.0
"""Unix seconds at which a minute begins."""
MODELS = ("qwen", "phi")


class NoStore:
    """No metrics store is set."""

    configured = False
    where = ""

    async def read(self, wanted: Wanted) -> tuple[Series, ...]:
        raise AssertionError("nobody asks a store that is not there")


class Rig:
    """Two machines: `n1` with two cards, of which `qwen` holds the first, and `n2` without any."""

    def __init__(
        self, *, memory_mb: int = 20, store: MetricsStore | None = None, models: Sequence[str] = MODELS
    ) -> None:
        self.now = START
        self.inventory = Inventory(trio.current_time, lambda: None)
        self.book = Book(memory_mb * MB)
        self.traffic: dict[str, TrafficRow] = {}
        self.models = list(models)
        self.recorder = Recorder(
            self.book,
            inventory=self.inventory,
            models=lambda: self.models,
            traffic=lambda: self.traffic,
            wall=lambda: self.now,
        )
        self.series = SeriesService(
            book=self.book, nodes=self.inventory, model=self._model, store=store or NoStore(), wall=lambda: self.now
        )
        replica = a_replica(id="qwen-1", model="qwen", node="n1", state=ShardState.READY, cards=("GPU-n1-0",))
        self.inventory.connected(a_node("n1", cards=(a_card(0), a_card(1))), [replica])
        self.inventory.connected(a_node("n2"), [])

    def _model(self, name: str) -> str:
        name = "qwen" if name == "alias" else name
        if name not in self.models:
            raise NotFound(f"there is no model {name!r}")
        return name

    def sense(self, *, power_w: float | None = 350.0, busy: float | None = 80.0, free_busy: float = 0.0) -> None:
        """The machines say how they are."""
        first = CardFigures(
            power_w=power_w,
            power_limit_w=700.0,
            utilization_percent=busy,
            temperature_c=61.0,
            memory_used_bytes=40 * GB,
        )
        second = CardFigures(
            power_w=70.0, power_limit_w=700.0, utilization_percent=free_busy, temperature_c=35.0, memory_used_bytes=0
        )
        cards = {"GPU-n1-0": first, "GPU-n1-1": second}
        self.inventory.sensed("n1", NodeFigures(cpu_percent=12.5, memory_available_bytes=12 * GB, cards=cards))
        self.inventory.sensed("n2", NodeFigures(cpu_percent=50.0, load_1m=3.2))
        for name in ("n1", "n2"):
            self.inventory.heard(name)

    def ask(self, requests: float, *, tokens: float = 0.0, first_ms: float | None = None) -> None:
        """`qwen` is asked this much."""
        row = TrafficRow(
            requests_per_s=requests, output_tokens_per_s=tokens, first_token_p95_ms=first_ms, open_requests=4
        )
        self.traffic = {"qwen": row, ALL_MODELS: row}

    async def samples(self, count: int, **sensed: float | None) -> None:
        """So many samples, one every five seconds, and the clock stands where the last was taken."""
        for _ in range(count):
            self.now += 5.0
            self.sense(**sensed)  # type: ignore[arg-type]
            await self.recorder.sample()
