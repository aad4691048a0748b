"""`/metrics` in Prometheus text: what the control plane knows, absent figures left out and never zero."""

from collections.abc import Iterable

from llmgw.api.types import ClusterStatus

_STATES = ("pending", "fetching", "checking", "starting", "ready", "draining", "failed")


class _Page:
    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, doc: str, samples: Iterable[tuple[dict[str, str], float | None]]) -> None:
        lines = [f"{name}{_labels(labels)} {value:.17g}" for labels, value in samples if value is not None]
        if lines:
            self._lines += [f"# HELP {name} {doc}", f"# TYPE {name} {kind}", *lines]

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"


def render(status: ClusterStatus) -> str:
    """The page for one status."""
    page = _Page()
    page.family("llmgw_info", "gauge", "Version of this server.", [({"version": status.version}, 1)])
    leads = any(s.leader for s in status.servers)
    page.family("llmgw_leader", "gauge", "Whether this server leads.", [({}, int(leads))])
    page.family(
        "llmgw_router_requests_total",
        "counter",
        "Requests a router answered since it started.",
        [({"pid": str(r.pid)}, r.requests) for r in status.routers],
    )
    page.family(
        "llmgw_router_open_requests",
        "gauge",
        "Requests being answered.",
        [({"pid": str(r.pid)}, r.open_requests) for r in status.routers],
    )
    page.family(
        "llmgw_model_replicas",
        "gauge",
        "Replicas of a model by state.",
        [
            (
                {"model": m.name, "state": state},
                sum(1 for r in status.replicas if (r.model, r.state) == (m.name, state)),
            )
            for m in status.models
            for state in _STATES
        ],
    )
    page.family(
        "llmgw_model_replicas_wanted",
        "gauge",
        "Replicas wanted.",
        [({"model": m.name}, m.wanted) for m in status.models],
    )
    _nodes(page, status)
    _cards(page, status)
    return page.text()


def _nodes(page: _Page, status: ClusterStatus) -> None:
    nodes = [({"node": n.name}, n) for n in status.nodes]
    page.family(
        "llmgw_node_connected",
        "gauge",
        "Whether the node's agent is connected.",
        [(labels, int(n.state in ("connected", "cordoned"))) for labels, n in nodes],
    )
    page.family(
        "llmgw_node_cpu_utilization_percent", "gauge", "CPU in use.", [(labels, n.cpu_percent) for labels, n in nodes]
    )
    page.family("llmgw_node_load1", "gauge", "Load over a minute.", [(labels, n.load_1m) for labels, n in nodes])
    page.family(
        "llmgw_node_memory_bytes", "gauge", "Memory.", [(labels, n.memory_total_bytes or None) for labels, n in nodes]
    )
    page.family(
        "llmgw_node_memory_used_bytes",
        "gauge",
        "Memory that is not available.",
        [
            (labels, n.memory_total_bytes - n.memory_available_bytes if n.memory_available_bytes else None)
            for labels, n in nodes
        ],
    )


def _cards(page: _Page, status: ClusterStatus) -> None:
    cards = [({"node": n.name, "gpu": str(c.index), "class": c.gpu_class}, c) for n in status.nodes for c in n.cards]
    figures = (
        ("llmgw_gpu_memory_total_bytes", "Memory of the card.", "memory_total_bytes"),
        ("llmgw_gpu_memory_used_bytes", "Memory of the card in use.", "memory_used_bytes"),
        ("llmgw_gpu_utilization_percent", "Share of time any kernel ran.", "utilization_percent"),
        ("llmgw_gpu_temperature_celsius", "Temperature of the card.", "temperature_c"),
        ("llmgw_gpu_power_watts", "Power draw of the card.", "power_w"),
    )
    for name, doc, field in figures:
        page.family(name, "gauge", doc, [(labels, getattr(card, field)) for labels, card in cards])
    page.family("llmgw_gpu_healthy", "gauge", "Whether the card is healthy.", [(lb, int(c.healthy)) for lb, c in cards])


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{key}="{_escape(value)}"' for key, value in labels.items()) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
