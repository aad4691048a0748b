"""The control plane's services put together once, and their process tree."""

import logging
import time
from collections.abc import Sequence
from functools import partial

import trio

from llmgw import __version__
from llmgw.agents.bridge import AgentServer
from llmgw.agents.orders import AgentOrders
from llmgw.control import identity
from llmgw.control.bands import BandService
from llmgw.control.builds import BuildService
from llmgw.control.catalog import Catalog
from llmgw.control.certificates import Certificates
from llmgw.control.client_tls import ClientCertificate
from llmgw.control.database import Database
from llmgw.control.download_spans import DownloadSpans
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.external import private_files
from llmgw.control.feed import FeedServer
from llmgw.control.history.book import MB, Book
from llmgw.control.history.metrics_store import PrometheusStore
from llmgw.control.history.recorder import Recorder
from llmgw.control.history.series import SeriesService
from llmgw.control.housekeeping import keep_house
from llmgw.control.inventory import Inventory
from llmgw.control.keys import KeyService
from llmgw.control.leadership import Leadership
from llmgw.control.live import LiveFeed
from llmgw.control.load_publisher import LoadPublisher
from llmgw.control.local_files import LocalFiles
from llmgw.control.logs import LogService
from llmgw.control.models import ModelService
from llmgw.control.nodes import NodeService
from llmgw.control.own_addresses import OwnAddresses
from llmgw.control.own_mirror import make_mirror, mirror_service
from llmgw.control.pki import Authority
from llmgw.control.plane import Plane
from llmgw.control.reconciler import Reconciler
from llmgw.control.requests import RequestReader
from llmgw.control.router_metrics import RouterMetrics
from llmgw.control.routers import RouterSupervisor
from llmgw.control.samples import SampleService
from llmgw.control.scopes import ScopeService
from llmgw.control.sessions import AgentBuildOrders, AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.control.settings_in_force import SettingsInForce
from llmgw.control.touched import Touched
from llmgw.control.traffic import TrafficMeter
from llmgw.control.wake import Wake
from llmgw.control.watch import StoreWatcher
from llmgw.control.weights import MirrorWeights
from llmgw.control.weights_service import WeightsService
from llmgw.core.cluster import HEARTBEAT_S
from llmgw.core.config import ServerConfig
from llmgw.core.errors import Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.core.routing import UsageRow
from llmgw.core.secrets import new_replica_id, ordered_by_us
from llmgw.core.shards import seat_of
from llmgw.store.listen import Listener
from llmgw.wire.llmgw.v1 import EnrollResponse, Welcome

log = logging.getLogger(__name__)


class Services:
    """One server's services. Made when the database is open; `run` is their life."""

    _keys: KeyService
    _nodes: NodeService

    def __init__(
        self, config: ServerConfig, layout: ServerLayout, database: Database, certificate: ClientCertificate
    ) -> None:
        private = private_files(config, layout)
        self._settings = SettingsInForce(lambda: self._wake.set())
        # Port 0 is whatever the routers got.
        self._addresses = OwnAddresses(
            config,
            tls=lambda: certificate.on,
            router_port=lambda: next((router.port for router in self.feed.routers()), 0),
        )
        secret = identity.cluster_secret(layout)
        authority = Authority.open(layout.secrets, names=[config.advertise] if config.advertise else [])
        store = database.store
        self._wake = Wake()
        self._listener = Listener(database.conninfo, on_problem=log.warning)
        self.leadership = Leadership(store, identity.server_id(layout))
        self._touched = Touched()
        self._catalog = Catalog(self._catalog_changed)
        self._inventory = Inventory(trio.current_time, self._wake.set, self._touched)
        self._local_files = LocalFiles(certificate, lambda: [e.model for e in self._catalog.entries()], private)
        router_metrics = RouterMetrics()
        self._traffic = TrafficMeter(
            known=self._catalog.holds, gaps=router_metrics.pace.gaps, queues=router_metrics.queues
        )
        self._download_spans = DownloadSpans(lambda: self._settings.seen, private=private)
        self._mirror = make_mirror(config, layout, self._source_changed, self._download_spans.add)
        self._serve_mirror = mirror_service(
            self._mirror, config, authority, secret, lambda node, serial: self._nodes.allowed(node, serial)
        )
        self._agents = AgentServer(
            host=config.address("agents").host,
            port=config.address("agents").port,
            context=authority.server_context(),
            cluster_id=authority.cluster_id,
            enrol=self._enrol,
            renew=lambda node, serial, csr: self._nodes.renew(node, serial, csr),
            welcome=partial(self._welcome, authority.cluster_id),
            allowed=lambda node, serial: self._nodes.allowed(node, serial),
            heard=self._inventory.heard,
        )
        # Keys need the feed and the feed needs keys: the feed asks through the bound methods once it runs.
        self.feed = FeedServer(
            layout,
            version=__version__,
            lookup=lambda digest: self._keys.lookup(digest),
            store_usage=self._store_usage,
            metrics=router_metrics,
        )
        self._loads = LoadPublisher(self._inventory.loads, self.feed, wall=time.time)
        self._reconciler = Reconciler(
            catalog=self._catalog,
            inventory=self._inventory,
            weights=MirrorWeights(self._mirror),
            orders=AgentOrders(self._agents, cluster_secret=secret),
            traffic=self.feed,
            timeouts=lambda: self._settings.timeouts,
            scoring=lambda: self._settings.scoring,
            seen=lambda: self._settings.seen,
            admission=lambda: self._settings.admission,
            leading=lambda: self.leadership.leading,
            wake=self._wake,
            owner=self.leadership.owner,
            new_id=partial(new_replica_id, secret),
        )
        self._scopes = ScopeService(
            store=store, leadership=self.leadership, publish=self.feed.publish_scopes, told=self.feed.told
        )
        self._keys = KeyService(
            store=store, leadership=self.leadership, feed=self.feed, scopes=self._scopes, cluster_secret=secret
        )
        builds = BuildService(
            leadership=self.leadership, inventory=self._inventory, orders=AgentBuildOrders(self._agents)
        )
        self._nodes = NodeService(
            leadership=self.leadership,
            inventory=self._inventory,
            reconciler=self._reconciler,
            builds=builds,
            authority=authority,
            agents_url=self._addresses.agents,
            mirror_url=self._addresses.mirror,
        )
        self._certificates = Certificates(authority, lambda: self._nodes.certificate_ends)
        logs = LogService(layout=layout, inventory=self._inventory, orders=AgentLogOrders(self._agents))
        checks = EngineCheckService(inventory=self._inventory, orders=AgentCheckOrders(self._agents))
        samples = SampleService(
            inventory=self._inventory, orders=AgentSampleOrders(self._agents), clock=trio.current_time
        )
        self._sessions = SessionLoop(
            server=self._agents,
            inventory=self._inventory,
            logs=logs,
            checks=checks,
            samples=samples,
            ordered=lambda replica: ordered_by_us(secret, replica.id, replica.model, seat_of(replica)),
            connected=builds.connected,
        )
        read_settings = partial(self._settings.read, store)
        self._watcher = StoreWatcher(
            store=store,
            listener=self._listener,
            catalog=self._catalog,
            nodes=self._nodes,
            keys=self._keys,
            scopes=self._scopes,
            read_settings=read_settings,
            on_change=lambda: self._live.written(),
        )
        listen = config.address("listen")
        self.routers = RouterSupervisor(layout, (listen.host, listen.port), config.routers, self.feed)
        weights = WeightsService(mirror=self._mirror, catalog=self._catalog, leadership=self.leadership)
        models = ModelService(
            store=store,
            leadership=self.leadership,
            catalog=self._catalog,
            inventory=self._inventory,
            reconciler=self._reconciler,
            private=private,
            costs=self._scopes.costs_today,
        )
        book = Book(config.history.memory_mb * MB)
        self._recorder = Recorder(
            book,
            inventory=self._inventory,
            models=lambda: [entry.model.name for entry in self._catalog.entries()],
            traffic=lambda: self._live.traffic_now(),
        )
        self.plane = Plane(
            cluster_id=authority.cluster_id,
            store=store,
            leadership=self.leadership,
            inventory=self._inventory,
            reconciler=self._reconciler,
            feed=self.feed,
            mirror=self._mirror,
            models=models,
            nodes=self._nodes,
            keys=self._keys,
            scopes=self._scopes,
            bands=BandService(
                store=store,
                leadership=self.leadership,
                feed=self.feed,
                read_settings=read_settings,
            ),
            logs=logs,
            checks=checks,
            samples=samples,
            builds=builds,
            requests=RequestReader(layout.requests),
            database=database.describe,
            read_settings=read_settings,
            weights=weights,
            traffic=self._traffic,
            series=SeriesService(
                book=book,
                nodes=self._inventory,
                model=lambda name: models.show(name).name,
                store=PrometheusStore(lambda: self._settings.metrics_store, private),
            ),
            live=lambda: self._live,
            client_url=self._addresses.clients,
            local_problems=lambda: (*self._local_files.problems(), *self._certificates.problems()),
        )
        self._live = LiveFeed(
            store=store,
            touched=self._touched,
            inventory=self._inventory,
            catalog=self._catalog,
            reconciler=self._reconciler,
            weights=weights,
            traffic=self._traffic,
            in_flight=self.feed.in_flight,
            open_requests=self.feed.open_requests,
            cluster=self.plane.cluster_row,
            costs=self._scopes.costs_today,
            breakers=self.feed.breakers,
        )
        self.leadership.on_written = self._live.written

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """The services' process tree; started when the store was read and agents may connect."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self._listener.run)
            await nursery.start(self._watcher.run)
            await nursery.start(self._scopes.run)
            await nursery.start(self.feed.run)
            await nursery.start(self._loads.run)
            await nursery.start(self._download_spans.run)
            await nursery.start(self._mirror.run)
            await nursery.start(self._serve_mirror)
            await nursery.start(self._agents.run)
            await nursery.start(self._sessions.run)
            await nursery.start(self._live.run)
            await nursery.start(self._local_files.run)
            await nursery.start(self._certificates.run)
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
            self._inventory.new_term()
            await self._watcher.load_patiently()
            async with trio.open_nursery() as term:
                await term.start(self._reconciler.run)
                await term.start(keep_house, self.leadership)
                await term.start(self._recorder.run)
                await self.leadership.hold()
                term.cancel_scope.cancel()
            for node in self._agents.nodes:
                self._agents.disconnect(node, "this server no longer leads")

    async def _enrol(self, token: str, node: str, csr_pem: bytes) -> EnrollResponse:
        return await self._nodes.enrolment.enrol(token, node, csr_pem)

    def _welcome(self, cluster_id: str) -> Welcome:
        """First words to a node; raises Unavailable on a standby, so that the node tries the next server."""
        if not self.leadership.epoch:
            raise Unavailable(f"this server does not lead; {self.leadership.leader_host or 'no server'} does")
        return Welcome(
            cluster_id=cluster_id,
            server_version=__version__,
            epoch=self.leadership.epoch,
            servers=[self._addresses.agents()],
            mirror_url=self._addresses.mirror(),
            heartbeat_s=HEARTBEAT_S,
        )

    def _catalog_changed(self) -> None:
        self._touched.catalog()
        self._wake.set()

    def _source_changed(self, source: str) -> None:
        self._touched.source(source)
        self._wake.set()

    async def _store_usage(self, rows: Sequence[UsageRow]) -> None:
        # Counted before it is stored: what goes on is shown also while the store is away.
        self._traffic.count(rows)
        await self._keys.store_usage(rows)
