"""The node's cache against a real mirror: one fetch for all who wait, progress that never goes back, nothing half."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agent.weights.cache import Cache, LocalSet
from agent.weights.meter import Meter
from llmgw.control.pki import Authority, client_context
from llmgw.core.cluster import FetchProgress
from llmgw.core.errors import InvalidInput, LlmgwError, Unavailable
from llmgw.core.weights import SetState
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.errors import DiskFull, WrongContent
from tests.support.hub import hub_server
from tests.support.mirrors import TOKEN, Running, running_mirror, until_here
from tests.support.nodes import node_credentials
from tests.support.rawhttp import Asked, files, head, raw_server, whole
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=2_500_000)


@asynccontextmanager
async def running_cache(root: Path, url: str, **policy: object) -> AsyncIterator[Cache]:
    cache = Cache(root, mirror_url=url, token=TOKEN, policy=quick(**policy))
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        await nursery.start(cache.run)
        try:
            yield cache
        except Exception as error:  # raised below as it is, without the nursery's group around it
            failure = error
        nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


@asynccontextmanager
async def origin_mirror_cache(tmp_path: Path, **policy: object) -> AsyncIterator[tuple[str, Running, Cache]]:
    async with (
        raw_server(files({"/m.gguf": GGUF})) as origin,
        running_mirror(tmp_path / "mirror") as running,
        running_cache(tmp_path / "node", running.url, **policy) as cache,
    ):
        yield f"{origin.url}/m.gguf", running, cache


def downloads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files the mirror was asked for from here on."""
    asked: list[str] = []
    real = Mirror.file

    def file(self: Mirror, set_id: str, name: str) -> object:
        asked.append(name)
        return real(self, set_id, name)

    monkeypatch.setattr(Mirror, "file", file)
    return asked


@pytest.mark.trio
async def test_a_set_is_brought_checked_and_then_needs_no_mirror(tmp_path: Path) -> None:
    seen: list[FetchProgress] = []
    async with origin_mirror_cache(tmp_path) as (source, _, cache):
        assert await cache.held(source) is None
        got = await cache.fetch(source, seen.append)
        assert got.path.name == "m.gguf"
        assert got.path.read_bytes() == GGUF
        assert got.manifest.files[0].sha256 == hashlib.sha256(GGUF).hexdigest()
    async with running_cache(tmp_path / "node", "http://127.0.0.1:9") as cache:
        again = await cache.fetch(source)
        assert again.path == got.path
        assert await cache.held(source) == again
    phases = list(dict.fromkeys(progress.phase for progress in seen))
    assert [phase for phase in phases if phase != "mirror"] == ["fetching", "checking"]
    for phase in ("fetching", "checking"):
        mine = [progress for progress in seen if progress.phase == phase]
        assert [p.done_bytes for p in mine] == sorted(p.done_bytes for p in mine)
        assert mine[0].done_bytes == 0
        assert (mine[-1].done_bytes, mine[-1].total_bytes) == (len(GGUF), len(GGUF))


@pytest.mark.trio
@pytest.mark.promise("A13")
async def test_eight_replicas_at_once_are_one_download_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"m-00001-of-00002.gguf": GGUF, "m-00002-of-00002.gguf": tiny_llama(padding=9)}
    asked = downloads(monkeypatch)
    got: list[LocalSet] = []
    async with (
        hub_server(contents) as hub,
        running_mirror(tmp_path / "mirror", config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
        running_cache(tmp_path / "node", running.url) as cache,
    ):

        async def one() -> None:
            got.append(await cache.fetch("hf:org/model"))

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(one)
        assert hub.resolved == 1
        assert len(hub.cdn.asked) == 2
    assert sorted(asked) == sorted(contents)
    assert {item.path.name for item in got} == {"m-00001-of-00002.gguf"}
    assert len(got) == 8


@pytest.mark.trio
@pytest.mark.parametrize(
    "name", ["模型-é.gguf", "a b.gguf", "100%25.gguf", "a#b?c&d=e+f.gguf", "Ä/ö.gguf", "e\u0301'\".gguf"]
)
async def test_a_name_stays_what_it_is_from_the_hub_to_the_node(tmp_path: Path, name: str) -> None:
    async def network(_asked: Asked, stream: trio.SocketStream) -> None:
        await stream.send_all(whole(GGUF))

    async with (
        hub_server({name: GGUF, "README.md": b""}, cdn_script=network) as hub,
        running_mirror(tmp_path / "mirror", config=MirrorConfig(hf_endpoint=hub.url, policy=quick())) as running,
        running_cache(tmp_path / "node", running.url) as cache,
    ):
        got = await cache.fetch("hf:org/model")
        assert got.path.read_bytes() == GGUF
        assert str(got.path).endswith(f"/files/{name}")


@pytest.mark.trio
async def test_a_set_still_downloading_on_the_mirror_says_so(tmp_path: Path) -> None:
    release = trio.Event()
    seen: list[FetchProgress] = []

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        answer = whole(GGUF)
        await stream.send_all(answer[: len(answer) // 2])
        await release.wait()
        await stream.send_all(answer[len(answer) // 2 :])

    def hear(progress: FetchProgress) -> None:
        seen.append(progress)
        release.set()

    async with (
        raw_server(slow) as origin,
        running_mirror(tmp_path / "mirror") as running,
        running_cache(tmp_path / "node", running.url) as cache,
    ):
        await cache.fetch(f"{origin.url}/m.gguf", hear)
    assert seen[0].phase == "mirror"
    assert list(dict.fromkeys(p.phase for p in seen)) == ["mirror", "fetching", "checking"]


@pytest.mark.trio
async def test_a_waiter_that_leaves_takes_nobody_with_it_and_the_last_one_ends_the_fetch(tmp_path: Path) -> None:
    release = trio.Event()
    asked = trio.Event()

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        asked.set()
        await release.wait()
        await stream.send_all(whole(GGUF))

    async with (
        raw_server(slow) as origin,
        running_mirror(tmp_path / "mirror") as running,
        running_cache(tmp_path / "node", running.url) as cache,
    ):
        source = f"{origin.url}/m.gguf"
        with trio.move_on_after(0.05) as alone:
            await cache.fetch(source)
        assert alone.cancelled_caught
        got: list[LocalSet] = []

        async def stays() -> None:
            got.append(await cache.fetch(source))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays)
            await asked.wait()
            with trio.move_on_after(0.05):
                await cache.fetch(source)
            assert got == []
            release.set()
        assert got[0].path.read_bytes() == GGUF
        assert len(origin.asked) == 1


@pytest.mark.trio
async def test_what_an_earlier_run_left_is_carried_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with origin_mirror_cache(tmp_path) as (source, running, cache):
        status = await running.settled(source)
        part = tmp_path / "node" / status.id / "files" / "m.gguf.part"
        part.parent.mkdir(parents=True)
        part.write_bytes(GGUF[:1_000_000])
        seen: list[FetchProgress] = []
        got = await cache.fetch(source, seen.append)
        assert got.path.read_bytes() == GGUF
        assert next(p for p in seen if p.phase == "fetching").done_bytes == 1_000_000


@pytest.mark.trio
async def test_a_file_of_the_right_size_is_checked_and_a_wrong_one_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = downloads(monkeypatch)
    async with origin_mirror_cache(tmp_path) as (source, running, cache):
        status = await running.settled(source)
        path = tmp_path / "node" / status.id / "files" / "m.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(bytes(len(GGUF)))
        with pytest.raises(WrongContent, match="it was removed"):
            await cache.fetch(source)
        assert asked == []
        assert not path.exists()
        assert (await cache.fetch(source)).path.read_bytes() == GGUF
        path.unlink()
        assert await cache.held(source) is None
        assert (await cache.fetch(source)).path.read_bytes() == GGUF
        path.write_bytes(GGUF[:-1])
        assert await cache.held(source) is None


@pytest.mark.trio
async def test_the_mirrors_failure_and_absence_are_sentences(tmp_path: Path) -> None:
    async with (
        raw_server(lambda _asked, stream: stream.send_all(head("404 Gone", {"Content-Length": 0}))) as origin,
        running_mirror(tmp_path / "mirror") as running,
        running_cache(tmp_path / "node", running.url) as cache,
    ):
        with pytest.raises(Unavailable, match=r"could not fetch .* 404"):
            await cache.fetch(f"{origin.url}/m.gguf")
        with pytest.raises(InvalidInput):
            await cache.fetch("nonsense")
        cache.mirror_url = "http://127.0.0.1:9"
        with pytest.raises(Unavailable, match=r"the mirror is away.*tried 6 times"):
            await cache.fetch(f"{origin.url}/other.gguf")
        cache.mirror_url = ""
        with pytest.raises(InvalidInput, match="where the mirror is"):
            await cache.fetch(f"{origin.url}/other.gguf")


@pytest.mark.trio
@pytest.mark.parametrize(
    "files_json",
    [
        b'[{"name":"../../x","bytes":1}]',
        b'[{"name":"a","bytes":1},{"name":"a","bytes":1}]',
        b'[{"name":"/etc/passwd","bytes":1}]',
        b'[{"name":"m.gguf"}]',
    ],
)
async def test_a_lying_mirror_writes_nothing_outside(tmp_path: Path, files_json: bytes) -> None:
    body = (
        b'{"status":{"id":"x","source":"sim:x","state":"ready"},'
        b'"manifest":{"id":"x","source":"sim:x","files":' + files_json + b"}}"
    )
    answer = head("200 OK", {"Content-Length": len(body)}) + body
    async with (
        raw_server(lambda _asked, stream: stream.send_all(answer)) as mirror,
        running_cache(tmp_path / "node", mirror.url) as cache,
    ):
        with pytest.raises(LlmgwError):
            await cache.fetch("https://h.example/m.gguf")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.trio
@pytest.mark.case("C25")
async def test_a_full_disk_is_told_before_the_first_byte_and_passes(tmp_path: Path) -> None:
    free = [1_000_000]
    async with origin_mirror_cache(tmp_path, free_bytes=lambda _path: free[0]) as (source, _, cache):
        with pytest.raises(DiskFull) as caught:
            await cache.fetch(source)
        assert caught.value.free_bytes == 1_000_000
        assert str(tmp_path / "node") in caught.value.message
        assert not list((tmp_path / "node").rglob("*.gguf*.part"))
        free[0] = 1 << 40
        assert (await cache.fetch(source)).path.read_bytes() == GGUF


@pytest.mark.trio
async def test_a_node_fetches_under_mutual_tls(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "secrets", names=["127.0.0.1"])
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.ca_pem)
    context = client_context(ca, *node_credentials(authority, tmp_path / "keys", "node-1"))
    context.check_hostname = True
    model = tmp_path / "m.gguf"
    model.write_bytes(GGUF)
    mirror = Mirror(tmp_path / "mirror", config=MirrorConfig(policy=quick()))

    async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        tls = authority.mirror_server_context()
        await serve(mirror, host="127.0.0.1", port=0, ssl_context=tls, token=TOKEN, task_status=task_status)

    async with trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        listeners = await nursery.start(api)
        url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        cache = Cache(tmp_path / "node", mirror_url=url, tls=context, policy=quick())
        await nursery.start(cache.run)
        assert (await cache.fetch(f"file:{model}")).path.read_bytes() == GGUF
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_removing_ends_a_fetch_and_frees_the_disk(tmp_path: Path) -> None:
    async with origin_mirror_cache(tmp_path) as (source, running, cache):
        await cache.fetch(source)
        assert await cache.remove(source) >= len(GGUF)
        assert await cache.held(source) is None
        assert (await cache.fetch(source)).path.read_bytes() == GGUF
        assert running.mirror.ensure(source).state is SetState.READY


@pytest.mark.trio
async def test_a_simulated_model_needs_no_mirror(tmp_path: Path) -> None:
    async with running_cache(tmp_path, "http://127.0.0.1:9") as cache:
        assert (await cache.fetch("sim:big")).manifest.files == ()


def test_progress_is_told_every_two_seconds_and_at_every_end() -> None:
    now = [0.0]
    told: list[tuple[str, int, int]] = []
    meter = Meter(lambda p: told.append((p.phase, p.done_bytes, p.total_bytes)), lambda: now[0])
    meter.begin("fetching", 100)
    for done in range(0, 90, 10):
        meter.at(done, 100)
        now[0] += 0.5
    meter.at(20, 100)
    meter.end()
    meter.begin("checking", 100)
    meter.end()
    assert told == [
        ("fetching", 0, 100),
        ("fetching", 40, 100),
        ("fetching", 80, 100),
        ("fetching", 100, 100),
        ("checking", 0, 100),
        ("checking", 100, 100),
    ]


@pytest.mark.trio
async def test_a_mirror_restarted_between_two_polls_is_asked_again(tmp_path: Path) -> None:
    release = trio.Event()

    async def slow(_asked: Asked, stream: trio.SocketStream) -> None:
        await release.wait()
        await stream.send_all(whole(GGUF))

    got: list[LocalSet] = []
    async with raw_server(slow) as origin, running_cache(tmp_path / "node", "", attempts=10_000) as cache:
        source = f"{origin.url}/m.gguf"

        async def fetch() -> None:
            got.append(await cache.fetch(source))

        async with trio.open_nursery() as nursery:
            async with running_mirror(tmp_path / "mirror") as first:
                cache.mirror_url = first.url
                nursery.start_soon(fetch)
                await until_here(lambda: bool(origin.asked))
            async with running_mirror(tmp_path / "mirror") as second:
                cache.mirror_url = second.url
                release.set()
                await until_here(lambda: bool(got))
    assert got[0].path.read_bytes() == GGUF
