"""The quick way of a token: the same bytes and counts as the long way, whatever engines write and however it is cut."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.meters import INTER_TOKEN_S
from llmgw.core.routing import Timeouts
from llmgw.router.ends import End
from llmgw.router.events import EventStream
from llmgw.router.express import PLAIN_BYTES
from llmgw.router.meters import histogram_of, new_cells
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.relay import Stream
from llmgw.router.token_usage import Usage
from llmgw.router.upstream import Owner, Upstream
from tests.support.relay_rig import KeptPool
from tests.support.scripted_engine import DONE, chunk, token, usage_event

pytestmark = pytest.mark.usefixtures("either_pass")

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


@dataclass
class Client:
    """A client that takes `room` bytes."""

    stream: Stream | None = None
    signal: Signal = field(default_factory=Signal)
    received: bytes = b""
    room: int = 1 << 30
    left: bool = False

    def send(self, data: bytes, /) -> int:
        """One non-blocking send."""
        if self.left:
            raise ConnectionResetError
        taken = data[: self.room]
        if not taken:
            raise BlockingIOError
        self.room -= len(taken)
        self.received += taken
        return len(taken)

    def abort(self) -> None:
        """Close."""


class Body:
    """What the client reads, its framing taken off."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []

    def on_body(self, data: bytes) -> None:
        """A part."""
        self.parts.append(data)


class Rig:
    """A real connection and a real stream; the test plays reactor, engine and client."""

    def __init__(self, engine: socket.socket, sock: socket.socket, *, withhold: bool) -> None:
        self.engine, self.client, self.reactor = engine, Client(), Reactor()
        self.pool = KeptPool(self.reactor)
        self.upstream = Upstream(cast("Owner", self.pool), sock)
        self.cells = new_cells(INTER_TOKEN_S)
        self.stream = Stream(
            self.reactor,
            self.client,
            Timeouts(),
            request_id=b"req-1",
            http11=True,
            keep_alive=True,
            withhold=withhold,
            total_at=float("inf"),
            gaps=self.cells,
        )
        self.stream.start(self.upstream, b"GET / HTTP/1.1\r\n\r\n")

    def read(self, data: bytes) -> None:
        """The engine writes `data`, and it is read as far as the connection is read at all."""
        if data:
            self.engine.sendall(data)
        while events := self.reactor.epoll.poll(0):
            for fd, mask in events:
                self.reactor.handlers[fd](mask)

    def is_quick(self) -> bool:
        """Whether the next read takes the quick way."""
        return self.reactor.handlers.get(self.upstream.fd) not in (None, self.upstream.on_event)

    @property
    def body(self) -> bytes:
        """What the client has of the answer."""
        body = Body()
        httptools.HttpResponseParser(body).feed_data(self.client.received)
        return b"".join(body.parts)


@contextmanager
def rig(*, withhold: bool = True) -> Iterator[Rig]:
    """A connection that answers."""
    engine, sock = socket.socketpair()
    sock.setblocking(False)
    with engine:
        made = Rig(engine, sock, withhold=withhold)
        try:
            yield made
        finally:
            made.upstream.close()
            made.reactor.close()


def begun(made: Rig) -> Rig:
    """The answer has begun with one token."""
    made.read(HEAD + chunk(token("first")))
    return made


def test_a_token_takes_the_quick_way_from_the_second_on() -> None:
    with rig() as made:
        assert not made.is_quick()
        begun(made)
        assert made.is_quick()
        made.read(chunk(token("second")))
        made.read(chunk(token("third")))
        assert made.is_quick()
        assert made.body == token("first") + token("second") + token("third")
        made.stream.settle()
        assert made.stream.events is not None
        assert made.stream.events.events == 3
        assert sum(histogram_of(made.cells).counts) == 2


UPPER = b"%X\r\n%b\r\n"
ZEROS = b"000%x\r\n%b\r\n"
EXTENDED = b"%x;a=b\r\n%b\r\n"


@pytest.mark.parametrize("spelling", [UPPER, ZEROS, EXTENDED])
@pytest.mark.parametrize(
    "event",
    [
        token("x" * 11),
        token("[DONE]"),
        token('say "usage" twice'),
        token("a").replace(b"data: ", b"data:"),
        token("a").replace(b"\n\n", b"\r\n\r\n"),
        b'data: {"choices":[{"delta":{"content":"x"}}],"usage":null}\n\n',
        b": a comment\n\n",
        b"event: ping\ndata: {}\n\n",
        token("long" * PLAIN_BYTES),
        token("two") + token("in one"),
        b"data: half an event\n",
    ],
)
def test_every_spelling_arrives_as_it_was_and_is_counted_alike(spelling: bytes, event: bytes) -> None:
    with rig() as made:
        begun(made)
        made.read(spelling % (len(event), event))
        long = EventStream(withhold=True)
        expected = long.feed(token("first")) + long.feed(event)
        assert made.body == expected
        made.read(chunk(DONE) + b"0\r\n\r\n")
        expected += long.feed(DONE) + long.finish()
        assert made.body == expected
        assert made.stream.end is End.COMPLETE
        assert made.pool.kept
        assert made.stream.events is not None
        assert made.stream.events.events == long.events


def test_a_wrong_size_is_never_passed_on_as_a_chunk() -> None:
    event = token("lies")
    with rig() as made:
        begun(made)
        made.read(b"%x\r\n%b\r\n" % (len(event) - 2, event))
        assert made.stream.end is End.LOST
        assert made.body.startswith(token("first"))
        assert b'"error"' in made.body


def test_what_the_client_does_not_take_waits_and_the_engine_with_it() -> None:
    with rig() as made:
        begun(made)
        made.client.room = 10
        made.read(chunk(token("second")))
        made.read(chunk(token("third")))
        assert made.stream.pending
        assert made.upstream.fd not in made.reactor.handlers
        made.client.room = 1 << 30
        made.stream.flush()
        made.read(chunk(token("fourth")))
        assert made.is_quick()
        assert made.body == b"".join(token(word) for word in ("first", "second", "third", "fourth"))


def test_a_client_that_left_ends_the_engines_work() -> None:
    with rig() as made:
        begun(made)
        made.client.left = True
        made.read(chunk(token("second")))
        assert made.stream.end is End.LEFT
        assert made.upstream.closed


@pytest.mark.parametrize("reset", [True, False])
def test_an_engine_lost_between_two_tokens_is_an_error_event(reset: bool) -> None:
    with rig() as made:
        begun(made)
        assert made.is_quick()
        if reset:
            made.upstream.broke(ConnectionResetError())
        else:
            made.engine.shutdown(socket.SHUT_WR)
            made.read(b"")
        assert made.stream.end is End.LOST
        assert made.body.endswith(b"data: [DONE]\n\n")


EVENTS = st.sampled_from(
    [
        token("a"),
        token("é🙂"),
        token("a").replace(b"\n\n", b"\r\n\r\n"),
        token("a").replace(b"\n\n", b"\r\r"),
        token("[DONE]"),
        token('"usage"'),
        b'data: {"choices":[{"delta":{"content":"x"}}],"usage":null}\n\n',
        token("", finish="stop"),
        usage_event(7, 3),
        b": c\n\n",
        b"event: x\ndata: y\n\n",
        b"data: half\n",
        b"\n\n",
    ]
)
CHUNKS = st.lists(st.lists(EVENTS, min_size=1, max_size=3).map(b"".join), min_size=1, max_size=12)


@settings(max_examples=250, deadline=None)
@given(CHUNKS, st.booleans(), st.lists(st.integers(0, 4000), max_size=6))
def test_the_quick_way_and_the_long_way_agree(bodies: list[bytes], withhold: bool, cuts: list[int]) -> None:
    """Chunks as they come, each a read of its own but for some cuts; a half event is for the parser to hold."""
    sent = HEAD + chunk(token("first")) + b"".join(chunk(body) for body in bodies)
    ends, at = [], len(HEAD) + len(chunk(token("first")))
    for body in bodies:
        ends.append(at)
        at += len(chunk(body))
    borders = sorted({0, at, *ends, *(cut for cut in cuts if cut < at)})
    long = EventStream(withhold=withhold)
    expected = b"".join(long.feed(body) for body in [token("first"), *bodies])
    with rig(withhold=withhold) as made:
        for begin, end in pairwise(borders):
            made.read(sent[begin:end])
        made.read(b"0\r\n\r\n")
        events = made.stream.events
        assert made.body == expected + long.finish()
        assert made.stream.end is End.COMPLETE
        assert events is not None
        assert (events.done, events.usage or Usage()) == (long.done, long.usage or Usage())
