"""What a mirror gives to nodes under a limit: the sum holds, and a node that leaves carries on from what it has."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from agent.weights.cache import Cache
from llmgw.core.cluster import FetchProgress
from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.download import CHUNK_BYTES
from llmgw.transfer.limit import PIECE_S, Limit
from tests.support.mirrors import TOKEN, Running, running_mirror, until_here
from tests.support.paced import HeldLimit, PacedLimit
from tests.support.rawhttp import files, raw_server
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=1_500_000)
RATE = 1_000_000


@dataclass
class Given:
    """A mirror that holds one set."""

    running: Running
    source: str


@asynccontextmanager
async def giving(root: Path, limit: Limit) -> AsyncIterator[Given]:
    config = MirrorConfig(policy=quick(), serving=limit)
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(root, config=config) as running:
        source = f"{origin.url}/m.gguf"
        status = await running.settled(source)
        assert status.state is SetState.READY
        yield Given(running=running, source=source)


@asynccontextmanager
async def node(root: Path, given: Given) -> AsyncIterator[Cache]:
    cache = Cache(root, mirror_url=given.running.url, token=TOKEN, policy=quick())
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        yield cache
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_all_nodes_share_what_the_mirror_gives(tmp_path: Path) -> None:
    limit = PacedLimit(RATE)
    async with giving(tmp_path / "mirror", limit) as given, AsyncExitStack() as stack:
        caches = [await stack.enter_async_context(node(tmp_path / f"n{i}", given)) for i in range(8)]
        async with trio.open_nursery() as nursery:
            for cache in caches:
                nursery.start_soon(cache.fetch, given.source)
        found = [await cache.held(given.source) for cache in caches]
    assert all(local is not None and local.path.read_bytes() == GGUF for local in found)
    assert sum(limit.pays) == 8 * len(GGUF), "no file came twice, and answers that are no file cost nothing"
    assert limit.took_s == pytest.approx(8 * len(GGUF) / RATE, abs=0.001)
    assert max(limit.pays) <= RATE * PIECE_S


@pytest.mark.trio
async def test_a_node_that_leaves_while_it_waits_carries_on_from_what_it_has(tmp_path: Path) -> None:
    held, root = HeldLimit(RATE, holds_at=1_300_000), tmp_path / "node"
    seen: list[FetchProgress] = []
    async with giving(tmp_path / "mirror", held) as given:
        async with node(root, given) as cache, trio.open_nursery() as nursery:
            nursery.start_soon(cache.fetch, given.source)
            await held.waiting.wait()
            await until_here(lambda: any(part.stat().st_size >= CHUNK_BYTES for part in root.rglob("m.gguf.part")))
            nursery.cancel_scope.cancel()
        (part,) = root.rglob("m.gguf.part")
        arrived = part.stat().st_size
        held.set(0)
        async with node(root, given) as cache:
            local = await cache.fetch(given.source, seen.append)
            assert local.path.read_bytes() == GGUF
    assert next(p.done_bytes for p in seen if p.phase == "fetching") == arrived


@pytest.mark.trio
async def test_a_limit_that_is_taken_away_lets_a_waiting_node_go(tmp_path: Path) -> None:
    held = HeldLimit(RATE)
    async with giving(tmp_path / "mirror", held) as given, node(tmp_path / "node", given) as cache:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cache.fetch, given.source)
            await held.waiting.wait()
            assert await cache.held(given.source) is None
            given.running.mirror.serving.set(0)
        assert await cache.held(given.source) is not None


@pytest.mark.trio
async def test_a_set_is_asked_for_and_told_of_while_files_wait(tmp_path: Path) -> None:
    held = HeldLimit(RATE)
    async with (
        giving(tmp_path / "mirror", held) as given,
        node(tmp_path / "node", given) as cache,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(cache.fetch, given.source)
        await held.waiting.wait()
        answer = await cache._client.ensure(given.source)
        assert answer.status.state is SetState.READY
        held.set(0)
