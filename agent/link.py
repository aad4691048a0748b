"""The node's line to its control planes: kept up for ever, silent about nothing it owes, believing no older leader.

While there is no stream, what the agent wants to say is dropped: Hello tells the whole state when there is one again.
Only this module and `link_rpc` know asyncio; both queues to the agent are trio's.
"""

import asyncio
import contextlib
import logging
import os
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

import msgspec
import trio
import trio_asyncio
from grpclib.exceptions import GRPCError

from agent.identity import MAX_SERVERS, MAX_TEXT, Identity, load_identity, save_identity, split_address
from agent.link_rpc import Call, connect_call, ignore_loop_error, open_channel, receive, tls_context, transport_sentence
from llmgw.core.cluster import HEARTBEAT_S, SILENT_AFTER_S
from llmgw.core.errors import LlmgwError
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import AgentMessage, Heartbeat, Hello, ServerMessage, Welcome

log = logging.getLogger("agent.link")

OUTBOX_MESSAGES = 1024
"""Messages waiting for a server that does not read; more end the session, and the next Hello tells the state anew."""
REFUSED_HINT = (
    " before the server answered: it may not accept this node's certificate (expired, or another cluster's); "
    "if so, join again with a new join token"
)
"""A server's TLS alert about a client's certificate is lost with the connection (asyncio cuts it first)."""
INBOUND_POLL_S = 0.02
"""How often a paused reader looks whether the agent takes orders again."""


@dataclass(frozen=True, kw_only=True)
class LinkTimes:
    """Intervals of the link, in seconds."""

    first_retry_s: float = 1.0
    """Longest wait before the first new attempt."""
    longest_retry_s: float = 60.0
    """Longest wait between attempts; waits double from the first to this, each cut by up to half at random."""
    heartbeat_s: float = HEARTBEAT_S
    """The server may ask for a shorter one in Welcome."""
    silent_s: float = SILENT_AFTER_S
    """A stream on which the server says nothing (not even acknowledgements) for this long is dropped."""
    good_after_s: float = HEARTBEAT_S
    """A session that lasted this long makes the waits short again."""


class Refused(LlmgwError):
    """This side ends the session; the sentence goes to the log."""

    code = "refused"


@dataclass(kw_only=True, eq=False)
class _Session:
    """One open stream."""

    wake: asyncio.Event = field(default_factory=asyncio.Event)
    outbox: deque[AgentMessage] = field(default_factory=deque)
    overflowed: bool = False
    heard_at: float = 0.0

    def offer(self, message: AgentMessage) -> None:
        if len(self.outbox) >= OUTBOX_MESSAGES:
            self.overflowed = True
        else:
            self.outbox.append(message)
        self.wake.set()


class Link:
    """The agent's end of `llmgw.v1.Agents.Connect`: Welcome and orders go to `inbound`, acknowledgements do not."""

    def __init__(
        self,
        layout: AgentLayout,
        *,
        hello: Callable[[], Hello],
        outbound: trio.MemoryReceiveChannel[AgentMessage],
        inbound: trio.MemorySendChannel[ServerMessage],
        times: LinkTimes = LinkTimes(),
        chance: random.Random | None = None,
    ) -> None:
        """`hello()` is called for every new stream; the link adds node, cluster and pid. Raises IdentityError."""
        self._layout = layout
        self._identity = load_identity(layout)
        self._hello = hello
        self._outbound = outbound
        self._inbound = inbound
        self._times = times
        self._chance = chance or random.Random()
        self._session: _Session | None = None
        self._failures = 0
        self._next = 0
        self.connected_to: str | None = None
        """`host:port` of the control plane whose Welcome is in force; None while there is no stream."""
        self.last_error = ""
        """Why the last attempt or session ended."""
        self.changed = trio.Event()
        """Set, and replaced by a fresh one, whenever `connected_to` or `last_error` changes."""

    @property
    def connected(self) -> bool:
        """Whether a control plane welcomed this node on the current stream."""
        return self.connected_to is not None

    @property
    def identity(self) -> Identity:
        """What is known of the cluster, updated by every Welcome."""
        return self._identity

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep a stream open until cancelled; started at once, connected or not."""
        async with link_loop():
            await self.keep_up(task_status=task_status)

    async def keep_up(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """`run`, for a task inside `link_loop()`, which many links may share. After a cancel it may be called again."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._pump)
            task_status.started()
            try:
                while True:
                    await self._attempt()
                    await trio.sleep(self.retry_delay_s())
            finally:
                self.connected_to = None

    def retry_delay_s(self) -> float:
        """How long to wait before the next attempt; jittered, so that a fleet does not come back in one moment."""
        longest = min(self._times.longest_retry_s, self._times.first_retry_s * 2 ** min(self._failures, 20))
        return float(longest * self._chance.uniform(0.5, 1.0))

    async def _pump(self) -> None:
        """Hand what the agent says to the open stream, or drop it."""
        async for message in self._outbound:
            if self._session is not None:
                self._session.offer(message)

    async def _attempt(self) -> None:
        """One session with the next server of the list; never raises but Cancelled."""
        servers = self._identity.servers
        address = servers[self._next % len(servers)]
        started = trio.current_time()
        welcomed = False
        try:
            await trio_asyncio.aio_as_trio(self._connect)(address)
        except Exception as error:
            # A supervised border: whatever ended the session, the next attempt is the answer to it.
            welcomed = self.connected
            hint = REFUSED_HINT if isinstance(error, ConnectionResetError) and not welcomed else ""
            self._report(None, f"{address}: {_sentence(error)}{hint}")
        if welcomed and trio.current_time() - started >= self._times.good_after_s:
            self._failures = 0
            return
        self._next += 1
        if self._next % len(servers) == 0 or welcomed:
            self._failures += 1

    def _report(self, connected_to: str | None, error: str) -> None:
        if connected_to:
            log.info("connected to %s", connected_to)
        elif error != self.last_error or self._failures == 0:
            log.warning("no stream to a control plane: %s", error)
        self.connected_to, self.last_error = connected_to, error
        self.changed.set()
        self.changed = trio.Event()

    async def _connect(self, address: str) -> None:
        """One session (asyncio): returns never, raises what ended it."""
        host, port = split_address(address)
        context = tls_context(self._layout.ca, self._layout.certificate, self._layout.key)
        cluster_id = self._identity.cluster_id
        async with open_channel(host, port, context, cluster_id=cluster_id) as channel, connect_call(channel) as call:
            # Collecting begins before Hello is made: what changes while it travels must follow it.
            self._session = session = _Session()
            try:
                await call.send_message(AgentMessage(hello=self._own_hello()))
                async with asyncio.timeout(self._times.silent_s):
                    welcome = await self._welcomed(call)
                self._report(address, "")
                await self._converse(call, session, welcome)
            finally:
                self._session = None

    def _own_hello(self) -> Hello:
        hello = self._hello()
        return replace(hello, node=self._identity.node, cluster_id=self._identity.cluster_id, pid=os.getpid())

    async def _welcomed(self, call: Call) -> Welcome:
        first = await receive(call, ServerMessage)
        welcome = first.welcome
        if welcome is None:
            raise Refused("the server's first message was not Welcome")
        if welcome.cluster_id != self._identity.cluster_id:
            raise Refused(f"the server is of cluster {welcome.cluster_id[:80]!r}, this node of another")
        if welcome.epoch < self._identity.epoch:
            raise Refused(
                f"the server speaks for epoch {welcome.epoch}, but epoch {self._identity.epoch} was seen: it is not "
                f"the leader (after restoring an older database, remove `epoch` from {self._layout.identity})"
            )
        self._learn(welcome)
        await self._pass_on(first)
        return welcome

    def _learn(self, welcome: Welcome) -> None:
        known = self._identity
        told = [text for text in welcome.servers[: MAX_SERVERS - 1] if _is_address(text)]
        here = known.servers[self._next % len(known.servers)]  # it answers, which what it tells may not
        servers = tuple(dict.fromkeys((*told, here)))
        mirror_url = welcome.mirror_url[:MAX_TEXT] or known.mirror_url
        fresh = msgspec.structs.replace(known, servers=servers, mirror_url=mirror_url, epoch=welcome.epoch)
        if fresh != known:
            save_identity(self._layout, fresh)
            self._identity = fresh

    async def _converse(self, call: Call, session: _Session, welcome: Welcome) -> None:
        session.heard_at = _clock()
        heartbeat_s = self._times.heartbeat_s
        if 0.05 <= welcome.heartbeat_s < heartbeat_s:
            heartbeat_s = welcome.heartbeat_s
        works = (self._read(call, session), self._write(call, session), self._watch(session, heartbeat_s))
        tasks = [asyncio.ensure_future(work) for work in works]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            ended = next(iter(done))
            raise (None if ended.cancelled() else ended.exception()) or Refused("the stream ended")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self, call: Call, session: _Session) -> None:
        while True:
            message = await receive(call, ServerMessage)
            session.heard_at = _clock()
            if message.heartbeat_ack is None:
                await self._pass_on(message)

    async def _pass_on(self, message: ServerMessage) -> None:
        while True:
            try:
                self._inbound.send_nowait(message)
            except trio.WouldBlock:
                await asyncio.sleep(INBOUND_POLL_S)
            else:
                return

    async def _write(self, call: Call, session: _Session) -> None:
        while True:
            session.wake.clear()
            while session.outbox:
                await self._send(call, session.outbox.popleft())
            if session.overflowed:
                raise Refused(f"the server took none of {OUTBOX_MESSAGES} waiting messages")
            await session.wake.wait()

    async def _send(self, call: Call, message: AgentMessage) -> None:
        await call.send_message(message)

    async def _watch(self, session: _Session, heartbeat_s: float) -> None:
        seq = 0
        while True:
            seq += 1
            session.offer(AgentMessage(heartbeat=Heartbeat(seq=seq)))
            await asyncio.sleep(heartbeat_s)
            if session.overflowed:
                raise Refused(f"the server took none of {OUTBOX_MESSAGES} waiting messages")
            if _clock() - session.heard_at > self._times.silent_s:
                raise Refused(f"the server was silent for {self._times.silent_s:g} s")


@contextlib.asynccontextmanager
async def link_loop() -> AsyncIterator[None]:
    """The asyncio loop in which links live."""
    async with trio_asyncio.open_loop() as loop:
        loop.set_exception_handler(ignore_loop_error)
        yield


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _is_address(text: str) -> bool:
    try:
        split_address(text)
    except ValueError:
        return False
    return len(text) <= MAX_TEXT


def _sentence(error: Exception) -> str:
    """Why a session ended, for the log."""
    if isinstance(error, GRPCError):
        return f"{error.status.name}: {error.message or 'no reason given'}"
    return transport_sentence(error)
