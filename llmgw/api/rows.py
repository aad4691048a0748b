"""The rows of the live feed, a type a topic: what stands under a key of it.

Fields are only ever added, and a field that is absent has its default. Rows hold moments (Unix seconds), never ages.
"""

from typing import Any

import msgspec

from llmgw.api.types import EngineInfo, ProgressInfo, RouterInfo, ServerInfo, ShardInfo
from llmgw.core.catalog import Model, ModelFacts
from llmgw.core.cluster import MachinePart
from llmgw.core.compute import Compute
from llmgw.core.limits import Budget, Limits, ScopeKind


class ClusterRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `cluster`, key `cluster`."""

    version: str
    cluster_id: str
    leader: str | None
    epoch: int
    servers: tuple[ServerInfo, ...] = ()
    routers: tuple[RouterInfo, ...] = ()
    """Without their counters, which are in `traffic`."""
    database: str = ""
    problems: tuple[str, ...] = ()
    """Sentences that belong to no model, node or card."""
    client_url: str = ""
    """Where clients reach the models, without a path: `http://gpu1:8080`."""


class ModelRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `models`, key its name."""

    name: str
    state: str
    ready: int
    wanted: int
    source: str
    message: str = ""
    spec: Model
    facts: ModelFacts | None = None
    context_length: int = 0
    max_output: int = 0
    cost_today_micros: int = 0
    """Spent on it since the UTC day began; its prices are in `spec`."""
    declared: bool = False
    created: float = 0.0
    changed: float = 0.0


class ReplicaRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `replicas`, key its id."""

    id: str
    model: str
    profile: str
    engine: str
    node: str
    state: str
    since: float
    """Unix seconds when the state began."""
    pid: int = 0
    endpoint: str = ""
    cards: tuple[str, ...] = ()
    shards: tuple[ShardInfo, ...] = ()
    """Its parts, the head first, where it spans several nodes; `node` is the head's then."""
    memory_bytes: int = 0
    host_bytes: int = 0
    """Reserved of the node's memory beside its cards."""
    context_length: int = 0
    slots: int = 0
    restarts: int = 0
    adopted: bool = False
    compute: Compute | None = None
    """Where its engine said that it computes, the head's where it spans several nodes; absent where it did not say."""
    in_flight: int = 0
    breaker: str = ""
    """`open` when a router sends it nothing, `half-open` when one lets a single request find out; else empty."""
    progress: ProgressInfo | None = None
    message: str = ""
    running: int | None = None
    """Requests its engine says it works on; absent where it does not say, as the next two."""
    waiting: int | None = None
    """Requests in its engine's own queue."""
    kv_used: float | None = None
    """Share of its engine's KV cache that is taken, 0 to 1."""


class CardRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A card of a node, without its figures."""

    uuid: str
    index: int
    name: str
    gpu_class: str
    memory_total_bytes: int | None = None
    healthy: bool = True
    problem: str = ""
    replica: str | None = None
    power_limit_w: float | None = None
    """What its driver lets it draw."""
    work_from: str = ""
    """What its column of `work_percent` is read from: `sm` (SMs active), `power` (against its limit), or nothing."""
    wear: tuple[str, ...] = ()
    """What an operator should do something about, as sentences."""
    parent: str = ""
    """Of a MIG instance: its card's UUID."""
    mig_profile: str = ""
    unified: bool = False
    """Its memory is the node's own."""
    compute_capability: str = ""
    pcie_generation: int | None = None
    pcie_width: int | None = None
    numa_node: int | None = None
    nvlink_peers: int | None = None
    """Cards it reaches over NVLink; absent where that is not known."""


class NodeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `nodes`, key its name: what seldom changes."""

    name: str
    state: str
    """`connected`, `silent`, `lost` or `cordoned`."""
    address: str = ""
    agent_version: str = ""
    agent_pid: int = 0
    cpus: int = 0
    cpu_model: str = ""
    memory_total_bytes: int = 0
    memory_reserved_bytes: int = 0
    disk_total_bytes: int = 0
    cards: tuple[CardRow, ...] = ()
    engines: tuple[EngineInfo, ...] = ()
    problems: tuple[str, ...] = ()
    simulated: bool = False
    driver: str = ""
    """Of its cards."""
    numa_nodes: int = 0
    cuda_toolkits: tuple[str, ...] = ()
    parts: tuple[MachinePart, ...] = ()
    """Disks, network ports, InfiniBand ports."""


class FiguresRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `figures`, key the node's name: what changes with every sample. Columns follow the node's `cards`.

    A column that is empty, or a null in it, is "not reported".
    """

    heard: float
    """Unix seconds when the agent last spoke, to the sample."""
    cpu_percent: float | None = None
    load_1m: float | None = None
    memory_available_bytes: int | None = None
    disk_free_bytes: int | None = None
    memory_used_bytes: tuple[int | None, ...] = ()
    utilization_percent: tuple[float | None, ...] = ()
    """Share of time any kernel ran ("busy")."""
    work_percent: tuple[float | None, ...] = ()
    """How much of the chip works: SMs active where read, else power against its limit."""
    temperature_c: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    memory_temperature_c: tuple[float | None, ...] = ()
    sm_clock_mhz: tuple[float | None, ...] = ()
    throttle_reasons: tuple[int, ...] = ()
    """Masks of `llmgw.core.throttle`, which has words for them; 0 in it is "not reported"."""
    sm_occupancy_percent: tuple[float | None, ...] = ()
    tensor_active_percent: tuple[float | None, ...] = ()
    dram_active_percent: tuple[float | None, ...] = ()
    cpu_temperature_c: float | None = None
    cpu_power_w: float | None = None
    inlet_temperature_c: float | None = None
    network_in_bytes_per_s: float | None = None
    """Of all network ports together, as the next one."""
    network_out_bytes_per_s: float | None = None
    infiniband_in_bytes_per_s: float | None = None
    """Of all InfiniBand ports together, as the next one."""
    infiniband_out_bytes_per_s: float | None = None
    resting_since: tuple[float | None, ...] = ()
    """Unix seconds from which a card did nothing; null while it works or does not tell."""
    engine_cpu_percent: dict[str, float] = {}
    """What engines and their children take, by replica, of one CPU."""
    engine_memory_bytes: dict[str, int] = {}


class TrafficRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `traffic`, key a model's name, or `*` for all: means over the last 10 s, first token over the last 60 s."""

    requests_per_s: float = 0.0
    errors_per_s: float = 0.0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    first_token_p50_ms: float | None = None
    first_token_p95_ms: float | None = None
    inter_token_p50_ms: float | None = None
    """Gaps between tokens of streamed answers over the last 60 s, those still running included."""
    inter_token_p95_ms: float | None = None
    inter_token_p99_ms: float | None = None
    open_requests: int = 0
    queued: int = 0
    """Requests that wait in routers to be let in, part of the open ones."""
    queued_oldest_s: float = 0.0
    """How long the first of them has waited."""
    fell_back: dict[str, int] = {}
    """Requests for it that other models answered in the last 60 s, by who answered."""
    answered_for: dict[str, int] = {}
    """Requests for other models that it answered in the last 60 s, by what was asked for."""


class WeightsRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `weights`, key the source: a set on the mirror."""

    source: str
    id: str
    state: str
    """`resolving`, `fetching`, `checking`, `ready` or `failed`."""
    done_bytes: int = 0
    total_bytes: int = 0
    files: int = 0
    message: str = ""
    models: tuple[str, ...] = ()
    """Models that need it; none is an orphan."""
    revision: str = ""
    """What the source was pinned to (a commit, a version), once that is known."""
    phase: str = ""
    """`checking` while a ready set is read back on demand; it is served meanwhile."""
    checked_bytes: int = 0
    verdict: str = ""
    """What the last check on demand found, as a sentence."""
    intact: bool | None = None
    """Whether it found every file as it should be; none before a check is over."""
    in_place: bool = False
    """Whether it is served from where an operator put it, so that the mirror holds nothing of it."""
    fetched: float | None = None
    used: float | None = None
    """Unix seconds when it became whole, and when a node last copied from it."""


class KeyRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `keys`, key its id."""

    id: str
    name: str
    models: tuple[str, ...] | None = None
    created: float
    revoked: float | None = None
    last_used: float | None = None
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    team: str | None = None
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent_day_micros: int = 0
    spent_month_micros: int = 0
    cost_micros: int = 0
    """Spent ever."""
    band: str | None = None
    """Band its requests wait in; none is its team's."""


class ScopeRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `scopes`, key `team:NAME` or `tenant:NAME` (`scope_key`)."""

    kind: ScopeKind
    """`team` or `tenant`."""
    name: str
    tenant: str | None = None
    """Of a team: the tenant above it."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent_day_micros: int = 0
    spent_month_micros: int = 0
    cost_micros: int = 0
    keys: int = 0
    """Keys beneath it that are not revoked."""
    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    created: float
    band: str | None = None
    """Of a team: the band of its keys that name none; none is the default one."""


def scope_key(kind: ScopeKind, name: str) -> str:
    """Key of a team's or tenant's row."""
    return f"{kind.value}:{name}"


class AuditRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `audit`, key its number as text; the newest 200."""

    id: int
    at: float
    actor: str
    action: str
    target: str
    before: Any = None
    """JSON value before the change; null where there was nothing."""
    after: Any = None
    """JSON value after the change; null where nothing is left."""


Row = ClusterRow | ModelRow | ReplicaRow | NodeRow | FiguresRow | TrafficRow | WeightsRow | KeyRow | ScopeRow | AuditRow

ROW_TYPES: dict[str, type[msgspec.Struct]] = {
    "cluster": ClusterRow,
    "models": ModelRow,
    "replicas": ReplicaRow,
    "nodes": NodeRow,
    "figures": FiguresRow,
    "traffic": TrafficRow,
    "weights": WeightsRow,
    "keys": KeyRow,
    "scopes": ScopeRow,
    "audit": AuditRow,
}
