"""The data plane on a real socket with a state held in memory, and a client that sees every byte."""

import json
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import trio

from llmgw.core.routing import KeyRecord, ReplicaLoad, RoutedModel, RoutedReplica, Routing, Timeouts, UsageRow
from llmgw.router.limiter import Limiter, Reservation
from llmgw.router.meters import Meters
from llmgw.router.ports import Refusal
from llmgw.router.scopes import Chain, Demand, ScopeBook
from llmgw.router.service import serve
from llmgw.router.state import IndexedRoutes
from tests.support.scripted_engine import Behaviour, ScriptedEngine

KEY = b"sk-test-0123456789"
LIMITED_KEY = b"sk-limited-0123456789"
MODEL = RoutedModel(name="m", aliases=("alias-of-m",), context_length=4096, max_output=1024, created=1_700_000_000)
OTHER = RoutedModel(name="other", context_length=2048)
DEADLINE_S = 60.0


class MemoryState:
    """A `RouterState` that knows two keys and keeps what it is told."""

    def __init__(self, routing: Routing) -> None:
        self.routing = routing
        self._routes = IndexedRoutes(routing)
        self.in_flight: dict[str, int] = {}
        self.requests = 0
        self.open_requests = 0
        self.breakers: dict[str, str] = {}
        self.breaker_failures: dict[str, str] = {}
        self.meters = Meters()
        self.loads: dict[str, ReplicaLoad] = {}
        self.on_loads: Callable[[], None] = lambda: None
        self.on_stale_key: Callable[[str], None] = lambda key_id: None
        self.rows: list[UsageRow] = []
        self.limiter: Limiter | None = None
        self.scopes = ScopeBook()
        self.key = KeyRecord(id="k-test", name="test")
        """Whose `KEY` is; its limits hold once there is a `limiter`."""
        self.others: dict[bytes, KeyRecord] = {}
        """Further keys that are known."""
        self.wanted: list[str] = []
        self.slow_lookups = 0
        self.asked_by: list[str] = []
        """Addresses for which keys were looked up."""

    @property
    def routes(self) -> IndexedRoutes:
        """The snapshot."""
        return self._routes

    def apply(self, routing: Routing) -> None:
        """Replace it."""
        self._routes = IndexedRoutes(routing)

    def engine_key(self, replica_id: str) -> str:
        """A key that shows whose it is."""
        return f"ek-{replica_id}"

    async def authenticate(self, authorization: bytes | None, client: str) -> KeyRecord:
        """The slow way."""
        await trio.lowlevel.checkpoint()
        self.slow_lookups += 1
        self.asked_by.append(client)
        if authorization == LIMITED_KEY:
            return KeyRecord(id="k-limited", name="limited", models=("other",))
        raise Refusal(401, "Incorrect API key provided.", code="invalid_api_key")

    def authenticate_cached(self, authorization: bytes) -> KeyRecord | None:
        """The fast way."""
        return self.key if authorization == KEY else self.others.get(authorization)

    def scopes_of(self, key: KeyRecord) -> Chain | None:
        """Its limits."""
        return self.scopes.chain(key) if self.limiter is not None else None

    def tenant_of(self, team: str) -> str:
        """Every team is of one tenant."""
        return "acme" if team else ""

    def admit(self, chain: Chain, demand: Demand) -> Reservation:
        """Charge it."""
        assert self.limiter is not None
        return self.limiter.admit(chain, demand)

    def record(self, row: UsageRow) -> None:
        """Keep a row."""
        self.rows.append(row)

    def want(self, model: str) -> None:
        """Keep a wish."""
        self.wanted.append(model)


@dataclass
class Answer:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes
    raw: bytes = b""
    whole: bool = True
    """Whether it ended where its framing says."""

    @property
    def error(self) -> dict[str, object]:
        """The error object of an OpenAI-shaped refusal."""
        document = json.loads(self.body)["error"]
        assert set(document) == {"message", "type", "param", "code"}
        return dict(document)


@dataclass
class RawClient:
    """A client connection that sends what it is given and reads answers by their framing."""

    stream: trio.SocketStream
    buffer: bytes = b""
    reads: list[bytes] = field(default_factory=list)

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        await self.stream.send_all(data)

    async def more(self) -> bool:
        """One read; false at the end of the connection."""
        try:
            data = await self.stream.receive_some(65536)
        except trio.BrokenResourceError:
            return False
        self.reads.append(data)
        self.buffer += data
        return bool(data)

    async def until(self, mark: bytes) -> None:
        """Read until the mark is there; raises AssertionError at the end of the connection."""
        with trio.fail_after(DEADLINE_S):
            while mark not in self.buffer:
                assert await self.more(), self.buffer

    async def answer(self, *, interim: bool = False) -> Answer:
        """The next response."""
        with trio.fail_after(DEADLINE_S):
            await self.until(b"\r\n\r\n")
            head, _, self.buffer = self.buffer.partition(b"\r\n\r\n")
            lines = head.decode("latin-1").split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:])}
            status = int(lines[0].split()[1])
            if status < 200:
                return Answer(status, headers, b"")
            if "content-length" in headers:
                body, whole = await self._exactly(int(headers["content-length"]))
            elif headers.get("transfer-encoding") == "chunked":
                body, whole = await self._chunks()
            else:
                while await self.more():
                    pass
                body, whole, self.buffer = self.buffer, True, b""
            return Answer(status, headers, body, head, whole)

    async def _exactly(self, length: int) -> tuple[bytes, bool]:
        while len(self.buffer) < length:
            if not await self.more():
                return self.buffer, False
        body, self.buffer = self.buffer[:length], self.buffer[length:]
        return body, True

    async def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        while True:
            while b"\r\n" not in self.buffer:
                if not await self.more():
                    return body, False
            line, _, self.buffer = self.buffer.partition(b"\r\n")
            part, whole = await self._exactly(int(line, 16) + 2)
            if not whole:
                return body, False
            assert part.endswith(b"\r\n")
            if len(part) == 2:
                return body, True
            body += part[:-2]

    async def ended(self) -> bool:
        """Whether the connection ends without another byte."""
        with trio.fail_after(DEADLINE_S):
            return not self.buffer and not await self.more()


def post(
    body: bytes | dict[str, object], path: str = "/v1/chat/completions", *, key: bytes = KEY, headers: bytes = b""
) -> bytes:
    """A request as an SDK writes it."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = b"POST %b HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer %b\r\nContent-Type: application/json\r\n%b"
    return head % (path.encode(), key, headers) + b"Content-Length: %d\r\n\r\n" % len(raw) + raw


def get(path: str, *, key: bytes = KEY) -> bytes:
    """A GET request."""
    return b"GET %b HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer %b\r\n\r\n" % (path.encode(), key)


def chat(stream: bool = False, **fields: object) -> dict[str, object]:
    """A chat completion's body."""
    return {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": stream} | fields


@dataclass
class Plane:
    """A running data plane."""

    state: MemoryState
    engines: list[ScriptedEngine]
    address: tuple[str, int]
    drain: trio.Event
    returned: trio.Event
    nursery: trio.Nursery
    clients: list[RawClient] = field(default_factory=list)

    def move_engine(self, number: int, port: int) -> None:
        """The engine's replica is at `port` from now on."""
        self.engines[number].port = port
        self.state.apply(routing_of(self.engines, self.state.routes.timeouts))

    async def connect(self, source: str | None = None) -> RawClient:
        """A new client connection."""
        sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if source is not None:
            await sock.bind((source, 0))
        await sock.connect(self.address)
        client = RawClient(trio.SocketStream(sock))
        self.clients.append(client)
        return client

    async def ask(self, request: bytes) -> Answer:
        """One request on a connection of its own."""
        client = await self.connect()
        async with client.stream:
            await client.send(request)
            return await client.answer()


def routing_of(engines: Sequence[ScriptedEngine], timeouts: Timeouts) -> Routing:
    """Both models, the first of them with a replica an engine."""
    replicas = tuple(RoutedReplica(id=f"r{i}", model="m", endpoint=e.endpoint) for i, e in enumerate(engines))
    return Routing(revision="1/1", models=(MODEL, OTHER), replicas=replicas, timeouts=timeouts)


@asynccontextmanager
async def running(
    *behaviours: Behaviour,
    timeouts: Timeouts | None = None,
    public_socket: Path = Path("/nonexistent/public.sock"),
    client_tls: Path | None = None,
    client_proxies: Path | None = None,
    private: Sequence[Path] = (),
    requests: Path | None = None,
) -> AsyncIterator[Plane]:
    """The data plane in front of one engine a behaviour."""
    async with trio.open_nursery() as nursery:
        engines = [ScriptedEngine(behaviour) for behaviour in behaviours]
        for engine in engines:
            await nursery.start(engine.run)
        state = MemoryState(routing_of(engines, timeouts or Timeouts()))
        listener = socket.create_server(("127.0.0.1", 0), backlog=1024)
        listener.setblocking(False)
        plane = Plane(state, engines, listener.getsockname(), trio.Event(), trio.Event(), nursery)

        async def run(*, task_status: trio.TaskStatus[None]) -> None:
            await serve(
                listener,
                state,
                public_socket=public_socket,
                drain=plane.drain,
                client_tls=client_tls,
                client_proxies=client_proxies,
                private=private,
                requests=requests,
                task_status=task_status,
            )
            plane.returned.set()

        await nursery.start(run)
        try:
            yield plane
        finally:
            for client in plane.clients:
                client.stream.socket.close()
            nursery.cancel_scope.cancel()
            listener.close()


async def settled(plane: Plane) -> None:
    """Until nothing is open any more."""
    with trio.fail_after(DEADLINE_S):
        while plane.state.open_requests or plane.state.in_flight:  # noqa: ASYNC110 - plain counters
            await trio.sleep(0.005)
