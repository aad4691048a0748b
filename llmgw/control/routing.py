"""What routers are told, built from what the leader knows. The revision moves when the content does, and only then."""

import msgspec

from llmgw.core.admission import Admission
from llmgw.core.catalog import Model
from llmgw.core.cluster import NodeLink, Replica, ShardState
from llmgw.core.external import external_id
from llmgw.core.fallbacks import chain_of
from llmgw.core.requests import Seen
from llmgw.core.routing import RoutedExternal, RoutedModel, RoutedReplica, Routing, Scoring, Timeouts
from llmgw.core.snapshot import CatalogEntry, Snapshot

_USUAL = Scoring()
_SEEN = Seen()
_RULES = Admission()
_MAKES_PICTURES = (
    "the model {name!r} makes pictures in ComfyUI on its node, and no request of this API reaches it; "
    "GET /v1/models lists those that answer here"
)


class RoutingBuilder:
    """Turns snapshots into routings with revisions `owner/counter`."""

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self._counter = 0
        self._last: Routing | None = None

    def build(
        self,
        snapshot: Snapshot,
        timeouts: Timeouts,
        created: dict[str, int],
        *,
        scoring: Scoring = _USUAL,
        seen: Seen = _SEEN,
        admission: Admission = _RULES,
    ) -> Routing:
        """The routing of this moment; the same object as last time when nothing changed."""
        # One that makes pictures answers nobody, whoever named it before it did.
        declared = {e.model.name: e.model.fallbacks for e in snapshot.entries if not e.model.pictures}
        routing = Routing(
            revision="",
            models=tuple(
                _model(entry, created.get(entry.model.name, 0), chain_of(entry.model.name, declared))
                for entry in snapshot.entries
            ),
            replicas=(*(_replica(r) for r in _routable(snapshot)), *_outside(snapshot)),
            timeouts=timeouts,
            scoring=scoring,
            seen=seen,
            admission=admission,
        )
        if self._last is not None and msgspec.structs.replace(self._last, revision="") == routing:
            return self._last
        self._counter += 1
        self._last = msgspec.structs.replace(routing, revision=f"{self._owner}/{self._counter}")
        return self._last


def _routable(snapshot: Snapshot) -> list[Replica]:
    """Ready replicas of catalog models.

    A silent node's stay, since its engines most likely answer. A lost node's are used while the model has no other: a
    dead agent must not take a living engine with it, and a dead engine costs a request one retry.
    """
    wanted = {
        entry.model.name
        for entry in snapshot.entries
        if not (entry.model.stopped or entry.model.external or entry.model.pictures)
    }
    lost = {node.name for node in snapshot.nodes if node.link is NodeLink.LOST}
    ready = [r for r in snapshot.replicas if r.state is ShardState.READY and r.model in wanted and r.endpoint]
    reachable = [r for r in ready if lost.isdisjoint(r.nodes)]
    served = {r.model for r in reachable}
    last_resort = [r for r in ready if not lost.isdisjoint(r.nodes) and r.model not in served]
    return sorted(reachable + last_resort, key=lambda r: r.id)


def _replica(replica: Replica) -> RoutedReplica:
    return RoutedReplica(
        id=replica.id,
        model=replica.model,
        profile=replica.profile,
        node=replica.node,
        endpoint=replica.endpoint.rstrip("/"),
    )


def _outside(snapshot: Snapshot) -> list[RoutedReplica]:
    """Endpoints outside the cluster: served for as long as their model is not stopped."""
    models = sorted((e.model for e in snapshot.entries if not e.model.stopped), key=lambda model: model.name)
    return [_endpoint(model, number) for model in models for number in range(len(model.endpoints))]


def _endpoint(model: Model, number: int) -> RoutedReplica:
    endpoint = model.endpoints[number]
    return RoutedReplica(
        id=external_id(model.name, number),
        model=model.name,
        endpoint=endpoint.base_url.rstrip("/"),
        weight=endpoint.weight,
        upstream_model=endpoint.model,
        external=RoutedExternal(keys_file=endpoint.api_keys_file, ca_file=endpoint.ca_file),
    )


def _model(entry: CatalogEntry, created: int, fallbacks: tuple[str, ...]) -> RoutedModel:
    return RoutedModel(
        name=entry.model.name,
        aliases=entry.model.aliases,
        context_length=entry.context_length,
        max_output=entry.max_output,
        created=created,
        prices=entry.model.prices,
        fallbacks=fallbacks,
        unrouted=_MAKES_PICTURES.format(name=entry.model.name) if entry.model.pictures else "",
    )
