"""What engines say of their own work, on the metrics page. What one does not say, or said too long ago, is left out."""

from llmgw.api.types import ClusterStatus
from llmgw.control.exposition import Page


def loads(page: Page, status: ClusterStatus) -> None:
    """Queues and KV caches of every engine that tells of them."""
    found = [({"node": r.node, "model": r.model, "replica": r.id}, r) for r in status.replicas]
    page.gauges("llmgw_replica_running", "Requests the engine works on.", [(lb, r.running) for lb, r in found])
    page.gauges("llmgw_replica_waiting", "Requests in the engine's own queue.", [(lb, r.waiting) for lb, r in found])
    page.gauges(
        "llmgw_replica_kv_used_ratio", "Share of its KV cache that is taken.", [(lb, r.kv_used) for lb, r in found]
    )
    page.counters(
        "llmgw_replica_load_failures_total",
        "Times the engine did not say how busy it is when its agent asked.",
        [(lb, r.load_failures) for lb, r in found],
    )
