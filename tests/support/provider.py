"""A provider outside the cluster: a scripted engine behind TLS, whose records may be cut as a test likes."""

import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import trio

from llmgw.core.routing import RoutedExternal, RoutedReplica, Routing, Timeouts
from tests.support.router_plane import MODEL, OTHER
from tests.support.scripted_engine import Behaviour, Exchange, ScriptedEngine

KEYS = ("sk-provider-first-1111111111", "sk-provider-second-2222222222", "sk-provider-third-3333333333")


class Cutting(trio.abc.HalfCloseableStream):
    """A stream whose writes reach the wire `size` bytes at a time, each a segment of its own."""

    def __init__(self, stream: trio.SocketStream, size: int) -> None:
        self._stream = stream
        self._size = size

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Send piece by piece; whoever reads gets its turn in between."""
        whole = bytes(data)
        for at in range(0, len(whole), self._size):
            await self._stream.send_all(whole[at : at + self._size])
            await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        """As below."""
        await self._stream.wait_send_all_might_not_block()

    async def send_eof(self) -> None:
        """As below."""
        await self._stream.send_eof()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """As below."""
        return await self._stream.receive_some(max_bytes)

    async def aclose(self) -> None:
        """As below."""
        await self._stream.aclose()


@dataclass
class Provider(ScriptedEngine):
    """Listens on loopback, under TLS with a `context`."""

    context: ssl.SSLContext | None = None
    host: str = "localhost"
    segment_bytes: int = 1 << 20

    @property
    def base_url(self) -> str:
        """What an operator would write."""
        scheme = "http" if self.context is None else "https"
        return f"{scheme}://{self.host}:{self.port}/api/v1"

    async def _serve(self, stream: trio.SocketStream) -> None:
        if self.context is None:
            await super()._serve(stream)
            return
        secured = trio.SSLStream(Cutting(stream, self.segment_bytes), self.context, server_side=True)
        # Only the calls that both kinds of stream have are made on it.
        await super()._serve(cast("trio.SocketStream", secured))


async def break_off(exchange: Exchange) -> None:
    """End the connection below TLS, without a goodbye."""
    exchange.closed = True
    await cast("trio.SSLStream[Cutting]", exchange.stream).transport_stream.aclose()


def key_of(exchange: Exchange) -> str:
    """The provider's key a request showed."""
    return (exchange.request.header(b"authorization") or b"").decode().removeprefix("Bearer ")


def by_key(behaviours: dict[str, Callable[[Exchange], Awaitable[None]]]) -> Behaviour:
    """Each key is answered in its own way."""

    async def behave(exchange: Exchange) -> None:
        await behaviours[key_of(exchange)](exchange)

    return behave


def write_keys(path: Path, *keys: str) -> Path:
    """A keys file as operators write them."""
    path.write_text("# our keys\n\n" + "".join(f"{key}\n" for key in keys))
    return path


def routing_to(
    *providers: Provider, keys: Path | None = None, ca: Path | None = None, timeouts: Timeouts | None = None
) -> Routing:
    """The model `m` served by providers, who know it as `upstream-m`."""
    external = RoutedExternal(keys_file=str(keys or ""), ca_file=str(ca or ""))
    replicas = tuple(
        RoutedReplica(
            id=f"external:m:{i}", model="m", endpoint=p.base_url, upstream_model="upstream-m", external=external
        )
        for i, p in enumerate(providers)
    )
    return Routing(revision="1/1", models=(MODEL, OTHER), replicas=replicas, timeouts=timeouts or Timeouts())
