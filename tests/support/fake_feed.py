"""A server that speaks the admin API's live feed and nothing more, from recorded messages, on a real unix socket.

The test decides what is sent and when: `say` to every reader, `hush` to fall silent, `cut` to break connections off,
`stop` and `start` for a server that is away. What readers asked with is kept in `asked`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from llmgw.api.paths import PROBLEM_TYPE
from llmgw.api.types import Problem
from llmgw.api.watch import Message

_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n"


class FakeFeed:
    """One server at one path."""

    def __init__(self, path: Path, *first: Message) -> None:
        self.path = path
        self.first = list(first)
        """What every new reader gets at once."""
        self.refusal: Problem | None = None
        """Answered in place of the feed."""
        self.answers: dict[str, bytes] = {}
        """Path → JSON body of other routes."""
        self.asked: list[dict[str, str]] = []
        self.calls: list[tuple[str, str, bytes]] = []
        """(method, path, body) of every other request."""
        self.called: list[str] = []
        """Paths of the other routes that were asked, in their order."""
        self._server: asyncio.Server | None = None
        self._readers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def stop(self) -> None:
        """Listen no more, and break off what is open."""
        if self._server is not None:
            self._server.close()
            self.cut()
            await self._server.wait_closed()
            self._server = None
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()

    async def say(self, *messages: Message) -> None:
        """Send to every reader."""
        for writer in list(self._readers):
            for message in messages:
                _write_chunk(writer, msgspec.json.encode(message) + b"\n")
            await writer.drain()

    async def say_bytes(self, data: bytes) -> None:
        """Send anything at all."""
        for writer in list(self._readers):
            _write_chunk(writer, data)
            await writer.drain()

    def cut(self) -> None:
        """Break every connection off."""
        for writer in list(self._readers):
            writer.transport.abort()
        self._readers.clear()

    @property
    def readers(self) -> int:
        """Connections that are open."""
        return len(self._readers)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            url = urlsplit(head.split(" ")[1])
            if not url.path.endswith("/watch"):
                self.calls.append((head.split(" ")[0], head.split(" ")[1], await _body(reader, head)))
            if url.path in self.answers:
                self.called.append(url.path)
                await _answer(writer, 200, "application/json", self.answers[url.path])
            elif not url.path.endswith("/watch"):
                problem = Problem(code="not-found", message=f"{url.path} is not recorded", status=404)
                await _answer(writer, 404, PROBLEM_TYPE, msgspec.json.encode(problem))
            elif self.refusal is not None:
                await _answer(writer, self.refusal.status, PROBLEM_TYPE, msgspec.json.encode(self.refusal))
            else:
                await self._feed(reader, writer, {key: values[0] for key, values in parse_qs(url.query).items()})

    async def _feed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, query: dict[str, str]) -> None:
        self.asked.append(query)
        writer.write(_HEAD)
        for message in self.first:
            _write_chunk(writer, msgspec.json.encode(message) + b"\n")
        await writer.drain()
        self._readers.add(writer)
        await reader.read()
        self._readers.discard(writer)
        writer.close()


async def _body(reader: asyncio.StreamReader, head: str) -> bytes:
    for line in head.split("\r\n"):
        name, _, value = line.partition(":")
        if name.lower() == "content-length":
            return await reader.readexactly(int(value))
    return b""


def _write_chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def _answer(writer: asyncio.StreamWriter, status: int, type_: str, body: bytes) -> None:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {type_}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    await writer.drain()
    writer.close()


@contextlib.asynccontextmanager
async def fake_feed(path: Path, *first: Message) -> AsyncIterator[FakeFeed]:
    """A feed that listens while the context is open."""
    feed = FakeFeed(path, *first)
    await feed.start()
    try:
        yield feed
    finally:
        await feed.stop()
