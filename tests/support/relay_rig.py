"""One stream between two socket pairs, on the real reactor: a test is its engine and reads what its client reads."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llmgw.core.routing import RoutedReplica, Timeouts
from llmgw.router.comments import Comments
from llmgw.router.ends import End
from llmgw.router.pool import Pool
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.relay import Stream
from llmgw.router.routes import Route
from llmgw.router.upstream import Upstream


@dataclass
class SocketClient:
    """The client's side: what it reads is what `received` returns."""

    sock: socket.socket
    far: socket.socket
    stream: Stream | None = None
    signal: Signal = field(default_factory=Signal)
    aborted: bool = False
    sends: int = 0

    def send(self, data: bytes, /) -> int:
        """One non-blocking send."""
        self.sends += 1
        return self.sock.send(data)

    def abort(self) -> None:
        """Close without more."""
        self.aborted = True

    def received(self) -> bytes:
        """All that arrived so far."""
        return drained(self.far)


@dataclass
class KeptPool:
    """Where the engine's connection goes afterwards."""

    reactor: Reactor
    kept: bool = False

    def put(self, _upstream: Upstream) -> None:
        """It may be used again."""
        self.kept = True

    def forget(self, _upstream: Upstream) -> None:
        """It was closed."""


def drained(sock: socket.socket) -> bytes:
    """All that has arrived at a socket that does not block."""
    out = b""
    while True:
        try:
            data = sock.recv(1 << 20)
        except BlockingIOError:
            return out
        if not data:
            return out
        out += data


@dataclass
class Rig:
    """One stream between two socket pairs."""

    reactor: Reactor
    engine: socket.socket
    upstream: Upstream
    client: SocketClient
    stream: Stream

    def turn(self) -> None:
        """Let the reactor serve what is ready."""
        self.reactor.turn()

    def say(self, *parts: bytes) -> None:
        """The engine writes, one read a part."""
        for part in parts:
            if self.ended is not None:
                return
            self.engine.sendall(part)
            self.turn()

    @property
    def ended(self) -> End | None:
        """How the stream ended."""
        return self.stream.end


@contextmanager
def rig(
    *,
    withhold: bool = True,
    http11: bool = True,
    timeouts: Timeouts | None = None,
    comments: Comments | None = None,
    shares_429: bool = True,
    route: Route = Route.CHAT,
) -> Iterator[Rig]:
    """A stream that has just sent its request."""
    reactor = Reactor()
    pool = Pool(reactor, RoutedReplica(id="r", model="m", endpoint="http://127.0.0.1:1"), "ek")
    near, engine = socket.socketpair()
    mine, far = socket.socketpair()
    for sock in (near, mine, far):
        sock.setblocking(False)
    client = SocketClient(mine, far)
    upstream = Upstream(pool, near)
    stream = Stream(
        reactor,
        client,
        timeouts or Timeouts(),
        request_id=b"req-1",
        http11=http11,
        keep_alive=http11,
        withhold=withhold,
        total_at=float("inf"),
        comments=comments,
        shares_429=shares_429,
        route=route,
    )
    stream.start(upstream, b"POST / HTTP/1.1\r\n\r\n")
    try:
        yield Rig(reactor, engine, upstream, client, stream)
    finally:
        pool.close()
        upstream.close()
        for sock in (engine, mine, far):
            sock.close()
        reactor.close()


def body_of(raw: bytes) -> bytes:
    """The decoded body of a chunked answer that ended properly."""
    _, _, rest = raw.partition(b"\r\n\r\n")
    body = b""
    while True:
        line, _, rest = rest.partition(b"\r\n")
        size = int(line, 16)
        assert rest[size : size + 2] == b"\r\n"
        if size == 0:
            assert rest == b"\r\n"
            return body
        body, rest = body + rest[:size], rest[size + 2 :]
