"""A node copies from a mirror, or what is in between, that answers oddly: the file ends right, or it says why not."""

import hashlib
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from agent.weights.cache import Cache
from llmgw.core.errors import LlmgwError
from llmgw.transfer.errors import Refused, WrongContent
from tests.support.plain_mirror import SOURCE, plain_mirror
from tests.support.rawhttp import Asked, Script, answers, cut, gzipped, head, partial, whole
from tests.support.weights import quick

DATA = os.urandom(3_000_000)
OTHER = os.urandom(3_000_000)
SHA = hashlib.sha256(DATA).hexdigest()
PAGE = b"<!DOCTYPE html><html><body>Sign in to go on</body></html>"


@asynccontextmanager
async def node(root: Path, url: str) -> AsyncIterator[Cache]:
    """A node's cache, until the block ends."""
    cache = Cache(root, mirror_url=url, token="t", policy=quick())
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


async def copied(tmp_path: Path, script: Script) -> tuple[bytes, list[Asked]]:
    """What the node holds after one fetch, and what the mirror was asked for the file."""
    async with plain_mirror(len(DATA), SHA, script) as mirror, node(tmp_path, mirror.url) as cache:
        got = await cache.fetch(SOURCE)
        return got.path.read_bytes(), mirror.asked


def rest(asked: Asked) -> bytes:
    """The honest answer to a range."""
    return whole(DATA) if asked.first_byte is None else partial(DATA, asked.first_byte)


SECOND: dict[str, Callable[[Asked], bytes]] = {
    "resumed": rest,
    "200 with the whole body": lambda _asked: whole(DATA, ETag='"v1"'),
    "200 in gzip": lambda _asked: gzipped(DATA, ETag='"v1-gz"'),
    "206 from another offset": lambda asked: partial(DATA, (asked.first_byte or 0) // 2, ETag='"v1"'),
    "206 of another file": lambda asked: partial(OTHER, asked.first_byte or 0, ETag='"v2"'),
    "206 in gzip": lambda asked: (
        head(
            "206 Partial Content",
            {
                "Content-Length": 5,
                "Content-Encoding": "gzip",
                "Content-Range": f"bytes {asked.first_byte}-{len(DATA) - 1}/{len(DATA)}",
            },
        )
        + b"x" * 5
    ),
    "206 without its range": lambda asked: head("206 Partial Content", {"Content-Length": 5}) + b"x" * 5,
    "416 of another size": lambda _asked: head(
        "416 Range Not Satisfiable", {"Content-Range": "bytes */7", "Content-Length": 0}
    ),
    "503 and then the rest": lambda _asked: head("503 Busy", {"Content-Length": len(PAGE)}) + PAGE,
}


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize("variant", SECOND)
async def test_a_cut_copy_ends_right_whatever_the_second_answer_is(tmp_path: Path, variant: str) -> None:
    first = cut(whole(DATA, ETag='"v1"'), 0.4, DATA)
    held, asked = await copied(tmp_path, answers(first, SECOND[variant], rest))
    assert hashlib.sha256(held).hexdigest() == SHA
    assert asked[1].first_byte == int(0.4 * len(DATA))
    assert asked[1].headers["if-range"] == '"v1"'
    assert all(a.headers["accept-encoding"] == "identity" for a in asked)
    assert [path.name for path in tmp_path.rglob("m.gguf*")] == ["m.gguf"]


@pytest.mark.trio
@pytest.mark.case("C23")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(head("403 Forbidden", {"Content-Length": len(PAGE)}) + PAGE, id="403"),
        pytest.param(whole(PAGE, Content_Type="text/html"), id="200"),
        pytest.param(head("302 Found", {"Location": "/again", "Content-Length": 0}), id="in circles"),
    ],
)
async def test_a_page_in_the_files_place_is_a_refusal_and_what_was_there_stays(tmp_path: Path, answer: bytes) -> None:
    first = cut(whole(DATA, ETag='"v1"'), 0.4, DATA)
    async with plain_mirror(len(DATA), SHA, answers(first, answer)) as mirror, node(tmp_path, mirror.url) as cache:
        with pytest.raises(Refused) as caught:
            await cache.fetch(SOURCE)
        assert "<html>" not in caught.value.message
    (part,) = tmp_path.rglob("m.gguf.part")
    assert part.read_bytes() == DATA[: int(0.4 * len(DATA))]
    held, asked = await copied(tmp_path, answers(rest))
    assert held == DATA
    assert [a.first_byte for a in asked] == [int(0.4 * len(DATA))]


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_pieces_of_two_files_without_an_etag_are_found_by_reading_back(tmp_path: Path) -> None:
    mixed = cut(whole(OTHER), 0.4, OTHER)
    with pytest.raises(WrongContent, match="removed"):
        await copied(tmp_path, answers(mixed, rest))
    held, asked = await copied(tmp_path, answers(rest))
    assert held == DATA
    assert [a.first_byte for a in asked] == [None]


@pytest.mark.trio
@pytest.mark.case("C23")
async def test_a_mirror_that_never_gets_further_fails_after_its_tries_and_the_node_goes_on(tmp_path: Path) -> None:
    stuck = head("416 Range Not Satisfiable", {"Content-Range": "bytes */7", "Content-Length": 0})
    async with plain_mirror(len(DATA), SHA, answers(stuck)) as mirror, node(tmp_path, mirror.url) as cache:
        with pytest.raises(LlmgwError, match="tried 6 times"):
            await cache.fetch(SOURCE)
        assert len(mirror.asked) == 6
    held, _ = await copied(tmp_path, answers(rest))
    assert held == DATA
