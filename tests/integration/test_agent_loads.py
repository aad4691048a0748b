"""Engines asked how busy they are over real sockets: hostile ones beside good ones, and the engines there are."""

import contextlib
import itertools
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest
import trio

from agent.engines.loads import LLAMACPP
from agent.loads import PAGE_MAX_BYTES, LoadService, Serving
from agent.readiness import Target
from agent.state import Outbox
from llmgw.wire.llmgw.v1 import AgentMessage, EngineLoads, ShardState
from tests.integration.test_agent_llamacpp import model
from tests.integration.test_agent_llamacpp import spec as llamacpp_spec
from tests.integration.test_agent_readiness import http
from tests.support.agent_node import KEY, sim_spec
from tests.support.agent_site import yard
from tests.support.waiting import DEADLINE_S

pytestmark = pytest.mark.trio

PAGE = b"llamacpp:requests_processing 4\nllamacpp:requests_deferred 2\nllamacpp:kv_cache_usage_ratio 0.61\n"
UPGRADE = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
HOSTILE: dict[str, bytes | None] = {
    "hangs": None,
    "garbage": b"\x16\x03\x01 what is this",
    "closes": b"",
    "upgrades": UPGRADE,
    "oversized": http(200, PAGE + b"#" * PAGE_MAX_BYTES),
    "endless-head": b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 100_000,
    "half": http(200, PAGE)[:-40],
    "forbidden": http(401, PAGE),
    "empty": http(200, b""),
    "lies": http(200, PAGE.replace(b" 4", b" -4").replace(b" 2", b" nan").replace(b"0.61", b"61")),
}


@dataclass
class Heard:
    """The newest word on every engine."""

    loads: EngineLoads = field(default_factory=EngineLoads)
    count: int = 0
    news: trio.Event = field(default_factory=trio.Event)

    def running(self, shard_id: str) -> float | None:
        """Requests that engine works on; none when it does not say."""
        return self._at(self.loads.running, shard_id)

    def failures(self, shard_id: str) -> float | None:
        """Times it was asked in vain."""
        return self._at(self.loads.failures, shard_id)

    def _at(self, column: list[float] | list[int], shard_id: str) -> float | None:
        if shard_id not in self.loads.shard_ids or not column:
            return None
        value = column[self.loads.shard_ids.index(shard_id)]
        return value if value == value else None

    async def hear(self, inbox: trio.MemoryReceiveChannel[AgentMessage]) -> None:
        """Take in what is told, for ever."""
        async for message in inbox:
            assert message.engine_loads is not None
            self.loads, self.count = EngineLoads.parse(bytes(message.engine_loads)), self.count + 1
            self.news.set()
            self.news = trio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a word that fulfils `condition`."""
        with trio.fail_after(DEADLINE_S):
            while not condition():
                await self.news.wait()


@contextlib.asynccontextmanager
async def asking(serving: Callable[[], list[Serving]]) -> AsyncIterator[Heard]:
    """The service over those engines, and what it tells."""
    send, inbox = trio.open_memory_channel[AgentMessage](100)
    outbox, heard = Outbox(send), Heard()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(heard.hear, inbox)
        await nursery.start(outbox.run)
        await nursery.start(LoadService(serving, outbox).run)
        yield heard
        nursery.cancel_scope.cancel()


@dataclass
class Metrics:
    """A metrics endpoint that answers with the same bytes, or never."""

    answer: Callable[[], bytes | None]
    open: int = 0
    most_open: int = 0
    keys: set[str] = field(default_factory=set)

    async def serve(self, stream: trio.SocketStream) -> None:
        """One connection."""
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            with contextlib.suppress(trio.BrokenResourceError):
                head = b""
                while b"\r\n\r\n" not in head:
                    chunk = await stream.receive_some(4096)
                    if not chunk:
                        return
                    head += chunk
                self.keys.add(head.partition(b"Authorization: Bearer ")[2].partition(b"\r\n")[0].decode())
                answer = self.answer()
                if answer is not None:
                    await stream.send_all(answer)
                else:
                    # Until whoever asked leaves.
                    await stream.receive_some(1)
        finally:
            self.open -= 1
            await stream.aclose()


async def listening(nursery: trio.Nursery, metrics: Metrics, name: str) -> Serving:
    """The endpoint as an engine."""
    listeners = await nursery.start(partial(trio.serve_tcp, metrics.serve, 0, host="127.0.0.1"))
    target = Target(host="127.0.0.1", port=listeners[0].socket.getsockname()[1], key=f"ek-{name}")
    return Serving(shard_id=f"{name}/0", pid=1, target=target, metrics=LLAMACPP, slots=0)


async def test_whatever_some_engines_do_the_others_are_read_and_nothing_ends() -> None:
    count = itertools.count(1)
    good = Metrics(lambda: http(200, PAGE.replace(b" 4", b" %d" % next(count))))
    endpoints = {name: Metrics(partial(HOSTILE.get, name)) for name in HOSTILE}
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = Target(host="127.0.0.1", port=unused.getsockname()[1], key="")
    async with trio.open_nursery() as nursery:
        engines = [await listening(nursery, metrics, name) for name, metrics in {**endpoints, "good": good}.items()]
        engines.append(Serving(shard_id="gone/0", pid=1, target=nobody, metrics=LLAMACPP, slots=0))
        async with asking(lambda: engines) as heard:
            bad = [*HOSTILE, "gone"]
            await heard.until(lambda: all((heard.failures(f"{name}/0") or 0) >= 2 for name in bad))
            assert [heard.running(f"{name}/0") for name in bad] == [None] * len(bad)
            now = heard.running("good/0")
            assert now is not None
            await heard.until(lambda: (heard.running("good/0") or 0) >= now + 2)
            assert heard.failures("good/0") == 0
        assert endpoints["hangs"].most_open == 1, "one question at a time"
        assert good.keys == {"ek-good"}, "each is asked with its own key"
        nursery.cancel_scope.cancel()


async def test_the_sim_engine_says_what_it_works_on_and_who_waits(tmp_path: Path) -> None:
    async with yard(tmp_path) as node, asking(node.supervisor.serving) as heard:
        node.start(sim_spec(source="sim:rate=5,prefill-ms=0", args=("--queue", "9")))
        status = await node.state("r1/0", ShardState.READY)
        await heard.until(lambda: heard.running("r1/0") == 0)
        assert (heard.loads.waiting, heard.loads.slots) == ([0], [4])
        host, _, port = status.endpoint.removeprefix("http://").partition(":")
        body = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true}'
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        request = head + f"Authorization: Bearer {KEY}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        async with contextlib.AsyncExitStack() as clients:
            for _ in range(6):
                client = await clients.enter_async_context(await trio.open_tcp_stream(host, int(port)))
                await client.send_all(request)
            await heard.until(lambda: heard.running("r1/0") == 4 and heard.loads.waiting == [2])
        await heard.until(lambda: heard.running("r1/0") == 0 and heard.loads.waiting == [0])


async def test_the_real_llama_cpp_says_what_it_works_on(tmp_path: Path) -> None:
    source = f"file:{model()}"
    async with yard(tmp_path) as node, asking(node.supervisor.serving) as heard:
        node.start(llamacpp_spec(source=source, args=["--threads", "1", "--no-warmup"]))
        await node.state("r1/0", ShardState.READY)
        await heard.until(lambda: heard.running("r1/0") == 0)
        assert (heard.loads.waiting, heard.loads.slots) == ([0], [2])
