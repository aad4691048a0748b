"""One inference request between its client and the replicas it is tried with.

Exchanges belong to the task that serves the client's connection; nothing here waits.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Timeouts
from llmgw.router.comments import Comments
from llmgw.router.fields import Fields
from llmgw.router.forms import Form
from llmgw.router.front import ClientConnection
from llmgw.router.heads import RequestHead
from llmgw.router.limits import MAX_ATTEMPTS, MAX_CHAIN_ATTEMPTS, STANDIN_ATTEMPTS
from llmgw.router.ports import Reservation
from llmgw.router.relay import Stream
from llmgw.router.routes import Route
from llmgw.router.trail import Trail


@dataclass(slots=True)
class InferenceRequest:
    """A checked request and what became of it."""

    id: str
    route: Route
    key: KeyRecord
    model: RoutedModel
    fields: Fields
    body: bytes
    """Empty for a form."""
    withhold: bool
    began_at: float
    form: Form | None = None
    passed: bytes = b""
    """Header lines of the client's that are for the engine, each with its CRLF."""
    attempts: int = 0
    replica: str = ""
    chosen_by: str = ""
    """By what that replica was chosen (`core.meters.CHOICES`)."""
    stream: Stream | None = None
    reservation: Reservation | None = None
    """What it was charged; none for a key that nothing limits."""
    comments: Comments | None = None
    """For a client that asked for a stream."""
    tried: set[str] = field(default_factory=set)
    """Replicas of `model` that were asked."""
    asked: str = ""
    """The model the client named, where `model` is one that answers instead."""
    answered_by: bytes = b""
    """Header lines that say so, each with its CRLF."""
    band: str = ""
    """The band it waited in, if it waited."""
    waited_s: float = 0.0
    """How long it waited to be let in."""
    trail: Trail = field(default_factory=Trail)
    """What it met on its way, for the request log and its trace."""

    @property
    def body_bytes(self) -> int:
        """Length of the body, whatever it is."""
        return len(self.body) if self.form is None else self.form.size

    @property
    def streamed(self) -> bool:
        """Whether the client is to get events."""
        return self.route.streams and self.fields.streamed


@dataclass(slots=True)
class Exchange:
    """A request with whom it is for, by whom, and by when."""

    conn: ClientConnection
    head: RequestHead
    request: InferenceRequest
    timeouts: Timeouts
    total_at: float
    replicas: Sequence[RoutedReplica] = ()
    """The model's, as of the current attempt."""
    tries: int = 0
    """Of the current model."""
    others: bool = False
    """Whether another model may be asked after it."""

    @property
    def may_try(self) -> bool:
        """Whether the current model may be asked once more."""
        return self.tries_left > 0 and time.monotonic() < self.total_at

    @property
    def tries_left(self) -> int:
        """With the current model."""
        most = STANDIN_ATTEMPTS if self.request.asked else MAX_ATTEMPTS
        return min(most - self.tries, MAX_CHAIN_ATTEMPTS - self.request.attempts)


@dataclass(frozen=True, slots=True, eq=False)
class Gap:
    """Speaks to a client while no stream does."""

    conn: ClientConnection
    comments: Comments
    scope: trio.CancelScope

    def tick(self, now: float) -> None:
        """Say that it is still served, if that is due; called every TICK_S."""
        if not self.comments.due(now, 0.0):
            return
        data = self.comments.say(now, headless=True)
        try:
            sent = self.conn.send(data)
        except OSError:
            sent = 0
        if sent != len(data):  # whoever cannot take this much after so long a silence takes nothing at all
            self.conn.abort()
            self.scope.cancel()
