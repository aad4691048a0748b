"""The live feed, `GET /api/v1/watch`: lines of JSON, a snapshot and then keyed deltas.

A row is a document under a key in a topic. The first message after connecting is a `Snapshot`, or a `Delta` when
`since` of the same `epoch` could be continued. After that come `Delta`s, at most ten a second, and a `Tick` every
second without one. A reader that is slow misses intermediate versions of a row and nothing else: a delta holds every
row that changed since the last message it was sent. Rows hold moments, never ages, so a row that rests is not sent
again. A field that is absent has its default.
"""

import msgspec

from llmgw.api.rows import ROW_TYPES as ROW_TYPES
from llmgw.api.rows import AuditRow as AuditRow
from llmgw.api.rows import CardRow as CardRow
from llmgw.api.rows import ClusterRow as ClusterRow
from llmgw.api.rows import FiguresRow as FiguresRow
from llmgw.api.rows import KeyRow as KeyRow
from llmgw.api.rows import ModelRow as ModelRow
from llmgw.api.rows import NodeRow as NodeRow
from llmgw.api.rows import ReplicaRow as ReplicaRow
from llmgw.api.rows import Row as Row
from llmgw.api.rows import ScopeRow as ScopeRow
from llmgw.api.rows import TrafficRow as TrafficRow
from llmgw.api.rows import WeightsRow as WeightsRow
from llmgw.api.rows import scope_key as scope_key

TOPICS = ("cluster", "models", "replicas", "nodes", "figures", "traffic", "weights", "keys", "scopes", "audit")
ALL_MODELS = "*"
"""Key of `traffic` for all models together."""
MAX_PER_S = 10
TICK_S = 1.0
STALE_AFTER_S = 2.0
"""A reader that got nothing for this long may say that the connection is lost."""


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
