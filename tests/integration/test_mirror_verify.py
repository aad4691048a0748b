"""Reading a set back on demand: it is served meanwhile, and only a file that differs is removed and fetched again."""

import hashlib
from pathlib import Path

import pytest
import trio

from llmgw.core.errors import Conflict, NotFound
from llmgw.core.weights import SetState, SetStatus
from llmgw.mirror import verify
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.http import Remote, request
from tests.support.hub import hub_server
from tests.support.mirrors import TOKEN, Running, running_mirror, until_here
from tests.support.rawhttp import Asked, files, raw_server, whole
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=2_500_000)
PARTS = {"m-00001-of-00002.gguf": GGUF, "m-00002-of-00002.gguf": tiny_llama(padding=900_000)}
FIRST, SECOND = PARTS


async def checked(running: Running, source: str) -> SetStatus:
    """Ask for a check, wait until it is over and what it began is done, and give the status."""
    running.mirror.verify(source)

    def over() -> bool:
        status = running.mirror.status(source)
        return status is not None and not status.phase and status.state in (SetState.READY, SetState.FAILED)

    await until_here(over)
    status = running.mirror.status(source)
    assert status is not None
    return status


def on_disk(root: Path, name: str) -> Path:
    (path,) = (path for path in root.rglob(name) if path.is_file())
    return path


def flip(path: Path, at: int) -> None:
    """Change one byte, not the size."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.trio
async def test_what_is_as_published_is_said_to_be_and_nothing_is_fetched(tmp_path: Path) -> None:
    async with (
        hub_server(PARTS) as hub,
        running_mirror(tmp_path, config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
    ):
        await running.settled("hf:org/model")
        fetched = len(hub.cdn.asked)
        status = await checked(running, "hf:org/model")
        assert (status.verdict, status.intact) == ("all 2 files are what was published", True)
        assert len(hub.cdn.asked) == fetched


@pytest.mark.trio
async def test_a_file_that_differs_is_removed_and_fetched_again_and_no_other(tmp_path: Path) -> None:
    async with (
        hub_server(PARTS) as hub,
        running_mirror(tmp_path, config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
    ):
        await running.settled("hf:org/model")
        flip(on_disk(tmp_path, SECOND), 500_000)
        before = len(hub.cdn.asked)
        status = await checked(running, "hf:org/model")
        assert status.state is SetState.READY, status.message
        assert status.verdict == f"{SECOND} of 2 files is not what was published: removed and fetched again"
        assert status.intact is False
        assert len(hub.cdn.asked) == before + 1
        assert on_disk(tmp_path, SECOND).read_bytes() == PARTS[SECOND]
        assert (await checked(running, "hf:org/model")).intact is True


@pytest.mark.trio
async def test_a_file_that_is_gone_or_cut_is_fetched_again(tmp_path: Path) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        await running.settled(source)
        path = on_disk(tmp_path, "m.gguf")
        path.write_bytes(GGUF[:-1])
        status = await checked(running, source)
        assert status.verdict == "m.gguf of 1 file is not what was fetched: removed and fetched again"
        assert path.read_bytes() == GGUF
        path.unlink()
        assert (await checked(running, source)).intact is False
        assert path.read_bytes() == GGUF
        assert (await checked(running, source)).verdict == "its file is what was fetched"


@pytest.mark.trio
async def test_a_set_is_served_while_it_is_read_back_and_says_how_far_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = trio.Event(), trio.Event()
    real = verify.differing

    async def slow(*args: object, **more: object) -> list[str]:
        reading.set()
        await go_on.wait()
        return await real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("llmgw.mirror.service.differing", slow)
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        await running.settled(source)
        first = running.mirror.verify(source)
        assert (first.state, first.phase, first.checked_bytes) == (SetState.READY, "checking", 0)
        await reading.wait()
        remote = Remote(
            url=f"{running.url}/v1/sets/{first.id}/files/m.gguf",
            headers={"Authorization": f"Bearer {TOKEN}"},
            proxies=False,
        )
        async with request(remote) as response:
            assert (response.status, await response.read(10_000_000)) == (200, GGUF)
        assert running.mirror.verify(source).phase == "checking", "a second asker joins the check on its way"
        go_on.set()
        status = await checked(running, source)
        assert status.intact is True
        assert len(origin.asked) == 1


@pytest.mark.trio
async def test_four_files_are_read_at_once_and_progress_ends_at_the_total(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {f"m-{number:05d}-of-00006.gguf": tiny_llama(padding=100_000 + number) for number in range(1, 7)}
    at_once: list[int] = []
    reads: dict[str, int] = {}
    real = verify.differing

    async def watched(*args: object, **more: object) -> list[str]:
        at_once.append(int(str(more["at_once"])))
        report = args[2]

        def heard(name: str, done: int) -> None:
            reads[name] = done
            report(name, done)  # type: ignore[operator]

        return await real(args[0], args[1], heard, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("llmgw.mirror.service.differing", watched)
    async with (
        hub_server(names) as hub,
        running_mirror(tmp_path, config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
    ):
        await running.settled("hf:org/model")
        assert (await checked(running, "hf:org/model")).intact is True
    assert at_once == [4]
    assert reads == {name: len(data) for name, data in names.items()}


@pytest.mark.trio
async def test_an_operators_own_file_is_never_removed(tmp_path: Path) -> None:
    own = tmp_path / "models" / "m.gguf"
    own.parent.mkdir()
    own.write_bytes(GGUF)
    async with running_mirror(tmp_path / "mirror") as running:
        source = f"file:{own}"
        await running.settled(source)
        assert (await checked(running, source)).verdict == "its file is what was hashed when it was added"
        flip(own, 1_000_000)
        changed = own.read_bytes()
        status = await checked(running, source)
        assert "left where it lies, and hashed anew" in status.verdict
        assert own.read_bytes() == changed
        assert status.state is SetState.READY
        answer = running.mirror.answer(status.id)
        assert answer is not None
        assert answer.manifest is not None
        assert answer.manifest.files[0].sha256 == hashlib.sha256(changed).hexdigest()


@pytest.mark.trio
async def test_what_is_not_whole_or_not_there_is_not_read_back(tmp_path: Path) -> None:
    release = trio.Event()

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        await release.wait()
        await stream.send_all(whole(GGUF))

    async with raw_server(slow) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        with pytest.raises(NotFound, match="not on the mirror"):
            running.mirror.verify(source)
        running.mirror.ensure(source)
        await until_here(lambda: bool(origin.asked))
        with pytest.raises(Conflict, match="checked as it arrives"):
            running.mirror.verify(source)
        release.set()
        await running.settled(source)
        with pytest.raises(NotFound):
            running.mirror.verify("sim:big")


@pytest.mark.trio
async def test_a_set_removed_while_it_is_read_back_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = trio.Event()

    async def endless(*_args: object, **_more: object) -> list[str]:
        reading.set()
        await trio.sleep_forever()

    monkeypatch.setattr("llmgw.mirror.service.differing", endless)
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        await running.settled(source)
        running.mirror.verify(source)
        await reading.wait()
        assert await running.mirror.remove(source) >= len(GGUF)
        assert running.mirror.status(source) is None
        assert not list(tmp_path.rglob("*.gguf"))
