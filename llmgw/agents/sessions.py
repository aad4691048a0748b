"""Who is connected. At most one session a node; every session that was announced is also announced as ended, once.

Synchronous and free of any event loop: the bridge calls in from asyncio, the control plane from trio, in one thread.
Nothing here waits: an outbox that is full ends its session, and a full event queue slows the readers (`congested`).
"""

import itertools
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from llmgw.core.errors import LlmgwError, Unavailable
from llmgw.wire.llmgw.v1 import AgentMessage, Hello, ServerMessage

MAX_SESSIONS = 4096
"""Nodes one control plane holds streams of; a room has 50, the exercised fleet 1,000."""
EVENTS_QUEUED = 1024
"""Messages waiting for the control plane before readers pause."""
OUTBOX_MESSAGES = 256
"""Orders waiting for one node; a node that lets more pile up is reconnected and told its state anew."""


@dataclass(frozen=True, kw_only=True)
class NodeConnected:
    """A node's stream is open and its Hello was accepted."""

    node: str
    session_id: int
    hello: Hello
    peer_address: str
    """Address the connection came from, without the port."""


@dataclass(frozen=True, kw_only=True)
class NodeMessage:
    """A message of a connected node; never Hello or Heartbeat, which the bridge answers itself."""

    node: str
    session_id: int
    message: AgentMessage


@dataclass(frozen=True, kw_only=True)
class NodeDisconnected:
    """A session is over; a newer one of the same node may follow or already be open."""

    node: str
    session_id: int
    reason: str


NodeEvent = NodeConnected | NodeMessage | NodeDisconnected


@dataclass(kw_only=True, eq=False)
class Session:
    """One stream of one node."""

    node: str
    session_id: int
    serial: str
    """Of the certificate it came with."""
    wake: Callable[[], None]
    """Called when the outbox has something, or the session ended."""
    heard_at: float = 0.0
    """When the agent last spoke, on the clock of the bridge."""
    outbox: deque[ServerMessage] = field(default_factory=deque)
    ended: str | None = None
    """Why it is over, as a sentence."""
    cause: LlmgwError | None = None
    """The error behind it, where the peer is to see that error's status."""
    lost: bool = False
    """Whether nobody is likely to read a farewell: the connection is then cut."""

    def offer(self, message: ServerMessage) -> bool:
        """Queue a message; False when the session is over or its outbox is full."""
        if self.ended is not None or len(self.outbox) >= OUTBOX_MESSAGES:
            return False
        self.outbox.append(message)
        self.wake()
        return True


class Sessions:
    """All open sessions, and the queue on which the control plane hears of them."""

    def __init__(self) -> None:
        # Room for the messages and, always, for every session's end: `send_nowait` below cannot fail.
        self._send, self.events = trio.open_memory_channel[NodeEvent](EVENTS_QUEUED + 3 * MAX_SESSIONS)
        self._open: dict[str, Session] = {}
        self._ids = itertools.count(1)

    @property
    def congested(self) -> bool:
        """Whether readers must wait before they deliver more."""
        return self._send.statistics().current_buffer_used >= EVENTS_QUEUED

    @property
    def nodes(self) -> list[str]:
        """Names of the connected nodes."""
        return list(self._open)

    def open(
        self,
        hello: Hello,
        *,
        node: str,
        serial: str,
        peer_address: str,
        welcome: ServerMessage,
        wake: Callable[[], None],
    ) -> Session:
        """Admit a node, ending its older session; `welcome` is what it is sent first. Raises Unavailable when full."""
        if self.congested or (node not in self._open and len(self._open) >= MAX_SESSIONS):
            raise Unavailable("this control plane has more work from nodes than it can take: try again shortly")
        older = self._open.get(node)
        if older is not None:
            self.end(older, "replaced by a newer stream of the same node")
        session = Session(node=node, session_id=next(self._ids), serial=serial, wake=wake)
        session.outbox.append(welcome)
        self._open[node] = session
        self._emit(NodeConnected(node=node, session_id=session.session_id, hello=hello, peer_address=peer_address))
        wake()
        return session

    def deliver(self, session: Session, message: AgentMessage) -> None:
        """Pass a node's message on, unless its session is over. The caller waited while `congested`."""
        if session.ended is None:
            self._emit(NodeMessage(node=session.node, session_id=session.session_id, message=message))

    def end(self, session: Session, why: str | LlmgwError, *, lost: bool = False) -> None:
        """Close a session; the first reason counts, later calls do nothing."""
        if session.ended is not None:
            return
        reason = why if isinstance(why, str) else why.message
        session.ended = reason
        session.cause = None if isinstance(why, str) else why
        session.lost = lost
        if self._open.get(session.node) is session:
            del self._open[session.node]
        self._emit(NodeDisconnected(node=session.node, session_id=session.session_id, reason=reason))
        session.wake()

    def send(self, node: str, message: ServerMessage) -> bool:
        """Queue an order for a node without waiting; False when it is not connected. A full outbox ends its session."""
        session = self._open.get(node)
        if session is None:
            return False
        if session.offer(message):
            return True
        self.end(session, f"the node took none of {OUTBOX_MESSAGES} waiting orders", lost=True)
        return False

    def disconnect(self, node: str, reason: str) -> None:
        """End a node's session, if it has one; the agent is told the reason and comes back unless it is refused."""
        session = self._open.get(node)
        if session is not None:
            self.end(session, reason)

    def end_all(self, reason: str) -> None:
        """End every session."""
        for session in list(self._open.values()):
            self.end(session, reason)

    def _emit(self, event: NodeEvent) -> None:
        try:
            self._send.send_nowait(event)
        except trio.BrokenResourceError:
            pass  # the control plane stopped listening: it is shutting down


class TokenBucket:
    """Allows `rate` a second with bursts of `burst`; says how long to wait instead of refusing."""

    def __init__(self, *, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._level = burst
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take `amount`; seconds the taker must wait before going on (0.0: none)."""
        self._level = min(self._burst, self._level + (now - self._at) * self._rate) - amount
        self._at = now
        return max(0.0, -self._level / self._rate)
