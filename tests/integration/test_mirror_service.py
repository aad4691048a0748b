"""The mirror's service and its HTTP API, driven as a server and its nodes drive them."""

import hashlib
import json
from pathlib import Path

import pytest
import trio

from llmgw.control.pki import Authority, client_context
from llmgw.core.errors import InvalidInput, Unavailable
from llmgw.core.weights import SetState
from llmgw.mirror.app import serve
from llmgw.mirror.service import Mirror
from llmgw.mirror.source import MirrorConfig
from llmgw.transfer.errors import Interrupted, Refused
from llmgw.transfer.http import Remote, request
from tests.support.mirrors import TOKEN, Running, running_mirror, until_here
from tests.support.nodes import node_credentials
from tests.support.rawhttp import Asked, answers, cut, files, head, partial, raw_server, whole
from tests.support.weights import quick, tiny_llama

GGUF = tiny_llama(padding=2_500_000)
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


async def ask(
    running: Running, path: str, *, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, dict[str, str], bytes]:
    remote = Remote(url=running.url + path, headers=AUTHORIZED, proxies=False)
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with request(remote, method=method, headers=named, body=body) as response:
        return response.status, response.headers, await response.read(10_000_000)


@pytest.mark.trio
async def test_one_fetch_whoever_asks_and_no_second_one_after_a_restart(tmp_path: Path) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as server:
        source = f"{server.url}/m.gguf"
        async with running_mirror(tmp_path) as running:
            for _ in range(4):
                running.mirror.ensure(source)
            status = await running.settled(source)
            assert status.state is SetState.READY, status.message
            assert running.changes.count(source) >= 2
            facts = running.mirror.facts(source)
            assert facts is not None
            assert facts.weights_bytes == len(GGUF)
            assert [s.source for s in running.mirror.sets()] == [source]
    async with running_mirror(tmp_path) as running:
        again = running.mirror.status(source)
        assert again is not None
        assert again.state is SetState.READY
        assert running.mirror.ensure(source).state is SetState.READY
        assert running.mirror.facts(source) == facts
    assert len(server.asked) == 1


@pytest.mark.trio
async def test_a_download_a_restarted_mirror_began_is_carried_on(tmp_path: Path) -> None:
    stopped = trio.Event()

    async def half(asked: Asked, stream: trio.SocketStream) -> None:
        if asked.first_byte is None:
            await stream.send_all(cut(whole(GGUF, ETag='"1"'), 0.9, GGUF))
            await stopped.wait()
        else:
            await stream.send_all(partial(GGUF, asked.first_byte, ETag='"1"'))

    async with raw_server(half) as server:
        source = f"{server.url}/m.gguf"
        async with running_mirror(tmp_path) as running:
            running.mirror.ensure(source)
            await until_here(lambda: running.mirror.ensure(source).done_bytes >= 1024 * 1024)
            kept = running.mirror.ensure(source).done_bytes
        stopped.set()
        async with running_mirror(tmp_path) as running:
            # Nobody asks: the mirror remembers what it had begun.
            await until_here(lambda: any(s.state is SetState.READY for s in running.mirror.sets()))
        first, second = server.ranges
        assert first is None
        # More may have arrived between the look and the stop; none of it is asked for again.
        assert second is not None
        assert kept <= second < len(GGUF)


@pytest.mark.trio
async def test_progress_is_the_whole_sets_and_never_goes_back(tmp_path: Path) -> None:
    first = cut(whole(GGUF), 0.8, GGUF)
    async with raw_server(answers(first, whole(GGUF))) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf"
        running.mirror.ensure(source)
        seen = []
        with trio.fail_after(20):
            while (status := running.mirror.ensure(source)).state is not SetState.READY:
                seen.append(status)
                await trio.lowlevel.checkpoint()
        done = [status.done_bytes for status in seen if status.state is SetState.FETCHING]
        assert done == sorted(done)
        assert all(status.done_bytes <= status.total_bytes for status in seen if status.total_bytes)
        assert (status.done_bytes, status.total_bytes) == (len(GGUF), len(GGUF))


@pytest.mark.trio
async def test_a_failed_set_is_tried_again_after_its_pause_or_when_told(tmp_path: Path) -> None:
    now = 100.0
    async with (
        raw_server(answers(head("404 Gone", {"Content-Length": 0}))) as server,
        running_mirror(tmp_path, clock=lambda: now) as running,
    ):
        source = f"{server.url}/m.gguf"
        assert (await running.settled(source)).state is SetState.FAILED
        assert running.mirror.ensure(source).state is SetState.FAILED
        assert len(server.asked) == 1
        now += 5.0
        assert running.mirror.ensure(source).state is SetState.RESOLVING
        await running.settled(source)
        assert len(server.asked) == 2
        now += 5.0
        assert running.mirror.ensure(source).state is SetState.FAILED, "the second pause is longer"
        await running.settled(source, now=True)
        assert len(server.asked) == 3


@pytest.mark.trio
async def test_a_simulated_model_needs_nothing(tmp_path: Path) -> None:
    async with running_mirror(tmp_path) as running:
        assert running.mirror.ensure("sim:big").state is SetState.READY
        facts = running.mirror.facts("sim:big")
        assert facts is not None
        assert facts.architecture == "sim"


@pytest.mark.trio
async def test_a_mirror_that_does_not_run_says_so(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path)
    with pytest.raises(Unavailable):
        mirror.ensure("https://h.example/m.gguf")
    with pytest.raises(InvalidInput):
        mirror.status("nonsense")


@pytest.mark.trio
async def test_removing_frees_the_disk_and_ends_a_fetch(tmp_path: Path) -> None:
    async def halting(asked: Asked, stream: trio.SocketStream) -> None:
        await stream.send_all(cut(whole(GGUF), 0.9, GGUF))
        await stream.receive_some(1)

    async with raw_server(halting) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf?signature=secret"
        running.mirror.ensure(source)
        await until_here(lambda: running.mirror.ensure(source).done_bytes >= 1024 * 1024)
        assert await running.mirror.remove(source) >= 1024 * 1024
        assert running.mirror.status(source) is None
        assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    async with raw_server(files({"/m.gguf": GGUF})) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.gguf"
        await running.settled(source)
        assert await running.mirror.remove(source) >= len(GGUF)
        assert not list(tmp_path.rglob("*.gguf"))


@pytest.mark.trio
@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[]", b'{"id":"x","source":"sim:x","files":[{"name":"../../etc/passwd","bytes":1}]}']
)
async def test_a_damaged_manifest_is_fetched_again_and_never_trusted(tmp_path: Path, damage: bytes) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as server:
        source = f"{server.url}/m.gguf"
        async with running_mirror(tmp_path) as running:
            await running.settled(source)
        next(tmp_path.rglob("manifest.json")).write_bytes(damage)
        async with running_mirror(tmp_path) as running:
            assert running.mirror.status(source) is None
            assert (await running.settled(source)).state is SetState.READY


@pytest.mark.trio
async def test_the_api_tells_and_serves_whole_files_and_ranges(tmp_path: Path) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        source = f"{origin.url}/m.gguf"
        status, _, body = await ask(running, "/v1/sets", method="POST", body=json.dumps({"source": source}).encode())
        assert status == 200
        set_id = json.loads(body)["status"]["id"]
        await running.settled(source)
        status, _, body = await ask(running, f"/v1/sets/{set_id}")
        manifest = json.loads(body)["manifest"]
        sha = hashlib.sha256(GGUF).hexdigest()
        assert manifest["files"] == [{"name": "m.gguf", "bytes": len(GGUF), "sha256": sha, "git_oid": None}]
        path = f"/v1/sets/{set_id}/files/m.gguf"
        status, headers, body = await ask(running, path)
        assert (status, body) == (200, GGUF)
        etag = headers["etag"]
        assert etag == f'"{sha}"'
        for text, piece in (
            ("bytes=10-19", GGUF[10:20]),
            ("bytes=2000000-", GGUF[2_000_000:]),
            ("bytes=-7", GGUF[-7:]),
            ("bytes=5-99999999", GGUF[5:]),
        ):
            status, headers, body = await ask(running, path, Range=text)
            assert (status, body) == (206, piece), text
            assert headers["content-range"].endswith(f"/{len(GGUF)}")
        status, headers, _ = await ask(running, path, Range=f"bytes={len(GGUF)}-")
        assert (status, headers["content-range"]) == (416, f"bytes */{len(GGUF)}")
        assert (await ask(running, path, Range="bytes=5-", If_Range='"other"'))[0] == 200
        assert (await ask(running, path, Range="bytes=5-", If_Range=etag))[0] == 206
        for odd in ("bytes=5-1", "bytes=-", "bytes=1-2,4-5", "lines=1-2", "bytes=a-"):
            assert (await ask(running, path, Range=odd))[0] == 200, odd


@pytest.mark.trio
@pytest.mark.parametrize(
    "path",
    [
        "/v1/sets/../../etc/passwd",
        "/v1/sets/%2e%2e/files/x",
        "/v1/sets/ID/files/../manifest.json",
        "/v1/sets/ID/files/%2e%2e%2fmanifest.json",
        "/v1/sets/ID/files//etc/passwd",
        "/v1/sets/ID/files/m.gguf%00",
        "/v1/sets/ID/manifest.json",
        "/",
        "/v1/sets",
    ],
)
async def test_no_path_leads_out_of_a_set(tmp_path: Path, path: str) -> None:
    async with raw_server(files({"/m.gguf": GGUF})) as origin, running_mirror(tmp_path) as running:
        status = await running.settled(f"{origin.url}/m.gguf")
        assert (await ask(running, path.replace("ID", status.id)))[0] == 404


@pytest.mark.trio
@pytest.mark.parametrize(
    "body", [b"", b"{", b'{"source": 7}', b'{"source": "nonsense"}', b'{"source": "sim:", "x": 1}']
)
async def test_a_wrong_request_is_a_400_with_a_sentence(tmp_path: Path, body: bytes) -> None:
    async with running_mirror(tmp_path) as running:
        status, _, answer = await ask(running, "/v1/sets", method="POST", body=body)
        assert status == 400
        assert json.loads(answer)["code"] == "invalid"


@pytest.mark.trio
@pytest.mark.parametrize("given", ["", "Bearer wrong", "Basic " + TOKEN, "Bearer", "Bearer é"])
async def test_without_the_token_nobody_learns_anything(tmp_path: Path, given: str) -> None:
    async with running_mirror(tmp_path) as running:
        raw = f"GET /v1/sets/x HTTP/1.1\r\nHost: x\r\nAuthorization: {given}\r\n\r\n".encode()
        host, port = running.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            await stream.send_all(raw)
            answer = b"".join([chunk async for chunk in stream])
        assert answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.trio
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"nonsense\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40_000 + b"\r\n\r\n", b"431"),
        (b"POST /v1/sets HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b"411"),
        (b"POST /v1/sets HTTP/1.1\r\nHost: a\r\nContent-Length: 99999\r\n\r\n" + b"a" * 99_999, b"413"),
    ],
    ids=["nonsense", "two hosts", "long header", "chunked", "long body"],
)
async def test_what_breaks_http_or_a_limit_is_refused(tmp_path: Path, raw: bytes, status: bytes) -> None:
    async with running_mirror(tmp_path) as running:
        host, port = running.url.removeprefix("http://").split(":")
        async with await trio.open_tcp_stream(host, int(port)) as stream:
            try:
                await stream.send_all(raw)
                answer = await stream.receive_some(100)
            except trio.BrokenResourceError:
                return  # the answer came while the rest was being sent
        assert answer.split(b" ")[1] == status


@pytest.mark.trio
async def test_a_nodes_certificate_opens_and_a_stranger_does_not(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "secrets", names=["127.0.0.1"])
    ours = node_credentials(authority, tmp_path / "node", "node-1")
    stranger = Authority.open(tmp_path / "other", names=["127.0.0.1"])
    theirs = node_credentials(stranger, tmp_path / "theirs", "node-1")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(authority.ca_pem)
    mirror = Mirror(tmp_path / "mirror", config=MirrorConfig(policy=quick()))
    removed: set[str] = set()

    async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        await serve(
            mirror,
            host="127.0.0.1",
            port=0,
            ssl_context=authority.mirror_server_context(),
            token=TOKEN,
            allow_peer=lambda peer: peer.name not in removed,
            task_status=task_status,
        )

    async with trio.open_nursery() as nursery:
        await nursery.start(mirror.run)
        listeners = await nursery.start(api)
        url = f"https://127.0.0.1:{listeners[0].socket.getsockname()[1]}/v1/sets/none"

        async def status(**remote: object) -> int:
            async with request(Remote(url=url, proxies=False, **remote)) as response:  # type: ignore[arg-type]
                return response.status

        assert await status(tls=client_context(ca, *ours)) == 404
        assert await status(tls=client_context(ca)) == 401
        assert await status(tls=client_context(ca), headers=AUTHORIZED) == 404
        with pytest.raises((Refused, Interrupted)):
            await status(tls=client_context(ca, *theirs))
        with pytest.raises(Refused, match="not trusted"):
            await status()
        removed.add("node-1")
        assert await status(tls=client_context(ca, *ours)) == 401
        nursery.cancel_scope.cancel()
