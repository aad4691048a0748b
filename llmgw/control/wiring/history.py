"""What the cluster's figures were: written down while this server leads, and asked for by whoever shows them."""

from collections.abc import Callable

from llmgw.control.history.book import MB, Book
from llmgw.control.history.metrics_store import PrometheusStore
from llmgw.control.history.recorder import Recorder
from llmgw.control.history.series import SeriesService
from llmgw.control.live import LiveFeed
from llmgw.control.models import ModelService
from llmgw.control.wiring.ground import Ground


class HistoryGroup:
    """The book of figures, who writes it and who reads it."""

    def __init__(self, ground: Ground, models: ModelService, *, live: Callable[[], LiveFeed]) -> None:
        book = Book(ground.config.history.memory_mb * MB)
        self.recorder = Recorder(
            book,
            inventory=ground.inventory,
            models=lambda: [entry.model.name for entry in ground.catalog.entries()],
            traffic=lambda: live().traffic_now(),
        )
        self.series = SeriesService(
            book=book,
            nodes=ground.inventory,
            model=lambda name: models.show(name).name,
            store=PrometheusStore(lambda: ground.settings.metrics_store, ground.private),
        )
