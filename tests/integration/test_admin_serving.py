"""How the listeners behave: one reading of a request or none, streams that end properly, a stop that drains."""

import contextlib
import http.client
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError, Unreachable
from llmgw.api.targets import parse_server
from llmgw.web import app as web_app
from llmgw.web import serve as serving
from llmgw.web.strict import MAX_HEAD_BYTES
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import FakeControl
from tests.support.waiting import until_sync

AUTH = f"Authorization: Bearer {TOKENS['admin']}\r\n"


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("admin")) as server:
        yield server


def exchange(admin: Running, data: bytes, *, pieces: int = 1) -> bytes:
    """Everything the server sends for `data` until it closes."""
    with socket.create_connection(("127.0.0.1", admin.port), timeout=60) as sock:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        step = max(1, -(-len(data) // pieces))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for start in range(0, len(data), step):
                sock.sendall(data[start : start + step])
        received = b""
        with contextlib.suppress(ConnectionResetError):
            while chunk := sock.recv(65536):
                received += chunk
        return received


HEAD = "GET /api/v1/status HTTP/1.1\r\nHost: x\r\n" + AUTH
POST = "POST /api/v1/serve HTTP/1.1\r\nHost: x\r\n" + AUTH
SECOND = HEAD + "Connection: close\r\n\r\n"


@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    ("text", "status"),
    [
        (POST + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SECOND, 400),
        (POST + "Transfer-Encoding: chunked\r\n\r\n2;" + "x" * 20000 + "\r\n{}\r\n0\r\n\r\n", 411),
        (POST + "Transfer-Encoding: identity\r\n\r\n", 501),
        (POST + "Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", 400),
        (POST + "Content-Length: +2\r\n\r\n{}", 400),
        (POST + "Content-Length: 0x2\r\n\r\n{}", 400),
        (HEAD + "X-A: 1\r\n folded\r\n\r\n", 400),
        (HEAD + "X-A: 1\r\n\tfolded\r\n\r\n", 400),
        (HEAD.replace("\r\n", "\n") + "\n", 400),
        (HEAD + "X-A: 1\n\r\n", 400),
        (HEAD + "X-A: a\rb\r\n\r\n", 400),
        (HEAD + AUTH + "\r\n", 400),
        (HEAD + "Host: y\r\n\r\n", 400),
        (HEAD + "X_Forwarded_For: 1.2.3.4\r\n\r\n", 400),
        (HEAD + "X-A : 1\r\n\r\n", 400),
        (HEAD + "X-A: a\0b\r\n\r\n", 400),
        (HEAD + "Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n\r\n", 400),
        (HEAD + "Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n", 400),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
        ("GET http://x/api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("GET //api/v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("GET ?x HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (HEAD + "X-A: " + "a" * MAX_HEAD_BYTES + "\r\n\r\n", 431),
        (HEAD + "".join(f"X-{i}: 1\r\n" for i in range(200)) + "\r\n", 431),
        ("\x16\x03\x01\x02\x00\x01\x00", 400),
        ("GET / HTTP/1.1\r\n\r\n", 400),
    ],
)
def test_ambiguous_requests_are_refused_and_the_connection_closed(admin: Running, text: str, status: int) -> None:
    for pieces in (1, 7):
        answer = exchange(admin, text.encode("latin-1"), pieces=pieces)
        assert answer.startswith(f"HTTP/1.1 {status} ".encode()), answer[:200]
        assert answer.count(b"HTTP/1.1 ") == 1
        assert b"connection: close" in answer.lower()
        assert b"application/problem+json" in answer


def test_a_plain_request_in_any_pieces_is_answered(admin: Running) -> None:
    for pieces in (1, 2, len(SECOND)):
        assert exchange(admin, SECOND.encode(), pieces=pieces).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_each_checked(admin: Running) -> None:
    answer = exchange(admin, (HEAD + "\r\n" + HEAD + "X-A: 1\r\n folded\r\n\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1 400 ") == 1


def test_a_connection_is_used_again(admin: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    for _ in range(3):
        connection.request("GET", "/api/v1/nodes", headers={"Authorization": f"Bearer {TOKENS['viewer']}"})
        answer = connection.getresponse()
        assert (answer.status, bool(answer.read())) == (200, True)
        assert connection.sock is not None
    connection.close()


@pytest.mark.promise("A16")
@pytest.mark.parametrize("data", [b"", b"GET / HT"], ids=["silent", "half a head"])
def test_a_silent_connection_is_closed(admin: Running, data: bytes) -> None:
    began = time.monotonic()
    exchange(admin, data)
    assert time.monotonic() - began < 10


@pytest.mark.promise("A15")
def test_a_burst_of_connects_waits_for_nothing(admin: Running) -> None:
    began = time.monotonic()
    socks = [socket.create_connection(("127.0.0.1", admin.port), timeout=60) for _ in range(500)]
    took = time.monotonic() - began
    for sock in socks:
        sock.close()
    # A connect that is dropped for want of backlog is tried again after a second.
    assert took < 5
    assert AdminClient(parse_server(admin.unix, source="x")).status().version == "0.1.0"


def test_connections_have_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "MAX_CONNECTIONS", 3)
    with running(tmp_path) as admin, contextlib.ExitStack() as stack:
        for _ in range(3):
            held = stack.enter_context(socket.create_connection(("127.0.0.1", admin.port), timeout=60))
            held.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert held.recv(4096).startswith(b"HTTP/1.1 200")
        client = AdminClient(parse_server(admin.unix, source="x"))
        with pytest.raises(ClientError):
            client.status()
        stack.close()
        until_sync(lambda: _answers(client))


def _answers(client: AdminClient) -> bool:
    with contextlib.suppress(ClientError):
        return client.status().version == "0.1.0"
    return False


@pytest.mark.promise("A17")
def test_no_answer_ends_because_it_lasts(tmp_path: Path) -> None:
    """A follower that hears nothing for long is still followed, and a slow reader gets the rest of what it reads."""
    assert web_app.new_app("x").config["RESPONSE_TIMEOUT"] is None
    control = FakeControl(more_lines=("fresh",))
    with running(tmp_path, control) as admin:
        lines = AdminClient(parse_server(admin.unix, source="x"), timeout_s=5).logs("gpu0", tail=1, follow=True)
        assert [next(lines), next(lines)] == ["line 499", "fresh"]
        ended = threading.Event()
        rest: list[str] = []

        def follow() -> None:
            rest.extend(lines)
            ended.set()

        thread = threading.Thread(target=follow)
        thread.start()
        assert not ended.wait(1.0)
        assert control.open_logs == 1
        admin.stop()
        thread.join(5)
        assert ended.is_set()
        assert rest == []
        assert admin.ended.wait(5)


def test_a_follower_that_leaves_ends_the_reading(admin: Running) -> None:
    lines = AdminClient(parse_server(admin.unix, source="x")).logs("gpu0", tail=3, follow=True)
    assert next(lines) == "line 497"
    assert admin.control.open_logs == 1
    lines.close()
    until_sync(lambda: admin.control.open_logs == 0, deadline_s=5)


def test_a_cut_stream_is_not_taken_for_its_end(tmp_path: Path) -> None:
    control = FakeControl(more_lines=tuple(f"more {i}" for i in range(5)), fail_log_after=4)
    with running(tmp_path, control) as admin:
        lines = AdminClient(parse_server(admin.unix, source="x")).logs("gpu0", tail=2, follow=True)
        got: list[str] = []
        with pytest.raises(Unreachable, match="broke off"):
            got.extend(iter(lambda: next(lines), None))
        until_sync(lambda: control.open_logs == 0, deadline_s=5)


def test_a_refusal_in_place_of_the_first_line_is_the_answer(tmp_path: Path) -> None:
    """A node says only when it is asked that it has no such log: the reason is no answer that breaks off."""
    control = FakeControl(fail_log_after=0)
    with running(tmp_path, control) as admin:
        for follow in (False, True):
            with pytest.raises(ClientError, match="the node went away") as caught:
                list(AdminClient(parse_server(admin.unix, source="x")).logs("gpu0", tail=2, follow=follow))
            assert not isinstance(caught.value, Unreachable)
        until_sync(lambda: control.open_logs == 0, deadline_s=5)


def test_an_empty_log_is_no_refusal(tmp_path: Path) -> None:
    with running(tmp_path, FakeControl(log_lines=[])) as admin:
        assert list(AdminClient(parse_server(admin.unix, source="x")).logs("gpu0", tail=2)) == []


def test_a_long_log_comes_whole(tmp_path: Path) -> None:
    control = FakeControl(log_lines=[f"{i} " + "読" * 100 for i in range(5000)])
    with running(tmp_path, control) as admin:
        lines = list(AdminClient(parse_server(admin.unix, source="x")).logs("gpu0", tail=5000))
    assert lines == control.log_lines


@pytest.mark.promise("A16")
def test_a_follower_that_stops_reading_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "STALL_S", 0.5)
    control = FakeControl(log_lines=["x" * 10_000] * 2000)
    with running(tmp_path, control) as admin, socket.create_connection(("127.0.0.1", admin.port), timeout=60) as sock:
        sock.sendall(f"GET /api/v1/logs/gpu0?tail=2000&follow=true HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode())
        assert sock.recv(1).startswith(b"H")
        assert control.open_logs == 1
        until_sync(lambda: control.open_logs == 0, deadline_s=10)


@pytest.mark.promise("A16")
def test_an_idle_connection_is_closed_after_its_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "KEEP_ALIVE_S", 0.3)
    with running(tmp_path) as admin:
        answer = exchange(admin, (HEAD + "\r\n").encode())
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_stop_lets_what_is_in_flight_finish(tmp_path: Path) -> None:
    control = FakeControl(hold=trio.Event())
    with running(tmp_path, control) as admin:
        results: list[str] = []
        client = AdminClient(parse_server(admin.unix, source="x"))
        thread = threading.Thread(target=lambda: results.append(client.status().version))
        thread.start()
        until_sync(control.held.is_set)
        admin.stop()
        # The listeners are closed while the request is still held.
        until_sync(lambda: not _answers(AdminClient(parse_server(admin.tcp, source="x"), timeout_s=1)))
        assert not admin.ended.is_set()
        assert control.hold is not None
        admin.token.run_sync_soon(control.hold.set)
        thread.join(10)
        assert results == ["0.1.0"]
        assert admin.ended.wait(60)


def test_the_grace_is_not_for_ever(tmp_path: Path) -> None:
    control = FakeControl(hold=trio.Event())
    with running(tmp_path, control, grace_s=0.5) as admin:
        errors: list[ClientError] = []

        def ask() -> None:
            try:
                AdminClient(parse_server(admin.unix, source="x")).status()
            except ClientError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        until_sync(control.held.is_set)
        began = time.monotonic()
        admin.stop()
        assert admin.ended.wait(60)
        assert time.monotonic() - began < 5
        thread.join(10)
        assert [type(error) for error in errors] == [Unreachable]


def test_a_peer_that_reads_slowly_does_not_keep_a_stop_from_its_end(tmp_path: Path) -> None:
    control = FakeControl(log_lines=["x" * 20_000_000])
    with (
        running(tmp_path, control, grace_s=0.5) as admin,
        socket.create_connection(("127.0.0.1", admin.port), timeout=60) as sock,
    ):
        sock.sendall(f"GET /api/v1/logs/gpu0?tail=2000 HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode())

        def sip() -> None:
            with contextlib.suppress(OSError):
                while sock.recv(1000) and not admin.ended.wait(0.02):
                    pass

        assert sock.recv(1) == b"H"
        reader = threading.Thread(target=sip)
        reader.start()
        admin.stop()
        assert admin.ended.wait(30), "it takes minutes at this pace"
        reader.join(10)


def test_a_refused_body_is_taken_so_that_the_answer_arrives(admin: Running, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(10):
        answer = exchange(admin, (POST + "Content-Length: 3000000\r\n\r\n").encode() + b"x" * 3_000_000)
        assert answer.startswith(b"HTTP/1.1 413 ")
    assert caplog.records == []


@pytest.mark.promise("A19")
def test_random_bytes_harm_nobody(admin: Running, caplog: pytest.LogCaptureFixture) -> None:
    dice = random.Random(7)
    parts = [
        b"GET ",
        b"POST ",
        b"/api/v1/status",
        b" HTTP/1.1",
        b"\r\n",
        b"\n",
        b"Host: x",
        b":",
        b"Content-Length: 9",
        b"\0",
        b"\xff",
        b"{}",
    ]
    for _ in range(60):
        data = b"".join(dice.choice(parts) for _ in range(dice.randrange(1, 30)))
        with socket.create_connection(("127.0.0.1", admin.port), timeout=60) as sock:
            sock.sendall(data)
            sock.shutdown(socket.SHUT_WR)
            with contextlib.suppress(ConnectionResetError):
                while sock.recv(65536):
                    pass
    assert AdminClient(parse_server(admin.unix, source="x")).status().version == "0.1.0"
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []
