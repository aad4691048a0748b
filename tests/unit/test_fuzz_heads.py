"""Request heads as clients and attackers write them, and what a fuzzer makes of them: taken whole or refused."""

import random
import re

import httptools
import pytest

from llmgw.router.heads import METHODS, ChunkedBody, RequestHead, parse_head
from llmgw.router.limits import MAX_CHUNK_LINE_BYTES, MAX_HEAD_BYTES, MAX_HEADERS
from llmgw.router.ports import Refusal
from tests.support.corpora import corpus, mutations, pieces

HEADS = corpus("heads")
MUTATIONS = 500
"""Of each file."""
REFUSALS = {400, 405, 417, 431, 501}
WORDS = (
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\t",
    b":",
    b"\x00",
    b"\r\n ",
    b"X-A: b\r\n",
    b"Connection: close\r\n",
    b"Content-Length: 7\r\n",
    b"\r\nContent-Length: 5",
    b"\r\ncontent-length:6",
    b"\r\nTransfer-Encoding: chunked",
    b"\r\nTransfer-Encoding: identity",
    b"\r\nHost: other",
    b"\r\nExpect: 100-continue",
    b"\r\nConnection: close",
    b"\r\nAuthorization: Bearer x",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b"/../",
    b"%2e%2e/",
    b"%00",
    b"//",
    b"?",
    b"#",
    b"\xc3\xa9",
    b"x" * 300,
)
BODIES = (
    b"5\r\nhello\r\n0\r\n\r\nGET /next",
    b"5;name=value\r\nhello\r\nA\r\n0123456789\r\n0\r\nX-Checksum: x\r\n\r\n",
    b"0\r\n\r\n",
    b"1\r\n\r\r\n2\r\n\r\n\r\n0\r\n\r\nrest",
)
NO_TRAILERS = {b"host", b"content-length", b"transfer-encoding", b"authorization", b"trailer"}
"""Some of the fields that RFC 9110, section 6.5.1, keeps out of trailers, as the words below spell them."""
CHUNK_WORDS = (
    b"Content-Length: 3\r\n",
    b"host:x\r\n",
    b"\r\n",
    b"\n",
    b"0\r\n\r\n",
    b"ffffffff\r\n",
    b";x",
    b"0x",
    b"-1",
    b"\x00",
    b"5\r\nhello\r\n",
    b"X: y\r\n",
)


class _Llhttp:
    """What another strict parser makes of a head."""

    def __init__(self, raw: bytes) -> None:
        self.url, self.headers = b"", list[tuple[bytes, bytes]]()
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(raw)
        except httptools.HttpParserUpgrade:
            pass
        self.method: bytes = self._parser.get_method()

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))


def taken(raw: bytes) -> RequestHead | None:
    """The head, none when it was refused with a status that says so; anything else fails the test."""
    try:
        return parse_head(raw)
    except Refusal as error:
        refusal = error
    assert refusal.status in REFUSALS
    assert refusal.message
    return None


@pytest.mark.promise("A19")
@pytest.mark.parametrize("name", HEADS)
def test_each_head_is_taken_or_refused_as_its_name_says(name: str) -> None:
    found = "ok"
    try:
        assert parse_head(HEADS[name]).method in METHODS
    except Refusal as refusal:
        found = str(refusal.status)
    assert found == name.partition("-")[0]


@pytest.mark.promise("A19")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", HEADS)
def test_a_mutated_head_is_refused_or_means_one_thing(name: str) -> None:
    for mutant in mutations(HEADS[name], WORDS, seed=name, count=MUTATIONS, seams=b"\n/"):
        # The connection gives the parser what ends with the first empty line, or nothing.
        raw, end, _ = mutant.partition(b"\r\n\r\n")
        if not end or len(raw) > MAX_HEAD_BYTES:
            assert taken(mutant) is None or mutant.endswith(b"\r\n\r\n")
            continue
        head = taken(raw + end)
        if head is None:
            continue
        assert head.path.startswith(b"/")
        assert not any(odd in head.path for odd in (b"//", b"\\", b"%2e", b"%2E", b"%00"))
        assert not {b".", b".."} & set(head.path.split(b"/"))
        assert not any(byte in field for pair in head.headers for field in pair for byte in (b"\r", b"\n", b"\x00"))
        assert len(head.headers) <= MAX_HEADERS
        assert not (head.chunked and head.content_length)
        other = _Llhttp(raw + end)
        assert (other.method, other.headers) == (head.method, head.headers), raw
        assert other.url.endswith(head.path + head.query), raw


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "filler",
    [
        b"A: b\r\n",
        b"a" * 50,
        b" ",
        b"\t",
        b":",
        b"A:" + b" " * 200 + b"\r\n",
        b"%2f",
        b"/.",
        b"a/",
        b"A: %2e\r\n",
        b"\x80",
    ],
)
@pytest.mark.parametrize(
    "before", [b"", b"GET /", b"GET / HTTP/1.1\r\nHost: gw\r\n", b"GET / HTTP/1.1\r\nHost: gw\r\nA: b"]
)
def test_a_head_as_long_as_may_be_is_read_in_time_however_it_is_filled(filler: bytes, before: bytes) -> None:
    for after in (b"\r\n\r\n", b" HTTP/1.1\r\nHost: gw\r\n\r\n", b"\r\nX\r\n\r\n", b"\x00\r\n\r\n"):
        times = (MAX_HEAD_BYTES - len(before) - len(after)) // len(filler)
        taken(before + filler * times + after)


def read_body(parts: list[bytes]) -> tuple[bytes, bytes, bool] | int:
    """Body, what follows it and whether it ended, or the status of its refusal."""
    body, chunks = b"", ChunkedBody()
    for i, part in enumerate(parts):
        try:
            body += chunks.feed(part)
        except Refusal as refusal:
            return refusal.status
        if chunks.done:
            return body, chunks.rest + b"".join(parts[i + 1 :]), True
    return body, b"", False


def reference(data: bytes) -> tuple[bytes, bytes, bool] | int:
    """The same read by RFC 9112, section 7.1, all at once."""
    body, at = b"", 0
    while True:
        line, ending, _ = data[at : at + MAX_CHUNK_LINE_BYTES].partition(b"\r\n")
        if not ending:
            return 400 if len(line) >= MAX_CHUNK_LINE_BYTES else (body, b"", False)
        size = re.fullmatch(rb"([0-9a-fA-F]{1,8})([ \t]*;[^\x00-\x08\x0a-\x1f\x7f]*)?", line)
        if size is None:
            return 400
        at += len(line) + 2
        length = int(size[1], 16)
        if length == 0:
            return _reference_trailers(data, at, body)
        if len(data) < at + length + 2:
            return body + data[at : at + length], b"", False
        if data[at + length : at + length + 2] != b"\r\n":
            return 400
        body, at = body + data[at : at + length], at + length + 2


def _reference_trailers(data: bytes, at: int, body: bytes) -> tuple[bytes, bytes, bool] | int:
    while True:
        line, ending, rest = data[at:].partition(b"\r\n")
        if not ending:
            return body, b"", False
        if not line:
            return body, rest, True
        if not re.fullmatch(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[^\x00-\x08\x0a-\x1f\x7f]*", line):
            return 400
        if line.partition(b":")[0].lower() in NO_TRAILERS:
            return 400
        at += len(line) + 2


@pytest.mark.promise("A19")
@pytest.mark.timeout(60)
@pytest.mark.parametrize("number", range(len(BODIES)))
def test_a_mutated_chunked_body_means_one_thing_however_it_is_read(number: int) -> None:
    chance = random.Random(number)
    for mutant in mutations(BODIES[number], CHUNK_WORDS, seed=f"chunks {number}", count=MUTATIONS):
        at_once = read_body([mutant])
        assert at_once == reference(mutant), mutant
        for _ in range(3):
            assert read_body(pieces(mutant, chance)) == at_once, mutant
