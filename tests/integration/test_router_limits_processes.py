"""Real routers, two of them behind one port, and one key: its limits hold for both together, whoever is killed."""

import os
import signal
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import trio

from llmgw.control.feed import FeedServer
from llmgw.control.routers import RouterSupervisor
from llmgw.core.layout import ServerLayout
from llmgw.core.limits import Limits, ScopeKind
from llmgw.core.prices import Prices
from llmgw.core.routing import KeyRecord, RoutedModel, RoutedReplica, Routing, ScopeTable, UsageRow
from llmgw.core.secrets import key_digest
from llmgw.router.handover import read_record
from tests.support.limits import key, scope
from tests.support.router_plane import KEY, RawClient, chat, post
from tests.support.scripted_engine import SSE_HEAD, Exchange, ScriptedEngine, chunk, json_answer, token
from tests.support.waiting import until

SECRET = b"s" * 32
MODEL = RoutedModel(name="m", context_length=4096, max_output=1024, prices=Prices(input=1.0, output=1.0))
ANSWER = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
TEAM = scope(ScopeKind.TEAM, "ml", limits=Limits(parallel=4))


@dataclass
class Machine:
    """Routers, an engine and who tells them whose the key is."""

    layout: ServerLayout
    port: int = 0
    record: KeyRecord = field(default_factory=key)
    stored: list[UsageRow] = field(default_factory=list)

    async def connect(self) -> RawClient:
        """A connection to one of the routers, of the kernel's choice."""
        return RawClient(await trio.open_tcp_stream("127.0.0.1", self.port))

    async def statuses(self, requests: int) -> Counter[int]:
        """What so many at once get."""
        found: Counter[int] = Counter()

        async def ask() -> None:
            client = await self.connect()
            async with client.stream:
                await client.send(post(chat()))
                found[(await client.answer()).status] += 1

        async with trio.open_nursery() as nursery:
            for _ in range(requests):
                nursery.start_soon(ask)
        return found


async def behave(exchange: Exchange) -> None:
    """A stream that does not end, for those who want one."""
    if exchange.request.json.get("stream"):
        await exchange.send(SSE_HEAD + chunk(token("a")))
        await exchange.until_closed()
    else:
        await exchange.send(json_answer(ANSWER))


@asynccontextmanager
async def machine(path: Path, record: KeyRecord) -> AsyncIterator[Machine]:
    """Two real router processes."""
    layout = ServerLayout(data=path)
    layout.secrets.mkdir()
    layout.cluster_secret.write_bytes(SECRET)
    it = Machine(layout, record=record)

    async def lookup(digest: str) -> KeyRecord | None:
        await trio.lowlevel.checkpoint()
        return it.record if digest == key_digest(SECRET, KEY) else None

    async def store(rows: Sequence[UsageRow]) -> None:
        await trio.lowlevel.checkpoint()
        it.stored += rows

    feed = FeedServer(layout, version="1", lookup=lookup, store_usage=store)
    routers = RouterSupervisor(layout, ("127.0.0.1", 0), 2, feed, version="1", stop_s=1.0)
    async with trio.open_nursery() as outer:
        engine = ScriptedEngine(behave)
        await outer.start(engine.run)
        replica = RoutedReplica(id="r0", model="m", endpoint=engine.endpoint)
        feed.publish(Routing(revision="1/1", models=(MODEL,), replicas=(replica,)))
        feed.publish_scopes(ScopeTable(scopes=(TEAM,)))
        await outer.start(feed.run)
        async with trio.open_nursery() as inner:
            it.port = await inner.start(routers.run)
            await until(lambda: len(feed.connected()) == 2)
            yield it
            inner.cancel_scope.cancel()
        outer.cancel_scope.cancel()


@pytest.mark.trio
async def test_ten_a_minute_of_two_hundred_at_once(tmp_path: Path) -> None:
    async with machine(tmp_path, key(limits=Limits(rpm=10))) as it:
        assert await it.statuses(200) == {200: 10, 429: 190}
        await until(lambda: len(it.stored) == 10)
        assert {row.cost_micros for row in it.stored} == {13}


@pytest.mark.trio
@pytest.mark.case("C11")
async def test_a_router_killed_with_streams_open_leaves_none_counted(tmp_path: Path) -> None:
    """Its team may have four open at once: all four places are free again."""
    async with machine(tmp_path, key(team="ml")) as it:
        clients = [await it.connect() for _ in range(4)]
        for client in clients:
            await client.send(post(chat(True)))
            await client.until(token("a"))
        assert await it.statuses(5) == {429: 5}
        for index in range(2):
            found = read_record(it.layout, index)
            assert found is not None
            os.kill(found.pid, signal.SIGKILL)
        for client in clients:
            assert not (await client.answer()).whole
            await client.stream.aclose()
        served = 0
        with trio.fail_after(20):
            while served < 4:
                fresh = [await it.connect() for _ in range(4)]
                served = 0
                for client in fresh:
                    await client.send(post(chat(True)))
                    await client.until(b"\r\n\r\n")
                    served += b" 200 " in client.buffer
                for client in fresh:
                    await client.stream.aclose()
