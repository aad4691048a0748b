"""The way of a token in C and in Python: fed the same reads, both do the same, to the byte."""

import gc
import select
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.meters import INTER_TOKEN_S
from llmgw.core.routing import Timeouts
from llmgw.router import express, limits, reactor
from llmgw.router.compiled import status
from llmgw.router.ends import End
from llmgw.router.events import EventStream
from llmgw.router.meters import histogram_of, new_cells
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.relay import Stream
from llmgw.router.token_usage import Usage
from llmgw.router.upstream import Owner, Upstream
from tests.support.passes import Kind, in_c, passing_by
from tests.support.relay_rig import KeptPool, drained
from tests.support.scripted_engine import DONE, LAST_CHUNK, SSE_HEAD, chunk, token, usage_event

KINDS: tuple[Kind, Kind] = ("c", "python")
stand_ins = pytest.mark.skipif(status()[0] is not None, reason="compiled classes take no stand-ins for others")


@dataclass
class Client:
    """A client's connection; C writes to its descriptor itself."""

    sock: socket.socket
    stream: Stream | None = None
    signal: Signal = field(default_factory=Signal)
    send: Callable[[bytes], int] = field(init=False)

    def __post_init__(self) -> None:
        self.send = self.sock.send

    def abort(self) -> None:
        """Close."""
        self.sock.close()


class Rig:
    """A stream between two real sockets, on the reactor's own loop."""

    def __init__(self, stack: ExitStack, *, withhold: bool = True) -> None:
        self.reactor = Reactor()
        stack.callback(self.reactor.close)
        self.engine, near = socket.socketpair()
        mine, self.far = socket.socketpair()
        for sock in (self.engine, near, mine, self.far):
            sock.setblocking(False)
            stack.callback(sock.close)
        self.client, self.pool = Client(mine), KeptPool(self.reactor)
        self.upstream = Upstream(cast("Owner", self.pool), near)
        stack.callback(self.upstream.close)
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
        self.engine.recv(1024)
        self.ways: list[bool] = []
        """After every read, whether the next takes the quick way."""

    def say(self, *reads: bytes) -> None:
        """The engine writes, and each is read by itself."""
        for read in reads:
            if self.stream.end is None:
                self.engine.sendall(read)
                self.reactor.turn()
                self.ways.append(self.is_quick)

    @property
    def is_quick(self) -> bool:
        """Whether the next read takes the quick way."""
        return self.reactor.handlers.get(self.upstream.fd) not in (None, self.upstream.on_event)

    def received(self) -> bytes:
        """What the client has."""
        return drained(self.far)

    def outcome(self) -> tuple[object, ...]:
        """All there is to see."""
        self.stream.settle()
        events = self.stream.events
        assert events is not None
        counted = (events.events, events.last, events.done, events.usage or Usage(), events.between)
        gaps = sum(histogram_of(self.cells).counts)
        return self.received(), counted, gaps, self.stream.end, self.upstream.closed, self.pool.kept, tuple(self.ways)


@contextmanager
def rig(kind: Kind, *, withhold: bool = True) -> Iterator[Rig]:
    """A stream that has just sent its request, and goes one way."""
    with passing_by(kind), ExitStack() as stack:
        yield Rig(stack, withhold=withhold)


def both(reads: list[bytes], *, withhold: bool = True) -> tuple[object, ...]:
    """What comes of the reads; the same by either way."""
    seen: list[tuple[object, ...]] = []
    for kind in KINDS:
        with rig(kind, withhold=withhold) as made:
            made.say(*reads)
            seen.append(made.outcome())
    assert seen[0] == seen[1]
    return seen[0]


def short(text: str) -> bytes:
    """A small token."""
    return b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text.encode()


def upper(data: bytes) -> bytes:
    """A chunk whose size is written in capitals."""
    return b"%X\r\n%b\r\n" % (len(data), data)


BEGIN = SSE_HEAD + chunk(short("a"))
END = chunk(DONE) + LAST_CHUNK
EVENTS = {
    "tokens": [chunk(short(word)) for word in ("b", "é🙂", "\\n", "[DONE]", "usage", "gggg")],
    "capitals": [upper(short("b" * 27)), upper(short("c" * 170)), b"aB\r\n%b\r\n" % short("d" * 125)],
    "no blank": [chunk(short("b").replace(b"data: ", b"data:")), chunk(short("c"))],
    "extensions": [b"2f;a=b\r\n%b\r\n" % short("b"), b"002f\r\n%b\r\n" % short("c"), chunk(short("d"))],
    "line ends": [chunk(short("b").replace(b"\n", end)) for end in (b"\r\n", b"\r", b"\n")],
    "two in one": [chunk(short("b") + short("c")), chunk(short("d")) + chunk(short("e"))],
    "usage": [chunk(short("b")), chunk(usage_event(7, 3))],
    "no usage yet": [chunk(b'data: {"choices":[{"delta":{"content":"b"}}],"usage":null}\n\n')] * 2,
    "usage in words": [chunk(short('say \\"usage\\" and "usage":null')), chunk(short('"usage"usage":null'))],
    "error": [chunk(short("b")), chunk(b'data: {"error":{"message":"no"}}\n\n')],
    "comments": [chunk(b": ping\n\n"), chunk(short("b")), chunk(b"event: x\ndata: {}\n\n")],
    "half": [chunk(b'data: {"choices":[{"delta":'), chunk(b'{"content":"b"}}]}\n\n'), chunk(short("c"))],
}


@pytest.mark.parametrize("chunks", EVENTS.values(), ids=EVENTS.keys())
def test_every_cut_of_a_stream_comes_to_the_same(chunks: list[bytes]) -> None:
    raw = b"".join(chunks) + END
    whole = both([BEGIN, *chunks, END])
    assert whole[3] is End.COMPLETE
    for cut in range(1, len(raw)):
        both([BEGIN, raw[:cut], raw[cut:]])


PLAIN_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"


@pytest.mark.parametrize(
    "head",
    [
        SSE_HEAD,
        b"HTTP/1.1 100 Continue\r\n\r\n" + SSE_HEAD,
        PLAIN_HEAD + b"Transfer-Encoding: Chunked\r\n\r\n",
        PLAIN_HEAD + b"content-length: 200\r\n\r\n",
        PLAIN_HEAD + b"\r\n",
    ],
)
def test_every_cut_of_a_head_and_what_follows_comes_to_the_same(head: bytes) -> None:
    """Only what comes in chunks is looked at as chunks, and only behind the head."""
    raw = head + b"".join(chunk(short(word)) for word in "abc") + END
    for cut in range(len(head), len(raw)):
        both([raw[:cut], raw[cut:]])
    for cut in range(1, len(head)):
        both([raw[:cut], raw[cut:]])
        both([raw[:cut], raw[cut : len(head) + 60], raw[len(head) + 60 :]])


@pytest.mark.parametrize(
    "wrong",
    [
        b"2e\r\n%b\r\n" % short("b"),
        b"30\r\n%b\r\n" % short("b"),
        b"2f\n%b\r\n" % short("b"),
        b"2f\r\n%b\n\n" % short("b"),
        b"g2f\r\n%b\r\n" % short("b"),
        b"-1\r\ndata: {}\n\n\r\n",
        b"\r\ndata: {}\n\n\r\n",
        b"0\r\nx-trailer: data: {}\n\r\n\r\n",
        b"fffffffffffffffff\r\n%b\r\n" % short("b"),
        b"\x00" * 45,
    ],
)
def test_garbage_comes_to_the_same(wrong: bytes) -> None:
    both([BEGIN, chunk(short("b")), wrong, chunk(short("c")), END])


@pytest.mark.parametrize("length", [10, 16, 207, 208, 209, 4040, 4041, 4042, 4050, 4096, 5000, 70_000])
def test_sizes_at_every_border_come_to_the_same(length: int) -> None:
    for filler in range(length - 3, length + 3):
        both([BEGIN, chunk(short("x" * filler)), upper(short("y" * filler)), chunk(short("c")), END])


PARTS = st.one_of(
    *(st.sampled_from(chunks) for chunks in EVENTS.values()),
    st.binary(max_size=12),
    st.sampled_from([b"\r\n", b"\n", LAST_CHUNK, b"0\r\nx: y\r\n\r\n", chunk(token("z" * 300)), chunk(b"\n\n")]),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PARTS, max_size=10), st.booleans(), st.lists(st.integers(0, 3000), max_size=5))
def test_whatever_an_engine_writes_comes_to_the_same(parts: list[bytes], withhold: bool, cuts: list[int]) -> None:
    """Each part is a read of its own, but for some cuts."""
    ends = [0]
    for part in parts:
        ends.append(ends[-1] + len(part))
    raw = b"".join(parts)
    borders = sorted({*ends, *(cut for cut in cuts if cut < len(raw))})
    both([BEGIN, *(raw[a:b] for a, b in pairwise(borders)), END], withhold=withhold)


class Socket:
    """An engine's or a client's socket that is not the system's, as under TLS."""

    def __init__(self) -> None:
        self.reads: list[bytes | OSError] = []
        self.taken = b""
        self.fails: OSError | None = None
        self.room = 1 << 20

    def recv(self, _size: int) -> bytes:
        """The next read."""
        read = self.reads.pop(0)
        if isinstance(read, OSError):
            raise read
        return read

    def send(self, data: bytes) -> int:
        """What there is room for."""
        if self.fails is not None:
            raise self.fails
        self.taken += data[: self.room]
        return min(len(data), self.room)


class Around:
    """Connection, stream, events and reactor in one: it writes down what a handler does with them."""

    def __init__(self, kind: Kind) -> None:
        self.sock = self.client = Socket()
        self.fd, self.now = 7, 101.0
        self.events, self.last = 0, b""
        self.token_at = self.heard_at = 100.0
        self.gaps = new_cells(INTER_TOKEN_S)
        self.calls: list[tuple[object, ...]] = []
        whole = cast("Upstream", self), cast("Stream", self), cast("EventStream", self), cast("Reactor", self)
        with passing_by(kind):
            self.handler, self.settle = express.express(*whole)

    def _called(self, *call: object) -> None:
        self.calls.append((*call, self.events, self.token_at, self.heard_at))

    def on_event(self, mask: int) -> None:
        """Of the connection."""
        self._called("on_event", mask)

    def take(self, data: bytes) -> None:
        """Of the connection."""
        self._called("take", data)

    def broke(self, error: OSError) -> None:
        """Of the connection."""
        self._called("broke", type(error), str(error))

    def hold(self, rest: bytes) -> None:
        """Of the stream."""
        self._called("hold", rest)

    def client_left(self) -> None:
        """Of the stream."""
        self._called("client_left")

    def read(self, *reads: bytes | OSError, mask: int = select.EPOLLIN) -> None:
        """Each after 20 ms."""
        for read in reads:
            self.now += 0.02
            self.sock.reads.append(read)
            self.handler(mask)
        self.settle()

    @property
    def seen(self) -> tuple[object, ...]:
        """All that can be seen."""
        return self.events, self.last, self.token_at, self.heard_at, self.gaps, self.calls, self.sock.taken


def alike(act: Callable[[Around], None]) -> Around:
    """What was done, the same by either way."""
    one, other = Around("c"), Around("python")
    act(one)
    act(other)
    assert one.seen == other.seen
    return one


@stand_ins
@settings(max_examples=1500, deadline=None)
@given(
    st.sampled_from([part for chunks in EVENTS.values() for part in chunks]),
    st.lists(st.tuples(st.integers(0, 400), st.sampled_from(b'\r\n{}"0aFgu:\x00 ')), max_size=3),
    st.integers(-2, 2),
)
def test_a_byte_more_or_less_is_judged_alike(part: bytes, changes: list[tuple[int, int]], cut: int) -> None:
    """Of a chunk with some bytes changed, or put in, or cut off."""
    read = bytearray(part)
    for at, byte in changes:
        if at < len(read):
            read[at] = byte
        elif at < 2 * len(read):
            read.insert(at - len(read), byte)
    data = bytes(read[:cut] if cut < 0 else read[cut:])
    alike(lambda around: around.read(data))


@stand_ins
def test_times_and_gaps_are_kept_as_in_python() -> None:
    def act(around: Around) -> None:
        around.read(*[chunk(short("b"))] * 3)
        around.now += 7.0
        around.read(chunk(short("c")))
        around.token_at = around.now + 1.0  # the wait was the client's
        around.now += 1.5
        around.read(chunk(short("d")), mask=select.EPOLLIN)

    around = alike(act)
    assert around.events == 5
    assert around.token_at == around.heard_at == around.now
    assert sum(around.gaps[:-1]) == 5


@stand_ins
def test_what_is_not_for_the_quick_way_is_handed_on_after_it_has_settled() -> None:
    def act(around: Around) -> None:
        around.read(chunk(short("b")), b"", mask=select.EPOLLIN)
        around.read(chunk(short("c")), mask=select.EPOLLIN)
        around.sock.reads.append(b"unread")
        around.handler(select.EPOLLIN | select.EPOLLRDHUP)
        around.sock.reads.clear()
        around.read(BlockingIOError(11, "later"), chunk(short("d")), ConnectionResetError(104, "gone"))

    around = alike(act)
    assert [call[0] for call in around.calls] == ["take", "on_event", "broke"]
    assert [call[-3] for call in around.calls] == [1, 2, 3]


@stand_ins
def test_a_client_that_takes_less_or_nothing_or_has_left() -> None:
    def act(around: Around) -> None:
        around.client.room = 10
        around.read(chunk(short("b")))
        for error in (BlockingIOError(11, "later"), BrokenPipeError(32, "gone")):
            around.client.fails = error
            around.read(chunk(short("c")))

    around = alike(act)
    rest = chunk(short("c"))
    assert [call[:-3] for call in around.calls] == [("hold", chunk(short("b"))[10:]), ("hold", rest), ("client_left",)]


@stand_ins
@pytest.mark.parametrize("kind", KINDS)
def test_an_error_that_is_none_of_a_sockets_is_raised(kind: Kind) -> None:
    around = Around(kind)
    around.client.fails = cast("OSError", ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        around.read(chunk(short("b")))


@pytest.mark.parametrize("kind", KINDS)
def test_a_client_that_does_not_read_holds_up_its_engine_and_gets_every_byte(kind: Kind) -> None:
    with rig(kind) as made:
        made.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        words = [chunk(token(f"{number} " + "x" * 500)) for number in range(40)]
        made.say(BEGIN)
        got = b""
        for word in words:
            made.say(word)
            if made.stream.pending:
                assert not made.is_quick
                while made.stream.pending:
                    got += made.received()
                    made.stream.flush()
                made.reactor.turn()
        got += made.received()
        made.say(END)
        got += made.received()
        assert False in made.ways, "the client was never slow"
        assert got.endswith(b"".join(words) + END)
        assert made.stream.end is End.COMPLETE


@pytest.mark.parametrize("kind", KINDS)
def test_a_descriptor_that_was_closed_is_never_written_to_again(kind: Kind) -> None:
    """The next to be opened has its number."""
    with rig(kind) as made:
        made.say(BEGIN, chunk(short("b")))
        number = made.client.sock.fileno()
        made.client.sock.close()
        other, end = socket.socketpair()
        with other, end:
            assert number in (other.fileno(), end.fileno())
            made.say(chunk(short("c")))
            assert made.stream.end is End.LEFT
            for sock in (other, end):
                sock.setblocking(False)
                with pytest.raises(BlockingIOError):
                    sock.recv(1)


@pytest.mark.parametrize("kind", KINDS)
def test_a_deadline_knows_of_every_token(kind: Kind) -> None:
    with rig(kind) as made:
        made.say(BEGIN)
        before = made.stream.heard_at
        made.say(chunk(short("b")))
        made.stream.tick(made.reactor.now)
        assert made.stream.heard_at == made.reactor.now > before
        made.stream.tick(made.reactor.now + Timeouts().inter_token + 1)
        assert made.stream.end is End.LOST


@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_that_ended_is_gone_at_once_and_leaves_nothing(kind: Kind) -> None:
    def serve() -> None:
        with rig(kind) as made:
            made.say(BEGIN, *[chunk(short("b"))] * 50)
            assert made.is_quick
            made.say(END)
            assert made.stream.end is End.COMPLETE

    serve()
    gc.collect()
    gc.disable()
    try:
        before = sum(isinstance(held, Stream | Upstream | Client) for held in gc.get_objects())
        blocks = sys.getallocatedblocks()
        for _ in range(30):
            serve()
        assert sum(isinstance(held, Stream) for held in gc.get_objects()) <= before
        gc.collect()
        assert sys.getallocatedblocks() - blocks < 200, "1,500 tokens left something of each"
    finally:
        gc.enable()


def test_the_handler_is_cs_where_it_is_built() -> None:
    with rig("c") as made:
        made.say(BEGIN)
        assert type(made.reactor.handlers[made.upstream.fd]).__name__ == "Pass"


def test_what_both_count_on_is_the_same() -> None:
    module = in_c()
    assert module.RECV_BYTES == limits.RECV_BYTES
    assert (module.PLAIN_BYTES, module.MAX_EVENTS) == (express.PLAIN_BYTES, reactor.MAX_EVENTS)
