"""The searches in C find what those in Python find, and whole chunks are what the parser makes of them."""

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router import events
from tests.support.passes import in_c, passing_by

HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
PIECES = st.sampled_from(
    [
        b"[DONE]",
        b'"usage"',
        b":null",
        b':{"a":1}',
        b"\n",
        b"\n\n",
        b"g",
        b"D",
        b'"',
        b"[",
        b'"usage',
        b"ONE]",
        b"x" * 40,
    ]
)
TEXTS = st.lists(PIECES, max_size=14).map(b"".join)


@settings(max_examples=800, deadline=None)
@given(TEXTS, st.integers(0, 60), st.integers(0, 90))
def test_searches_agree_in_every_part_of_the_data(data: bytes, at: int, length: int) -> None:
    at = min(at, len(data))
    end = min(at + length, len(data))
    module = in_c()
    with passing_by("python"):
        assert module.find_done(data, at, end) == events._find_done(data, at, end)
        assert module.find_usage(data, at, end) == events._find_usage(data, at, end)
        assert module.line_ends(data) == events._line_ends(data)


@pytest.mark.parametrize(("at", "end"), [(-1, 2), (3, 2), (0, 9), (9, 9)])
def test_no_search_looks_beyond_the_data(at: int, end: int) -> None:
    module = in_c()
    for search in (module.find_done, module.find_usage):
        with pytest.raises(ValueError, match="no such part of the data"):
            search(b"12345678", at, end)
    with pytest.raises(ValueError, match="no such part of the data"):
        module.whole_chunks(b"12345678", 9)


class _Body:
    """What the parser makes of an answer."""

    def __init__(self) -> None:
        self.body = b""
        self.chunks = 0

    def on_body(self, data: bytes) -> None:
        """A part."""
        self.body += data

    def on_chunk_complete(self) -> None:
        """A chunk is over."""
        self.chunks += 1


def _chunk(data: bytes, spelling: str) -> bytes:
    return (spelling % len(data)).encode() + b"\r\n" + data + b"\r\n"


CHUNKS = st.lists(
    st.builds(_chunk, st.binary(min_size=1, max_size=300), st.sampled_from(["%x", "%X", "0%x", "%x;a=b"])), max_size=8
)


@settings(max_examples=500, deadline=None)
@given(CHUNKS, st.sampled_from([b"", b"0\r\n\r\n", b"3\r\nab", b"5", b"\r\n", b"ffffff\r\n", b"zz\r\n"]), st.booleans())
def test_whole_chunks_hold_what_the_parser_finds_in_them(chunks: list[bytes], rest: bytes, headed: bool) -> None:
    at = len(HEAD) if headed else 0
    data = HEAD[:at] + b"".join(chunks) + rest
    body, end = in_c().whole_chunks(data, at)
    seen = _Body()
    parser = httptools.HttpResponseParser(seen)
    parser.feed_data(HEAD + data[at:end])
    assert (seen.body, sum(len(chunk) for chunk in chunks[: seen.chunks])) == (body, end - at)
    plain = next((number for number, chunk in enumerate(chunks) if b";" in chunk.partition(b"\r\n")[0]), len(chunks))
    assert seen.chunks == plain, "it stops at the first that says more than its size, and at none before"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"0\r\n\r\n",
        b"1\r\nab\r\n",
        b"1\r\na\n\r",
        b"1\na\r\n",
        b"-1\r\na\r\n",
        b"+1\r\na\r\n",
        b"1 \r\na\r\n",
        b"000001\r\na\r\n",
    ],
)
def test_what_is_no_whole_chunk_is_left_to_the_parser(data: bytes) -> None:
    assert in_c().whole_chunks(data, 0) == (b"", 0)
