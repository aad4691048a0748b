"""The cluster's vocabulary: what is there and what runs, as the leader last heard it from the agents."""

from enum import StrEnum

import msgspec

from llmgw.core.compute import Compute

GIB = 1024**3
HEARTBEAT_S = 5.0
"""An agent speaks at least this often."""
MAX_NODE_CARDS = 128
"""Cards and MIG instances of one node: 16 cards of 7 instances each, and themselves."""
SILENT_AFTER_S = 15.0
"""Without a word for this long a node is silent: nothing new is placed there, its replicas are left alone."""
LOST_AFTER_S = 60.0
"""Without a word for this long a node is lost: its replicas are counted as gone and started elsewhere."""


class ShardState(StrEnum):
    """Life of a shard (and of its replica), in order; `failed` may follow any but `stopped`."""

    PENDING = "pending"
    FETCHING = "fetching"
    CHECKING = "checking"
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    FAILED = "failed"


LIVE_STATES = frozenset(ShardState) - {ShardState.STOPPED, ShardState.FAILED}
"""States in which a shard holds its cards and memory."""


class NodeLink(StrEnum):
    """How a node's agent was last heard."""

    CONNECTED = "connected"
    SILENT = "silent"
    LOST = "lost"


class Card(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU or MIG instance."""

    uuid: str
    index: int
    name: str
    gpu_class: str
    memory_total_bytes: int | None = None
    """None where the card does not say (a MIG parent): such a card is not placeable."""
    memory_used_bytes: int | None = None
    compute_capability: str = ""
    driver: str = ""
    healthy: bool = True
    problem: str = ""
    """Why it is not healthy, or takes no work, as a sentence."""
    bus_id: str = ""
    """PCI address as the kernel writes it (`0000:19:00.0`); empty where the card has none."""
    parent: str = ""
    """UUID of the card that a MIG instance is part of; empty for a whole card."""
    mig_profile: str = ""
    """Of a MIG instance, as the driver names it (`3g.40gb`). A name: the number in it is not the size."""
    unified: bool = False
    """Its memory is the node's own, and what one holds the other lacks."""
    pcie_generation: int | None = None
    """The fastest that card and slot can do together; an idle card runs slower to save power."""
    pcie_width: int | None = None
    """Lanes that card and slot have together."""
    numa_node: int | None = None
    """The node of memory and CPUs it hangs on."""
    nvlink_peers: tuple[str, ...] | None = None
    """UUIDs of the cards it reaches over NVLink; none is "not read", which an empty tuple is not."""


class MachinePart(msgspec.Struct, frozen=True, kw_only=True):
    """A disk, a network port or an InfiniBand port of a node, for whoever looks at the node."""

    kind: str
    """`disk`, `network` or `infiniband`."""
    name: str
    state: str = ""
    """`up`, `down`, `active`, as the kernel says; empty for a disk."""
    size_bytes: int = 0
    """Of a disk; 0 is not said."""
    rate_bps: int = 0
    """Of a port, bits a second; 0 is not said."""
    errors: int | None = None
    """Of a port: packets that came or went damaged since its counters began."""
    link_downs: int | None = None
    """Of a port: times its link went down since then."""


RUNTIME = "ray"
"""What a node lists beside its engines when they can span several nodes from it."""


class EngineBuild(msgspec.Struct, frozen=True, kw_only=True):
    """An engine a node can start."""

    engine: str
    version: str
    usable: bool = True
    why_not: str = ""
    """What is missing, when it is not usable."""
    installing: str = ""
    """The version that is to take its place, and how far it is."""


class Node(msgspec.Struct, frozen=True, kw_only=True):
    """A machine as its agent described it."""

    name: str
    link: NodeLink = NodeLink.CONNECTED
    heard_at: float = 0.0
    """Monotonic seconds of the leader when the agent last spoke."""
    cordoned: bool = False
    address: str = ""
    """Host under which routers reach its engines."""
    agent_version: str = ""
    agent_pid: int = 0
    boot_id: str = ""
    cpus: int = 0
    cpu_model: str = ""
    memory_total_bytes: int = 0
    memory_available_bytes: int = 0
    disk_total_bytes: int = 0
    disk_free_bytes: int = 0
    cpu_percent: float | None = None
    load_1m: float | None = None
    cards: tuple[Card, ...] = ()
    engines: tuple[EngineBuild, ...] = ()
    simulated: bool = False
    numa_nodes: int = 0
    """NUMA nodes that have CPUs; 0 is not said."""
    cuda_toolkits: tuple[str, ...] = ()
    """Versions of the CUDA toolkits found, one of each major version (`12.8`)."""
    parts: tuple[MachinePart, ...] = ()
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    """Of all sockets together."""
    inlet_temperature_c: float | None = None
    """Of the air that goes in."""
    network_in_bytes_per_s: float | None = None
    """Of all network ports together, as the next one."""
    network_out_bytes_per_s: float | None = None
    infiniband_in_bytes_per_s: float | None = None
    """Of all InfiniBand ports together, as the next one."""
    infiniband_out_bytes_per_s: float | None = None


class FetchProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a download is; not a state transition."""

    phase: str = ""
    """`fetching` (mirror to node), `mirror` (the mirror itself still downloads) or `checking`."""
    done_bytes: int = 0
    total_bytes: int = 0
    """0 is unknown, and then there is no percent."""
    at: float = 0.0


class Shard(msgspec.Struct, frozen=True, kw_only=True):
    """One node's part of a replica that spans several nodes. The first of them is the head, which answers for all."""

    node: str
    address: str = ""
    """Host at which the other shards reach it."""
    cards: tuple[str, ...] = ()
    state: ShardState = ShardState.PENDING
    heard: bool = True
    """Whether its node has spoken of it, or was ordered to run it, since this leader leads."""
    prepared: bool = False
    """Its weights are there, and it waits to be told that the others' are too."""
    runtime_port: int = 0
    """Of a head: where the engine's distributed runtime takes in the other shards, once it does."""
    pid: int = 0
    message: str = ""
    restarts: int = 0
    adopted: bool = False
    progress: FetchProgress | None = None
    compute: Compute | None = None
    """Where its engine said that it computes; none where it did not say."""


class Replica(msgspec.Struct, frozen=True, kw_only=True):
    """One running (or starting, or ended) copy of a model, on one node or as shards on several."""

    id: str
    model: str
    profile: str
    engine: str
    node: str
    """The node that answers for it: its only one, or its head's."""
    spec_hash: str
    """Hash of all that would need a restart to change; differs from the wanted one after an edit."""
    state: ShardState = ShardState.PENDING
    cards: tuple[str, ...] = ()
    """UUIDs of the cards it holds, on all of its nodes."""
    shards: tuple[Shard, ...] = ()
    """Its parts, the head first, where it spans several nodes; none where it runs on one."""
    memory_bytes: int = 0
    """What was reserved for it on each card, or on the node for a CPU profile."""
    host_bytes: int = 0
    """What was reserved of the node's memory beside its cards."""
    endpoint: str = ""
    """`http://host:port` once starting, with a path where replicas share a listener."""
    pid: int = 0
    message: str = ""
    """Last word on it: why it failed, what it waits for."""
    context_length: int = 0
    slots: int = 0
    since: float = 0.0
    """Monotonic seconds of the leader when the state began."""
    started_at: float = 0.0
    """Monotonic seconds of the leader when it was ordered, or first heard of."""
    restarts: int = 0
    adopted: bool = False
    progress: FetchProgress | None = None
    prepared: bool = False
    """Of what a node told of its shard, not of a whole replica: see `Shard`."""
    runtime_port: int = 0
    """Of what a node told of its shard, not of a whole replica: see `Shard`."""
    compute: Compute | None = None
    """Where its engine said that it computes, the head's where it spans several nodes; none where it did not say."""

    @property
    def live(self) -> bool:
        """Whether it holds its cards and memory."""
        return self.state in LIVE_STATES

    @property
    def nodes(self) -> tuple[str, ...]:
        """Every node it has a part on, the head's first."""
        return tuple(shard.node for shard in self.shards) or (self.node,)

    @property
    def holding(self) -> tuple[str, ...]:
        """Nodes on which it holds cards and memory: of a failed one those whose shards have not ended yet."""
        if not self.shards:
            return (self.node,) if self.live else ()
        return tuple(shard.node for shard in self.shards if shard.state in LIVE_STATES)
