"""The control plane's services put together once, and their process tree."""

import trio

from llmgw.control.client_tls import ClientCertificate
from llmgw.control.database import Database
from llmgw.control.housekeeping import keep_house
from llmgw.control.live import LiveFeed
from llmgw.control.watch import StoreWatcher
from llmgw.control.wiring.accounts import AccountGroup
from llmgw.control.wiring.agents import AgentGroup
from llmgw.control.wiring.cluster import ClusterGroup
from llmgw.control.wiring.doors import make_live, make_plane
from llmgw.control.wiring.ground import Ground
from llmgw.control.wiring.history import HistoryGroup
from llmgw.control.wiring.routers import RouterGroup
from llmgw.control.wiring.weights import WeightsGroup
from llmgw.core.config import ServerConfig
from llmgw.core.layout import ServerLayout


class Services:
    """One server's services. Made when the database is open; `run` is their life."""

    _accounts: AccountGroup
    _cluster: ClusterGroup
    _live: LiveFeed

    def __init__(
        self, config: ServerConfig, layout: ServerLayout, database: Database, certificate: ClientCertificate
    ) -> None:
        ground = self._ground = Ground(
            config,
            layout,
            database,
            certificate,
            settings_read=self._settings_read,
            router_port=self._router_port,
        )
        weights = self._weights = WeightsGroup(
            ground, node_allowed=lambda node, serial: self._cluster.nodes.allowed(node, serial)
        )
        routers = self._routers = RouterGroup(ground, keys=lambda: self._accounts.keys)
        agents = self._agents = AgentGroup(ground, nodes=lambda: self._cluster.nodes)
        accounts = self._accounts = AccountGroup(ground, routers.feed)
        cluster = self._cluster = ClusterGroup(
            ground, agents, mirror=weights.mirror, feed=routers.feed, scopes=accounts.scopes
        )
        history = self._history = HistoryGroup(ground, cluster.models, live=lambda: self._live)
        self.leadership = ground.leadership
        self.feed = routers.feed
        self.routers = routers.supervisor
        self.plane = make_plane(ground, weights, routers, agents, accounts, cluster, history, live=lambda: self._live)
        self._live = make_live(ground, weights, routers, accounts, cluster, self.plane)
        self._watcher = StoreWatcher(
            store=ground.store,
            listener=ground.listener,
            catalog=ground.catalog,
            nodes=cluster.nodes,
            keys=accounts.keys,
            scopes=accounts.scopes,
            read_settings=ground.read_settings,
            on_change=self._live.written,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The services' process tree; started when the store was read and agents may connect."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._ground.listener.run)
            await nursery.start(self._watcher.run)
            await nursery.start(self._accounts.scopes.run)
            await nursery.start(self._routers.feed.run)
            await nursery.start(self._routers.loads.run)
            await nursery.start(self._weights.spans.run)
            await nursery.start(self._weights.mirror.run)
            await nursery.start(self._weights.serve_nodes)
            await nursery.start(self._agents.server.run)
            await nursery.start(self._agents.sessions.run)
            await nursery.start(self._live.run)
            await nursery.start(self._ground.local_files.run)
            await nursery.start(self._cluster.certificates.run)
            nursery.start_soon(self._lead)
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await self.leadership.release()

    async def _lead(self) -> None:
        """Term after term: while the lease is held, and only then, the cluster is reconciled."""
        while True:
            await self.leadership.acquired()
            self._ground.inventory.new_term()
            await self._watcher.load_patiently()
            async with trio.open_nursery() as term:
                await term.start(self._cluster.reconciler.run)
                await term.start(keep_house, self.leadership)
                await term.start(self._history.recorder.run)
                await self.leadership.hold()
                term.cancel_scope.cancel()
            self._agents.send_away("this server no longer leads")

    def _settings_read(self) -> None:
        self._ground.settings.pace.apply(self._weights.mirror)
        self._ground.wake.set()

    def _router_port(self) -> int:
        """Port 0 of the configuration is whatever the routers got."""
        return next((router.port for router in self.feed.routers()), 0)
