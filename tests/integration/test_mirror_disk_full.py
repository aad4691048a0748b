"""A disk that is really full: the sentence has path and figures, and the same process carries on with more space."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from agent.weights.cache import Cache
from llmgw.core.cluster import FetchProgress
from llmgw.core.weights import SetState
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.errors import DiskFull
from tests.support.hub import hub_server
from tests.support.mirrors import TOKEN, running_mirror
from tests.support.rawhttp import Asked, files, head, partial, raw_server
from tests.support.weights import quick, tiny_llama

MIB = 1024 * 1024
DATA = tiny_llama(padding=100 * MIB)


class SmallDisk:
    """A tmpfs of 64 MiB that can grow."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def grow(self, mib: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={mib}m", str(self.path)], check=True)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    path = tmp_path / "small disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(path)], capture_output=True)
    if made.returncode:
        pytest.skip(f"a small file system needs the right to mount a tmpfs: {made.stderr.decode(errors='replace')}")
    try:
        yield SmallDisk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


async def without_length(asked: Asked, stream: trio.SocketStream) -> None:
    """The first answer does not say how much it will be."""
    if asked.first_byte is not None:
        await stream.send_all(partial(DATA, asked.first_byte))
        return
    await stream.send_all(head("200 OK", {"Transfer-Encoding": "chunked"}))
    for start in range(0, len(DATA), MIB):
        piece = DATA[start : start + MIB]
        await stream.send_all(b"%x\r\n%b\r\n" % (len(piece), piece))
    await stream.send_all(b"0\r\n\r\n")


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.promise("A14")
async def test_a_mirror_that_runs_out_of_space_carries_on(small_disk: SmallDisk) -> None:
    async with raw_server(without_length) as server, running_mirror(small_disk.path) as running:
        source = f"{server.url}/m.gguf"
        failed = await running.settled(source)
        assert failed.state is SetState.FAILED
        assert f"no space for {small_disk.path}" in failed.message
        assert "are free" in failed.message
        assert "what arrived is kept" in failed.message
        (part,) = small_disk.path.rglob("m.gguf.part")
        kept = part.stat().st_size
        assert kept > 60 * MIB
        assert not list(small_disk.path.rglob("m.gguf"))
        small_disk.grow(200)
        ready = await running.settled(source, now=True)
        assert ready.state is SetState.READY, ready.message
        assert server.ranges == [None, kept]
        found = running.mirror.file(ready.id, "m.gguf")
        assert found is not None
        assert found[1].read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.promise("A14")
async def test_a_node_without_space_says_so_before_the_first_byte(tmp_path: Path, small_disk: SmallDisk) -> None:
    async with (
        raw_server(files({"/m.gguf": DATA})) as origin,
        running_mirror(tmp_path / "mirror") as running,
        trio.open_nursery() as nursery,
    ):
        cache = Cache(small_disk.path, mirror_url=running.url, token=TOKEN, policy=quick())
        await nursery.start(cache.run)
        source = f"{origin.url}/m.gguf"
        with pytest.raises(DiskFull) as caught:
            await cache.fetch(source)
        assert caught.value.needed_bytes == len(DATA)
        assert 0 < caught.value.free_bytes <= 64 * MIB
        assert str(small_disk.path) in caught.value.message
        assert not list(small_disk.path.rglob("*.part"))
        small_disk.grow(200)
        got = await cache.fetch(source)
        assert os.path.getsize(got.path) == len(DATA)
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.promise("A14")
async def test_a_mirror_that_knows_the_size_refuses_before_the_first_byte(small_disk: SmallDisk) -> None:
    async with (
        hub_server({"m.gguf": DATA}) as hub,
        running_mirror(small_disk.path, config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
    ):
        refused = await running.settled("hf:org/model")
        assert refused.state is SetState.FAILED
        assert f"no space for {small_disk.path}" in refused.message
        assert "105 MB more are needed" in refused.message
        assert hub.cdn.asked == []
        assert not list(small_disk.path.rglob("*.part"))
        small_disk.grow(200)
        ready = await running.settled("hf:org/model", now=True)
        assert ready.state is SetState.READY, ready.message
        assert len(hub.cdn.asked) == 1


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.promise("A14")
async def test_a_node_whose_disk_others_fill_keeps_its_part_and_goes_on(tmp_path: Path, small_disk: SmallDisk) -> None:
    small = tiny_llama(padding=MIB)
    async with (
        raw_server(files({"/m.gguf": DATA, "/small.gguf": small})) as origin,
        running_mirror(tmp_path / "mirror") as running,
        trio.open_nursery() as nursery,
    ):
        # As if the space had been there when the copy began, and somebody else took it meanwhile.
        policy = quick(free_bytes=lambda _path: 1 << 40)
        cache = Cache(small_disk.path, mirror_url=running.url, token=TOKEN, policy=policy)
        await nursery.start(cache.run)
        source = f"{origin.url}/m.gguf"
        with pytest.raises(DiskFull) as caught:
            await cache.fetch(source)
        assert f"no space for {small_disk.path}" in caught.value.message
        assert caught.value.free_bytes < MIB
        (part,) = small_disk.path.rglob("m.gguf.part")
        kept = part.stat().st_size
        assert kept > 60 * MIB
        small_disk.grow(200)
        assert (await cache.fetch(f"{origin.url}/small.gguf")).path.read_bytes() == small
        assert part.stat().st_size == kept
        seen: list[FetchProgress] = []
        got = await cache.fetch(source, seen.append)
        assert next(progress.done_bytes for progress in seen if progress.phase == "fetching") == kept
        assert got.path.read_bytes() == DATA
        nursery.cancel_scope.cancel()
