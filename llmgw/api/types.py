"""The admin API's documents. `--json` prints them, the OpenAPI document is generated from them, clients decode them.

Fields are only ever added. Bytes are plain integers, durations seconds, times RFC 3339 in UTC.
"""

from datetime import datetime
from typing import Any

import msgspec

from llmgw.api.band_types import BandChange as BandChange
from llmgw.api.band_types import BandChoice as BandChoice
from llmgw.api.band_types import BandInfo as BandInfo
from llmgw.api.engine_types import BuildInfo as BuildInfo
from llmgw.api.engine_types import BuildRequest as BuildRequest
from llmgw.api.engine_types import EngineVerdict as EngineVerdict
from llmgw.api.key_types import BudgetChange as BudgetChange
from llmgw.api.key_types import KeyCreate as KeyCreate
from llmgw.api.key_types import KeyCreated as KeyCreated
from llmgw.api.key_types import KeyInfo as KeyInfo
from llmgw.api.key_types import KeyMove as KeyMove
from llmgw.api.key_types import LimitsChange as LimitsChange
from llmgw.api.key_types import ScopeInfo as ScopeInfo
from llmgw.api.key_types import TeamCreate as TeamCreate
from llmgw.api.key_types import TeamMove as TeamMove
from llmgw.api.key_types import TenantCreate as TenantCreate
from llmgw.api.key_types import UsageInfo as UsageInfo
from llmgw.api.node_types import CardInfo as CardInfo
from llmgw.api.node_types import EngineInfo as EngineInfo
from llmgw.api.node_types import NodeInfo as NodeInfo
from llmgw.api.shard_types import ShardInfo as ShardInfo
from llmgw.api.weights_types import OrphanInfo as OrphanInfo
from llmgw.api.weights_types import OrphansRemove as OrphansRemove
from llmgw.api.weights_types import WeightsFetch as WeightsFetch
from llmgw.api.weights_types import WeightsInfo as WeightsInfo
from llmgw.api.weights_types import WeightsOrphans as WeightsOrphans
from llmgw.api.weights_types import WeightsVerify as WeightsVerify
from llmgw.core.catalog import Model, ModelFacts, Profile, Scaling
from llmgw.core.compute import Compute
from llmgw.core.verdicts import CardVerdict as CardVerdict
from llmgw.core.verdicts import NodeVerdict as NodeVerdict
from llmgw.core.verdicts import Suggestion as Suggestion


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """Body of every refusal (`application/problem+json`)."""

    code: str
    message: str
    status: int
    field: str | None = None
    """Where the request is wrong (`scaling.min`), when it is."""


class RouterInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A router process of this machine."""

    pid: int
    port: int
    requests: int = 0
    open_requests: int = 0
    version: str = ""
    connected: bool = True


class ServerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A control plane."""

    id: str
    pid: int
    host: str
    leader: bool
    version: str
    epoch: int = 0


class ProgressInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A download on its way."""

    phase: str
    done_bytes: int
    total_bytes: int


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A replica and where it stands."""

    id: str
    model: str
    profile: str
    engine: str
    node: str
    state: str
    since_s: float
    """Seconds it has been in this state."""
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
    cpu_percent: float | None = None
    """What its engine and its children take, of one CPU."""
    resident_bytes: int | None = None
    """Memory of the node they hold, files they map included."""
    running: int | None = None
    """Requests its engine says it works on, whoever sent them; absent where it does not say, as the next two."""
    waiting: int | None = None
    """Requests in its engine's own queue."""
    kv_used: float | None = None
    """Share of its engine's KV cache that is taken, 0 to 1."""
    load_failures: int | None = None
    """Times its engine did not say so when it was asked, since it runs; absent where nobody asks."""


class ModelInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A catalog entry with what became of it."""

    name: str
    state: str
    """`ready`, `partial`, `starting`, `fetching`, `pending`, `failed` or `stopped`; `external` in `spec` is `ready` as
    soon as it is routed."""
    ready: int
    """Replicas that are; endpoints, for a model served outside the cluster."""
    wanted: int
    source: str
    """Where its weights come from, or the address of its endpoints outside the cluster."""
    message: str = ""
    """The one sentence that matters when it is not ready."""
    spec: Model
    facts: ModelFacts | None = None
    context_length: int = 0
    """Tokens a request may span as served."""
    max_output: int = 0
    cost_today_micros: int = 0
    """Spent on it since the UTC day began, at the prices of `spec`."""
    declared: bool = False
    """Declared in the settings; model commands cannot change it."""
    created: datetime | None = None
    changed: datetime | None = None


class ClusterStatus(msgspec.Struct, frozen=True, kw_only=True):
    """`ctl status`."""

    version: str
    cluster_id: str
    leader: str | None
    epoch: int
    servers: tuple[ServerInfo, ...]
    routers: tuple[RouterInfo, ...]
    nodes: tuple[NodeInfo, ...]
    models: tuple[ModelInfo, ...]
    replicas: tuple[ReplicaInfo, ...]
    database: str = ""
    """`embedded pid N`, or the operator's host; never a password."""
    problems: tuple[str, ...] = ()
    """What needs attention, worst first."""
    client_url: str = ""
    """Where clients reach the models, without a path: `http://gpu1:8080`."""


class ServeRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """`ctl model serve`: a source, and what is not left to the defaults.

    Defaults are not sent: an older server knows fewer fields.
    """

    source: str
    name: str | None = None
    aliases: tuple[str, ...] = ()
    context_length: int | None = None
    max_output: int | None = None
    slots: int | None = None
    scaling: Scaling = Scaling()
    engine: str | None = None
    gpu_class: str | None = None
    tp: int | None = None
    """Cards among which every layer is divided."""
    pp: int | None = None
    """Stages of whole layers, each on `tp` cards; as many as nodes when it is not given."""
    nodes: int | None = None
    """Nodes that a replica spans, all with as many cards."""
    args: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()


class ModelResult(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a model, as a sentence with figures and the entry after it."""

    message: str
    model: ModelInfo | None = None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A change, as a sentence with figures."""

    message: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """`ctl explain`: where a model is, or would be, placed and why nowhere else."""

    model: str
    dry_run: bool
    placed: tuple[str, ...] = ()
    """Nodes its live replicas are on."""
    would_place: str | None = None
    """Node the next replica would go to; `gpu1 and gpu2` for one that spans several."""
    spans: int = 1
    """Nodes that it takes; where it has no place, the most that one of its profiles asks for."""
    message: str
    need_bytes: int = 0
    need_host_bytes: int = 0
    """Of the node's memory, beside the cards."""
    need_detail: str = ""
    """`weights 98 MB + KV 24 MB (4 × 4096 tokens) + engine 150 MB`."""
    verdicts: tuple[NodeVerdict, ...] = ()
    suggestions: tuple[Suggestion, ...] = ()
    """What this fleet could hold of it, the fewest cards first; empty while its size is not known."""


class JoinTokenCreate(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl join-token`."""

    minutes: int = 15


class JoinToken(msgspec.Struct, frozen=True, kw_only=True):
    """Single use; carries the CA's fingerprint."""

    token: str
    url: str
    command: str
    """What to paste on the node."""
    expires: datetime


class AuditEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who changed what."""

    id: int
    at: datetime
    actor: str
    action: str
    target: str
    before: Any = None
    """JSON value of the target before the change; null where there was nothing."""
    after: Any = None
    """JSON value after the change; null where nothing is left."""


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster setting."""

    key: str
    value: msgspec.Raw
    default: msgspec.Raw
    doc: str


class SettingChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl config set`; `value` is checked against the key's type."""

    value: msgspec.Raw


class ModelAdd(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl model add`: a whole catalog entry."""

    model: Model
    replace: bool = False
    """Put it in place of the entry of that name; without it a taken name is refused."""


class FallbacksChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl model fallbacks`."""

    fallbacks: tuple[str, ...]
    """Models, by name, that answer while this one cannot, in their order; none ends it."""


class ScaleRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl model scale`."""

    min: int
    max: int


class RestartRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ctl restart`."""

    target: str
    """A model's name or a replica's id."""


class Leader(msgspec.Struct, frozen=True, kw_only=True):
    """`/leader`: who leads, for clients and load balancers; no detail that helps an attacker."""

    leader: str | None
    """Server id of the leader, none while there is none."""
    epoch: int = 0
    is_self: bool = False
    """Whether the answering control plane leads."""
