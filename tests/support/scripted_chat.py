"""A client API whose every answer a test scripts, on a real port. What was asked, and when a reader left, is kept."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

Script = Callable[["Reply"], Awaitable[None]]

_REASONS = {200: "OK", 401: "Unauthorized", 404: "Not Found", 502: "Bad Gateway", 503: "Service Unavailable"}


@dataclass
class Reply:
    """One request, and the way to answer it."""

    headers: dict[str, str]
    body: dict[str, Any]
    writer: asyncio.StreamWriter
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the reader has gone."""

    async def stream(self) -> None:
        """Begin a stream of events."""
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
        await self._send(head)

    async def event(self, document: object) -> None:
        """One event."""
        await self._send(b"data: " + msgspec.json.encode(document) + b"\n\n")

    async def raw(self, data: bytes) -> None:
        """Anything."""
        await self._send(data)

    async def text(self, *pieces: str) -> None:
        """Pieces of the answer."""
        for piece in pieces:
            await self.event({"choices": [{"delta": {"content": piece}, "finish_reason": None}]})

    async def finish(self, reason: str = "stop", *, prompt: int = 12, completion: int = 3) -> None:
        """The end, with what was used."""
        await self.event({"choices": [{"delta": {}, "finish_reason": reason}]})
        usage = {"prompt_tokens": prompt, "completion_tokens": completion}
        await self.event({"choices": [], "usage": usage})
        await self._send(b"data: [DONE]\n\n")

    async def refuse(self, status: int, body: bytes, kind: str = "application/json") -> None:
        """An answer that is no stream."""
        head = f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        await self._send(head.encode() + body)

    async def _send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


class ScriptedChat:
    """Answers by `script`, the one set last."""

    def __init__(self) -> None:
        self.script: Script = _hello
        self.replies: list[Reply] = []
        self.url = ""

    @property
    def asked(self) -> list[dict[str, Any]]:
        """Bodies in their order."""
        return [reply.body for reply in self.replies]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, one request."""
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            lines = head.split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines[1:] if line)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            reply = Reply(headers=headers, body=msgspec.json.decode(body), writer=writer)
            self.replies.append(reply)
            watching = asyncio.ensure_future(_watch(reader, reply))
            try:
                await self.script(reply)
            finally:
                watching.cancel()
        writer.close()


async def _watch(reader: asyncio.StreamReader, reply: Reply) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(1024):
            pass
    reply.left.set()


async def _hello(reply: Reply) -> None:
    await reply.stream()
    await reply.text("Hel", "lo", "!")
    await reply.finish()


@contextlib.asynccontextmanager
async def scripted_chat() -> AsyncIterator[ScriptedChat]:
    """One for the length of the context."""
    chat = ScriptedChat()
    server = await asyncio.start_server(chat.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    chat.url = f"http://{host}:{port}"
    try:
        yield chat
    finally:
        server.close()
        await server.wait_closed()
