"""The downloader against a server that misbehaves byte by byte: the file ends whole and right, or not at all."""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from llmgw.transfer.download import Downloaded, Wanted, download
from llmgw.transfer.errors import DiskFull, Interrupted, Refused, WrongContent
from llmgw.transfer.http import Remote, Timeouts
from tests.support.rawhttp import Asked, Script, answers, cut, files, gzipped, head, partial, raw_server, whole
from tests.support.weights import quick

DATA = os.urandom(3_000_000)
OTHER = os.urandom(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()


def wanted(tmp_path: Path, *, size: int | None = len(DATA), sha256: str | None = SHA) -> Wanted:
    return Wanted(target=tmp_path / "files" / "m.gguf", size=size, sha256=sha256)


async def fetch(script: Script, want: Wanted, **policy: object) -> tuple[Downloaded, list[Asked]]:
    async with raw_server(script) as server:
        got = await download(Remote(url=f"{server.url}/m.gguf"), want, policy=quick(**policy))
        return got, server.asked


def left(want: Wanted) -> list[str]:
    """Names in the target's directory."""
    return sorted(path.name for path in want.target.parent.iterdir())


def rest(asked: Asked) -> bytes:
    """The honest answer to a range."""
    return whole(DATA) if asked.first_byte is None else partial(DATA, asked.first_byte)


@pytest.mark.trio
async def test_a_plain_file_is_fetched_once(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    got, asked = await fetch(answers(whole(DATA)), want)
    assert (got.size, got.sha256) == (len(DATA), SHA)
    assert want.target.read_bytes() == DATA
    assert left(want) == ["m.gguf"]
    assert [a.headers.get("accept-encoding") for a in asked] == ["identity"]


SECOND: dict[str, Callable[[Asked], bytes]] = {
    "resumed": rest,
    "200 with the whole body": lambda _asked: whole(DATA, ETag='"v1"'),
    "200 in gzip": lambda _asked: gzipped(DATA, ETag='"v1-gz"'),
    "206 from another offset": lambda asked: partial(DATA, (asked.first_byte or 0) // 2, ETag='"v1"'),
    "206 from a later offset": lambda asked: partial(DATA, (asked.first_byte or 0) + 1000, ETag='"v1"'),
    "206 of another file": lambda asked: partial(OTHER, asked.first_byte or 0, ETag='"v2"'),
    "206 without its range": lambda _asked: head("206 Partial Content", {"Content-Length": 5}) + b"x" * 5,
    "416 of another size": lambda _asked: head(
        "416 Range Not Satisfiable", {"Content-Range": "bytes */7", "Content-Length": 0}
    ),
}


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("variant", SECOND)
@pytest.mark.parametrize("known", [True, False], ids=["sha256 known", "nothing known"])
async def test_a_cut_download_ends_right_whatever_the_second_answer_is(
    tmp_path: Path, variant: str, known: bool
) -> None:
    want = wanted(tmp_path) if known else wanted(tmp_path, size=None, sha256=None)
    first = cut(whole(DATA, ETag='"v1"'), 0.4, DATA)
    got, asked = await fetch(answers(first, SECOND[variant], rest), want)
    assert want.target.read_bytes() == DATA
    assert got.sha256 == SHA
    assert left(want) == ["m.gguf"]
    assert asked[1].first_byte == int(0.4 * len(DATA))
    assert asked[1].headers["if-range"] == '"v1"'
    assert all(a.headers["accept-encoding"] == "identity" for a in asked)


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_pieces_of_two_versions_without_an_etag_are_found_by_the_checksum(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    mixed = cut(whole(OTHER), 0.4, OTHER)
    _, asked = await fetch(answers(mixed, rest), want)
    assert want.target.read_bytes() == DATA
    assert [a.first_byte for a in asked] == [None, int(0.4 * len(DATA)), None]


@pytest.mark.trio
async def test_a_cut_in_half_takes_two_calls(tmp_path: Path) -> None:
    _, asked = await fetch(answers(cut(whole(DATA), 0.5, DATA), rest), wanted(tmp_path))
    assert [a.first_byte for a in asked] == [None, len(DATA) // 2]


@pytest.mark.trio
async def test_what_an_earlier_run_began_is_carried_on_with_its_etag(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    want.target.parent.mkdir()
    want.target.with_name("m.gguf.part").write_bytes(DATA[:1_000_000])
    want.target.with_name("m.gguf.part.json").write_text(json.dumps({"etag": '"v1"'}))
    _, asked = await fetch(answers(rest), want)
    assert [a.first_byte for a in asked] == [1_000_000]
    assert asked[0].headers["if-range"] == '"v1"'
    assert want.target.read_bytes() == DATA
    assert left(want) == ["m.gguf"]


@pytest.mark.trio
@pytest.mark.parametrize("memory", [b"", b"{", b"[]", b'{"etag": 7}', b"\xff\xfe"])
async def test_a_torn_memory_of_the_etag_is_no_memory(tmp_path: Path, memory: bytes) -> None:
    want = wanted(tmp_path)
    want.target.parent.mkdir()
    want.target.with_name("m.gguf.part").write_bytes(DATA[:1_000_000])
    want.target.with_name("m.gguf.part.json").write_bytes(memory)
    _, asked = await fetch(answers(rest), want)
    assert "if-range" not in asked[0].headers
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_a_whole_part_needs_no_server(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    want.target.parent.mkdir()
    want.target.with_name("m.gguf.part").write_bytes(DATA)
    _, asked = await fetch(answers(head("500 No", {"Content-Length": 0})), want)
    assert asked == []
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_416_means_whole_when_the_sizes_agree(tmp_path: Path) -> None:
    want = wanted(tmp_path, size=None)
    want.target.parent.mkdir()
    want.target.with_name("m.gguf.part").write_bytes(DATA)
    answer = head("416 Range Not Satisfiable", {"Content-Range": f"bytes */{len(DATA)}", "Content-Length": 0})
    _, asked = await fetch(answers(answer), want)
    assert want.target.read_bytes() == DATA
    assert [a.first_byte for a in asked] == [len(DATA)]


@pytest.mark.trio
async def test_416_of_a_shorter_file_starts_again(tmp_path: Path) -> None:
    want = wanted(tmp_path, size=None)
    want.target.parent.mkdir()
    want.target.with_name("m.gguf.part").write_bytes(OTHER + b"more")
    answer = head("416 Range Not Satisfiable", {"Content-Range": f"bytes */{len(DATA)}", "Content-Length": 0})
    await fetch(answers(answer, rest), want)
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.parametrize("status", ["500 Oops", "502 Bad Gateway", "503 Busy", "429 Slow Down"])
async def test_a_passing_refusal_is_asked_again(tmp_path: Path, status: str) -> None:
    _, asked = await fetch(answers(head(status, {"Content-Length": 0}), rest), wanted(tmp_path))
    assert len(asked) == 2


@pytest.mark.trio
@pytest.mark.parametrize("status", ["400 Bad", "401 No", "403 No", "404 Gone", "410 Gone"])
async def test_a_lasting_refusal_fails_at_once(tmp_path: Path, status: str) -> None:
    want = wanted(tmp_path)
    async with raw_server(answers(head(status, {"Content-Length": 0}))) as server:
        with pytest.raises(Refused, match=status[:3]):
            await download(Remote(url=f"{server.url}/m.gguf?signature=secret"), want, policy=quick())
        assert len(server.asked) == 1
    assert not want.target.exists()


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("status", ["200 OK", "403 Forbidden"])
async def test_a_page_in_the_files_place_is_refused_and_costs_nothing_of_what_arrived(
    tmp_path: Path, status: str
) -> None:
    want = wanted(tmp_path)
    page = b"<!DOCTYPE html><html>Sign in to go on</html>"
    answer = head(status, {"Content-Type": "text/html", "Content-Length": len(page)}) + page
    with pytest.raises(Refused) as caught:
        await fetch(answers(cut(whole(DATA), 0.4, DATA), answer), want)
    assert "html" not in caught.value.message
    assert want.target.with_name("m.gguf.part").read_bytes() == DATA[: int(0.4 * len(DATA))]
    _, asked = await fetch(answers(rest), want)
    assert [a.first_byte for a in asked] == [int(0.4 * len(DATA))]


@pytest.mark.trio
async def test_six_attempts_with_growing_pauses_and_the_part_is_kept(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await trio.lowlevel.checkpoint()

    def crumbs(asked: Asked) -> bytes:
        start = asked.first_byte or 0
        full = partial(DATA, start) if start else whole(DATA)
        return full[: full.index(b"\r\n\r\n") + 4 + 1000]

    async with raw_server(answers(crumbs)) as server:
        with pytest.raises(Interrupted) as caught:
            await download(Remote(url=f"{server.url}/m.gguf?signature=secret"), want, policy=quick(sleep=sleep))
        assert server.ranges == [None, 1000, 2000, 3000, 4000, 5000]
    assert pauses == [2, 4, 8, 16, 30]
    assert "(tried 6 times; what arrived is kept and the next fetch carries on from it)" in caught.value.message
    assert "secret" not in caught.value.message
    assert left(want) == ["m.gguf.part"]
    _, asked = await fetch(answers(rest), want)
    assert [a.first_byte for a in asked] == [6000]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_a_wrong_checksum_removes_the_file_and_says_so(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    with pytest.raises(WrongContent, match="was removed"):
        await fetch(answers(whole(OTHER)), want)
    assert left(want) == []


@pytest.mark.trio
async def test_a_file_of_another_size_than_published_is_refused_before_its_first_byte(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    with pytest.raises(Refused, match="3000001 bytes where 3000000 were published"):
        await fetch(answers(whole(DATA + b"x")), want)
    assert not want.target.exists()


@pytest.mark.trio
async def test_chunked_and_endless_answers_are_bounded_by_the_published_size(tmp_path: Path) -> None:
    want = wanted(tmp_path)

    async def endless(_asked: Asked, stream: trio.SocketStream) -> None:
        await stream.send_all(head("200 OK", {"Transfer-Encoding": "chunked"}))
        while True:
            await stream.send_all(b"10000\r\n" + bytes(65536) + b"\r\n")

    with pytest.raises(Interrupted, match="more than the 3000000 bytes"):
        await fetch(endless, want)
    assert not want.target.exists()
    assert want.target.with_name("m.gguf.part").stat().st_size <= len(DATA)


@pytest.mark.trio
async def test_a_chunked_answer_without_its_end_is_asked_again(tmp_path: Path) -> None:
    chunk = b"%x\r\n%b\r\n" % (len(DATA), DATA)
    start = head("200 OK", {"Transfer-Encoding": "chunked"})
    want = wanted(tmp_path, size=None)
    _, asked = await fetch(answers(start + chunk[: len(chunk) // 2], start + chunk + b"0\r\n\r\n"), want)
    assert len(asked) == 2
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_an_answer_without_a_length_that_ends_early_is_asked_again(tmp_path: Path) -> None:
    want = wanted(tmp_path, sha256=None)
    start = head("200 OK", {"Connection": "close"})
    _, asked = await fetch(answers(start + DATA[:1_000_000], rest), want)
    assert [a.first_byte for a in asked] == [None, 1_000_000]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_silence_ends_an_attempt(tmp_path: Path) -> None:
    calls = 0

    async def silent(asked: Asked, stream: trio.SocketStream) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            await stream.send_all(cut(whole(DATA), 0.4, DATA))
            await stream.receive_some(1)  # until the client lets go
            return
        await stream.send_all(rest(asked))

    want = wanted(tmp_path)
    async with raw_server(silent) as server:
        remote = Remote(url=f"{server.url}/m.gguf", timeouts=Timeouts(stall_s=0.2))
        await download(remote, want, policy=quick())
        assert server.ranges == [None, int(0.4 * len(DATA))]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_a_cancelled_download_ends_at_once_and_keeps_its_part(tmp_path: Path) -> None:
    arrived = trio.Event()

    async def halting(_asked: Asked, stream: trio.SocketStream) -> None:
        await stream.send_all(cut(whole(DATA), 0.9, DATA))
        await stream.receive_some(1)

    def report(done: int, _total: int) -> None:
        arrived.set()

    want = wanted(tmp_path)
    async with raw_server(halting) as server, trio.open_nursery() as nursery:

        async def run() -> None:
            await download(Remote(url=f"{server.url}/m.gguf"), want, report=report, policy=quick())

        nursery.start_soon(run)
        await arrived.wait()
        nursery.cancel_scope.cancel()
    assert want.target.with_name("m.gguf.part").stat().st_size >= 1024 * 1024
    _, asked = await fetch(answers(rest), want)
    assert (asked[0].first_byte or 0) >= 1024 * 1024
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C25")
@pytest.mark.parametrize("known", [True, False], ids=["size known", "size in the answer"])
async def test_too_little_space_is_told_before_the_first_byte(tmp_path: Path, known: bool) -> None:
    want = wanted(tmp_path) if known else wanted(tmp_path, size=None)
    with pytest.raises(DiskFull) as caught:
        await fetch(answers(whole(DATA)), want, free_bytes=lambda _path: 1_000_000)
    assert (caught.value.needed_bytes, caught.value.free_bytes) == (3_000_000, 1_000_000)
    assert str(want.target) in caught.value.message
    assert "3 MB more are needed and 1 MB are free" in caught.value.message
    assert want.target.with_name("m.gguf.part").stat().st_size == 0
    await fetch(answers(whole(DATA)), want)
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(b"nonsense\r\n\r\n", id="nonsense"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000, id="endless header"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", id="negative length"),
    ],
)
async def test_what_is_not_http_is_an_error_and_no_file(tmp_path: Path, answer: bytes) -> None:
    want = wanted(tmp_path)
    with pytest.raises((Interrupted, Refused)):
        await fetch(answers(answer), want)
    assert not want.target.exists()


@pytest.mark.trio
async def test_a_redirect_is_followed_and_takes_no_token_to_another_host(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    async with raw_server(files({"/cdn?sig=1": DATA})) as cdn:
        moved = head("302 Found", {"Location": f"{cdn.url}/cdn?sig=1", "Content-Length": 0})
        async with raw_server(answers(moved)) as hub:
            remote = Remote(url=f"{hub.url}/m.gguf", headers={"Authorization": "Bearer hf_secret"})
            await download(remote, want, policy=quick())
            assert hub.asked[0].headers["authorization"] == "Bearer hf_secret"
        assert "authorization" not in cdn.asked[0].headers
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.parametrize("goal", ["file:///etc/passwd", "ftp://h/x", "http://127.0.0.1:1/%0d%0aX: 1\r\nY", "/m.gguf"])
async def test_a_redirect_to_elsewhere_or_in_circles_is_refused(tmp_path: Path, goal: str) -> None:
    moved = head("302 Found", {"Location": goal.split("\r")[0], "Content-Length": 0})
    with pytest.raises((Refused, Interrupted)):
        await fetch(answers(moved), wanted(tmp_path))


@pytest.mark.trio
@pytest.mark.parametrize("host", ["169.254.169.254", "[fe80::1]", "[::ffff:169.254.169.254]", "0251.0376.0251.0376"])
async def test_a_redirect_to_an_inner_address_is_refused_before_it_is_asked(tmp_path: Path, host: str) -> None:
    moved = head("302 Found", {"Location": f"http://{host}/latest/meta-data?token=secret", "Content-Length": 0})
    with pytest.raises(Refused, match="an address of this machine's link") as caught:
        await fetch(answers(moved), wanted(tmp_path))
    assert "secret" not in caught.value.message


@pytest.mark.trio
async def test_the_proxy_of_the_environment_is_used_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with raw_server(answers(whole(DATA))) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.replace("http://", "http://u:p%40@"))
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        await download(Remote(url="http://weights.invalid/m.gguf?x=1"), wanted(tmp_path), policy=quick())
        assert proxy.asked[0].target == "http://weights.invalid/m.gguf?x=1"
        assert proxy.asked[0].headers["host"] == "weights.invalid"
        assert proxy.asked[0].headers["proxy-authorization"] == "Basic dTpwQA=="
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        async with raw_server(answers(whole(DATA))) as origin:
            await download(Remote(url=f"{origin.url}/m.gguf"), wanted(tmp_path / "2"), policy=quick())
            assert origin.asked[0].target == "/m.gguf"
        assert len(proxy.asked) == 1


@pytest.mark.trio
async def test_a_link_in_the_parts_place_is_not_written_through(tmp_path: Path) -> None:
    want = wanted(tmp_path)
    want.target.parent.mkdir()
    victim = tmp_path / "victim"
    victim.write_bytes(b"precious")
    want.target.with_name("m.gguf.part").symlink_to(victim)
    with pytest.raises(Refused):
        await fetch(answers(whole(DATA)), want)
    assert victim.read_bytes() == b"precious"
