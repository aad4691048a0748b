"""One inference request between its client and the replicas it is tried with.

Exchanges belong to the task that serves the client's connection; nothing here waits.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

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


class InferenceRequest:
    """A checked request and what became of it."""

    __slots__ = (
        "answered_by",
        "asked",
        "attempts",
        "band",
        "began_at",
        "body",
        "chosen_by",
        "comments",
        "fields",
        "form",
        "id",
        "key",
        "model",
        "passed",
        "replica",
        "reservation",
        "route",
        "stream",
        "streamed",
        "trail",
        "tried",
        "waited_s",
        "withhold",
    )

    def __init__(
        self,
        id: str,
        route: Route,
        key: KeyRecord,
        model: RoutedModel,
        fields: Fields,
        body: bytes,
        *,
        withhold: bool,
        began_at: float,
        form: Form | None,
    ) -> None:
        """The `body` of a form is empty; `began_at` is monotonic."""
        self.id = id
        self.route = route
        self.key = key
        self.model = model
        self.fields = fields
        self.body = body
        self.withhold = withhold
        self.began_at = began_at
        self.form = form
        self.streamed = route.streams and fields.streamed
        """Whether the client is to get events."""
        self.passed = b""
        """Header lines of the client's that are for the engine, each with its CRLF."""
        self.attempts = 0
        self.replica = ""
        self.chosen_by = ""
        """By what that replica was chosen (`core.meters.CHOICES`)."""
        self.stream: Stream | None = None
        self.reservation: Reservation | None = None
        """What it was charged; none for a key that nothing limits."""
        self.comments: Comments | None = None
        """For a client that asked for a stream."""
        self.tried: set[str] = set()
        """Replicas of `model` that were asked."""
        self.asked = ""
        """The model the client named, where `model` is one that answers instead."""
        self.answered_by = b""
        """Header lines that say so, each with its CRLF."""
        self.band = ""
        """The band it waited in, if it waited."""
        self.waited_s = 0.0
        """How long it waited to be let in."""
        self.trail = Trail()
        """What it met on its way, for the request log and its trace."""

    @property
    def body_bytes(self) -> int:
        """Length of the body, whatever it is."""
        return len(self.body) if self.form is None else self.form.size

    def charge(self, reservation: Reservation | None) -> None:
        """This is what it is charged from now on."""
        self.reservation = reservation
        if self.comments is not None:
            self.comments.reservation = reservation


class Exchange:
    """A request with whom it is for, by whom, and by when."""

    __slots__ = ("conn", "head", "others", "replicas", "request", "timeouts", "total_at", "tries")

    def __init__(
        self,
        conn: ClientConnection,
        head: RequestHead,
        request: InferenceRequest,
        timeouts: Timeouts,
        total_at: float,
    ) -> None:
        """It is to be over by `total_at`, monotonic."""
        self.conn = conn
        self.head = head
        self.request = request
        self.timeouts = timeouts
        self.total_at = total_at
        self.replicas: Sequence[RoutedReplica] = ()
        """The model's, as of the current attempt."""
        self.tries = 0
        """Of the current model."""
        self.others = False
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
