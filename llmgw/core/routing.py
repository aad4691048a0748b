"""What travels on the feed between a control plane and its routers, both ways. msgpack, one tagged frame a message.

The router knows the cluster only through these types. No engine key is among them: both sides derive a replica's key
from the cluster secret (`llmgw.core.secrets`).
"""

import msgspec

from llmgw.core.admission import Admission
from llmgw.core.limits import Budget, Limits, ScopeRecord, Spending
from llmgw.core.meters import MeterReport
from llmgw.core.prices import Prices
from llmgw.core.requests import Seen

MAX_FRAME_BYTES = 8 * 1024 * 1024
"""A longer frame ends the connection. A frame is a 4-byte big-endian length and that many bytes of msgpack."""


class RoutedExternal(msgspec.Struct, frozen=True, kw_only=True):
    """What it takes to be let in at an endpoint outside the cluster. Files are read by the router: no key travels."""

    keys_file: str = ""
    """Provider's keys, one a line, which take turns; empty sends none."""
    ca_file: str = ""
    """Authorities to trust instead of the system's, in PEM."""


class RoutedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A Ready replica requests may go to, or an endpoint outside the cluster, which is treated as one."""

    id: str
    model: str
    profile: str = ""
    pool: str = ""
    endpoint: str
    """`http://host:port` or `http://host:port/r/name`, without a trailing slash."""
    node: str = ""
    """Empty for an endpoint outside the cluster."""
    weight: float = 1.0
    upstream_model: str = ""
    """Name the engine answers to; empty is the model's own."""
    external: RoutedExternal | None = None
    """Set for an endpoint outside the cluster: `endpoint` is then its base URL, `https://host/v1` for instance."""


class RoutedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a router tells clients of a model."""

    name: str
    aliases: tuple[str, ...] = ()
    context_length: int = 0
    max_output: int = 0
    created: int = 0
    """Unix seconds when it entered the catalog."""
    prices: Prices | None = None
    """None costs nothing."""
    fallbacks: tuple[str, ...] = ()
    """Models, by name, that answer instead while this one cannot, in their order."""
    unrouted: str = ""
    """Why no request is relayed to it, as a sentence for who asks; empty relays them."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds the router waits; `ctl config set router.timeouts.…`."""

    connect: float = 5.0
    first_byte: float = 120.0
    inter_token: float = 120.0
    total: float = 3600.0
    client_stall: float = 120.0
    queue: float = 30.0


class Scoring(msgspec.Struct, frozen=True, kw_only=True):
    """How routers choose among a model's replicas; `ctl config set router.scoring.…`."""

    load: bool = True
    """Whether the load of replicas counts; without it they take turns."""
    sticky: bool = True
    """Whether a session goes to the replica it was at before."""
    prefix: bool = True
    """Whether a prompt goes to a replica that has lately read its beginning."""
    load_margin: float = 4.0
    """Requests more than the least loaded replica has that one may have which is chosen for its session or prefix."""


class KeyRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an API key. The key itself is nowhere; `digest` is HMAC-SHA256 under the cluster's pepper."""

    id: str
    name: str
    models: tuple[str, ...] | None = None
    """Names it may use; none is all."""
    revoked: bool = False
    team: str = ""
    """The team it belongs to, if any; the team's own record is in `ScopeTable`."""
    limits: Limits = Limits()
    budgets: tuple[Budget, ...] = ()
    spent: Spending = Spending()
    """As the store had it when the key was looked up."""
    band: str = ""
    """Name of the band its requests wait in; empty is the default one."""


class UsageRow(msgspec.Struct, frozen=True, kw_only=True):
    """One answered request, as counted by the router. `id` makes storing it twice harmless."""

    id: str
    at: float
    """Unix seconds when the answer ended."""
    key_id: str
    team: str | None = None
    """Team the key was in when the request was let in, empty for none; null takes the one it is in when stored."""
    model: str
    replica: str = ""
    status: int
    failed: bool = False
    stream: bool = False
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    estimated: bool = False
    """Tokens were counted by the router because the engine gave no usage."""
    cost_micros: int = 0
    """At the prices in force when it ended."""
    first_token_ms: float | None = None
    duration_ms: float = 0.0
    attempts: int = 1
    band: str = ""
    """The band it waited in, where there are bands."""
    waited_ms: float = 0.0
    """How long it waited to be let in."""
    asked: str = ""
    """The model that was asked for, where another one answered."""


# router → control plane


class RouterHello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """First frame of a router."""

    pid: int
    index: int
    version: str
    port: int
    loads: bool = False
    """Whether it knows what a `LoadTable` is; one that does not say so is sent none."""


class Activity(msgspec.Struct, frozen=True, kw_only=True, tag="activity"):
    """What the router did since it last spoke; sent at least every two seconds."""

    requests: int = 0
    """Requests answered since the router started."""
    open_requests: int = 0
    in_flight: dict[str, int] = {}
    """Open requests by replica id; absent is none."""
    last_used: dict[str, float] = {}
    """Unix seconds a replica last ended a request; only what is new."""
    want: tuple[str, ...] = ()
    """Models asked for that have no Ready replica."""
    breakers: dict[str, str] = {}
    """Replicas this router sends no requests to, or only one to find out (`open`, `half-open`); absent is closed."""
    breaker_failures: dict[str, str] = {}
    """Why it does not, a few words for each of them."""
    metrics: MeterReport | None = None


class UsageBatch(msgspec.Struct, frozen=True, kw_only=True, tag="usage"):
    """Rows to store; the router keeps them until `UsageStored` names the same `seq`."""

    seq: int
    rows: tuple[UsageRow, ...]


class KeyAsk(msgspec.Struct, frozen=True, kw_only=True, tag="key_ask"):
    """Whose key has this digest (hex)?"""

    digest: str


RouterMessage = RouterHello | Activity | UsageBatch | KeyAsk

# control plane → router


class Routing(msgspec.Struct, frozen=True, kw_only=True, tag="routing"):
    """All a router needs to route. Sent whole whenever it changed, and first on every connection."""

    revision: str
    """`owner/counter`; compared only with the last one seen."""
    models: tuple[RoutedModel, ...] = ()
    replicas: tuple[RoutedReplica, ...] = ()
    timeouts: Timeouts = Timeouts()
    scoring: Scoring = Scoring()
    seen: Seen = Seen()
    admission: Admission = Admission()


class ScopeTable(msgspec.Struct, frozen=True, kw_only=True, tag="scopes"):
    """Every team and tenant. Sent whole whenever it changed, and first on every connection, before any `KeyAnswer`."""

    scopes: tuple[ScopeRecord, ...] = ()


class ReplicaLoad(msgspec.Struct, frozen=True, kw_only=True):
    """What an engine last said of its own work; none is what it does not say."""

    running: int | None = None
    """Requests it works on."""
    waiting: int | None = None
    """Requests in its own queue."""
    slots: int | None = None
    """Requests it works on at once, at most."""
    kv_used: float | None = None
    """Share of its KV cache that is taken, 0 to 1."""
    at: float = 0.0
    """Unix seconds when the engine said so, at most a few seconds off: what it says again is told again every 5 s."""


class LoadTable(msgspec.Struct, frozen=True, kw_only=True, tag="loads"):
    """What engines say of their work, by replica id: all of them first on every connection, then what changed.

    The control plane leaves out what is too old (`figures.LOAD_HOLDS_S`), and sends one at least every
    `figures.LOAD_TOLD_EVERY_S`, empty if nothing changed: a router that hears none for LOAD_HOLDS_S, or loses its
    connection, knows no load any more.
    """

    loads: dict[str, ReplicaLoad] = {}
    gone: tuple[str, ...] = ()
    """Replicas of which nothing is known any more."""
    whole: bool = False
    """What is not in `loads` is forgotten."""


class KeyAnswer(msgspec.Struct, frozen=True, kw_only=True, tag="key"):
    """Answer to `KeyAsk`: a record, nobody's key (`record` none), or `error` (the store is away: never cached)."""

    digest: str
    record: KeyRecord | None = None
    error: str = ""


class KeyChanged(msgspec.Struct, frozen=True, kw_only=True, tag="key_changed"):
    """A key was changed or revoked: forget what is cached of it and ask again when it is used."""

    digest: str


class UsageStored(msgspec.Struct, frozen=True, kw_only=True, tag="usage_stored"):
    """The batch is in the store."""

    seq: int


class DrainRouter(msgspec.Struct, frozen=True, kw_only=True, tag="drain"):
    """Accept nothing more, finish what is open within `deadline_s`, exit 0."""

    deadline_s: float


ControlMessage = Routing | ScopeTable | LoadTable | KeyAnswer | KeyChanged | UsageStored | DrainRouter
