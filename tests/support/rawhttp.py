"""A server on loopback that answers exactly what a test scripts, byte for byte, and remembers what it was asked."""

import gzip
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import trio


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One request as it arrived."""

    method: str
    target: str
    headers: dict[str, str]

    @property
    def first_byte(self) -> int | None:
        """Where a `Range: bytes=N-` starts."""
        text = self.headers.get("range", "")
        return int(text.removeprefix("bytes=").rstrip("-")) if text else None


Script = Callable[[Asked, trio.SocketStream], Awaitable[None]]


@dataclass
class RawServer:
    """Address and memory of a running server."""

    url: str
    asked: list[Asked] = field(default_factory=list)

    @property
    def ranges(self) -> list[int | None]:
        """First byte of every request, in order."""
        return [asked.first_byte for asked in self.asked]


@asynccontextmanager
async def raw_server(script: Script) -> AsyncIterator[RawServer]:
    """Serve until the block ends; the connection is closed when the script returns."""
    server = RawServer(url="")

    async def connection(stream: trio.SocketStream) -> None:
        try:
            async with stream:
                asked = await _read(stream)
                if asked is not None:
                    server.asked.append(asked)
                    await script(asked, stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def serve(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        await trio.serve_tcp(connection, 0, host="127.0.0.1", task_status=task_status)

    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(serve)
        server.url = f"http://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        try:
            yield server
        except Exception as error:  # raised below as it is, without the nursery's group around it
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


def head(status: str, headers: Mapping[str, str | int]) -> bytes:
    """An answer's header."""
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def whole(data: bytes, **headers: str) -> bytes:
    """A plain 200."""
    return head("200 OK", {"Content-Length": len(data), **_named(headers)}) + data


def partial(data: bytes, start: int, *, end: int | None = None, **headers: str) -> bytes:
    """A 206 from `start`."""
    piece = data[start:end]
    last = start + len(piece) - 1
    return (
        head(
            "206 Partial Content",
            {"Content-Length": len(piece), "Content-Range": f"bytes {start}-{last}/{len(data)}", **_named(headers)},
        )
        + piece
    )


def several_ranges(data: bytes, start: int, **headers: str) -> bytes:
    """A 206 of two ranges from `start`, each with its own header in the body."""
    middle = (start + len(data)) // 2
    body = b""
    for first, end in ((start, middle), (middle, len(data))):
        where = f"bytes {first}-{end - 1}/{len(data)}"
        body += f"--x\r\nContent-Range: {where}\r\n\r\n".encode() + data[first:end] + b"\r\n"
    body += b"--x--\r\n"
    kind = "multipart/byteranges; boundary=x"
    return head("206 Partial Content", {"Content-Type": kind, "Content-Length": len(body), **_named(headers)}) + body


def gzipped(data: bytes, **headers: str) -> bytes:
    """A 200 in gzip."""
    body = gzip.compress(data, 1)
    return head("200 OK", {"Content-Length": len(body), "Content-Encoding": "gzip", **_named(headers)}) + body


def cut(answer: bytes, fraction: float, data: bytes) -> bytes:
    """The answer's header and the first part of its body."""
    header = answer.index(b"\r\n\r\n") + 4
    return answer[: header + int(len(data) * fraction)]


def answers(*scripted: bytes | Callable[[Asked], bytes]) -> Script:
    """One answer a request, in order; the last one again and again."""
    queue = list(scripted)

    async def script(asked: Asked, stream: trio.SocketStream) -> None:
        answer = queue.pop(0) if len(queue) > 1 else queue[0]
        await stream.send_all(answer(asked) if callable(answer) else answer)

    return script


def files(contents: Mapping[str, bytes]) -> Script:
    """A plain file server with ranges."""

    async def script(asked: Asked, stream: trio.SocketStream) -> None:
        data = contents.get(asked.target)
        if data is None:
            await stream.send_all(head("404 Not Found", {"Content-Length": 0}))
        elif asked.first_byte is not None and asked.first_byte < len(data):
            await stream.send_all(partial(data, asked.first_byte))
        else:
            await stream.send_all(whole(data))

    return script


def _named(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


async def _read(stream: trio.SocketStream) -> Asked | None:
    received = b""
    while b"\r\n\r\n" not in received:
        data = await stream.receive_some(65536)
        if not data:
            return None
        received += data
    lines = received.split(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    method, target, _ = lines[0].split(" ", 2)
    pairs = (line.partition(":") for line in lines[1:])
    return Asked(method=method, target=target, headers={name.lower(): value.strip() for name, _, value in pairs})
