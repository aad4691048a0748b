"""Which moments of an answer are gaps between tokens: those between reads that brought some, less the client's own."""

import select
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from llmgw.core.meters import INTER_TOKEN_S
from llmgw.core.routing import Timeouts
from llmgw.router.compiled import status
from llmgw.router.meters import histogram_of, new_cells
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.relay import Stream
from llmgw.router.upstream import Upstream
from tests.support.scripted_engine import DONE, chunk, token, usage_event

pytestmark = [
    pytest.mark.usefixtures("either_pass"),
    pytest.mark.skipif(status()[0] is not None, reason="compiled classes take no stand-ins for others"),
]

COMMENT = b": still here\n\n"


@dataclass
class Clock:
    """All that a stream needs of a reactor."""

    now: float = 100.0
    woken: bool = False


@dataclass
class Engine:
    """All that a stream needs of an engine's connection."""

    parts: list[bytes] = field(default_factory=list)
    complete: bool = False
    waits: list[bool] = field(default_factory=list)
    """What it was told: to wait, to go on."""
    reads: list[bytes] = field(default_factory=list)
    left_over: list[bytes] = field(default_factory=list)
    """Reads that were not for the quick handler."""

    @property
    def sock(self) -> "Engine":
        """Its own socket."""
        return self

    def recv(self, _size: int) -> bytes:
        """The next read."""
        return self.reads.pop(0)

    def take(self, data: bytes) -> None:
        """What the parser is given."""
        self.left_over.append(data)

    def begin(self, stream: Stream, request: bytes, rest: Sequence[memoryview] = ()) -> None:
        """Nothing is sent."""

    def pause(self) -> None:
        """Stop reading."""
        self.waits.append(True)

    def resume(self) -> None:
        """Read again."""
        self.waits.append(False)

    def release(self) -> None:
        """It is through."""

    def close(self) -> None:
        """It is closed."""


@dataclass
class Client:
    """A client that takes everything, or nothing while `full`."""

    stream: Stream | None = None
    signal: Signal = field(default_factory=Signal)
    full: bool = False
    received: bytes = b""

    def send(self, data: bytes, /) -> int:
        """One non-blocking send."""
        if self.full:
            raise BlockingIOError
        self.received += data
        return len(data)

    def abort(self) -> None:
        """Close."""


class Rig:
    """A stream whose reads come when the test says."""

    def __init__(self, *, http11: bool = True) -> None:
        self.clock, self.engine, self.client = Clock(), Engine(), Client()
        self.cells = new_cells(INTER_TOKEN_S)
        self.stream = Stream(
            cast("Reactor", self.clock),
            self.client,
            Timeouts(),
            request_id=b"req-1",
            http11=http11,
            keep_alive=http11,
            withhold=True,
            total_at=float("inf"),
            gaps=self.cells,
        )
        self.stream.start(cast("Upstream", self.engine), b"")
        self.stream.on_head(200, [(b"content-type", b"text/event-stream")])

    def read(self, after_s: float, *events: bytes) -> None:
        """A read of whole chunks, one an event, `after_s` later than the last."""
        self.clock.now += after_s
        handler = self.stream.express() if len(events) == 1 else None
        if handler is not None:
            self.engine.reads.append(chunk(events[0]))
            handler(select.EPOLLIN)
            if not self.engine.left_over:
                return
            self.engine.left_over.clear()
        self.engine.parts += events
        self.stream.advance()

    @property
    def gaps(self) -> tuple[int, float]:
        """How many were counted, and how long they were together."""
        histogram = histogram_of(self.cells)
        return sum(histogram.counts), round(histogram.sum, 6)


@pytest.mark.parametrize("http11", [True, False])
def test_every_read_with_tokens_after_the_first_is_a_gap(http11: bool) -> None:
    rig = Rig(http11=http11)
    rig.read(2.0, token("a"))
    assert rig.gaps == (0, 0.0)
    assert rig.stream.first_at == 102.0
    rig.read(0.02, token("b"))
    rig.read(0.03, token("c"), token("d"), token("e"))
    rig.read(0.7, token("f"))
    assert rig.gaps == (3, 0.75)
    counts = histogram_of(rig.cells).counts
    assert counts[INTER_TOKEN_S.index(1.0)] == 1


def test_comments_usage_and_the_end_are_no_tokens() -> None:
    rig = Rig()
    rig.read(1.0, COMMENT)
    rig.read(1.0, token("a"))
    rig.read(1.0, COMMENT)
    rig.read(1.0, token("b"))
    rig.read(5.0, usage_event(3, 2))
    rig.engine.complete = True
    rig.read(5.0, DONE)
    assert rig.gaps == (1, 2.0)


def test_time_the_client_let_the_engine_wait_is_not_the_engines() -> None:
    rig = Rig()
    rig.read(0.0, token("a"))
    rig.client.full = True
    rig.read(0.05, token("b"))
    assert rig.engine.waits == [True]
    rig.clock.now += 60.0
    rig.client.full = False
    rig.stream.flush()
    assert rig.engine.waits == [True, False]
    rig.read(0.05, token("c"))
    assert rig.gaps == (2, 0.1)
