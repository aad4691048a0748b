"""Documents of nodes, their cards and engines. A figure that nobody reported is null and never zero."""

import msgspec

from llmgw.core.cluster import MachinePart
from llmgw.core.wear import CardWear


class CardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A card with its newest figures; absent figures are null."""

    uuid: str
    index: int
    name: str
    gpu_class: str
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilization_percent: float | None = None
    temperature_c: float | None = None
    power_w: float | None = None
    sm_active_percent: float | None = None
    """Share of the card's multiprocessors at work, where it can be read."""
    power_limit_w: float | None = None
    memory_temperature_c: float | None = None
    memory_utilization_percent: float | None = None
    """Share of time in which the card's memory was read or written."""
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    throttled: bool | None = None
    """Whether something holds it back; null where that is not reported."""
    throttle: tuple[str, ...] = ()
    """What keeps its clocks down, in words."""
    ecc_uncorrected: int | None = None
    """Memory errors that could not be corrected, since the driver was loaded."""
    sm_occupancy_percent: float | None = None
    tensor_active_percent: float | None = None
    dram_active_percent: float | None = None
    profile_source: str = ""
    """Where the profile comes from: `gpm`, `dcgm`, or nowhere."""
    wear: CardWear | None = None
    """Counts of what wears out; null where the card keeps none."""
    wear_problems: tuple[str, ...] = ()
    """What an operator should do something about, as sentences."""
    compute_capability: str = ""
    driver: str = ""
    bus_id: str = ""
    parent: str = ""
    """Of a MIG instance: its card's UUID."""
    mig_profile: str = ""
    unified: bool = False
    """Its memory is the node's own."""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    numa_node: int | None = None
    nvlink_peers: tuple[str, ...] | None = None
    """UUIDs of the cards it reaches over NVLink; null where that is not known."""
    healthy: bool = True
    problem: str = ""
    replica: str | None = None
    idle_s: float | None = None
    """Seconds for which it did nothing for the replica that holds it; null while it works, is free or does not tell."""


class EngineInfo(msgspec.Struct, frozen=True, kw_only=True):
    """An engine on a node."""

    engine: str
    version: str
    usable: bool
    why_not: str = ""
    installing: str = ""
    """The version that is to take its place, and how far it is."""


class NodeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A node as last heard."""

    name: str
    state: str
    """`connected`, `silent`, `lost` or `cordoned`."""
    address: str = ""
    agent_version: str = ""
    agent_pid: int = 0
    heartbeat_age_s: float | None = None
    cpus: int = 0
    cpu_model: str = ""
    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    memory_reserved_bytes: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    cards: tuple[CardInfo, ...] = ()
    engines: tuple[EngineInfo, ...] = ()
    problems: tuple[str, ...] = ()
    simulated: bool = False
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    inlet_temperature_c: float | None = None
    network_in_bytes_per_s: float | None = None
    """Of all network ports together, as the next one."""
    network_out_bytes_per_s: float | None = None
    infiniband_in_bytes_per_s: float | None = None
    """Of all InfiniBand ports together, as the next one."""
    infiniband_out_bytes_per_s: float | None = None
    numa_nodes: int = 0
    """NUMA nodes that have CPUs; 0 is not said."""
    cuda_toolkits: tuple[str, ...] = ()
    parts: tuple[MachinePart, ...] = ()
    """Disks, network ports, InfiniBand ports."""
