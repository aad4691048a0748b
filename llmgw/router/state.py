"""What a router knows, in one place: routing is replaced whole, and nothing here but an unknown key waits."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from llmgw.core import secrets
from llmgw.core.admission import Admission
from llmgw.core.limits import ScopeKind
from llmgw.core.requests import Seen
from llmgw.core.routing import (
    Activity,
    KeyRecord,
    LoadTable,
    ReplicaLoad,
    RoutedModel,
    RoutedReplica,
    Routing,
    ScopeTable,
    Scoring,
    Timeouts,
    UsageRow,
)
from llmgw.router.keys import KeyCache
from llmgw.router.limiter import Limiter, Reservation
from llmgw.router.meters import Meters
from llmgw.router.scopes import Chain, Demand, ScopeBook
from llmgw.router.usage import UsageSpool

MAX_WANTED = 256
"""Names of models asked for in vain that are kept between two reports; more are forgotten until the next."""


class IndexedRoutes:
    """A `Routing` prepared for look-ups; never changed once made."""

    def __init__(self, routing: Routing | None = None) -> None:
        """Index `routing`; none is a router that never heard of the cluster."""
        self.routing = routing
        self.timeouts = routing.timeouts if routing else Timeouts()
        """Seconds the router waits for engines and clients."""
        self.scoring = routing.scoring if routing else Scoring()
        """How replicas are chosen."""
        self.admission = routing.admission if routing else Admission()
        """Who waits, and when."""
        self.seen = routing.seen if routing else Seen()
        """What is written down and traced of requests."""
        self._models = routing.models if routing else ()
        self._names = _index_names(self._models)
        self._replicas: Mapping[str, Sequence[RoutedReplica]] = _index_replicas(routing.replicas if routing else ())

    def resolve(self, name: str) -> RoutedModel | None:
        """The model a client means by its name or an alias; a name goes before another model's alias."""
        return self._names.get(name)

    def replicas(self, model: str) -> Sequence[RoutedReplica]:
        """Ready replicas of the model of that name."""
        return self._replicas.get(model, ())

    def models(self) -> Sequence[RoutedModel]:
        """All models of the catalog."""
        return self._models

    @property
    def ready(self) -> bool:
        """Whether a routing was ever heard or restored."""
        return self.routing is not None


class FollowerState:
    """Implements `ports.RouterState` on what the feed brings.

    The data plane reads it and counts in it; the feed replaces its routes and takes its activity.
    """

    def __init__(
        self, *, cluster_secret: bytes, keys: KeyCache, usage: UsageSpool, limiter: Limiter | None = None
    ) -> None:
        """Count against `limiter`; none counts in this process alone."""
        self.in_flight: dict[str, int] = {}
        self.requests = 0
        self.open_requests = 0
        self.breakers: dict[str, str] = {}
        self.breaker_failures: dict[str, str] = {}
        self.meters = Meters()
        self.loads: dict[str, ReplicaLoad] = {}
        self.on_loads: Callable[[], None] = _nothing
        """Called when `loads` changed."""
        self.on_stale_key: Callable[[str], None] = _heard_by_nobody
        """Called with the id of a key that may have changed, or without one when any may have."""
        self.on_want: Callable[[], None] = _nothing
        """Called when a model is wanted that was not since the last report, so that the report goes at once."""
        self.routes = IndexedRoutes()
        """The newest snapshot; only `apply` replaces it."""
        self._secret = cluster_secret
        self._engine_keys: dict[str, str] = {}
        self._keys = keys
        keys.on_stale = self._key_stale
        self._usage = usage
        self._limiter = limiter if limiter is not None else Limiter()
        self._scopes = ScopeBook()
        self._tenants: Mapping[str, str] = {}
        """By team."""
        self.scope_table: ScopeTable | None = None
        """Every team and tenant, as last heard."""
        self._last_used: dict[str, float] = {}
        self._wanted: dict[str, None] = {}

    def apply(self, routing: Routing) -> None:
        """Replace the routes by `routing`, and forget the engine keys of replicas that are gone."""
        self.routes = IndexedRoutes(routing)
        kept = {replica.id for replica in routing.replicas} | self.in_flight.keys()
        self._engine_keys = {name: key for name, key in self._engine_keys.items() if name in kept}

    def apply_scopes(self, table: ScopeTable) -> None:
        """Replace all teams and tenants by those of `table`; what was counted for them goes on counting."""
        self.scope_table = table
        self._scopes.learn(table.scopes)
        self._tenants = {scope.id: scope.tenant for scope in table.scopes if scope.kind is ScopeKind.TEAM}

    def apply_loads(self, table: LoadTable) -> None:
        """Learn what engines said of their work."""
        if table.whole:
            self.loads.clear()
        self.loads.update(table.loads)
        for replica_id in table.gone:
            self.loads.pop(replica_id, None)
        self.on_loads()

    def forget_loads(self) -> None:
        """What engines said is too old, or nobody tells any more: only what this router counts is known of them."""
        if self.loads:
            self.loads.clear()
            self.on_loads()

    def scopes_of(self, key: KeyRecord) -> Chain | None:
        """Whom a request with this key is counted for; none when nothing limits it."""
        return self._scopes.chain(key)

    def tenant_of(self, team: str) -> str:
        """The tenant a team belongs to; empty where it belongs to none, or is not known."""
        return self._tenants.get(team, "")

    def admit(self, chain: Chain, demand: Demand) -> Reservation:
        """Let a request in and charge it; raises Refusal. See `Limiter.admit`."""
        return self._limiter.admit(chain, demand)

    def engine_key(self, replica_id: str) -> str:
        """Key under which the replica's engine answers; derived once."""
        key = self._engine_keys.get(replica_id)
        if key is None:
            key = self._engine_keys[replica_id] = secrets.engine_key(self._secret, replica_id)
        return key

    async def authenticate(self, authorization: bytes | None, client: str) -> KeyRecord:
        """Whose key this is; raises Refusal (401, 429, 503). See `KeyCache.authenticate`."""
        return await self._keys.authenticate(authorization, client)

    def authenticate_cached(self, authorization: bytes) -> KeyRecord | None:
        """The record of a key known lately, without waiting; none means: ask the slow way."""
        return self._keys.cached(authorization)

    def _key_stale(self, key_id: str) -> None:
        self.on_stale_key(key_id)

    def record(self, row: UsageRow) -> None:
        """Keep a usage row for the store. Never blocks, never raises."""
        self._usage.record(row)
        if row.replica:
            self._last_used[row.replica] = row.at

    def want(self, model: str) -> None:
        """A model was asked for that has no Ready replica; the control plane hears of it at once."""
        if model in self._wanted or len(self._wanted) >= MAX_WANTED:
            return
        self._wanted[model] = None
        self.on_want()

    def take_activity(self) -> Activity:
        """What happened since the last call; what it returns is not returned again."""
        activity = Activity(
            requests=self.requests,
            open_requests=self.open_requests,
            in_flight=dict(self.in_flight),
            last_used=self._last_used,
            want=tuple(self._wanted),
            breakers=dict(self.breakers),
            breaker_failures=dict(self.breaker_failures),
            metrics=self.meters.report(usage_dropped=self._usage.dropped, usage_waiting=self._usage.waiting_rows),
        )
        self._last_used = {}
        self._wanted = {}
        return activity


def _index_names(models: Sequence[RoutedModel]) -> Mapping[str, RoutedModel]:
    names: dict[str, RoutedModel] = {}
    for model in models:
        for alias in model.aliases:
            names.setdefault(alias, model)
    names.update((model.name, model) for model in models)
    return MappingProxyType(names)


def _index_replicas(replicas: Sequence[RoutedReplica]) -> Mapping[str, tuple[RoutedReplica, ...]]:
    by_model: dict[str, list[RoutedReplica]] = {}
    for replica in replicas:
        by_model.setdefault(replica.model, []).append(replica)
    return MappingProxyType({model: tuple(found) for model, found in by_model.items()})


def _nothing() -> None:
    """Nobody listens yet."""


def _heard_by_nobody(_: str) -> None:
    """Nobody listens yet."""
