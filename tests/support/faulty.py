"""A file server that goes wrong once in its client's life and then holds still at a chosen place, to be killed there.

It keeps account of what a client must have after each answer, so that a test can tell what was asked for again for
nothing.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import trio

from tests.support.rawhttp import Asked, head, partial, several_ranges, whole

ETAG = '"1"'
PAGE = b"<!doctype html><title>Sign in</title><p>This network asks you to sign in first.</p>"
SLOW_PIECE_BYTES = 997
SLOW_BYTES = 60_000
"""Sent in such pieces before a slow answer goes on as fast as others."""


@dataclass
class Answer:
    """One request and what became of it."""

    start: int
    """First byte that was asked for."""
    sent: int = 0
    """Bytes of the file's body that were sent."""
    holds: int = 0
    """Bytes the client must hold after it, whether this answer brought them or an earlier one."""


@dataclass
class FaultyFile:
    """Serves `data` at every path."""

    data: bytes
    dice: Random
    fault: str = ""
    """What goes wrong with the next answer; the ones after it are right."""
    share: float = 0.5
    """How far of the rest an answer goes before it holds still; beyond 1 it is sent whole."""
    answers: list[Answer] = field(default_factory=list)
    holding: trio.Event = field(default_factory=trio.Event)
    """Set once an answer holds still."""

    def next_life(self, fault: str, share: float) -> None:
        """Prepare for another process."""
        self.fault, self.share = fault, share
        self.answers, self.holding = [], trio.Event()

    async def script(self, asked: Asked, stream: trio.SocketStream) -> None:
        """For `raw_server`."""
        start = asked.first_byte or 0
        answer = Answer(start=start, holds=start)
        self.answers.append(answer)
        fault, self.fault = self.fault, ""
        await FAULTS[fault](self, answer, stream)

    async def right(self, answer: Answer, stream: trio.SocketStream) -> None:
        """What was asked for, up to the place where it holds still."""
        await self._send(answer, stream, self._header(answer.start), answer.start)

    async def slow(self, answer: Answer, stream: trio.SocketStream) -> None:
        """The same in small pieces at first."""
        await self._send(answer, stream, self._header(answer.start), answer.start, slow=True)

    async def cut(self, answer: Answer, stream: trio.SocketStream) -> None:
        """Ends anywhere."""
        end = self.dice.randint(answer.start, len(self.data))
        await stream.send_all(self._header(answer.start) + self.data[answer.start : end])
        answer.sent, answer.holds = end - answer.start, end

    async def wrong_bytes(self, answer: Answer, stream: trio.SocketStream) -> None:
        """All of the rest, one bit of it another: only the checksum tells."""
        rest = bytearray(self.data[answer.start :])
        rest[self.dice.randrange(8 if answer.start == 0 else 0, len(rest))] ^= 1
        answer.sent, answer.holds = len(rest), 0
        await stream.send_all(self._header(answer.start) + rest)

    async def wrong_length(self, answer: Answer, stream: trio.SocketStream) -> None:
        """Of a file that is a little longer than the one published."""
        longer = self.data + b"and more"
        answer.holds = 0
        await stream.send_all(partial(longer, answer.start, ETag=ETAG) if answer.start else whole(longer, ETag=ETAG))

    async def whole_for_a_range(self, answer: Answer, stream: trio.SocketStream) -> None:
        """200 from the first byte on, whatever was asked for."""
        await self._send(answer, stream, self._header(0), 0)

    async def several_ranges(self, answer: Answer, stream: trio.SocketStream) -> None:
        """206 with its ranges in the body, as for a request that named several."""
        if not answer.start:
            await self.right(answer, stream)
            return
        answer.holds = 0
        await stream.send_all(several_ranges(self.data, answer.start, ETag=ETAG))

    async def encoded_range(self, answer: Answer, stream: trio.SocketStream) -> None:
        """A range of the file as it is packed, not of the file."""
        if not answer.start:
            await self.right(answer, stream)
            return
        answer.holds = 0
        await stream.send_all(partial(self.data, answer.start, ETag=ETAG, Content_Encoding="gzip")[:400])

    async def shorter_range(self, answer: Answer, stream: trio.SocketStream) -> None:
        """A whole answer to less than was asked for."""
        if not answer.start or answer.start + 1 >= len(self.data):
            await self.right(answer, stream)
            return
        end = self.dice.randint(answer.start + 1, len(self.data))
        answer.sent, answer.holds = end - answer.start, end
        await stream.send_all(partial(self.data, answer.start, end=end, ETag=ETAG))

    async def page(self, _answer: Answer, stream: trio.SocketStream) -> None:
        """403 with a page for people."""
        headers: dict[str, str | int] = {"Content-Type": "text/html", "Content-Length": len(PAGE)}
        await stream.send_all(head("403 Forbidden", headers) + PAGE)

    async def redirect(self, _answer: Answer, stream: trio.SocketStream) -> None:
        """Elsewhere on this server."""
        await stream.send_all(head("302 Found", {"Location": "/elsewhere/m.gguf", "Content-Length": 0}))

    def _header(self, start: int) -> bytes:
        answer = partial(self.data, start, ETag=ETAG) if start else whole(self.data, ETag=ETAG)
        return answer[: answer.index(b"\r\n\r\n") + 4]

    async def _send(
        self, answer: Answer, stream: trio.SocketStream, header: bytes, start: int, *, slow: bool = False
    ) -> None:
        end = start + int(self.share * (len(self.data) - start)) if self.share < 1 else len(self.data)
        await stream.send_all(header)
        at = start
        while slow and at < min(end, start + SLOW_BYTES):
            step = min(SLOW_PIECE_BYTES, end - at)
            await stream.send_all(self.data[at : at + step])
            await trio.lowlevel.checkpoint()
            at += step
        await stream.send_all(self.data[at:end])
        answer.sent, answer.holds = end - start, end
        self.holding.set()
        if end < len(self.data):
            await stream.receive_some(1)


FAULTS: dict[str, Callable[[FaultyFile, Answer, trio.SocketStream], Awaitable[None]]] = {
    "": FaultyFile.right,
    "cut": FaultyFile.cut,
    "wrong bytes": FaultyFile.wrong_bytes,
    "wrong length": FaultyFile.wrong_length,
    "200 to a range": FaultyFile.whole_for_a_range,
    "slow": FaultyFile.slow,
    "several ranges": FaultyFile.several_ranges,
    "a range in gzip": FaultyFile.encoded_range,
    "less than the range": FaultyFile.shorter_range,
    "403 with a page": FaultyFile.page,
    "redirect": FaultyFile.redirect,
}
