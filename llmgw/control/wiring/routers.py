"""Routers: their processes, the feed they follow, and what they tell of the traffic."""

import time
from collections.abc import Callable, Sequence

from llmgw import __version__
from llmgw.control.feed import FeedServer
from llmgw.control.keys import KeyService
from llmgw.control.load_publisher import LoadPublisher
from llmgw.control.router_metrics import RouterMetrics
from llmgw.control.routers import RouterSupervisor
from llmgw.control.traffic import TrafficMeter
from llmgw.control.wiring.ground import Ground
from llmgw.core.routing import UsageRow


class RouterGroup:
    """What this server's routers hear and say."""

    def __init__(self, ground: Ground, *, keys: Callable[[], KeyService]) -> None:
        """Keys need the feed and the feed needs keys: it asks for them once it runs."""
        self._keys = keys
        metrics = RouterMetrics()
        self.traffic = TrafficMeter(known=ground.catalog.holds, gaps=metrics.pace.gaps, queues=metrics.queues)
        self.feed = FeedServer(
            ground.layout,
            version=__version__,
            lookup=lambda digest: keys().lookup(digest),
            store_usage=self._store_usage,
            metrics=metrics,
        )
        self.loads = LoadPublisher(ground.inventory.loads, self.feed, wall=time.time)
        listen = ground.config.address("listen")
        self.supervisor = RouterSupervisor(ground.layout, (listen.host, listen.port), ground.config.routers, self.feed)

    async def _store_usage(self, rows: Sequence[UsageRow]) -> None:
        # Counted before it is stored: what goes on is shown also while the store is away.
        self.traffic.count(rows)
        await self._keys().store_usage(rows)
