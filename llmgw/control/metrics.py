"""`/metrics` in Prometheus text: what the control plane knows, absent figures left out and never zero."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping

from llmgw.api.types import ClusterStatus
from llmgw.control import efficiency_metrics, gpu_metrics, load_metrics, node_metrics, queue_metrics
from llmgw.control.exposition import Labels, Page
from llmgw.control.router_metrics import Totals
from llmgw.core.external import model_of_external
from llmgw.core.meters import CHOICES, DURATION_S, FIRST_TOKEN_S, INTER_TOKEN_S, LOOKUPS, OUTCOMES, ModelMeters

_STATES = ("pending", "fetching", "checking", "starting", "ready", "draining", "failed")


def render(status: ClusterStatus, totals: Totals, breakers: Collection[str]) -> str:
    """The page for one status, what all routers measured, and replicas whose breakers are not all closed, by id."""
    page = Page()
    replicas = Counter((r.model, r.state) for r in status.replicas)
    page.gauges("llmgw_info", "Version of this server.", [({"version": status.version}, 1)])
    leads = any(s.leader for s in status.servers)
    page.gauges("llmgw_leader", "Whether this server leads.", [({}, int(leads))])
    page.counters(
        "llmgw_router_requests_total",
        "Requests a router answered since it started.",
        [({"pid": str(r.pid)}, r.requests) for r in status.routers],
    )
    page.gauges(
        "llmgw_router_open_requests",
        "Requests being answered.",
        [({"pid": str(r.pid)}, r.open_requests) for r in status.routers],
    )
    page.gauges(
        "llmgw_model_replicas",
        "Replicas of a model by state.",
        [({"model": m.name, "state": state}, replicas[m.name, state]) for m in status.models for state in _STATES],
    )
    page.gauges(
        "llmgw_model_replicas_wanted",
        "Replicas wanted.",
        [({"model": m.name}, m.wanted) for m in status.models],
    )
    page.gauges(
        "llmgw_model_replicas_ready",
        "Replicas that serve, or endpoints outside the cluster.",
        [({"model": m.name}, m.ready) for m in status.models],
    )
    node_metrics.nodes(page, status)
    gpu_metrics.cards(page, status)
    gpu_metrics.engines(page, status)
    load_metrics.loads(page, status)
    efficiency_metrics.models(page, status)
    efficiency_metrics.idle_cards(page, status)
    _traffic(page, totals)
    _attempts(page, totals.models)
    _choices(page, totals.models)
    _timings(page, totals.models)
    queue_metrics.queues(page, totals.queues, totals.models)
    _breakers(page, status, breakers)
    _routers(page, totals)
    return page.text()


def _traffic(page: Page, totals: Totals) -> None:
    models = totals.models
    page.counters(
        "llmgw_requests_total",
        "Inference requests ended, by outcome; model is empty where none of the catalog was reached.",
        [
            ({"model": name, "outcome": outcome}, meters.requests.get(outcome, 0))
            for name, meters in models.items()
            for outcome in OUTCOMES
        ],
    )
    page.counters(
        "llmgw_tokens_total",
        "Tokens of answered requests; cached is part of input.",
        [
            ({"model": name, "kind": kind}, count)
            for name, meters in models.items()
            if meters.duration.counts
            for kind, count in (
                ("input", meters.input_tokens),
                ("cached", meters.cached_tokens),
                ("output", meters.output_tokens),
            )
        ],
    )
    page.counters(
        "llmgw_limits_hit_total",
        "Requests refused by a limit or budget.",
        [
            ({"model": name, "scope": scope, "limit": limit}, count)
            for name, meters in models.items()
            for hit, count in meters.limits_hit.items()
            for scope, _, limit in (hit.partition("/"),)
        ],
    )


def _attempts(page: Page, models: Mapping[str, ModelMeters]) -> None:
    page.counters(
        "llmgw_fallbacks_total",
        "Requests for a model that another one answered.",
        [
            ({"model": name, "answered_by": other}, count)
            for name, meters in models.items()
            for other, count in meters.fallbacks.items()
        ],
    )
    _by_model(page, "llmgw_retries_total", "Tries of requests after their first.", models, lambda m: m.retries)
    _by_model(
        page,
        "llmgw_breaker_openings_total",
        "Times a breaker of a replica opened.",
        models,
        lambda m: m.breaker_openings,
    )


def _by_model(
    page: Page, name: str, doc: str, models: Mapping[str, ModelMeters], count: Callable[[ModelMeters], int]
) -> None:
    page.counters(name, doc, [({"model": model}, count(meters)) for model, meters in models.items()])


def _choices(page: Page, models: Mapping[str, ModelMeters]) -> None:
    page.counters(
        "llmgw_replica_choices_total",
        "Replicas chosen for a try of a request, by what they were chosen.",
        [({"model": name, "by": by}, m.chosen.get(by, 0)) for name, m in models.items() if m.chosen for by in CHOICES],
    )


def _timings(page: Page, models: Mapping[str, ModelMeters]) -> None:
    labelled: list[tuple[Labels, ModelMeters]] = [({"model": name}, meters) for name, meters in models.items()]
    page.histograms(
        "llmgw_first_token_seconds",
        "From a request's body having arrived to its first token.",
        FIRST_TOKEN_S,
        [(labels, meters.first_token) for labels, meters in labelled],
    )
    page.histograms(
        "llmgw_inter_token_seconds",
        "Between two arrivals of tokens of one streamed answer.",
        INTER_TOKEN_S,
        [(labels, meters.inter_token) for labels, meters in labelled],
    )
    page.histograms(
        "llmgw_request_duration_seconds",
        "From a request's body having arrived to its end.",
        DURATION_S,
        [(labels, meters.duration) for labels, meters in labelled],
    )


def _breakers(page: Page, status: ClusterStatus, breakers: Collection[str]) -> None:
    models = {r.id: r.model for r in status.replicas if r.state == "ready" or r.id in breakers}
    models |= {name: model for name in breakers if (model := model_of_external(name))}
    page.gauges(
        "llmgw_breaker_open",
        "Whether a router keeps requests from the replica.",
        [({"model": model, "replica": replica}, int(replica in breakers)) for replica, model in models.items()],
    )


def _routers(page: Page, totals: Totals) -> None:
    lookups = totals.key_lookups
    page.counters(
        "llmgw_key_lookups_total",
        "API keys looked up by routers.",
        [({"result": result}, lookups.get(result, 0)) for result in LOOKUPS if lookups],
    )
    page.counters(
        "llmgw_usage_rows_dropped_total",
        "Usage rows that could be kept nowhere.",
        [({}, totals.usage_dropped if lookups else None)],
    )
    page.counters(
        "llmgw_request_log_dropped_total",
        "Lines of the request log that the disk did not take.",
        [({}, totals.log_lines_dropped if lookups else None)],
    )
    page.counters(
        "llmgw_spans_dropped_total",
        "Traced requests whose spans no collector took.",
        [({}, totals.spans_dropped if lookups else None)],
    )
    page.gauges("llmgw_usage_rows_waiting", "Usage rows that wait to be stored.", [({}, totals.usage_waiting)])
