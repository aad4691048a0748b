"""Cards, what hangs on them and what engines take, on the metrics page. A figure that is not reported is left out."""

from collections.abc import Callable, Iterable, Sequence

from llmgw.api.card_uses import UNHEARD
from llmgw.api.types import CardInfo, ClusterStatus, NodeInfo
from llmgw.control.exposition import Labels, Page
from llmgw.core.wear import CardWear

Cards = Sequence[tuple[Labels, CardInfo]]

_FIGURES = (
    ("llmgw_gpu_memory_used_bytes", "Memory of the card in use.", "memory_used_bytes"),
    ("llmgw_gpu_utilization_percent", "Share of time any kernel ran.", "utilization_percent"),
    ("llmgw_gpu_memory_utilization_percent", "Share of time memory was accessed.", "memory_utilization_percent"),
    ("llmgw_gpu_sm_active_percent", "Multiprocessors at work.", "sm_active_percent"),
    ("llmgw_gpu_sm_occupancy_percent", "Warps in flight against what there is room for.", "sm_occupancy_percent"),
    ("llmgw_gpu_tensor_active_percent", "Tensor cores at work.", "tensor_active_percent"),
    ("llmgw_gpu_dram_active_percent", "Memory traffic against the most there could be.", "dram_active_percent"),
    ("llmgw_gpu_temperature_celsius", "Temperature of the card.", "temperature_c"),
    ("llmgw_gpu_memory_temperature_celsius", "Temperature of the card's memory.", "memory_temperature_c"),
    ("llmgw_gpu_power_watts", "Power draw of the card.", "power_w"),
    ("llmgw_gpu_power_limit_watts", "What the driver lets the card draw.", "power_limit_w"),
    ("llmgw_gpu_sm_clock_mhz", "Clock of the multiprocessors.", "sm_clock_mhz"),
    ("llmgw_gpu_ecc_uncorrected", "Uncorrectable memory errors since the driver was loaded.", "ecc_uncorrected"),
)
_WEAR: tuple[tuple[str, str, Callable[[CardWear], float | bool | None]], ...] = (
    ("llmgw_gpu_pcie_replays", "PCIe packets sent again since the driver was loaded.", lambda w: w.pcie_replays),
    ("llmgw_gpu_retired_pages", "Memory pages retired, ever.", lambda w: w.retired_pages),
    ("llmgw_gpu_remapped_rows", "Memory rows replaced by spares, ever.", lambda w: w.remapped_rows),
    ("llmgw_gpu_remap_failed", "Whether the spare rows are used up.", lambda w: w.remap_failed),
    ("llmgw_gpu_nvlink_replays", "NVLink packets sent again.", lambda w: w.nvlink_replay_errors),
    ("llmgw_gpu_nvlink_recoveries", "NVLinks trained anew.", lambda w: w.nvlink_recovery_errors),
    ("llmgw_gpu_xid_errors", "Errors the driver logged.", lambda w: w.xid_count),
    ("llmgw_gpu_xid_last", "NVIDIA's number of the last error.", lambda w: w.xid_last),
)


def cards(page: Page, status: ClusterStatus) -> None:
    """Figures, wear and use of every card and MIG instance."""
    found, told = _cards(status.nodes), _cards(heard(status.nodes))
    page.gauges("llmgw_gpu_memory_total_bytes", "Memory of the card.", [(lb, c.memory_total_bytes) for lb, c in found])
    for name, doc, field in _FIGURES:
        page.gauges(name, doc, [(labels, getattr(card, field)) for labels, card in told])
    page.gauges("llmgw_gpu_healthy", "Whether the card is healthy.", [(lb, int(c.healthy)) for lb, c in found])
    page.gauges(
        "llmgw_gpu_throttled",
        "Whether heat or power holds the card back.",
        [(labels, _flag(card.throttled)) for labels, card in told],
    )
    page.gauges(
        "llmgw_gpu_nvlink_peers",
        "Cards it reaches over NVLink.",
        [(labels, None if card.nvlink_peers is None else len(card.nvlink_peers)) for labels, card in found],
    )
    for name, doc, read in _WEAR:
        page.gauges(name, doc, [(labels, _flag(read(card.wear)) if card.wear else None) for labels, card in found])
    page.gauges(
        "llmgw_gpu_wear_problems",
        "What is worn so far that somebody should act.",
        [(labels, len(card.wear_problems) if card.wear else None) for labels, card in found],
    )
    models = {replica.id: replica.model for replica in status.replicas}
    page.gauges(
        "llmgw_gpu_assigned",
        "1 for the replica that holds the card.",
        [
            ({**labels, "model": models.get(card.replica, ""), "replica": card.replica}, 1)
            for labels, card in found
            if card.replica is not None
        ],
    )


def heard(nodes: Iterable[NodeInfo]) -> list[NodeInfo]:
    """Nodes whose figures are of now; the others' facts stay on the page, and their last figures do not."""
    return [node for node in nodes if node.state not in UNHEARD]


def _cards(nodes: Iterable[NodeInfo]) -> Cards:
    return [({"node": n.name, "gpu": str(c.index), "class": c.gpu_class}, c) for n in nodes for c in n.cards]


def engines(page: Page, status: ClusterStatus) -> None:
    """What engines and their children take of their nodes."""
    told = {node.name for node in heard(status.nodes)}
    found: list[tuple[Labels, float | None, int | None]] = [
        ({"node": r.node, "model": r.model, "replica": r.id}, r.cpu_percent, r.resident_bytes)
        for r in status.replicas
        if r.node in told
    ]
    page.gauges("llmgw_replica_cpu_percent", "CPU of the engine, of one CPU.", [(lb, cpu) for lb, cpu, _ in found])
    page.gauges("llmgw_replica_memory_bytes", "Memory the engine holds.", [(lb, memory) for lb, _, memory in found])


def _flag(value: float | bool | None) -> float | None:
    return None if value is None else float(value)
