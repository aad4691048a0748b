"""Models of cards, with the figures their vendor states. Every name says that the card is simulated."""

from dataclasses import dataclass

MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class CardModel:
    """A kind of card."""

    name: str
    gpu_class: str
    memory_bytes: int
    """As a driver reports it."""
    compute_capability: str
    bandwidth_gb_s: float
    """Of its memory: what bounds tokens a second of one stream."""
    power_limit_w: float
    idle_w: float
    reads_sm_active: bool = True
    """Data-centre cards tell how many multiprocessors work; desktop cards do not."""
    reads_memory_temperature: bool = True
    clock_mhz: float = 1980.0
    memory_clock_mhz: float = 2619.0
    pcie_generation: int = 5
    nvlink: bool = False
    """Whether all cards of a node are joined by a switch."""

    @property
    def profile_source(self) -> str:
        """Hopper and later tell it through the driver, older data-centre cards through an exporter."""
        return "" if not self.reads_sm_active else "gpm" if float(self.compute_capability) >= 9 else "dcgm"


H100 = CardModel(
    name="NVIDIA H100 80GB HBM3 (simulated)",
    gpu_class="h100-80g",
    memory_bytes=81_559 * MIB,
    compute_capability="9.0",
    bandwidth_gb_s=3350.0,
    power_limit_w=700.0,
    idle_w=72.0,
    nvlink=True,
)
A100 = CardModel(
    name="NVIDIA A100-SXM4-80GB (simulated)",
    gpu_class="a100-80g",
    memory_bytes=81_920 * MIB,
    compute_capability="8.0",
    bandwidth_gb_s=2039.0,
    power_limit_w=400.0,
    idle_w=58.0,
    clock_mhz=1410.0,
    memory_clock_mhz=1593.0,
    pcie_generation=4,
    nvlink=True,
)
L40S = CardModel(
    name="NVIDIA L40S (simulated)",
    gpu_class="l40s-48g",
    memory_bytes=46_068 * MIB,
    compute_capability="8.9",
    bandwidth_gb_s=864.0,
    power_limit_w=350.0,
    idle_w=34.0,
    clock_mhz=2520.0,
    memory_clock_mhz=9001.0,
    pcie_generation=4,
    reads_memory_temperature=False,
)
RTX_4090 = CardModel(
    name="NVIDIA GeForce RTX 4090 (simulated)",
    gpu_class="4090-24g",
    memory_bytes=24_564 * MIB,
    compute_capability="8.9",
    bandwidth_gb_s=1008.0,
    power_limit_w=450.0,
    idle_w=21.0,
    clock_mhz=2745.0,
    memory_clock_mhz=10501.0,
    pcie_generation=4,
    reads_sm_active=False,
    reads_memory_temperature=False,
)

MIX = (H100, A100, L40S, H100, RTX_4090, H100, A100, H100, L40S, H100, A100, RTX_4090)
"""Kinds of the fleet's nodes, over and over: even three nodes differ."""
