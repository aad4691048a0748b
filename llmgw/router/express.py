"""The way of nearly every token: one read from the engine, one write to the client, and a few searches in C between.

Engines send a token as one chunk that holds one event in one line of JSON. What is exactly that is passed on as it
came, framing and all. Whatever differs in a byte goes through the parser, which is always right; so does everything
until the parser stands between two chunks again and nothing is held back.

Where `token_pass` was built, C does the same without a step of Python; what is written here says what is right.
"""

import select
from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING

from llmgw.core.meters import INTER_TOKEN_S
from llmgw.router.events import EventStream
from llmgw.router.limits import RECV_BYTES
from llmgw.router.reactor import Reactor
from llmgw.router.token_pass import loaded

if TYPE_CHECKING:
    from llmgw.router.relay import Stream
    from llmgw.router.upstream import Upstream

PLAIN_BYTES = 4096
"""A longer read is no single token: its chunk is a few hundred bytes."""
LONGEST_SIZE_LINE = 5
"""Bytes of a size line of three digits. A shorter one is followed by `data:`, so that these hold no other line end."""


def _beginnings() -> tuple[tuple[bytes, ...], ...]:
    """By a chunk's whole length, how it must begin for its size line to be right, in either case of digits."""
    found: list[tuple[bytes, ...]] = [()] * (PLAIN_BYTES + 1)
    for size in range(1, PLAIN_BYTES):
        digits = b"%x" % size
        length = len(digits) + size + 4
        if length <= PLAIN_BYTES:
            spelled = sorted({digits, digits.upper()})
            found[length] = tuple(s + b"\r\n" + data for s in spelled for data in (b"data: {", b"data:{"))
    return tuple(found)


_BEGINNINGS = _beginnings()
TOKEN_PASS, _ = loaded()
"""The same in C."""


def express(
    upstream: "Upstream", stream: "Stream", events: EventStream, reactor: Reactor
) -> tuple[Callable[[int], None], Callable[[], None]]:
    """A handler for a connection of which `Stream.express` said that it may have one, and what has it settled.

    The handler may keep to itself what it passed on: `events`, `heard_at` and `token_at` are right once it has settled,
    which it does itself before it calls anything of the stream's or the connection's.
    """
    if TOKEN_PASS is not None:
        made = TOKEN_PASS.Pass(upstream, stream, events, reactor, INTER_TOKEN_S)
        return made, made.settle
    return _in_python(upstream, stream, events, reactor), settled


def settled() -> None:
    """Nothing is kept."""


def _in_python(upstream: "Upstream", stream: "Stream", events: EventStream, reactor: Reactor) -> Callable[[int], None]:
    beginnings, bounds, readable = _BEGINNINGS, INTER_TOKEN_S, select.EPOLLIN
    recv, send, gaps = upstream.sock.recv, stream.client.send, stream.gaps

    def on_event(mask: int) -> None:
        if mask != readable:
            upstream.on_event(mask)
            return
        try:
            chunk = recv(RECV_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            upstream.broke(error)
            return
        # One chunk, all of it, with one event of one line that only goes on. Spelled out: this runs for every token.
        size = len(chunk)
        if not (size <= PLAIN_BYTES and chunk.startswith(beginnings[size]) and chunk.endswith(b"}\n\n\r\n")):
            upstream.take(chunk)
            return
        line = chunk[LONGEST_SIZE_LINE:-5]
        if (
            10 in line
            or 13 in line
            or (chunk.find(b'"usage"') >= 0 and chunk.count(b'"usage"') != chunk.count(b'"usage":null'))
        ):
            upstream.take(chunk)
            return
        events.events += 1
        events.last = chunk
        now = reactor.now
        gap = now - stream.token_at
        gaps[bisect_left(bounds, gap)] += 1
        gaps[-1] += gap
        stream.heard_at = stream.token_at = now
        try:
            sent = send(chunk)
        except BlockingIOError:
            sent = 0
        except OSError:
            stream.client_left()
            return
        if sent != size:
            stream.hold(chunk[sent:])

    return on_event
