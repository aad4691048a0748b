"""The agent port: gRPC (asyncio) on one side, the control plane (trio) on the other, bounded queues between.

Who a peer is comes from its certificate alone. A session ends, with a sentence for both sides, when the agent is
silent, sends what cannot be decoded, is replaced, refused or too slow; a session's trouble stays its own.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

import grpclib.server
import grpclib.utils
import trio
import trio_asyncio
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from llmgw.agents.bridge_h2 import BACKLOG, BoundedServer
from llmgw.agents.frames import errors_as_status, receive
from llmgw.agents.sessions import NodeEvent, Session, Sessions, TokenBucket
from llmgw.core.cluster import SILENT_AFTER_S
from llmgw.core.errors import InvalidInput, LlmgwError, NotAllowed, Unauthenticated, Unavailable
from llmgw.core.identity import PeerIdentity, Role, peer_identity
from llmgw.core.wire_limits import MAX_ENROLL_BYTES, MAX_FRAME_BYTES, MIB
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    EnrollRequest,
    EnrollResponse,
    HeartbeatAck,
    Hello,
    ServerMessage,
    Welcome,
)

# grpclib keeps the `current_task` it finds at import; from Python 3.12 on only the one of trio-asyncio knows its loop.
grpclib.utils._current_task = asyncio.current_task

log = logging.getLogger("llmgw.agents")

Enrol = Callable[[str, str, bytes], Awaitable[EnrollResponse]]
"""`await enrol(token, node, csr_pem)` in trio; raises LlmgwError with the sentence the operator sees."""
Renew = Callable[[str, str, bytes], Awaitable[EnrollResponse]]
"""`await renew(node, serial, csr_pem)` in trio, for a node that showed its certificate; raises LlmgwError."""
Connect = grpclib.server.Stream[AgentMessage, ServerMessage]
Enroll = grpclib.server.Stream[EnrollRequest, EnrollResponse]

STREAMS_A_NODE = 4
"""Connect calls of one node at the same time; an older one is ending while a newer one begins."""
ENROLLING = 16
"""Enroll calls at the same time, of everybody together."""
STOP_GRACE_S = 2.0
"""How long farewells may take when the control plane stops."""
CONGESTION_POLL_S = 0.02
"""How often a paused reader looks whether the control plane caught up."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Times and rates of the agent port."""

    handshake_s: float = 10.0
    """TLS handshake, at most."""
    hello_s: float = 10.0
    """From the call to a whole Hello or EnrollRequest."""
    enrol_s: float = 30.0
    """Working on an enrolment."""
    silent_s: float = SILENT_AFTER_S
    """A session without a word for this long is cut."""
    check_s: float = 1.0
    """How often silence and permission are looked at."""
    messages_per_s: float = 200.0
    """Messages of one node; a faster one is read more slowly."""
    bytes_per_s: float = 2.0 * MIB
    """Bytes of one node, likewise."""


class AgentServer:
    """The server end of `llmgw.v1.Agents`."""

    def __init__(
        self,
        *,
        host: str,
        port: int,
        context: ssl.SSLContext,
        cluster_id: str,
        enrol: Enrol,
        renew: Renew,
        welcome: Callable[[], Welcome],
        allowed: Callable[[str, str], bool] = lambda node, serial: True,
        heard: Callable[[str], None] = lambda node: None,
        limits: Limits = Limits(),
    ) -> None:
        """`allowed(node, serial)` is asked on connecting and every `check_s`; `welcome()` may raise Unavailable.

        `heard(node)` is called, in this thread, for every heartbeat: those are answered here and are no events.
        """
        self._host = host
        self._port = port
        self._context = context
        self._cluster_id = cluster_id
        self._enrol = enrol
        self._renew = renew
        self._welcome = welcome
        self._allowed = allowed
        self._heard = heard
        self._limits = limits
        self._sessions = Sessions()
        self._streams: Counter[str] = Counter()
        self._enrolling = 0

    @property
    def events(self) -> trio.MemoryReceiveChannel[NodeEvent]:
        """What happens on the port. Whoever reads it must keep reading: agents are read no faster than this is."""
        return self._sessions.events

    @property
    def nodes(self) -> list[str]:
        """Names of the nodes connected now."""
        return self._sessions.nodes

    def send(self, node: str, message: ServerMessage) -> bool:
        """Queue an order without waiting; False when the node is not connected, or takes no more and was dropped."""
        return self._sessions.send(node, message)

    def disconnect(self, node: str, reason: str) -> None:
        """End the node's session, telling it why. It reconnects unless `allowed` says no."""
        self._sessions.disconnect(node, reason)

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; `task_status` gets the bound port. Raises OSError if it cannot listen."""
        listener = await self._bind()
        async with trio_asyncio.open_loop() as loop:
            loop.set_exception_handler(_log_loop_error)
            server = await trio_asyncio.aio_as_trio(self._start)(listener)
            try:
                task_status.started(listener.getsockname()[1])
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):  # bounded by STOP_GRACE_S inside
                    self._sessions.end_all("the control plane is stopping")
                    await trio_asyncio.aio_as_trio(self._stop)(server)

    async def _bind(self) -> socket.socket:
        """The listening socket, made outside the loop so that its OSError comes as it is."""
        found = await trio.socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        family, address = found[0][0], found[0][4]
        both = family == socket.AF_INET6 and address[0] == "::" and socket.has_dualstack_ipv6()
        return socket.create_server(address[:2], family=family, backlog=BACKLOG, dualstack_ipv6=both)

    async def _start(self, listener: socket.socket) -> BoundedServer:
        server = BoundedServer(self)
        await server.listen(listener, self._context, handshake_s=self._limits.handshake_s)
        return server

    async def _stop(self, server: BoundedServer) -> None:
        deadline = asyncio.get_running_loop().time() + STOP_GRACE_S
        while self._streams.total() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(CONGESTION_POLL_S)
        await server.stop(grace_s=STOP_GRACE_S)

    def __mapping__(self) -> dict[str, Handler]:
        """The routes, for grpclib."""
        connect = Handler(self._on_connect, Cardinality.STREAM_STREAM, AgentMessage, ServerMessage)
        enroll = Handler(self._on_enroll, Cardinality.UNARY_UNARY, EnrollRequest, EnrollResponse)
        return {"/llmgw.v1.Agents/Connect": connect, "/llmgw.v1.Agents/Enroll": enroll}

    async def _on_enroll(self, stream: Enroll) -> None:
        with errors_as_status():
            if self._enrolling >= ENROLLING:
                raise Unavailable(f"{ENROLLING} machines are enrolling already: try again in a few seconds")
            self._enrolling += 1
            try:
                async with _deadline(self._limits.hello_s, "the request did not arrive"):
                    request = await receive(stream, EnrollRequest, max_bytes=MAX_ENROLL_BYTES)
                if request is None:
                    raise InvalidInput("the call carried no request")
                answer = self._way_in(stream, request)
                async with _deadline(self._limits.enrol_s, "the enrolment took too long"):
                    response = await trio_asyncio.trio_as_aio(answer)()
                await stream.send_message(response)
            finally:
                self._enrolling -= 1

    def _way_in(self, stream: Enroll, request: EnrollRequest) -> Callable[[], Awaitable[EnrollResponse]]:
        """By a join token; without one by the certificate that is to be renewed, whatever name the request says."""
        if request.token or not stream.peer.cert():
            return partial(self._enrol, request.token, request.node, request.csr_pem)
        identity = self._authorise(stream)
        return partial(self._renew, identity.name, identity.serial, request.csr_pem)

    async def _on_connect(self, stream: Connect) -> None:
        with errors_as_status():
            identity = self._authorise(stream)
            if self._streams[identity.name] >= STREAMS_A_NODE:
                raise Unavailable(f"node {identity.name} has {STREAMS_A_NODE} streams open already")
            self._streams[identity.name] += 1
            try:
                async with _deadline(self._limits.hello_s, "no Hello arrived"):
                    hello = await self._hello(stream, identity)
                await self._serve(stream, identity, hello)
            finally:
                self._streams[identity.name] -= 1
                if not self._streams[identity.name]:
                    del self._streams[identity.name]

    def _authorise(self, stream: Connect | Enroll) -> PeerIdentity:
        certificate = stream.peer.cert()
        if not certificate:
            raise Unauthenticated(
                "this call needs a node certificate: enrol the machine with `llmgw agent join TOKEN URL`"
            )
        identity = peer_identity(certificate)
        if identity is None or identity.cluster_id != self._cluster_id:
            raise NotAllowed("the certificate is not one that this cluster gave to a node")
        if identity.role is not Role.NODE:
            raise NotAllowed(f"a certificate of role {identity.role} may not connect as a node")
        if not self._allowed(identity.name, identity.serial):
            raise NotAllowed(_refused(identity.name))
        return identity

    async def _hello(self, stream: Connect, identity: PeerIdentity) -> Hello:
        first = await receive(stream, AgentMessage, max_bytes=MAX_FRAME_BYTES)
        hello = first.hello if first is not None else None
        if hello is None:
            raise InvalidInput("the first message of a node must be Hello")
        if hello.node != identity.name:
            raise NotAllowed(f"the certificate is for node {identity.name}: it cannot speak for {hello.node[:80]!r}")
        if hello.cluster_id and hello.cluster_id != self._cluster_id:
            raise NotAllowed(f"the node belongs to cluster {hello.cluster_id[:80]!r}; this is {self._cluster_id}")
        return hello

    async def _serve(self, stream: Connect, identity: PeerIdentity, hello: Hello) -> None:
        wake = asyncio.Event()
        address = stream.peer.addr()
        session = self._sessions.open(
            hello,
            node=identity.name,
            serial=identity.serial,
            peer_address=str(address[0]) if address else "",
            welcome=ServerMessage(welcome=self._welcome()),
            wake=wake.set,
        )
        works = [
            asyncio.create_task(self._guard(session, work))
            for work in (self._read(stream, session), self._write(stream, session, wake), self._watch(session))
        ]
        try:
            await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._sessions.end(session, "the connection was lost", lost=True)
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
        if session.lost or not stream._stream.connection.write_ready.is_set():
            stream._stream._transport.abort()
        raise session.cause or GRPCError(Status.ABORTED, session.ended)

    async def _guard(self, session: Session, work: Awaitable[None]) -> None:
        """Run one of a session's works; whatever ends it ends the session."""
        try:
            await work
        except LlmgwError as error:
            self._sessions.end(session, error)
        except StreamTerminatedError as error:
            self._sessions.end(session, f"the connection was lost: {error}", lost=True)
        except Exception as error:
            # A supervised border: h2 and the transport raise many kinds when a peer goes away in the middle.
            log.info("session of %s: %s: %s", session.node, type(error).__name__, error)
            self._sessions.end(session, f"the stream failed: {type(error).__name__}", lost=True)

    async def _read(self, stream: Connect, session: Session) -> None:
        clock = asyncio.get_running_loop().time
        messages = TokenBucket(rate=self._limits.messages_per_s, burst=self._limits.messages_per_s * 5, now=clock())
        volume = TokenBucket(rate=self._limits.bytes_per_s, burst=2.0 * MAX_FRAME_BYTES, now=clock())
        received = stream._stream.data_received
        while (message := await receive(stream, AgentMessage, max_bytes=MAX_FRAME_BYTES)) is not None:
            session.heard_at = clock()
            arrived = stream._stream.data_received
            wait_s = max(messages.take(1, clock()), volume.take(arrived - received, clock()))
            received = arrived
            if message.heartbeat is not None:
                self._heard(session.node)
                session.offer(ServerMessage(heartbeat_ack=HeartbeatAck(seq=message.heartbeat.seq)))
            elif message.hello is not None:
                raise InvalidInput("a second Hello on one stream")
            else:
                while self._sessions.congested:  # a trio channel has no asyncio event to wait for
                    session.heard_at = clock()  # it is this side that keeps the agent waiting
                    await asyncio.sleep(CONGESTION_POLL_S)
                self._sessions.deliver(session, message)
            if wait_s:
                await asyncio.sleep(wait_s)
        self._sessions.end(session, "the agent closed the stream")

    async def _write(self, stream: Connect, session: Session, wake: asyncio.Event) -> None:
        while session.ended is None:
            while session.outbox:
                await stream.send_message(session.outbox.popleft())
            wake.clear()
            if not session.outbox and session.ended is None:
                await wake.wait()

    async def _watch(self, session: Session) -> None:
        clock = asyncio.get_running_loop().time
        session.heard_at = clock()
        while session.ended is None:
            await asyncio.sleep(self._limits.check_s)
            if clock() - session.heard_at > self._limits.silent_s:
                self._sessions.end(session, f"the agent was silent for {self._limits.silent_s:g} s", lost=True)
            elif not self._allowed(session.node, session.serial):
                self._sessions.end(session, NotAllowed(_refused(session.node)))


def _refused(node: str) -> str:
    return (
        f"node {node} is not admitted with this certificate (evicted, revoked or replaced by a newer one): "
        "enrol it again with a new join token"
    )


@contextlib.asynccontextmanager
async def _deadline(limit_s: float, what: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError as error:
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"{what} within {limit_s:g} s") from error


def _log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
    """In place of trio-asyncio's handler, which ends the whole loop: one connection's error must not end the others."""
    error = context.get("exception")
    log.warning("agent port: %s", context.get("message"), exc_info=error if isinstance(error, BaseException) else None)
