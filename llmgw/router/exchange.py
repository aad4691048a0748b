"""One inference request between its client and the replicas it is tried with.

Exchanges belong to the task that serves the client's connection; nothing here waits.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import trio

from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Timeouts
from llmgw.router.comments import Comments
from llmgw.router.fields import Fields
from llmgw.router.forms import Form
from llmgw.router.front import ClientConnection
from llmgw.router.heads import RequestHead
from llmgw.router.ports import Reservation
from llmgw.router.relay import Stream
from llmgw.router.routes import Route


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
    stream: Stream | None = None
    reservation: Reservation | None = None
    """What it was charged; none for a key that nothing limits."""
    comments: Comments | None = None
    """For a client that asked for a stream."""
    tried: set[str] = field(default_factory=set)

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
