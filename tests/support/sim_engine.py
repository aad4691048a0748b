"""A sim engine inside the test's own trio run, on a free loopback port, and a plain HTTP client to read its bytes."""

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable

import msgspec
import trio

from llmgw.sim.accepting import listen
from llmgw.sim.engine import serve
from llmgw.sim.options import EngineOptions
from llmgw.sim.service import Engine

DEADLINE_S = 60.0
"""No step of a test takes longer."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunningEngine:
    """Where the engine listens, and its inside."""

    engine: Engine
    port: int

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`."""
        return f"http://127.0.0.1:{self.port}"

    async def connect(self) -> trio.SocketStream:
        """A fresh connection."""
        return await trio.open_tcp_stream("127.0.0.1", self.port)

    async def ask(
        self, path: str, body: object = None, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on its own connection: status, headers (lower case), and the decoded body up to where it ends."""
        stream = await self.connect()
        async with stream:
            await stream.send_all(request(path, body, {"Connection": "close", **(headers or {})}))
            with trio.fail_after(DEADLINE_S):
                return split(await read_all(stream))


@contextlib.asynccontextmanager
async def running_engine(**options: object) -> AsyncIterator[RunningEngine]:
    """An engine called `m`, without delays unless asked for."""
    chosen: dict[str, object] = {"names": ("m",), "rate": 0.0, "prefill_ms": 0.0, "prefill_per_token_us": 0.0} | options
    engine = Engine(EngineOptions(**chosen))  # type: ignore[arg-type]  # the dataclass checks names
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]
    async with trio.open_nursery() as nursery:
        await nursery.start(serve, listener, engine)
        yield RunningEngine(engine=engine, port=port)
        nursery.cancel_scope.cancel()


def request(path: str, body: object = None, headers: dict[str, str] | None = None) -> bytes:
    """A request's bytes; POST when there is a body."""
    data = b"" if body is None else body if isinstance(body, bytes) else msgspec.json.encode(body)
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", "Host: engine", f"Content-Length: {len(data)}"]
    lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + data


async def read_all(stream: trio.SocketStream) -> bytes:
    """Everything until the engine closes or resets."""
    data = bytearray()
    with contextlib.suppress(trio.BrokenResourceError):
        async for part in stream:
            data += part
    return bytes(data)


def split(raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a raw answer; chunks are joined, a missing last chunk is tolerated."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if headers.get("transfer-encoding") == "chunked":
        body = join_chunks(body)[0]
    return int(first.split(" ")[1]), headers, body


def join_chunks(raw: bytes) -> tuple[bytes, bool]:
    """The chunks' content, and whether the last chunk was there."""
    joined, at = bytearray(), 0
    while at < len(raw):
        line_end = raw.index(b"\r\n", at)
        length = int(raw[at:line_end], 16)
        start = line_end + 2
        if length == 0:
            return bytes(joined), raw[start:] == b"\r\n"
        joined += raw[start : start + length]
        at = start + length + 2
    return bytes(joined), False


def chat(**fields: object) -> dict[str, object]:
    """A chat request with one message; `sim` fields and the rest by keyword."""
    return {"model": "m", "messages": [{"role": "user", "content": "Why is the sky blue?"}], **fields}


async def until(condition: Callable[[], bool], *, within_s: float = DEADLINE_S) -> None:
    """Wait until it holds; fails after `within_s`."""
    with trio.fail_after(within_s):
        while not condition():  # noqa: ASYNC110 — what is waited for has no event
            await trio.sleep(0.002)
