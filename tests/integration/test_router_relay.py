"""Engine bytes to client bytes through real sockets and the real reactor, for every way the reads may fall."""

import gzip
import itertools
import socket
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.core.routing import Timeouts
from llmgw.router.ends import End
from tests.support.relay_rig import body_of, rig
from tests.support.scripted_engine import DONE, LAST_CHUNK, SSE_HEAD, chunk, json_answer, token, usage_event

pytestmark = pytest.mark.usefixtures("either_pass")

USAGE = usage_event(7, 3)


def pieces(raw: bytes, at: list[int]) -> list[bytes]:
    """`raw` cut at the offsets."""
    edges = [0, *sorted({i % len(raw) for i in at}), len(raw)]
    return [raw[a:b] for a, b in itertools.pairwise(edges) if a != b]


SPELLINGS: list[Callable[[bytes], bytes]] = [
    chunk,
    lambda data: b"%X;note=a\r\n%b\r\n" % (len(data), data),
    lambda data: b"00%x\r\n%b\r\n" % (len(data), data),
]


@st.composite
def answers(draw: st.DrawFn) -> tuple[bytes, bytes]:
    """An engine's raw answer, and the body a client must see."""
    texts = draw(st.lists(st.text(alphabet=st.sampled_from('a読é🙂\\"[]\r\n '), min_size=1, max_size=6), max_size=8))
    events = [token(text) for text in texts] + [b": ping\n\n"] * draw(st.integers(0, 1)) + [token("", finish="stop")]
    body = b"".join(events)
    sent = body + USAGE + DONE
    cuts = draw(st.lists(st.integers(0, 4000), max_size=6))
    parts = [*events, USAGE, DONE] if draw(st.booleans()) else pieces(sent, cuts)
    spell = draw(st.sampled_from(SPELLINGS))
    return SSE_HEAD + b"".join(spell(part) for part in parts) + LAST_CHUNK, body + DONE


@pytest.mark.case("C1")
@settings(max_examples=120, deadline=None)
@given(answers(), st.lists(st.integers(0, 6000), max_size=8))
def test_every_byte_arrives_however_the_reads_fall(answer: tuple[bytes, bytes], at: list[int]) -> None:
    raw, wanted = answer
    with rig() as r:
        r.say(*pieces(raw, at))
        assert body_of(r.client.received()) == wanted
        assert r.ended is End.COMPLETE
        usage = r.stream.usage()
        assert usage is not None
        assert (usage.input_tokens, usage.output_tokens) == (7, 3)
        assert not r.upstream.closed


@pytest.mark.case("C1")
def test_byte_by_byte() -> None:
    events = [token("読写é🙂"), USAGE, DONE]
    raw = SSE_HEAD + b"".join(chunk(part) for part in events) + LAST_CHUNK
    with rig() as r:
        r.say(*(bytes([byte]) for byte in raw))
        assert body_of(r.client.received()) == events[0] + DONE


def test_an_event_a_read_costs_no_framing_of_ours_and_counts() -> None:
    with rig() as r:
        r.say(SSE_HEAD + chunk(token("a")), *(chunk(token(text)) for text in "bcdef"))
        raw = r.client.received()
        assert raw.partition(b"\r\n\r\n")[2] == b"".join(chunk(token(text)) for text in "abcdef")
        r.stream.settle()
        assert r.stream.events is not None
        assert r.stream.events.events == 6
        r.say(chunk(token("", finish="stop")), chunk(USAGE), chunk(DONE), LAST_CHUNK)
        assert r.ended is End.COMPLETE


@pytest.mark.parametrize(
    "bad", [b"0x5\r\nhello\r\n", b"+5\r\nhello\r\n", b"zz\r\n", b"5\r\nhelloXX", b"ffffffffffffffffff\r\n"]
)
def test_a_chunk_that_is_none_ends_the_stream_with_an_error(bad: bytes) -> None:
    with rig() as r:
        r.say(SSE_HEAD + chunk(token("a")), chunk(token("b")), bad, b"x" * 40)
        body = body_of(r.client.received())
        assert body.startswith(token("a") + token("b") + b'data: {"error"')
        assert body.endswith(DONE)
        assert r.ended is End.LOST
        assert r.upstream.closed


def test_the_head_waits_for_the_first_event_and_both_leave_in_one_send() -> None:
    with rig() as r:
        r.say(SSE_HEAD)
        assert r.client.received() == b""
        assert not r.stream.started
        r.say(chunk(token("a")))
        raw = r.client.received()
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
        assert raw.endswith(chunk(token("a")))


def test_events_that_arrive_together_leave_together() -> None:
    with rig() as r:
        count = r.client.sends
        r.say(SSE_HEAD + b"".join(chunk(token(str(i))) for i in range(11)) + chunk(USAGE) + chunk(DONE) + LAST_CHUNK)
        assert r.ended is End.COMPLETE
        assert r.client.sends - count <= 3


def test_interim_answers_are_skipped() -> None:
    with rig() as r:
        r.say(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", json_answer({"usage": {}}))
        raw = r.client.received()
        assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"link" not in raw.lower()
        assert r.ended is End.COMPLETE


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000,
        b"HTTP/1.1 100 Continue\r\n\r\n" * 4000,
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n\x81\x05hello",
    ],
)
def test_what_is_no_answer_fails_before_a_byte_went_out(raw: bytes) -> None:
    with rig() as r:
        r.say(*(raw[at : at + 30_000] for at in range(0, len(raw), 30_000)))
        assert r.ended is End.GARBAGE
        assert r.client.received() == b""
        assert r.upstream.closed


@pytest.mark.parametrize(
    "status", [b"301 Moved", b"401 Who", b"403 No", b"500 Oops", b"502 Bad", b"503 Busy", b"999 Odd"]
)
def test_redirects_and_engine_errors_are_not_passed_on(status: bytes) -> None:
    with rig() as r:
        r.say(json_answer({"error": "x"}, status, b"Location: http://169.254.169.254/\r\n"))
        assert r.ended is End.STATUS
        assert r.client.received() == b""


def test_a_second_answer_is_not_passed_on_and_the_connection_not_used_again() -> None:
    with rig() as r:
        r.say(json_answer({"a": 1}) + json_answer({"smuggled": 1}))
        raw = r.client.received()
        assert r.ended is End.COMPLETE
        assert b"smuggled" not in raw
        assert r.upstream.closed


def test_bytes_nobody_asked_for_end_an_idle_connection() -> None:
    with rig() as r:
        r.say(json_answer({"a": 1}))
        assert not r.upstream.closed
        r.engine.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        r.turn()
        assert r.upstream.closed


def test_harmful_headers_stay_with_the_engine() -> None:
    extra = b"Set-Cookie: a=b\r\nServer: x\r\nConnection: close\r\nX-LLMGW-Actor: root\r\nx_llmgw: y\r\nX-Fine: yes\r\n"
    with rig() as r:
        r.say(json_answer({"a": 1}, headers=extra))
        head = r.client.received().partition(b"\r\n\r\n")[0].lower()
        assert b"x-fine: yes" in head
        for name in (b"set-cookie", b"server:", b"connection:", b"llmgw"):
            assert name not in head
        assert r.upstream.closed


def test_what_connection_names_stays_with_the_engine() -> None:
    with rig() as r:
        r.say(json_answer({"a": 1}, headers=b"Connection: Keep-Alive, X-Hop\r\nX-Hop: secret\r\nX-Fine: yes\r\n"))
        head = r.client.received().partition(b"\r\n\r\n")[0].lower()
        assert b"x-fine: yes" in head
        assert b"hop" not in head


def test_events_compressed_unasked_are_passed_on_as_they_are() -> None:
    packed = gzip.compress(token("a") + token("b"))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n"
    with rig() as r:
        r.say(head % len(packed), packed[:9], packed[9:])
        assert r.ended is End.COMPLETE
        assert r.client.received().partition(b"\r\n\r\n")[2] == packed


@pytest.mark.parametrize("framing", [b"", b"Transfer-Encoding: identity\r\n", b"Connection: close\r\n"])
def test_an_answer_without_length_ends_with_the_connection(framing: bytes) -> None:
    with rig() as r:
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n%b\r\n" % framing
        r.say(head, b'{"usage":', b'{"completion_tokens":4}}')
        r.engine.close()
        r.turn()
        assert r.ended is End.COMPLETE
        assert body_of(r.client.received()) == b'{"usage":{"completion_tokens":4}}'
        usage = r.stream.usage()
        assert usage is not None
        assert usage.output_tokens == 4


def test_a_short_body_is_cut_not_completed() -> None:
    with rig() as r:
        r.say(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhello")
        r.engine.close()
        r.turn()
        assert r.ended is End.LOST
        assert r.client.aborted
        assert r.stream.must_close


def test_a_client_of_http_1_0_reads_to_the_end() -> None:
    with rig(http11=False) as r:
        r.say(SSE_HEAD + chunk(token("a")) + chunk(DONE) + LAST_CHUNK)
        head, _, body = r.client.received().partition(b"\r\n\r\n")
        assert b"connection: close" in head
        assert b"transfer-encoding" not in head
        assert body == token("a") + DONE
        assert r.stream.must_close


@pytest.mark.promise("A16")
def test_a_slow_reader_holds_the_engine_and_gets_every_byte() -> None:
    parts = [token(f"{i} " + "x" * 20_000) for i in range(300)]
    unsent = SSE_HEAD + b"".join(chunk(part) for part in [*parts, DONE]) + LAST_CHUNK
    raw, most, held = b"", 0, False
    with rig() as r:
        r.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        r.engine.setblocking(False)
        for turn in range(20_000):
            try:
                unsent = unsent[r.engine.send(unsent[:100_000]) :] if unsent else b""
            except BlockingIOError:
                held = held or turn < 20  # the client has read nothing yet
            r.turn()
            most = max(most, len(r.stream.pending))
            if turn > 20:
                raw += r.client.far.recv(30_000)
                r.stream.flush()
            if r.ended is not None:
                break
        raw += r.client.received()
        assert r.ended is End.COMPLETE
        assert held
        assert most <= 256 * 1024
        assert body_of(raw) == b"".join(parts) + DONE


@pytest.mark.promise("A16")
def test_a_reader_that_stops_is_cut() -> None:
    with rig(timeouts=Timeouts(client_stall=5.0)) as r:
        r.say(SSE_HEAD + chunk(token("a")))
        r.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        r.engine.setblocking(False)
        for _ in range(100):
            if not r.stream.pending:
                r.engine.send(chunk(token("x" * 20_000)))
                r.turn()
        stopped = r.reactor.now
        r.stream.tick(stopped + 4.0)
        assert r.client.stream is r.stream
        r.stream.tick(stopped + 5.5)
        assert r.ended is End.STALLED
        assert r.client.aborted
        assert r.upstream.closed


def test_deadlines_of_the_engine() -> None:
    limits = Timeouts(first_byte=10.0, inter_token=20.0)
    with rig(timeouts=limits) as r:
        r.say(SSE_HEAD)
        r.stream.tick(r.stream.begun_at + 9.0)
        assert r.client.stream is r.stream
        r.stream.tick(r.stream.begun_at + 11.0)
        assert r.ended is End.SLOW
        assert r.upstream.closed
    with rig(timeouts=limits) as r:
        r.say(SSE_HEAD + chunk(token("a")))
        r.stream.tick(r.reactor.now + 19.0)
        assert r.client.stream is r.stream
        r.stream.tick(r.reactor.now + 21.0)
        assert r.ended is End.LOST
        body = body_of(r.client.received())
        assert b"engine_timeout" in body
        assert body.endswith(DONE)


def test_an_answer_without_end_is_cut() -> None:
    with rig() as r:
        r.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        part = chunk(b"x" * 60_000)
        for _ in range(64 * 1024 * 1024 // 60_000 + 2):
            r.say(part)
            r.client.received()
        assert r.ended is End.LOST
        assert r.client.aborted
