"""The seam between the data plane and what it follows: all it knows of the cluster comes through here.

The data plane reads `RouterState` and writes only its counters and usage rows; the state's owner never touches a
stream. Nothing on this seam blocks, except the slow way of authenticating a key that is not cached.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from llmgw.core.admission import Admission
from llmgw.core.requests import Seen
from llmgw.core.routing import KeyRecord, ReplicaLoad, RoutedModel, RoutedReplica, Scoring, Timeouts, UsageRow
from llmgw.router.meters import Meters
from llmgw.router.scopes import Chain, Demand


class Refusal(Exception):
    """A request that is answered with an error in OpenAI's shape instead of being served.

    `status` is the HTTP status, `type`, `code` and `param` are the fields of the same names in the error object;
    `retry_after_s` becomes the `Retry-After` header, rounded up to whole seconds; `headers` are further ones.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        type: str = "invalid_request_error",
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.type = type
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s
        self.headers = headers
        self.hit: tuple[str, str] | None = None
        """Kind of the scope and name of the limit (`rpm`, `tpm`, `parallel`, `budget`) that refused, if one did."""


class Reservation(Protocol):
    """What a request was charged when it was let in. The first call of `settle` or `release` counts; neither raises."""

    @property
    def head_lines(self) -> bytes:
        """What the answer's head says of the limits nearest to being reached, each line with its CRLF."""

    def settle(self, tokens: int, cost_micros: int) -> None:
        """The request ended and took this much."""

    def release(self) -> None:
        """The request was refused after all: nothing is left of it."""


class Routes(Protocol):
    """A snapshot of `core.routing.Routing`, indexed; replaced whole on each revision, never changed in place."""

    def resolve(self, name: str) -> RoutedModel | None:
        """The model a client means by its name or an alias."""

    def replicas(self, model: str) -> Sequence[RoutedReplica]:
        """Ready replicas of the model of that name (not alias); empty when there is none."""

    def models(self) -> Sequence[RoutedModel]:
        """All models of the catalog."""

    @property
    def timeouts(self) -> Timeouts:
        """Seconds the router waits for engines and clients."""

    @property
    def scoring(self) -> Scoring:
        """How replicas are chosen."""

    @property
    def admission(self) -> Admission:
        """Who waits, and when."""

    @property
    def seen(self) -> Seen:
        """What is written down and traced of requests."""

    @property
    def ready(self) -> bool:
        """Whether a routing was ever heard or restored."""


class RouterState(Protocol):
    """What the data plane knows of the cluster, and where it leaves what it counted."""

    in_flight: dict[str, int]
    """Open requests by replica id; the data plane increments and decrements, and removes what reaches zero."""
    requests: int
    """Requests answered since the router started; the data plane counts."""
    open_requests: int
    """Requests being answered; the data plane counts."""
    breakers: dict[str, str]
    """Replicas whose breaker is `open` or `half-open`, by id; the data plane keeps it."""
    breaker_failures: dict[str, str]
    """What speaks against each of them, a few words."""
    meters: Meters
    """What else is counted, for `/metrics`; the data plane writes."""
    loads: dict[str, ReplicaLoad]
    """What engines last said of their own work, by replica id; the data plane reads."""
    on_loads: Callable[[], None]
    """Called when `loads` changed; the data plane sets it."""
    on_stale_key: Callable[[str], None]
    """Called with the id of a key that may have changed, or without one when any may have; the data plane sets it."""

    @property
    def routes(self) -> Routes:
        """The newest snapshot."""

    def engine_key(self, replica_id: str) -> str:
        """Key under which the replica's engine answers."""

    async def authenticate(self, authorization: bytes | None, client: str) -> KeyRecord:
        """Whose key this is: `authorization` is the bare API key, none when the client sent none.

        `client` is the peer's address, for rationing guesses. Raises Refusal: 401 for no or nobody's key, 429 when
        the address guesses too much, 503 when the store cannot be asked.
        """

    def authenticate_cached(self, authorization: bytes) -> KeyRecord | None:
        """The same without waiting, for a key known lately; none means: ask the slow way."""

    def scopes_of(self, key: KeyRecord) -> Chain | None:
        """Whom a request with this key is counted for; none when nothing limits it."""

    def tenant_of(self, team: str) -> str:
        """The tenant a team belongs to; empty where it belongs to none, or is not known."""

    def admit(self, chain: Chain, demand: Demand) -> Reservation:
        """Let a request in and charge it; raises Refusal (429, 503), having charged nothing."""

    def record(self, row: UsageRow) -> None:
        """Keep a usage row for the store. Never blocks, never raises."""

    def want(self, model: str) -> None:
        """A model was asked for that has no Ready replica."""
