"""The part of `/metrics` about requests that wait for a model, waited, or found no place to wait."""

from collections.abc import Mapping

from llmgw.control.exposition import Page
from llmgw.core.meters import DURATION_S, ModelMeters, Queue


def queues(page: Page, waiting: Mapping[str, Queue], models: Mapping[str, ModelMeters]) -> None:
    """Queues as they are now, and what became of those who waited."""
    page.gauges(
        "llmgw_queue_waiting",
        "Requests that wait for a model, by band.",
        [
            ({"model": name, "band": band}, count)
            for name, queue in waiting.items()
            for band, count in queue.waiting.items()
        ],
    )
    page.gauges(
        "llmgw_queue_oldest_seconds",
        "How long the first of them has waited.",
        [({"model": name}, queue.oldest_s) for name, queue in waiting.items()],
    )
    page.histograms(
        "llmgw_queue_wait_seconds",
        "How long requests waited that were let in after waiting.",
        DURATION_S,
        [({"model": name}, meters.waited) for name, meters in models.items() if meters.waited.counts],
    )
    page.counters(
        "llmgw_turned_away_total",
        "Requests not let in: no place to wait (full, bytes), lost to a higher band (displaced), or waited in vain.",
        [
            ({"model": name, "band": band, "reason": reason}, count)
            for name, meters in models.items()
            for what, count in meters.turned_away.items()
            for band, _, reason in (what.rpartition("/"),)
        ],
    )
