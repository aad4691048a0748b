"""What a node promises of its disk: a set still on its way to the mirror counts from when its size is known."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import trio

from agent.weights.cache import Cache, LocalSet
from llmgw.core.cluster import FetchProgress
from llmgw.transfer.errors import DiskFull
from tests.support.mirrors import TOKEN, running_mirror, until_here
from tests.support.rawhttp import Asked, cut, raw_server, whole
from tests.support.weights import quick, tiny_llama

MB = 1_000_000
FIRST = tiny_llama(padding=3 * MB)
SECOND = tiny_llama(padding=2 * MB)


def disk(root: Path, size: int) -> Callable[[Path], int]:
    """Free bytes of a disk of `size` that holds nothing but `root`."""
    return lambda _path: size - sum(path.stat().st_size for path in root.rglob("*.gguf*") if path.is_file())


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_what_is_waited_for_is_not_free_for_others(tmp_path: Path) -> None:
    release = trio.Event()
    got: list[LocalSet] = []
    seen: list[FetchProgress] = []

    async def origin(asked: Asked, stream: trio.SocketStream) -> None:
        if asked.target == "/second.gguf":
            await stream.send_all(whole(SECOND))
            return
        first = cut(whole(FIRST), 0.7, FIRST)
        await stream.send_all(first)
        await release.wait()
        await stream.send_all(whole(FIRST)[len(first) :])

    node = tmp_path / "node"
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(raw_server(origin))
        running = await stack.enter_async_context(running_mirror(tmp_path / "mirror"))
        nursery = await stack.enter_async_context(trio.open_nursery())
        free = disk(node, 4 * MB)
        cache = Cache(node, mirror_url=running.url, token=TOKEN, policy=quick(free_bytes=free))
        await nursery.start(cache.run)
        first, second = f"{server.url}/first.gguf", f"{server.url}/second.gguf"

        async def wait_for_first() -> None:
            got.append(await cache.fetch(first, seen.append))

        nursery.start_soon(wait_for_first)
        await until_here(lambda: any(progress.total_bytes for progress in seen))
        with pytest.raises(DiskFull, match=r"1 other fetch .*first\.gguf: 3 MB") as caught:
            await cache.fetch(second)
        assert (caught.value.needed_bytes, caught.value.promised_bytes) == (len(SECOND), len(FIRST))
        assert not list(node.rglob("second.gguf*"))
        release.set()
        await until_here(lambda: bool(got))
        assert got[0].path.read_bytes() == FIRST
        await cache.remove(first)
        assert (await cache.fetch(second)).path.read_bytes() == SECOND
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_set_that_will_not_fit_is_not_waited_for(tmp_path: Path) -> None:
    release = trio.Event()

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        await stream.send_all(cut(whole(FIRST), 0.7, FIRST))
        await release.wait()

    async with (
        raw_server(slow) as server,
        running_mirror(tmp_path / "mirror") as running,
        trio.open_nursery() as nursery,
    ):
        policy = quick(free_bytes=lambda _path: MB)
        cache = Cache(tmp_path / "node", mirror_url=running.url, token=TOKEN, policy=policy)
        await nursery.start(cache.run)
        with pytest.raises(DiskFull, match="3 MB more are needed and 1 MB are free"):
            await cache.fetch(f"{server.url}/first.gguf")
        nursery.cancel_scope.cancel()
