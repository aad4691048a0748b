"""Answers to a resumed download that are nearly right: ranges that lie, sizes that are not told, pages, other hosts."""

import gzip
import hashlib
import io
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from llmgw.core.errors import InvalidInput
from llmgw.core.safetensors import check_length
from llmgw.core.weights import SetState
from llmgw.transfer.download import Wanted, download
from llmgw.transfer.errors import Interrupted, Refused
from llmgw.transfer.http import Remote, request
from llmgw.transfer.ranges import ContentRange, content_range, unsatisfied_total
from tests.support.mirrors import running_mirror
from tests.support.rawhttp import (
    Asked,
    Script,
    answers,
    cut,
    gzipped,
    head,
    partial,
    raw_server,
    several_ranges,
    whole,
)
from tests.support.weights import quick

DATA = os.urandom(3_000_000)
OTHER = os.urandom(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
CUT = int(0.4 * len(DATA))
PAGE = b"<!DOCTYPE html><html>Sign in to go on</html>"


def begun(tmp_path: Path, *, known: bool) -> Wanted:
    """A file of which an earlier process left the first part, so that nothing but the part itself is remembered."""
    target = tmp_path / "m.gguf"
    target.with_name("m.gguf.part").write_bytes(DATA[:CUT])
    return Wanted(target=target, size=len(DATA) if known else None, sha256=SHA if known else None)


async def fetched(script: Script, want: Wanted) -> list[int | None]:
    """Where each request began."""
    async with raw_server(script) as server:
        await download(Remote(url=f"{server.url}/m.gguf"), want, policy=quick())
        return server.ranges


def rest(asked: Asked) -> bytes:
    return whole(DATA) if asked.first_byte is None else partial(DATA, asked.first_byte)


def ranged(asked: Asked, *, end: int | None = None, total: object = len(DATA), body: bytes | None = None) -> bytes:
    """A 206 whose header may say something else than its body is."""
    start = asked.first_byte or 0
    end = len(DATA) if end is None else end
    piece = DATA[start:end] if body is None else body
    where = f"bytes {start}-{end - 1}/{total}"
    return head("206 Partial Content", {"Content-Length": len(piece), "Content-Range": where}) + piece


def unframed(asked: Asked, *, end: int) -> bytes:
    """A 206 that ends with its connection, wherever that is."""
    start = asked.first_byte or 0
    headers = {"Content-Range": f"bytes {start}-{len(DATA) - 1}/{len(DATA)}", "Connection": "close"}
    return head("206 Partial Content", headers) + DATA[start:end]


STARTS_ANEW: dict[str, Callable[[Asked], bytes]] = {
    "several ranges": lambda asked: several_ranges(DATA, asked.first_byte or 0),
    "a range in gzip": lambda asked: partial(DATA, asked.first_byte or 0, Content_Encoding="gzip"),
    "a size that is not told": lambda asked: ranged(asked, total="*"),
    "a shorter range of a size that is not told": lambda asked: ranged(asked, end=CUT + 9, total="*"),
    "a longer body than the range": lambda asked: ranged(asked, end=CUT + 9, body=DATA[CUT : CUT + 900]),
    "a shorter body than the range": lambda asked: ranged(asked, body=DATA[CUT : CUT + 900]),
    "an end beyond the file": lambda asked: ranged(asked, total=CUT + 1),
    "a range that ends before it begins": lambda asked: ranged(asked, end=CUT - 5, body=b""),
    "416 of a smaller file": lambda _: head("416 No", {"Content-Range": "bytes */9", "Content-Length": 0}),
    "416 that says nothing": lambda _: head("416 No", {"Content-Length": 0}),
    "a rest that calls itself the whole": lambda asked: whole(
        DATA[CUT:], Content_Range=f"bytes {CUT}-{len(DATA) - 1}/{len(DATA)}"
    ),
    "416 of a larger file": lambda _: head("416 No", {"Content-Range": "bytes */3000000", "Content-Length": 0}),
}


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("variant", STARTS_ANEW)
async def test_what_cannot_be_the_rest_starts_the_file_anew(tmp_path: Path, variant: str) -> None:
    want = begun(tmp_path, known=False)
    assert await fetched(answers(STARTS_ANEW[variant], rest), want) == [CUT, None]
    assert want.target.read_bytes() == DATA
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.gguf"]


GOES_ON: dict[str, Callable[[Asked], bytes]] = {
    "less than was asked for": lambda asked: ranged(asked, end=CUT + 1000),
    "an end that is cut off without a length": lambda asked: unframed(asked, end=CUT + 1000),
}


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("known", [True, False], ids=["sha256 known", "nothing known"])
@pytest.mark.parametrize("variant", GOES_ON)
async def test_a_part_of_the_rest_is_kept_and_the_next_one_asked_for(tmp_path: Path, variant: str, known: bool) -> None:
    want = begun(tmp_path, known=known)
    assert await fetched(answers(GOES_ON[variant], rest), want) == [CUT, CUT + 1000]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_a_range_whose_size_is_not_told_is_taken_where_the_size_is_known(tmp_path: Path) -> None:
    want = begun(tmp_path, known=True)
    assert await fetched(answers(lambda asked: ranged(asked, total="*")), want) == [CUT]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("status", ["200 OK", "206 Partial Content"])
@pytest.mark.parametrize("kind", ["text/html", "Text/HTML; charset=utf-8", "application/xhtml+xml"])
async def test_a_page_costs_nothing_of_what_arrived_though_no_size_is_known(
    tmp_path: Path, status: str, kind: str
) -> None:
    want = begun(tmp_path, known=False)
    page = head(status, {"Content-Type": kind, "Content-Length": len(PAGE)}) + PAGE
    with pytest.raises(Refused, match="answers a page for people in the file's place"):
        await fetched(answers(page), want)
    assert want.target.with_name("m.gguf.part").read_bytes() == DATA[:CUT]
    assert await fetched(answers(rest), want) == [CUT]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_a_page_that_is_wanted_is_a_file_like_any(tmp_path: Path) -> None:
    want = Wanted(target=tmp_path / "index.html")
    await fetched(answers(whole(PAGE, Content_Type="text/html")), want)
    assert want.target.read_bytes() == PAGE


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize(
    ("first", "second", "begins"),
    [
        ('"v1"', '"v1"', [None, CUT]),
        ('W/"v1"', 'W/"v1"', [None, CUT]),
        ('W/"v1"', 'W/"v2"', [None, CUT, None]),
        # Strong and weak are not the same: the bytes may differ, whatever the rest of the tag says.
        ('"v1"', 'W/"v1"', [None, CUT, None]),
        ('W/"v1"', '"v1"', [None, CUT, None]),
    ],
)
async def test_a_weak_etag_asks_for_no_comparison_and_a_changed_one_starts_anew(
    tmp_path: Path, first: str, second: str, begins: list[int | None]
) -> None:
    want = Wanted(target=tmp_path / "m.gguf")
    of = DATA if begins == [None, CUT] else OTHER
    script = answers(
        cut(whole(DATA, ETag=first), 0.4, DATA), lambda asked: partial(of, asked.first_byte or 0, ETag=second), rest
    )
    async with raw_server(script) as server:
        await download(Remote(url=f"{server.url}/m.gguf"), want, policy=quick())
        assert server.ranges == begins
        assert server.asked[1].headers.get("if-range") == (None if first.startswith("W/") else first)
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("same", [True, False], ids=["the same file", "another file"])
async def test_a_resumed_file_may_come_from_another_host(tmp_path: Path, same: bool) -> None:
    want = Wanted(target=tmp_path / "m.gguf")
    second = (lambda asked: partial(DATA, asked.first_byte or 0, ETag='"v1"')) if same else rest_of_another
    async with (
        raw_server(answers(cut(whole(DATA, ETag='"v1"'), 0.4, DATA))) as one,
        raw_server(answers(second, rest)) as two,
    ):
        homes = iter([one, two, two])

        async def hub(_asked: Asked, stream: trio.SocketStream) -> None:
            where = f"{next(homes).url}/m.gguf?sig=1"
            await stream.send_all(head("302 Found", {"Location": where, "Content-Length": 0}))

        async with raw_server(hub) as origin:
            remote = Remote(url=f"{origin.url}/m.gguf", headers={"Authorization": "Bearer hf_secret"})
            await download(remote, want, policy=quick())
        assert one.ranges == [None]
        assert two.ranges == ([CUT] if same else [CUT, None])
        assert two.asked[0].headers["if-range"] == '"v1"'
        assert not any("authorization" in asked.headers for asked in (*one.asked, *two.asked))
    assert want.target.read_bytes() == DATA


def rest_of_another(asked: Asked) -> bytes:
    return partial(OTHER, asked.first_byte or 0, ETag='"v2"')


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_a_packed_whole_after_a_packed_range_is_unpacked(tmp_path: Path) -> None:
    want = begun(tmp_path, known=False)
    packed: Callable[[Asked], bytes] = lambda asked: partial(DATA, asked.first_byte or 0, Content_Encoding="gzip")  # noqa: E731
    assert await fetched(answers(packed, gzipped(DATA)), want) == [CUT, None]
    assert want.target.read_bytes() == DATA


MEMBERS = gzip.compress(DATA[:CUT], 1) + gzip.compress(DATA[CUT:], 1)


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("known", [True, False], ids=["sha256 known", "nothing known"])
@pytest.mark.parametrize(
    ("body", "named"),
    [(MEMBERS, "gzip"), (MEMBERS + bytes(512), "gzip"), (gzip.compress(DATA, 1), "x-gzip")],
    ids=["members", "padded", "an older name"],
)
async def test_gzip_of_several_members_or_under_its_older_name_is_all_unpacked(
    tmp_path: Path, body: bytes, named: str, known: bool
) -> None:
    want = begun(tmp_path, known=known)
    assert await fetched(answers(whole(body, Content_Encoding=named)), want) == [CUT]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_what_follows_gzip_and_is_none_is_no_part_of_the_file(tmp_path: Path) -> None:
    want = begun(tmp_path, known=False)
    spoiled = whole(gzip.compress(DATA, 1) + b"and more", Content_Encoding="gzip")
    assert await fetched(answers(spoiled, rest), want) == [CUT, None]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("honours", [True, False], ids=["If-Range is honoured", "If-Range is ignored"])
async def test_where_there_is_no_etag_the_date_tells_a_changed_file(tmp_path: Path, honours: bool) -> None:
    want = Wanted(target=tmp_path / "m.gguf")
    before, after = "Mon, 01 Dec 2025 10:00:00 GMT", "Mon, 01 Dec 2025 11:00:00 GMT"

    def changed(asked: Asked) -> bytes:
        assert asked.headers["if-range"] == before
        if honours:
            return whole(DATA, Last_Modified=after)
        return partial(DATA, asked.first_byte or 0, Last_Modified=after)

    script = answers(cut(whole(OTHER, Last_Modified=before), 0.4, OTHER), changed, rest)
    assert await fetched(script, want) == ([None, CUT] if honours else [None, CUT, None])
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_a_date_beside_a_checksum_or_after_an_etag_decides_nothing(tmp_path: Path) -> None:
    """Servers that mirror each other have files of different dates: what the checksum settles is not fetched twice."""
    dated: Callable[[Asked], bytes] = lambda asked: partial(DATA, asked.first_byte or 0, Last_Modified="later")  # noqa: E731
    for number, (first, sha256) in enumerate(
        ((whole(DATA, Last_Modified="once"), SHA), (whole(DATA, ETag='"v"'), None))
    ):
        want = Wanted(target=tmp_path / str(number) / "m.gguf", sha256=sha256)
        assert await fetched(answers(cut(first, 0.4, DATA), dated), want) == [None, CUT]
        assert want.target.read_bytes() == DATA


@pytest.mark.trio
async def test_plain_bytes_are_asked_for_whatever_is_asked(tmp_path: Path) -> None:
    async with raw_server(answers(whole(b"{}"))) as server:
        async with request(Remote(url=server.url)) as response:
            assert await response.read(10) == b"{}"
        assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.trio
async def test_a_redirect_may_name_a_file_as_people_write_it(tmp_path: Path) -> None:
    async def server(asked: Asked, stream: trio.SocketStream) -> None:
        if asked.target == "/m.gguf":
            where = "Location: /a b/模型%20é.gguf?sig=x%2By=\r\n"
            await stream.send_all(f"HTTP/1.1 302 Found\r\n{where}Content-Length: 0\r\n\r\n".encode())
        else:
            assert asked.target == "/a%20b/%E6%A8%A1%E5%9E%8B%20%C3%A9.gguf?sig=x%2By="
            await stream.send_all(whole(DATA))

    want = Wanted(target=tmp_path / "m.gguf")
    assert await fetched(server, want) == [None, None]
    assert want.target.read_bytes() == DATA


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_a_server_that_never_answers_rightly_is_given_up_with_a_sentence(tmp_path: Path) -> None:
    want = begun(tmp_path, known=True)
    with pytest.raises(Interrupted, match=r"answers another range than bytes .*\(tried 6 times; what arrived is kept"):
        await fetched(answers(lambda _: several_ranges(DATA, CUT)), want)
    assert not want.target.exists()


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_weights_that_end_early_are_found_out_though_nobody_says_how_long_they_are(tmp_path: Path) -> None:
    tensors = json.dumps({"w": {"dtype": "F32", "shape": [250_000], "data_offsets": [0, 1_000_000]}}).encode()
    data = len(tensors).to_bytes(8, "little") + tensors + DATA[:1_000_000]
    unframed = head("200 OK", {"Connection": "close"})
    script = answers(unframed + data[:400_000], unframed + data)
    async with raw_server(script) as server, running_mirror(tmp_path) as running:
        source = f"{server.url}/m.safetensors"
        failed = await running.settled(source)
        assert failed.state is SetState.FAILED
        assert (
            f"m.safetensors is not whole: its header tells of {len(data)} bytes, and 400000 are here" in failed.message
        )
        assert not list(tmp_path.rglob("m.safetensors"))
        ready = await running.settled(source, now=True)
        assert ready.state is SetState.READY, ready.message
        assert ready.total_bytes == len(data)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is cut off within its header"),
        (b"\xff" * 64, "is cut off within its header"),
        ((100).to_bytes(8, "little") + b"{}", "is cut off within its header"),
        ((2).to_bytes(8, "little") + b"[]", "has a header that cannot be read"),
        ((15).to_bytes(8, "little") + b'{"w":{"a":"b"}}', "has a header that cannot be read"),
        ((2).to_bytes(8, "little") + b"{}x", "tells of 10 bytes, and 11 are here"),
    ],
)
def test_a_safetensors_header_that_lies_is_a_sentence(data: bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        check_length(io.BytesIO(data), name="m.safetensors", file_bytes=len(data))


def test_ranges_are_read_to_the_letter() -> None:
    assert content_range("bytes 5-9/10") == ContentRange(start=5, end=10, total=10)
    assert content_range(" bytes 0-0/* ") == ContentRange(start=0, end=1, total=None)
    for text in ("", "bytes */10", "bytes 5-4/10", "bytes 5-10/10", "bytes 5-9/x", "items 0-1/2", "bytes 0-1/2, 3-4/5"):
        assert content_range(text) is None
    assert unsatisfied_total("bytes */10") == 10
    assert unsatisfied_total("bytes 0-9/10") is None
