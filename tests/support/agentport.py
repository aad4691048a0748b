"""A real agent port on loopback: an authority, a server with short limits, and nodes enrolled without the detour."""

import contextlib
import datetime as dt
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from agent.identity import Identity, save_identity
from agent.link import Link, LinkTimes
from llmgw.agents.bridge import AgentServer, Limits
from llmgw.agents.enrol import Enrolment
from llmgw.agents.sessions import NodeEvent
from llmgw.control.pki import Authority
from llmgw.core.errors import Unauthenticated
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import AgentMessage, Hello, ServerMessage, Welcome

QUICK = Limits(handshake_s=5.0, hello_s=1.0, silent_s=4.0, check_s=0.05)
QUICK_LINK = LinkTimes(first_retry_s=0.05, longest_retry_s=0.2, heartbeat_s=0.1, silent_s=4.0, good_after_s=0.2)

E = TypeVar("E")


class MemoryTokens:
    """Join tokens as the store keeps them: hash, end of life, used or not."""

    def __init__(self) -> None:
        self.rows: dict[str, tuple[dt.datetime, str | None]] = {}

    async def create(self, digest: str, ttl_s: float, actor: str) -> dt.datetime:
        """Keep a hash."""
        expires = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=ttl_s)
        self.rows[digest] = (expires, None)
        return expires

    async def consume(self, digest: str, node: str) -> None:
        """Use one up."""
        if digest not in self.rows:
            raise Unauthenticated("this join token is not known here")
        expires, used = self.rows[digest]
        if used is not None:
            raise Unauthenticated(f"this join token was used by {used!r} already")
        if expires <= dt.datetime.now(dt.UTC):
            raise Unauthenticated("this join token expired")
        self.rows[digest] = (expires, node)


@dataclass(kw_only=True)
class Port:
    """What a test holds of a running agent port."""

    authority: Authority
    server: AgentServer
    tokens: MemoryTokens
    enrolment: Enrolment
    port: int = 0
    serials: dict[str, str] = field(default_factory=dict)
    """The serial that counts, by node; a node that is not here may connect with any."""
    epoch: int = 1
    servers: list[str] = field(default_factory=list)
    beats: list[str] = field(default_factory=list)
    """Nodes whose heartbeats were heard, one entry each."""

    @property
    def address(self) -> str:
        """Where it listens."""
        return f"127.0.0.1:{self.port}"

    async def event(self, kind: type[E]) -> E:
        """The next event, which must be of `kind`, within 10 s."""
        with trio.fail_after(60):
            event = await self.server.events.receive()
        assert isinstance(event, kind), event
        return event

    async def next_event(self) -> NodeEvent:
        """The next event within 10 s."""
        with trio.fail_after(60):
            return await self.server.events.receive()


def make_port(directory: Path, *, limits: Limits = QUICK, port: int = 0) -> Port:
    """A port that does not run yet."""
    authority = Authority.open(directory / "secrets")
    tokens = MemoryTokens()
    made: Port

    async def issued(node: str, serial: str, fingerprint: str) -> None:
        made.serials[node] = serial

    def welcome() -> Welcome:
        return Welcome(cluster_id=authority.cluster_id, server_version="test", epoch=made.epoch, servers=made.servers)

    enrolment = Enrolment(
        authority=authority,
        create=tokens.create,
        consume=tokens.consume,
        issued=issued,
        renewed=issued,
        servers=lambda: made.servers,
        mirror_url=lambda: "https://127.0.0.1:9470",
    )
    server = AgentServer(
        host="127.0.0.1",
        port=port,
        context=authority.server_context(),
        cluster_id=authority.cluster_id,
        enrol=enrolment.enrol,
        renew=enrolment.renew,
        welcome=welcome,
        allowed=lambda node, serial: made.serials.get(node, serial) == serial,
        heard=lambda node: made.beats.append(node),
        limits=limits,
    )
    made = Port(authority=authority, server=server, tokens=tokens, enrolment=enrolment, port=port)
    return made


@contextlib.asynccontextmanager
async def running(port: Port) -> AsyncIterator[Port]:
    """The port, listening while the block runs."""
    async with trio.open_nursery() as nursery:
        port.port = await nursery.start(_serve, port.server)
        port.servers = port.servers or [port.address]
        try:
            yield port
        finally:
            nursery.cancel_scope.cancel()


async def _serve(server: AgentServer, *, task_status: trio.TaskStatus[int]) -> None:
    await server.run(task_status=task_status)


def key_and_request(name: str = "x") -> tuple[ec.EllipticCurvePrivateKey, bytes]:
    """A key and a certificate request."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return key, request.public_bytes(serialization.Encoding.PEM)


def enrolled(
    port: Port, directory: Path, node: str = "n1", *, authority: Authority | None = None, now: dt.datetime | None = None
) -> AgentLayout:
    """A node's files, as after `join`; `authority` may be a foreign one."""
    layout = AgentLayout(data=directory)
    directory.mkdir(parents=True, exist_ok=True)
    key, request = key_and_request()
    signed = (authority or port.authority).sign_node(request, node, now=now)
    layout.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    layout.certificate.write_bytes(signed.pem)
    layout.ca.write_bytes(port.authority.ca_pem)
    identity = Identity(node=node, cluster_id=port.authority.cluster_id, servers=tuple(port.servers) or (port.address,))
    save_identity(layout, identity)
    return layout


@dataclass(kw_only=True)
class Agent:
    """A running link and its two queues."""

    link: Link
    say: trio.MemorySendChannel[AgentMessage]
    orders: trio.MemoryReceiveChannel[ServerMessage]

    async def order(self) -> ServerMessage:
        """The next message of the server within 10 s."""
        with trio.fail_after(60):
            return await self.orders.receive()

    async def until(self, condition: Callable[[Link], bool]) -> None:
        """Wait until the link's state is as wanted, 10 s at most."""
        with trio.move_on_after(10):
            while not condition(self.link):
                await self.link.changed.wait()
            return
        raise AssertionError(f"connected to {self.link.connected_to}, last error {self.link.last_error!r}")


@contextlib.asynccontextmanager
async def linked(layout: AgentLayout, *, times: LinkTimes = QUICK_LINK, inbound: int = 100) -> AsyncIterator[Agent]:
    """A link that runs while the block does."""
    say, outbound = trio.open_memory_channel[AgentMessage](100)
    send, orders = trio.open_memory_channel[ServerMessage](inbound)
    link = Link(layout, hello=lambda: Hello(agent_version="t"), outbound=outbound, inbound=send, times=times)
    async with trio.open_nursery() as nursery:
        await nursery.start(_link, link)
        try:
            yield Agent(link=link, say=say, orders=orders)
        finally:
            nursery.cancel_scope.cancel()


async def _link(link: Link, *, task_status: trio.TaskStatus[None]) -> None:
    await link.run(task_status=task_status)


def free_port() -> int:
    """A loopback port nobody listens on at the moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def tls_socket(port: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    """A blocking TLS connection with a 5 s timeout."""
    raw = socket.create_connection(("127.0.0.1", port), timeout=60)
    return context.wrap_socket(raw, server_hostname="localhost")
