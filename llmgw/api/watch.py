"""The live feed, `GET /api/v1/watch`: lines of JSON, a snapshot and then keyed deltas.

A row is a document under a key in a topic. The first message after connecting is a `Snapshot`, or a `Delta` when
`since` of the same `epoch` could be continued. After that come `Delta`s, at most ten a second, and a `Tick` every
second without one. A reader that is slow misses intermediate versions of a row and nothing else: a delta holds every
row that changed since the last message it was sent. Rows hold moments, never ages, so a row that rests is not sent
again. A field that is absent has its default.
"""

from typing import Any

import msgspec

from llmgw.api.types import EngineInfo, ProgressInfo, RouterInfo, ServerInfo
from llmgw.core.catalog import Model, ModelFacts

TOPICS = ("cluster", "models", "replicas", "nodes", "figures", "traffic", "weights", "keys", "audit")
ALL_MODELS = "*"
"""Key of `traffic` for all models together."""
MAX_PER_S = 10
TICK_S = 1.0
STALE_AFTER_S = 2.0
"""A reader that got nothing for this long may say that the connection is lost."""


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
    memory_bytes: int = 0
    context_length: int = 0
    slots: int = 0
    restarts: int = 0
    adopted: bool = False
    in_flight: int = 0
    progress: ProgressInfo | None = None
    message: str = ""


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


class TrafficRow(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Topic `traffic`, key a model's name, or `*` for all: means over the last 10 s, first token over the last 60 s."""

    requests_per_s: float = 0.0
    errors_per_s: float = 0.0
    input_tokens_per_s: float = 0.0
    output_tokens_per_s: float = 0.0
    first_token_p50_ms: float | None = None
    first_token_p95_ms: float | None = None
    open_requests: int = 0


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


Row = ClusterRow | ModelRow | ReplicaRow | NodeRow | FiguresRow | TrafficRow | WeightsRow | KeyRow | AuditRow

ROW_TYPES: dict[str, type[msgspec.Struct]] = {
    "cluster": ClusterRow,
    "models": ModelRow,
    "replicas": ReplicaRow,
    "nodes": NodeRow,
    "figures": FiguresRow,
    "traffic": TrafficRow,
    "weights": WeightsRow,
    "keys": KeyRow,
    "audit": AuditRow,
}


class Snapshot(msgspec.Struct, frozen=True, kw_only=True, tag="snapshot", tag_field="type"):
    """Everything subscribed to; replaces all a reader had."""

    epoch: str
    """Names the server's run; revisions of another mean nothing."""
    rev: int
    now: float
    """Unix seconds of the server."""
    actor: str
    """Who the reader is."""
    role: str
    """`viewer`, `operator` or `admin`."""
    rows: dict[str, dict[str, msgspec.Raw]]
    """Topic → key → row."""


class Delta(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="delta", tag_field="type"):
    """What changed since the message before."""

    rev: int
    now: float
    rows: dict[str, dict[str, msgspec.Raw]] = {}
    gone: dict[str, tuple[str, ...]] = {}


class Tick(msgspec.Struct, frozen=True, kw_only=True, tag="tick", tag_field="type"):
    """Nothing changed, and the connection lives."""

    rev: int
    now: float


Message = Snapshot | Delta | Tick


MIN_INTERVAL_MS = 1000 // MAX_PER_S
MAX_INTERVAL_MS = 60_000
MAX_NODES = 1000
"""Nodes a reader may name; one that wants more takes all."""
MAX_LINE_BYTES = 256 * 1024 * 1024
"""A snapshot is one line: 3 MB at 1,000 nodes of 8 cards, growing with what there is."""


class Subscription(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader wants; the query of `GET /api/v1/watch`.

    A `Snapshot`'s `epoch` holds for the same topics and nodes only: with others, the first message is a `Snapshot`.
    Topics that the reader's role may not see are left out without a word.
    """

    topics: tuple[str, ...] = TOPICS
    nodes: tuple[str, ...] | None = None
    """Only these nodes' `figures`; none is all. Other topics come whole."""
    interval_ms: int = MIN_INTERVAL_MS
    """Least time between two messages with rows; ticks come all the same."""
    epoch: str | None = None
    since: int | None = None
    """Revision of the last message of that epoch."""

    def query(self) -> dict[str, str | int | bool | None]:
        """As `llmgw.api.paths.with_query` takes it."""
        return {
            "topics": None if self.topics == TOPICS else ",".join(self.topics),
            "nodes": None if self.nodes is None else ",".join(self.nodes),
            "interval_ms": None if self.interval_ms == MIN_INTERVAL_MS else self.interval_ms,
            "epoch": self.epoch,
            "since": self.since,
        }


class History(msgspec.Struct, frozen=True, kw_only=True):
    """`GET /api/v1/history`: what `traffic` was, oldest first; all columns have the same length."""

    model: str
    """Its name, or `*` for all."""
    step_s: float
    """Seconds a point spans."""
    end: float
    """Unix seconds at which the last point ends."""
    requests_per_s: tuple[float, ...] = ()
    errors_per_s: tuple[float, ...] = ()
    input_tokens_per_s: tuple[float, ...] = ()
    output_tokens_per_s: tuple[float, ...] = ()
    first_token_p50_ms: tuple[float | None, ...] = ()
    """Over the minute before the point's end; null where no first token came."""
    first_token_p95_ms: tuple[float | None, ...] = ()
    open_requests: tuple[int, ...] = ()
