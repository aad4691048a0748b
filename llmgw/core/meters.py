"""What routers measure, as it travels: counts since a router's start, by model, that only ever grow.

Because they only grow, a report may be lost or come twice without harm: the next one holds everything. Sums over
routers are plain additions, and what is between two reports is their difference.
"""

from collections.abc import Mapping

import msgspec

FIRST_TOKEN_S = (
    *(0.005, 0.01, 0.02, 0.035, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75),
    *(1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0, 15.0, 20.0, 30.0, 60.0),
)
"""Upper ends, in seconds, of the classes of first tokens: from a cached prompt on a small model to a long prefill."""
INTER_TOKEN_S = (
    *(0.001, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.0125, 0.015, 0.02, 0.025, 0.03, 0.04, 0.05),
    *(0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0, 10.0),
)
"""Upper ends, in seconds, of the classes of gaps between tokens: finest where readers tell fast from slow."""
DURATION_S = (
    *(0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0),
    *(15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0),
)
"""Upper ends, in seconds, of the classes of whole requests: from an embedding to the default total timeout."""

OUTCOMES = ("ok", "client_error", "refused", "engine_error", "unavailable", "client_left")
"""How a request ends. `refused`: by a limit or budget. `unavailable`: no engine was reached and the client is not to
blame (no ready replica, keys that cannot be checked, a router's drain that ran out of time)."""
LOOKUPS = ("hit", "miss", "unknown", "throttled", "unavailable")
"""How a look-up of an API key ends. `miss`: valid, and somebody had to be asked; `throttled`: too many guesses."""
ONLY, STICKY, PREFIX, LOAD = CHOICES = ("only", "sticky", "prefix", "load")
"""By what a replica is chosen: there is one only, it is the session's, it read the prompt before, it waits least."""
TURNED_AWAY = ("full", "bytes", "displaced", "timeout")
"""Why a request was not let in: no place to wait, none for its body, its place was given to a higher band, or it waited
as long as it may."""
NO_MODEL = ""
"""Requests that got as far as no model of the catalog are counted under this name."""
MAX_MODELS = 1024
"""Models measured apart, by a router and by all together; further ones are counted under NO_MODEL."""


class Histogram(msgspec.Struct, frozen=True, kw_only=True):
    """How many fell into each class. No counts at all is the same as zeros."""

    counts: tuple[int, ...] = ()
    """One a class, each without those below it, and a last one for what is beyond the highest bound."""
    sum: float = 0.0


class Queue(msgspec.Struct, frozen=True, kw_only=True):
    """Who waits for a model at the moment."""

    waiting: dict[str, int] = {}
    """Requests by band."""
    oldest_s: float = 0.0
    """How long the first of them has waited."""


class ModelMeters(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One model's counts."""

    requests: dict[str, int] = {}
    """By outcome (OUTCOMES)."""
    limits_hit: dict[str, int] = {}
    """Requests refused, by `scope/limit`: `key`, `team` or `tenant`, and `rpm`, `tpm`, `parallel` or `budget`."""
    input_tokens: int = 0
    cached_tokens: int = 0
    """Part of `input_tokens`."""
    output_tokens: int = 0
    retries: int = 0
    """Tries after a request's first."""
    breaker_openings: int = 0
    fallbacks: dict[str, int] = {}
    """Requests for it that another model answered, by that one's name."""
    chosen: dict[str, int] = {}
    """Choices of a replica, by CHOICES."""
    first_token: Histogram = Histogram()
    """Classes FIRST_TOKEN_S, from the request's body having arrived to its first token."""
    inter_token: Histogram = Histogram()
    """Classes INTER_TOKEN_S, between reads from the engine that brought tokens of one streamed answer."""
    duration: Histogram = Histogram()
    """Classes DURATION_S, from the request's body having arrived to its end; requests for which an engine was tried."""
    waited: Histogram = Histogram()
    """Classes DURATION_S, what requests waited that were let in after waiting; the others are not among them."""
    turned_away: dict[str, int] = {}
    """Requests not let in, by `band/reason`; reasons are TURNED_AWAY."""


class MeterReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A router's counts; of the models only those that changed since the last report on the same connection."""

    id: str
    """One life of one router: another start has another, whatever its pid."""
    models: dict[str, ModelMeters] = {}
    key_lookups: dict[str, int] = {}
    """By result (LOOKUPS)."""
    usage_dropped: int = 0
    """Usage rows that could be kept nowhere."""
    usage_waiting: int = 0
    """Usage rows that wait to be stored, in memory and on disk, at the moment."""
    log_lines_dropped: int = 0
    """Lines of the request log that the disk did not take."""
    spans_dropped: int = 0
    """Traced requests whose spans no collector took."""
    queues: dict[str, Queue] = {}
    """By model, as of now: every one that somebody waits for."""


def added(one: ModelMeters, other: ModelMeters) -> ModelMeters:
    """Both together."""
    return ModelMeters(
        requests=added_counts(one.requests, other.requests),
        limits_hit=added_counts(one.limits_hit, other.limits_hit),
        input_tokens=one.input_tokens + other.input_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        retries=one.retries + other.retries,
        breaker_openings=one.breaker_openings + other.breaker_openings,
        fallbacks=added_counts(one.fallbacks, other.fallbacks),
        chosen=added_counts(one.chosen, other.chosen),
        first_token=added_histograms(one.first_token, other.first_token),
        inter_token=added_histograms(one.inter_token, other.inter_token),
        duration=added_histograms(one.duration, other.duration),
        waited=added_histograms(one.waited, other.waited),
        turned_away=added_counts(one.turned_away, other.turned_away),
    )


def added_counts(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    """Both together, key by key."""
    total = dict(one)
    for key, count in other.items():
        total[key] = total.get(key, 0) + count
    return total


def added_queues(one: Mapping[str, Queue], other: Mapping[str, Queue]) -> dict[str, Queue]:
    """Both routers' queues together, model by model."""
    total = dict(one)
    for model, queue in other.items():
        known = total.get(model)
        total[model] = (
            queue
            if known is None
            else Queue(waiting=added_counts(known.waiting, queue.waiting), oldest_s=max(known.oldest_s, queue.oldest_s))
        )
    return total


def added_histograms(one: Histogram, other: Histogram) -> Histogram:
    """Both together; they must have the same classes, unless one is empty."""
    if not one.counts or not other.counts:
        return one if one.counts else other
    counts = tuple(a + b for a, b in zip(one.counts, other.counts, strict=True))
    return Histogram(counts=counts, sum=one.sum + other.sum)


def comparable(meters: ModelMeters) -> ModelMeters:
    """`meters` without histograms of other classes than ours, which a router of another version may have."""
    return msgspec.structs.replace(
        meters,
        first_token=_of_classes(meters.first_token, FIRST_TOKEN_S),
        inter_token=_of_classes(meters.inter_token, INTER_TOKEN_S),
        duration=_of_classes(meters.duration, DURATION_S),
        waited=_of_classes(meters.waited, DURATION_S),
    )


def _of_classes(histogram: Histogram, bounds: tuple[float, ...]) -> Histogram:
    return histogram if len(histogram.counts) == len(bounds) + 1 else Histogram()
