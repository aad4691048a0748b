"""An engine whose every byte a test writes itself, on a real socket.

A behaviour is an async function of one `Exchange`. When it returns, the connection goes on to its next request, unless
the behaviour closed it. What was received is kept in `ScriptedEngine.received`.
"""

import json
import socket
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import trio

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
DONE = b"data: [DONE]\n\n"
LAST_CHUNK = b"0\r\n\r\n"


def event(document: object) -> bytes:
    """One event with a JSON document."""
    return b"data: " + json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


def token(text: str, *, finish: str | None = None) -> bytes:
    """A chat completion chunk."""
    delta = {"content": text} if finish is None else {}
    return event(
        {"id": "c1", "object": "chat.completion.chunk", "choices": [{"delta": delta, "finish_reason": finish}]}
    )


def usage_event(prompt: int, completion: int, cached: int = 0) -> bytes:
    """The usage-only chunk."""
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    return event({"id": "c1", "object": "chat.completion.chunk", "choices": [], "usage": usage})


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def json_answer(document: object, status: bytes = b"200 OK", headers: bytes = b"") -> bytes:
    """A whole answer with a length."""
    body = json.dumps(document).encode()
    head = b"HTTP/1.1 %b\r\nContent-Type: application/json\r\n%bContent-Length: %d\r\n\r\n"
    return head % (status, headers, len(body)) + body


@dataclass
class Received:
    """A request as it arrived."""

    head: bytes
    body: bytes

    @property
    def json(self) -> dict[str, object]:
        """The decoded body."""
        document = json.loads(self.body)
        assert isinstance(document, dict)
        return document

    def header(self, name: bytes) -> bytes | None:
        """The header's value, whatever its case."""
        for line in self.head.split(b"\r\n")[1:]:
            key, _, value = line.partition(b":")
            if key.strip().lower() == name:
                return value.strip()
        return None


@dataclass
class Exchange:
    """One request on its connection."""

    request: Received
    stream: trio.SocketStream
    engine: "ScriptedEngine"
    closed: bool = False

    async def send(self, data: bytes) -> None:
        """Write bytes as they are."""
        await self.stream.send_all(data)

    async def until_closed(self) -> None:
        """Until the other side ended the connection."""
        try:
            while await self.stream.receive_some(4096):
                pass
        except trio.BrokenResourceError:
            pass
        self.closed = True
        self.engine.closed_by_peer += 1

    async def close(self) -> None:
        """End the connection with a FIN."""
        self.closed = True
        await self.stream.aclose()

    async def reset(self) -> None:
        """End the connection with a RST."""
        self.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        await self.close()


Behaviour = Callable[[Exchange], Awaitable[None]]


@dataclass
class ScriptedEngine:
    """A listening engine; `run` it in a nursery."""

    behaviour: Behaviour
    received: list[Received] = field(default_factory=list)
    connections: int = 0
    open_connections: int = 0
    closed_by_peer: int = 0
    port: int = 0

    @property
    def endpoint(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    async def run(self, *, task_status: trio.TaskStatus["ScriptedEngine"] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        async with trio.open_nursery() as nursery:
            await nursery.start(trio.serve_listeners, self._serve, listeners)
            task_status.started(self)

    async def _serve(self, stream: trio.SocketStream) -> None:
        self.connections += 1
        self.open_connections += 1
        buffer = b""
        try:
            while True:
                found = await _read_request(stream, buffer)
                if found is None:
                    return
                request, buffer = found
                self.received.append(request)
                exchange = Exchange(request, stream, self)
                await self.behaviour(exchange)
                if exchange.closed:
                    return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.closed_by_peer += 1
        finally:
            self.open_connections -= 1
            with trio.CancelScope(shield=True):
                await stream.aclose()


async def _read_request(stream: trio.SocketStream, buffer: bytes) -> tuple[Received, bytes] | None:
    while b"\r\n\r\n" not in buffer:
        data = await stream.receive_some(65536)
        if not data:
            return None
        buffer += data
    head, _, rest = buffer.partition(b"\r\n\r\n")
    length = int(Received(head, b"").header(b"content-length") or 0)
    while len(rest) < length:
        data = await stream.receive_some(65536)
        if not data:
            return None
        rest += data
    return Received(head, rest[:length]), rest[length:]


def streaming(
    tokens: Sequence[str], *, usage: tuple[int, int] | None = None, pieces: Callable[[bytes], list[bytes]] | None = None
) -> Behaviour:
    """Answer with a whole stream; usage only for those who ask; `pieces` cuts the raw bytes into writes."""

    async def behave(exchange: Exchange) -> None:
        body = [token(text) for text in tokens] + [token("", finish="stop")]
        options = exchange.request.json.get("stream_options")
        if usage is not None and isinstance(options, dict) and options.get("include_usage"):
            body.append(usage_event(*usage))
        body.append(DONE)
        raw = SSE_HEAD + b"".join(chunk(part) for part in body) + LAST_CHUNK
        for piece in pieces(raw) if pieces else [raw]:
            await exchange.send(piece)

    return behave


async def never(exchange: Exchange) -> None:
    """Take the request and never answer."""
    await exchange.until_closed()


def dropping(tokens: Sequence[str], *, reset: bool = False) -> Behaviour:
    """Answer 200, the tokens, then end the connection without the final chunk."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(chunk(token(text)) for text in tokens))
        await (exchange.reset() if reset else exchange.close())

    return behave


def answering(raw: bytes, *, close: bool = False) -> Behaviour:
    """Answer every request with the same bytes."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(raw)
        if close:
            await exchange.close()

    return behave
