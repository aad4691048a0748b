"""Machines on the metrics page: what they are, and what they do as long as they are heard."""

from llmgw.api.types import ClusterStatus, NodeInfo
from llmgw.control.exposition import Labels, Page
from llmgw.control.gpu_metrics import heard
from llmgw.core.cluster import MachinePart

_FIGURES = (
    ("llmgw_node_cpu_utilization_percent", "CPU in use.", "cpu_percent"),
    ("llmgw_node_load1", "Load over a minute.", "load_1m"),
    ("llmgw_node_cpu_temperature_celsius", "Hottest CPU package.", "cpu_temperature_c"),
    ("llmgw_node_cpu_power_watts", "Power draw of all sockets.", "cpu_power_w"),
    ("llmgw_node_inlet_temperature_celsius", "Air that goes in.", "inlet_temperature_c"),
    ("llmgw_node_network_receive_bytes_per_second", "In through all network ports.", "network_in_bytes_per_s"),
    ("llmgw_node_network_transmit_bytes_per_second", "Out through all network ports.", "network_out_bytes_per_s"),
    ("llmgw_node_infiniband_receive_bytes_per_second", "In through all InfiniBand ports.", "infiniband_in_bytes_per_s"),
    (
        "llmgw_node_infiniband_transmit_bytes_per_second",
        "Out through all InfiniBand ports.",
        "infiniband_out_bytes_per_s",
    ),
)


def nodes(page: Page, status: ClusterStatus) -> None:
    """Every node; one that is silent or lost has facts and no figures."""
    every = [(_labels(node), node) for node in status.nodes]
    page.gauges(
        "llmgw_node_connected",
        "Whether the node's agent is connected.",
        [(labels, int(n.state in ("connected", "cordoned"))) for labels, n in every],
    )
    page.gauges(
        "llmgw_node_open",
        "Whether new replicas may be placed on the node.",
        [(labels, int(n.state == "connected")) for labels, n in every],
    )
    page.gauges("llmgw_node_memory_bytes", "Memory.", [(labels, n.memory_total_bytes or None) for labels, n in every])
    told = [(_labels(node), node) for node in heard(status.nodes)]
    page.gauges(
        "llmgw_node_memory_used_bytes",
        "Memory that is not available.",
        [
            (labels, n.memory_total_bytes - n.memory_available_bytes if n.memory_available_bytes else None)
            for labels, n in told
        ],
    )
    for name, doc, field in _FIGURES:
        page.gauges(name, doc, [(labels, getattr(node, field)) for labels, node in told])
    ports: list[tuple[Labels, MachinePart]] = [
        ({"node": node.name, "kind": part.kind, "port": part.name}, part)
        for node in status.nodes
        for part in node.parts
        if part.kind != "disk"
    ]
    page.gauges("llmgw_node_port_errors", "Damaged packets of a port.", [(lb, part.errors) for lb, part in ports])
    page.gauges("llmgw_node_port_link_downs", "Times its link went down.", [(lb, p.link_downs) for lb, p in ports])


def _labels(node: NodeInfo) -> Labels:
    return {"node": node.name}
