"""No request that two readers could understand differently gets past the head parser."""

import itertools

import httptools
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.credentials import api_key_of
from llmgw.router.heads import ChunkedBody, parse_head
from llmgw.router.limits import MAX_CHUNK_LINE_BYTES
from llmgw.router.ports import Refusal

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\n"


def status_of(raw: bytes) -> int:
    """0 for a head that is taken, else the status of its refusal."""
    try:
        parse_head(raw)
    except Refusal as refusal:
        return refusal.status
    return 0


@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (POST + b"Content-Length: 4\r\nContent-Length: 4\r\n\r\n", 400),
        (POST + b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n", 400),
        (POST + b"Content-Length: 4, 4\r\n\r\n", 400),
        (POST + b"Content-Length: +4\r\n\r\n", 400),
        (POST + b"Content-Length: 0x4\r\n\r\n", 400),
        (POST + b"Content-Length: 1_0\r\n\r\n", 400),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (POST + b"Content-Length: \r\n\r\n", 400),
        (POST + b"Content-Length: 99999999999999999999\r\n\r\n", 400),
        (POST + b"Content-Length : 4\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n", 501),
        (POST + b"Transfer-Encoding: identity\r\n\r\n", 501),
        (POST + b"Transfer-Encoding:\x0bchunked\r\n\r\n", 400),
        (POST + b"X: a\r\n folded\r\n\r\n", 400),
        (POST + b"X: a\nY: b\r\n\r\n", 400),
        (POST + b"X: a\rY: b\r\n\r\n", 400),
        (POST + b"X: a\x00b\r\n\r\n", 400),
        (POST + b"X\x00: a\r\n\r\n", 400),
        (POST + b": a\r\n\r\n", 400),
        (POST + b"no colon\r\n\r\n", 400),
        (POST + b"Host: other\r\n\r\n", 400),
        (POST + b"Authorization: Bearer a\r\nAuthorization: Bearer b\r\n\r\n", 400),
        (POST + b"Expect: 200-ok\r\n\r\n", 417),
        (POST + b"X: y\r\n" * 101 + b"\r\n", 431),
        (b"POST / HTTP/1.1\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a b\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nHost: a@b\r\n\r\n", 400),
        (b"POST / HTTP/2.0\r\nHost: gw\r\n\r\n", 400),
        (b"PRI * HTTP/2.0\r\n\r\n", 400),
        (b"POST / HTTP/1.1 \r\nHost: gw\r\n\r\n", 400),
        (b"POST  / HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"POST / x HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"post / HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET / HTTP/1.1\nHost: gw\n\n\r\n\r\n", 400),
        (b"\r\nGET / HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"CONNECT gw:443 HTTP/1.1\r\nHost: gw\r\n\r\n", 501),
        (b"TRACE / HTTP/1.1\r\nHost: gw\r\n\r\n", 501),
        (b"OPTIONS * HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET v1/models HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET http:///v1 HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET http://gw@x/v1 HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET ftp://gw/v1 HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
        (b"GET /v1#frag HTTP/1.1\r\nHost: gw\r\n\r\n", 400),
    ],
)
def test_ambiguous_heads_are_refused(raw: bytes, status: int) -> None:
    assert status_of(raw) == status


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/../admin",
        b"/v1/..",
        b"/./v1",
        b"/v1/%2e%2e/api",
        b"/v1/%2E./api",
        b"/portal/..;/admin",
        b"//v1/models",
        b"/v1//models",
        b"/v1\\..\\admin",
        b"/v1/%5c..%5cadmin",
        b"/portal/%00",
        b"/portal/%0d%0aX:1",
        b"/portal/%",
        b"/portal/%zz",
        b"/portal/%7f",
    ],
)
def test_paths_that_could_be_others_are_refused(path: bytes) -> None:
    assert status_of(b"GET " + path + b" HTTP/1.1\r\nHost: gw\r\n\r\n") == 400
    assert status_of(b"GET http://gw" + path + b" HTTP/1.1\r\nHost: gw\r\n\r\n") == 400


def test_what_a_head_says() -> None:
    head = parse_head(b"POST http://gw:80/v1/x?a=../b HTTP/1.1\r\nHOST: gw\r\nX-A: \t b \r\nContent-Length: 12\r\n\r\n")
    assert (head.method, head.path, head.query) == (b"POST", b"/v1/x", b"?a=../b")
    assert (head.content_length, head.chunked, head.keep_alive, head.http11) == (12, False, True, True)
    assert (b"x-a", b"b") in head.headers
    assert not parse_head(b"GET / HTTP/1.0\r\n\r\n").keep_alive
    assert not parse_head(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n").keep_alive
    assert parse_head(POST + b"Expect: 100-Continue\r\nTransfer-Encoding: Chunked\r\n\r\n").wants_continue


class _Sink:
    def __init__(self) -> None:
        self.url = b""
        self.headers: list[tuple[bytes, bytes]] = []

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value.strip(b" \t")))


NOISE = st.binary(max_size=6) | st.sampled_from(
    [b" ", b"\r\n", b"\n", b"\t", b":", b"Content-Length: 1\r\n", b"Transfer-Encoding: chunked\r\n", b"X: y\r\n", b"/"]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 80), NOISE), max_size=3))
def test_what_is_taken_reads_the_same_to_llhttp(noise: list[tuple[int, bytes]]) -> None:
    raw = POST + b"X-A: b\r\nAccept: */*\r\n"
    for at, bytes_ in noise:
        raw = raw[:at] + bytes_ + raw[at:]
    raw = raw.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    try:
        head = parse_head(raw)
    except Refusal:
        return
    sink = _Sink()
    parser = httptools.HttpRequestParser(sink)
    try:
        parser.feed_data(raw)
    except httptools.HttpParserUpgrade:
        pass
    assert sink.url.split(b"?")[0].endswith(head.path)
    assert sink.headers == head.headers
    assert parser.get_method() == head.method


def decoded(parts: list[bytes]) -> tuple[bytes, bytes]:
    """Body and rest of a chunked body read in parts."""
    body, chunks = b"", ChunkedBody()
    for i, part in enumerate(parts):
        body += chunks.feed(part)
        if chunks.done:
            return body, chunks.rest + b"".join(parts[i + 1 :])
    raise AssertionError("not done")


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=6), st.lists(st.integers(0, 3000), max_size=10))
def test_chunks_whatever_the_reads(bodies: list[bytes], at: list[int]) -> None:
    raw = b"".join(b"%X;ext=1\r\n%b\r\n" % (len(b), b) for b in bodies) + b"0\r\nTrailer: x\r\n\r\nGET /next"
    edges = [0, *sorted({i % len(raw) for i in at}), len(raw)]
    parts = [raw[a:b] for a, b in itertools.pairwise(edges)]
    assert decoded(parts) == (b"".join(bodies), b"GET /next")
    assert decoded([bytes([byte]) for byte in raw]) == (b"".join(bodies), b"GET /next")


@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    "raw",
    [
        b"0x5\r\nhello\r\n0\r\n\r\n",
        b"+5\r\nhello\r\n0\r\n\r\n",
        b"5_\r\nhello\r\n0\r\n\r\n",
        b" 5\r\nhello\r\n0\r\n\r\n",
        b"\r\nhello\r\n0\r\n\r\n",
        b"-1\r\n\r\n",
        b"fffffffff\r\n",
        b"5\r\nhelloXX0\r\n\r\n",
        b"4\r\nhello\r\n0\r\n\r\n",
        b"5\nhello\r\n0\r\n\r\n",
        b"0\r\nbad trailer\r\n\r\n",
        b"0\r\n folded: x\r\n\r\n",
        b"5;" + b"x" * MAX_CHUNK_LINE_BYTES,
        b"5;\x00\r\nhello\r\n0\r\n\r\n",
        b"0\r\n" + b"a: b\r\n" * 101,
    ],
)
def test_malformed_chunks_are_refused(raw: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        ChunkedBody().feed(raw)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("headers", "key"),
    [
        (b"Authorization: Bearer sk-1\r\n", b"sk-1"),
        (b"Authorization: bEaReR   sk-1\r\n", b"sk-1"),
        (b"X-Api-Key: sk-1\r\n", b"sk-1"),
        (b"Api-Key: sk-1\r\n", b"sk-1"),
        (b"Authorization: Bearer sk-1\r\nApi-Key: sk-1\r\n", b"sk-1"),
        (b"", None),
    ],
)
def test_where_the_key_stands(headers: bytes, key: bytes | None) -> None:
    assert api_key_of(parse_head(POST + headers + b"\r\n")) == key


@pytest.mark.parametrize(
    "headers",
    [
        b"Authorization: Basic abc\r\n",
        b"Authorization: Bearer\r\n",
        b"Authorization: Bearer\tsk-1\r\n",
        b"Authorization: Bearer a b\r\n",
        b"Authorization: Bearer \xc3\xa9\r\n",
        b"Authorization: Bearer ' OR '1'='1\r\n",
        b"Authorization: Bearer sk-1\r\nX-Api-Key: sk-2\r\n",
        b"X-Api-Key:\r\n",
        b"Authorization: Bearer " + b"x" * 600 + b"\r\n",
    ],
)
def test_malformed_keys_are_refused(headers: bytes) -> None:
    with pytest.raises(Refusal) as caught:
        api_key_of(parse_head(POST + headers + b"\r\n"))
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
