"""What a disk runs out of besides bytes, and at which step: it is said, nothing dies, and the next fetch finishes."""

import errno
import hashlib
import os
import resource
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from agent.weights.cache import Cache
from agent.weights.shelf import Shelf
from llmgw.core.weights import SetState
from llmgw.mirror.sets import SetStore
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.download import Wanted, download
from llmgw.transfer.errors import DiskFull, Unwritable, disk_error
from llmgw.transfer.http import Remote
from llmgw.transfer.part import Part
from tests.support.mirrors import TOKEN, running_mirror
from tests.support.rawhttp import Asked, answers, cut, partial, raw_server, whole
from tests.support.weights import quick, tiny_llama

DATA = tiny_llama(padding=3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
CUT = int(0.4 * len(DATA))


def rest(asked: Asked) -> bytes:
    return whole(DATA, ETag='"v1"') if asked.first_byte is None else partial(DATA, asked.first_byte, ETag='"v1"')


class Disk:
    """A tmpfs with bounds of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mount(self, options: str) -> None:
        """With other options than before."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    path = tmp_path / "disk"
    path.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,nr_inodes=64", "tmpfs", str(path)])
    if made.returncode:
        pytest.skip("a file system with bounds needs the right to mount a tmpfs")
    try:
        yield Disk(path)
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_mirror_whose_disk_becomes_read_only_says_so_lives_and_carries_on(disk: Disk) -> None:
    async with (
        raw_server(answers(*[cut(whole(DATA, ETag='"v1"'), 0.4, DATA)] * 6, rest)) as server,
        running_mirror(disk.path) as running,
    ):
        source = f"{server.url}/m.gguf"
        assert (await running.settled(source)).state is SetState.FAILED
        asked = len(server.asked)
        disk.mount("ro")
        failed = await running.settled(source, now=True)
        assert failed.state is SetState.FAILED
        assert "m.gguf.part cannot be written: its file system is mounted read-only" in failed.message
        assert len(server.asked) == asked, "nothing is asked for that could not be kept"
        # What is fetched for the first time has nowhere to be written down.
        other = await running.settled(f"{server.url}/other.gguf")
        assert "is mounted read-only" in other.message
        disk.mount("rw")
        ready = await running.settled(source, now=True)
        assert ready.state is SetState.READY, ready.message
        assert server.asked[asked].first_byte == CUT
        found = running.mirror.file(ready.id, "m.gguf")
        assert found is not None
        assert found[1].read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_disk_without_inodes_is_not_called_full_of_bytes(disk: Disk) -> None:
    with trio.fail_after(60):
        filler: list[Path] = []
        while os.statvfs(disk.path).f_favail:
            filler.append(disk.path / f"filler-{len(filler)}")
            filler[-1].touch()
        async with raw_server(answers(rest)) as server, running_mirror(disk.path) as running:
            source = f"{server.url}/m.gguf"
            failed = await running.settled(source)
            assert failed.state is SetState.FAILED
            assert "the file system has no inode left for another file, though" in failed.message
            for path in filler[:20]:
                path.unlink()
            ready = await running.settled(source, now=True)
            assert ready.state is SetState.READY, ready.message


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_file_that_may_not_become_larger_carries_on_when_it_may(tmp_path: Path) -> None:
    want = Wanted(target=tmp_path / "m.gguf", size=len(DATA), sha256=SHA)
    async with raw_server(answers(rest)) as server:
        remote = Remote(url=f"{server.url}/m.gguf")
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (CUT, hard))
        try:
            with pytest.raises(DiskFull, match="a file may not become so large there, though"):
                await download(remote, want, policy=quick())
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert want.target.with_name("m.gguf.part").stat().st_size == CUT
        await download(remote, want, policy=quick())
        assert server.ranges == [None, CUT]
    assert want.target.read_bytes() == DATA


@contextmanager
def once(monkeypatch: pytest.MonkeyPatch, owner: type, name: str, code: int) -> Iterator[list[str]]:
    """The disk refuses one step once; gives what was refused."""
    real: Callable[..., Any] = getattr(owner, name)
    refused: list[str] = []

    def failing(self: object, *args: object, **named: object) -> object:
        if refused:
            return real(self, *args, **named)
        refused.append(name)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, failing)
        yield refused


FULL = [
    pytest.param(errno.ENOSPC, "no space for", id="full"),
    pytest.param(errno.EDQUOT, "the quota of the account that writes there is used up", id="quota"),
    pytest.param(errno.EROFS, "is mounted read-only", id="read-only"),
]


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize(("code", "words"), FULL)
@pytest.mark.parametrize("step", ["open", "remember", "append", "finish"])
async def test_a_download_whose_disk_gives_out_at_any_step_is_finished_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, words: str
) -> None:
    want = Wanted(target=tmp_path / "m.gguf", size=len(DATA), sha256=SHA)
    async with raw_server(answers(rest)) as server:
        remote = Remote(url=f"{server.url}/m.gguf")
        with once(monkeypatch, Part, step, code) as refused:
            with pytest.raises((DiskFull, Unwritable), match=words) as caught:
                await download(remote, want, policy=quick())
            assert "what arrived is kept" in caught.value.message
            assert refused == [step]
            assert not want.target.exists()
            await download(remote, want, policy=quick())
    assert want.target.read_bytes() == DATA
    assert [path.name for path in tmp_path.iterdir()] == ["m.gguf"]


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize(("code", "words"), FULL)
@pytest.mark.parametrize("step", ["save", "facts"])
async def test_a_mirror_that_cannot_write_a_set_down_finishes_it_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, words: str
) -> None:
    async with raw_server(answers(rest)) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf"
        with once(monkeypatch, SetStore, step, code):
            failed = await running.settled(source)
            assert failed.state is SetState.FAILED
            assert words in failed.message
            ready = await running.settled(source, now=True)
            assert ready.state is SetState.READY, ready.message
        assert len(server.asked) == 1, "what is here is not fetched again"


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_whole_file_that_could_not_be_written_down_is_found_by_the_next_mirror(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(answers(rest)) as server:
        source = f"{server.url}/m.gguf"
        async with running_mirror(tmp_path) as running:
            with once(monkeypatch, SetStore, "facts", errno.ENOSPC):
                assert (await running.settled(source)).state is SetState.FAILED
        # Where it did not fit twice, a second copy of it would never come.
        few = MirrorConfig(policy=quick(free_bytes=lambda _path: len(DATA) // 2))
        async with running_mirror(tmp_path, config=few) as running:
            ready = await running.settled(source)
            assert ready.state is SetState.READY, ready.message
            assert ready.done_bytes == ready.total_bytes == len(DATA)
        assert len(server.asked) == 1


@pytest.mark.trio
async def test_a_file_that_is_no_weights_is_not_kept_for_the_next_fetch(tmp_path: Path) -> None:
    damaged = DATA[:8] + bytes(len(DATA) - 8)
    async with raw_server(answers(whole(damaged), rest)) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf"
        failed = await running.settled(source)
        assert failed.message == "m.gguf is a GGUF header without a single tensor: there are no weights in it"
        assert not list(tmp_path.rglob("m.gguf"))
        ready = await running.settled(source, now=True)
        assert ready.state is SetState.READY, ready.message
        assert len(server.asked) == 2


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
async def test_a_mirror_lives_though_it_cannot_even_forget_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refusal = b"HTTP/1.1 404 Gone\r\nContent-Length: 0\r\n\r\n"
    async with raw_server(answers(refusal, rest)) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf"
        with once(monkeypatch, SetStore, "forget_manifest", code) as refused:
            failed = await running.settled(source)
            assert refused == ["forget_manifest"]
        assert failed.state is SetState.FAILED
        assert "answers 404" in failed.message
        assert (await running.settled(source, now=True)).state is SetState.READY


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize(("code", "words"), FULL)
@pytest.mark.parametrize("step", ["begin", "finish"])
async def test_a_node_that_cannot_write_a_set_down_finishes_it_when_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, code: int, words: str
) -> None:
    async with (
        raw_server(answers(rest)) as server,
        running_mirror(tmp_path / "mirror") as running,
        trio.open_nursery() as nursery,
    ):
        cache = Cache(tmp_path / "node", mirror_url=running.url, token=TOKEN, policy=quick())
        await nursery.start(cache.run)
        source = f"{server.url}/m.gguf"
        with once(monkeypatch, Shelf, step, code):
            with pytest.raises((DiskFull, Unwritable), match=words):
                await cache.fetch(source)
            assert (await cache.fetch(source)).path.read_bytes() == DATA
        nursery.cancel_scope.cancel()


def test_a_disk_that_does_not_even_say_what_is_free_is_a_sentence_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: object) -> os.statvfs_result:
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    monkeypatch.setattr(os, "statvfs", stale)
    told = disk_error(OSError(errno.ENOSPC, "No space left on device"), tmp_path / "x", needed_bytes=5)
    assert isinstance(told, DiskFull)
    assert told.free_bytes == 0
    stale_mount = disk_error(OSError(errno.ESTALE, "Stale file handle", "/mnt/w"), tmp_path)
    assert stale_mount.message == "/mnt/w: Stale file handle"


def test_a_full_disk_whose_inodes_are_made_of_space_is_full_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.transfer.errors._inodes_are_gone", lambda _path: True)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr("llmgw.transfer.errors.free_bytes", lambda _path: 4096)
    assert "no inode left" not in str(disk_error(full, tmp_path / "f", needed_bytes=10))
    monkeypatch.setattr("llmgw.transfer.errors.free_bytes", lambda _path: 1 << 30)
    assert "no inode left" in str(disk_error(full, tmp_path / "f", needed_bytes=10))
