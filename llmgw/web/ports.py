"""What the web apps need of the control plane. The owner adapts in `llmgw/control/`; nothing here knows how.

Every method answers with the admin API's own types and refuses with an `LlmgwError`: `NotFound` for a name that is
not there, `Conflict` for a state that forbids the change, `Unavailable` while the store or the leader is away. Methods
that change something take the `actor` who asked, and write the audit row in the same transaction.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol

import msgspec

from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.api.series import Of, SeriesAnswer
from llmgw.api.types import (
    AuditEntry,
    ClusterStatus,
    Explanation,
    JoinToken,
    JoinTokenCreate,
    Leader,
    ModelInfo,
    ModelResult,
    NodeInfo,
    ReplicaInfo,
    Result,
    ServeRequest,
    Setting,
)
from llmgw.api.watch import History, Subscription
from llmgw.core.catalog import Model
from llmgw.web.band_ports import BandControl
from llmgw.web.engine_ports import EngineControl
from llmgw.web.key_ports import KeyControl
from llmgw.web.weights_ports import WeightsControl


class PublicControl(Protocol):
    """What the public app may know: nothing that could change or betray anything."""

    async def leader(self) -> Leader:
        """Who leads; answers on a standby too."""
        ...


class ControlPlane(PublicControl, KeyControl, BandControl, WeightsControl, EngineControl, Protocol):
    """The control plane as the admin app sees it."""

    async def status(self) -> ClusterStatus:
        """All that runs, in one document."""
        ...

    async def metrics(self) -> str:
        """Prometheus text, version 0.0.4."""
        ...

    async def nodes(self) -> Sequence[NodeInfo]:
        """Every known node, by name."""
        ...

    async def node(self, name: str) -> NodeInfo:
        """One node; raises NotFound."""
        ...

    async def cordon(self, name: str, on: bool, *, actor: str) -> Result:
        """Keep new replicas off a node (`on`), or allow them again."""
        ...

    async def sample(self, name: str) -> Result:
        """Ask a node for a fresh sample, to come with the feed; raises NotFound, and Unavailable if it is silent."""
        ...

    async def models(self) -> Sequence[ModelInfo]:
        """The catalog with what became of it, by name."""
        ...

    async def model(self, name: str) -> ModelInfo:
        """One catalog entry, by name or alias; raises NotFound."""
        ...

    async def serve(self, request: ServeRequest, *, actor: str) -> ModelResult:
        """Add a model from its source, everything not given chosen; raises Conflict when the name is taken."""
        ...

    async def add(self, model: Model, *, actor: str, replace: bool) -> ModelResult:
        """Add a whole entry, or put it in place of the one of that name when `replace`."""
        ...

    async def remove(self, name: str, *, purge: bool, actor: str) -> Result:
        """Take a model out of the catalog, its weights too when `purge`."""
        ...

    async def stop(self, name: str, *, actor: str) -> ModelResult:
        """Keep the entry, end its replicas."""
        ...

    async def start(self, name: str, *, actor: str) -> ModelResult:
        """Serve a stopped model again."""
        ...

    async def scale(self, name: str, minimum: int, maximum: int, *, actor: str) -> ModelResult:
        """Keep between `minimum` and `maximum` replicas."""
        ...

    async def set_fallbacks(self, name: str, fallbacks: tuple[str, ...], *, actor: str) -> ModelResult:
        """Say which models answer while this one cannot; none ends it."""
        ...

    async def replicas(self, model: str | None = None) -> Sequence[ReplicaInfo]:
        """Every replica, or one model's (by name or alias)."""
        ...

    async def restart(self, target: str, *, actor: str) -> Result:
        """Restart a model's replicas one by one, or one replica by its id."""
        ...

    async def explain(self, name: str) -> Explanation:
        """Why a catalog entry is where it is, and why nowhere else."""
        ...

    async def explain_serve(self, request: ServeRequest) -> Explanation:
        """The same for a model that is not in the catalog; changes nothing."""
        ...

    async def join_token(self, request: JoinTokenCreate, *, actor: str) -> JoinToken:
        """Make a token with which one node may enrol, once."""
        ...

    async def requests(self, query: RequestQuery) -> RequestPage:
        """Requests that this machine's routers wrote down, the newest first; raises InvalidInput for a bad cursor."""
        ...

    async def request(self, request_id: str) -> RequestTold:
        """One of them and why it went as it did; raises NotFound."""
        ...

    def logs(self, target: str, *, tail: int, follow: bool) -> AbstractAsyncContextManager[AsyncIterator[str]]:
        """The last `tail` lines (no newline in them) of a replica, a node's agent or `server`; more as they come
        when `follow`. Raises NotFound or Unavailable on entry. Closing the context ends the reading at its source.
        """
        ...

    def watch(
        self, subscription: Subscription, *, actor: str, role: str, hidden: frozenset[str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """The live feed for one reader: lines of JSON (`llmgw.api.watch.Message`), each made when it is asked for.

        `hidden` topics are not given to it. Raises Unavailable when called while too many read.
        """
        ...

    async def history(self, model: str | None) -> History:
        """Traffic of the last quarter of an hour: a model's (by name or alias), or all; raises NotFound."""
        ...

    async def series(
        self,
        figures: Sequence[str],
        of: Sequence[Of],
        *,
        start: float | None,
        end: float | None,
        step_s: float | None,
    ) -> SeriesAnswer:
        """Figures over time, Unix seconds; raises InvalidInput or NotFound naming what there is."""
        ...

    async def settings(self) -> Sequence[Setting]:
        """Every cluster setting, by key."""
        ...

    async def setting(self, key: str) -> Setting:
        """One cluster setting; raises NotFound."""
        ...

    async def set_setting(self, key: str, value: msgspec.Raw, *, actor: str) -> Result:
        """Change a setting; raises InvalidInput when the JSON `value` is not of the key's type or range."""
        ...

    async def audit(self, since: datetime | None, limit: int) -> Sequence[AuditEntry]:
        """Newest first, at most `limit`; those at or after the aware time `since`, or all."""
        ...
