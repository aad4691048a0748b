"""The control plane behind its Protocol: what the web apps call, each call handed to the service that owns it."""

import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime

import msgspec

from llmgw import __version__
from llmgw.api import types as t
from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.api.series import Of, SeriesAnswer
from llmgw.api.watch import ALL_MODELS, ClusterRow, History, Subscription
from llmgw.control import breakers, metrics, settings, views
from llmgw.control.bands import BandService
from llmgw.control.builds import BuildService
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.feed import FeedServer
from llmgw.control.history.series import SeriesService
from llmgw.control.inventory import Inventory
from llmgw.control.keys import KeyService
from llmgw.control.leadership import Leadership
from llmgw.control.live import LiveFeed
from llmgw.control.live_rows import without_counters
from llmgw.control.logs import LogService
from llmgw.control.models import ModelService
from llmgw.control.nodes import NodeService
from llmgw.control.plane_bands import BandPlane
from llmgw.control.plane_engines import EnginePlane
from llmgw.control.plane_keys import KeyPlane
from llmgw.control.plane_samples import SamplePlane
from llmgw.control.plane_weights import WeightsPlane
from llmgw.control.reconciler import Reconciler
from llmgw.control.requests import RequestReader
from llmgw.control.samples import SampleService
from llmgw.control.scopes import ScopeService
from llmgw.control.traffic import TrafficMeter
from llmgw.control.weights_pace import limited_fetch
from llmgw.control.weights_service import WeightsService
from llmgw.core.catalog import Model
from llmgw.core.errors import LlmgwError
from llmgw.core.snapshot import Snapshot
from llmgw.core.units import size
from llmgw.mirror.service import Mirror
from llmgw.store import audit as stored_audit
from llmgw.store import settings as stored_settings
from llmgw.store.store import Store


class Plane(KeyPlane, BandPlane, WeightsPlane, EnginePlane, SamplePlane):
    """`web.ports.ControlPlane` over the services of one server."""

    def __init__(
        self,
        *,
        cluster_id: str,
        store: Store,
        leadership: Leadership,
        inventory: Inventory,
        reconciler: Reconciler,
        feed: FeedServer,
        mirror: Mirror,
        models: ModelService,
        nodes: NodeService,
        keys: KeyService,
        scopes: ScopeService,
        bands: BandService,
        logs: LogService,
        checks: EngineCheckService,
        samples: SampleService,
        builds: BuildService,
        requests: RequestReader,
        database: Callable[[], str],
        read_settings: Callable[[], Awaitable[None]],
        weights: WeightsService,
        traffic: TrafficMeter,
        series: SeriesService,
        live: Callable[[], LiveFeed],
        client_url: Callable[[], str],
        local_problems: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        KeyPlane.__init__(self, keys, scopes)
        BandPlane.__init__(self, bands)
        WeightsPlane.__init__(self, weights)
        EnginePlane.__init__(self, checks, builds)
        SamplePlane.__init__(self, samples)
        self._cluster_id = cluster_id
        self._store = store
        self._leadership = leadership
        self._inventory = inventory
        self._reconciler = reconciler
        self._feed = feed
        self._mirror = mirror
        self._models = models
        self._nodes = nodes
        self._logs = logs
        self._requests = requests
        self._database = database
        self._read_settings = read_settings
        self._traffic = traffic
        self._series = series
        self._live = live
        self._client_url = client_url
        self._local_problems = local_problems

    async def leader(self) -> t.Leader:
        """Who leads, as last heard."""
        leadership = self._leadership
        if leadership.leading:
            return t.Leader(leader=leadership.owner, epoch=leadership.epoch, is_self=True)
        return t.Leader(leader=leadership.leader if leadership.leader != leadership.owner else None)

    async def status(self) -> t.ClusterStatus:
        """All that runs, in one document."""
        snapshot = self._reconciler.snapshot()
        models = self._models.list()
        complaints = {n.name: p for n in snapshot.nodes if (p := self._inventory.complaints(n.name))}
        problems = (
            *views.problems(snapshot, models, self._reconciler.paused, complaints),
            *self._broken(),
            *self._local_problems(),
        )
        health = self._store.health
        return t.ClusterStatus(
            version=__version__,
            cluster_id=self._cluster_id,
            leader=(await self.leader()).leader,
            epoch=self._leadership.epoch,
            servers=(self._server_info(),),
            routers=tuple(self._feed.routers()),
            nodes=self._nodes.list(),
            models=models,
            replicas=self._replicas(snapshot),
            database=self._database(),
            problems=problems if health.ok else (health.message, *problems),
            client_url=self._client_url(),
        )

    def _replicas(self, snapshot: Snapshot, model: str | None = None) -> tuple[t.ReplicaInfo, ...]:
        found = self._feed.breakers()
        chosen = (r for r in snapshot.replicas if model is None or r.model == model)
        takes, loads = self._inventory.takes, self._inventory.loads
        return tuple(
            views.replica_info(
                r,
                snapshot,
                breakers.state_of(found, r.id),
                takes(r),
                loads.of(r.id),
                loads.failures(r.id),
                limited_fetch(self._mirror, r.progress),
            )
            for r in chosen
        )

    def _broken(self) -> tuple[str, ...]:
        return breakers.sentences(self._feed.breakers(), self._model_of)

    def _model_of(self, replica_id: str) -> str | None:
        replica = self._inventory.replica(replica_id)
        return replica.model if replica is not None else None

    def _server_info(self) -> t.ServerInfo:
        return t.ServerInfo(
            id=self._leadership.owner,
            pid=os.getpid(),
            host=socket.gethostname(),
            leader=self._leadership.leading,
            version=__version__,
            epoch=self._leadership.epoch,
        )

    def cluster_row(self) -> ClusterRow:
        """What belongs to no model, node or card."""
        leadership, health = self._leadership, self._store.health
        leader = leadership.leader if leadership.leader != leadership.owner else None
        return ClusterRow(
            version=__version__,
            cluster_id=self._cluster_id,
            leader=leadership.owner if leadership.leading else leader,
            epoch=leadership.epoch,
            servers=(self._server_info(),),
            routers=without_counters(self._feed.routers()),
            database=self._database(),
            problems=tuple(
                text
                for text in (
                    "" if health.ok else health.message,
                    self._reconciler.paused,
                    *self._broken(),
                    *self._local_problems(),
                )
                if text
            ),
            client_url=self._client_url(),
        )

    def watch(
        self, subscription: Subscription, *, actor: str, role: str, hidden: frozenset[str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The live feed for one reader."""
        return self._live().watch(subscription, actor=actor, role=role, hidden=hidden)

    async def history(self, model: str | None) -> History:
        """A model's traffic lately, or everyone's."""
        return self._traffic.history(self._models.show(model).name if model else ALL_MODELS)

    async def series(
        self,
        figures: Sequence[str],
        of: Sequence[Of],
        *,
        start: float | None,
        end: float | None,
        step_s: float | None,
    ) -> SeriesAnswer:
        """Figures over time."""
        return await self._series.answer(figures, of, start, end, step_s)

    async def metrics(self) -> str:
        """Prometheus text."""
        return metrics.render(await self.status(), self._feed.metrics.totals(), self._feed.breakers())

    async def nodes(self) -> Sequence[t.NodeInfo]:
        """Every known node."""
        return self._nodes.list()

    async def node(self, name: str) -> t.NodeInfo:
        """One node."""
        return self._nodes.show(name)

    async def cordon(self, name: str, on: bool, *, actor: str) -> t.Result:
        """Keep new replicas off a node, or allow them again."""
        return await self._nodes.cordon(name, on, actor=actor)

    async def join_token(self, request: t.JoinTokenCreate, *, actor: str) -> t.JoinToken:
        """A token with which one node may enrol."""
        return await self._nodes.join_token(request, actor=actor)

    async def models(self) -> Sequence[t.ModelInfo]:
        """The catalog."""
        return self._models.list()

    async def model(self, name: str) -> t.ModelInfo:
        """One catalog entry."""
        return self._models.show(name)

    async def serve(self, request: t.ServeRequest, *, actor: str) -> t.ModelResult:
        """Add a model from its source."""
        return await self._models.serve(request, actor=actor)

    async def add(self, model: Model, *, actor: str, replace: bool) -> t.ModelResult:
        """Add a whole entry."""
        return await self._models.add(model, actor=actor, replace=replace)

    async def remove(self, name: str, *, purge: bool, actor: str) -> t.Result:
        """Take a model out of the catalog, its weights on the mirror too when `purge`."""
        result, orphan = await self._models.remove(name, actor=actor)
        if not purge or orphan is None:
            return result
        if not orphan:
            return t.Result(message=f"{result.message}; its weights stay, another model uses them")
        try:
            freed = await self._mirror.remove(orphan)
        except LlmgwError as error:
            return t.Result(message=f"{result.message}; its weights stay: {error.message}")
        return t.Result(message=f"{result.message}; {size(freed)} freed on the mirror")

    async def stop(self, name: str, *, actor: str) -> t.ModelResult:
        """Keep the entry, end its replicas."""
        return await self._models.stop(name, actor=actor)

    async def start(self, name: str, *, actor: str) -> t.ModelResult:
        """Serve a stopped model again."""
        return await self._models.start(name, actor=actor)

    async def scale(self, name: str, minimum: int, maximum: int, *, actor: str) -> t.ModelResult:
        """Keep between `minimum` and `maximum` replicas."""
        return await self._models.scale(name, minimum, maximum, actor=actor)

    async def set_fallbacks(self, name: str, fallbacks: tuple[str, ...], *, actor: str) -> t.ModelResult:
        """Say which models answer while this one cannot."""
        return await self._models.set_fallbacks(name, fallbacks, actor=actor)

    async def replicas(self, model: str | None = None) -> Sequence[t.ReplicaInfo]:
        """Every replica, or one model's."""
        snapshot = self._reconciler.snapshot()
        name = self._models.show(model).name if model else None
        return self._replicas(snapshot, name)

    async def restart(self, target: str, *, actor: str) -> t.Result:
        """Restart a model's replicas one by one, or one replica."""
        return await self._models.restart(target, actor=actor)

    async def explain(self, name: str) -> t.Explanation:
        """Why a model is where it is."""
        return self._models.explain(name)

    async def explain_serve(self, request: t.ServeRequest) -> t.Explanation:
        """Where a model would be placed."""
        return self._models.explain_serve(request)

    async def requests(self, query: RequestQuery) -> RequestPage:
        """Requests that this machine's routers wrote down."""
        return await self._requests.page(query)

    async def request(self, request_id: str) -> RequestTold:
        """One of them and why it went as it did."""
        return await self._requests.told(request_id)

    def logs(self, target: str, *, tail: int, follow: bool) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """Lines of a log."""
        return self._logs.open(target, tail=tail, follow=follow)

    async def settings(self) -> Sequence[t.Setting]:
        """Every cluster setting."""
        stored = await self._store.run(stored_settings.load_settings)
        return [settings.document(key, stored) for key in sorted(settings.KINDS)]

    async def setting(self, key: str) -> t.Setting:
        """One cluster setting."""
        settings.kind_of(key)
        return settings.document(key, await self._store.run(stored_settings.load_settings))

    async def set_setting(self, key: str, value: msgspec.Raw, *, actor: str) -> t.Result:
        """Change a setting."""
        before = await self.setting(key)
        checked = settings.decode(key, bytes(value))
        await self._leadership.lead(stored_settings.set_setting, key, checked, actor=actor)
        await self._read_settings()
        return t.Result(message=f"{key}: {bytes(before.value).decode()} → {msgspec.json.encode(checked).decode()}")

    async def audit(self, since: datetime | None, limit: int) -> Sequence[t.AuditEntry]:
        """Who changed what, newest first."""
        entries: list[t.AuditEntry] = []
        before_id: int | None = None
        while len(entries) < limit:
            page = min(limit - len(entries), stored_audit.MAX_ENTRIES)
            rows = await self._store.run(stored_audit.entries, since=since, limit=page, before_id=before_id)
            entries += [msgspec.convert(msgspec.structs.asdict(row), t.AuditEntry) for row in rows]
            if len(rows) < page:
                break
            before_id = rows[-1].id
        return entries
