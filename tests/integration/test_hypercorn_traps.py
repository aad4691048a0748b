"""hypercorn's defaults that hurt us, each kept away by a setting of ours, with its figure."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.core.addresses import parse_listen
from llmgw.web import app as web_app
from llmgw.web import serve as serving
from llmgw.web.public import public_app
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import FakeControl

AUTH = f"Authorization: Bearer {TOKENS['admin']}\r\n"
GET = f"GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n{AUTH}\r\n".encode()
POST = f"POST /api/v1/serve HTTP/1.1\r\nHost: x\r\n{AUTH}".encode()
DRIP_S = 0.05
DRIPS = 400
"""Bytes dripped at most: far longer than any deadline here."""
PIPELINED = 1200


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("admin")) as server:
        yield server


def connect(admin: Running) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", admin.port), timeout=60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def ask(sock: socket.socket) -> int:
    """The status of one answer with a length, on a connection that goes on."""
    sock.sendall(GET)
    answer = http.client.HTTPResponse(sock)
    answer.begin()
    answer.read()
    return answer.status


def ended(sock: socket.socket) -> bool:
    """Whether the next thing that comes is the end."""
    try:
        return sock.recv(65536) == b""
    except ConnectionResetError:
        return True


def drip(sock: socket.socket, data: bytes) -> bytes:
    """Send one byte after another until the server ends the connection; what it said before."""
    sock.settimeout(DRIP_S)
    said = b""
    for number in range(DRIPS):
        try:
            sock.sendall(data[number % len(data) : number % len(data) + 1])
            received = sock.recv(65536)
        except TimeoutError:
            continue
        except (ConnectionResetError, BrokenPipeError):
            return said
        if not received:
            return said
        said += received
    raise AssertionError(f"{DRIPS * DRIP_S:g} s were not enough to be cut")


def test_the_figures() -> None:
    """As they are documented, and no better known to a test that changes them."""
    assert serving.BACKLOG == 4096
    assert serving.HEAD_S <= 10.0
    assert serving.KEEP_ALIVE_S == 75.0
    assert serving.STALL_S == 120.0
    assert web_app.BODY_TIMEOUT_S == 60.0


@pytest.mark.promise("A15")
def test_a_burst_finds_room_although_nobody_accepts_yet(tmp_path: Path) -> None:
    """hypercorn's 100 would leave the 102nd connect waiting for its second try."""
    for listener in (serving.open_tcp(parse_listen("127.0.0.1:0", source="test")), serving.open_unix(tmp_path / "s")):
        waiting = []
        try:
            for _ in range(600):
                sock = socket.socket(listener.family, socket.SOCK_STREAM)
                waiting.append(sock)
                sock.settimeout(0.5)
                sock.connect(listener.getsockname())
        finally:
            for sock in [*waiting, listener]:
                sock.close()


@pytest.mark.promise("A16")
def test_a_kept_connection_outlives_the_heads_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    with running(tmp_path) as admin, connect(admin) as kept:
        assert ask(kept) == 200
        with connect(admin) as silent:
            assert ended(silent)
        assert ask(kept) == 200


@pytest.mark.promise("A16")
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_dripped_head_is_cut_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    """Also the head of a later request, on a connection that may otherwise be silent for much longer."""
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    with running(tmp_path) as admin, connect(admin) as sock:
        for _ in range(before):
            assert ask(sock) == 200
        assert drip(sock, b"GET / HTTP/1.1\r\n" + b"X-A: y\r\n" * 60) == b""


@pytest.mark.promise("A16")
def test_half_a_head_behind_a_whole_one_is_cut_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_S", 0.3)
    with running(tmp_path) as admin, connect(admin) as sock:
        sock.sendall(GET + b"GET /api/v1/no")
        answer = http.client.HTTPResponse(sock)
        answer.begin()
        assert (answer.status, bool(answer.read())) == (200, True)
        assert ended(sock)


@pytest.mark.promise("A16")
def test_a_kept_connection_is_closed_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "KEEP_ALIVE_S", 0.3)
    with running(tmp_path) as admin, connect(admin) as sock:
        assert ask(sock) == 200
        assert ended(sock)


@pytest.mark.promise("A16")
@pytest.mark.parametrize("dripping", [False, True])
def test_a_stalled_body_is_a_408(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dripping: bool) -> None:
    monkeypatch.setattr(web_app, "BODY_TIMEOUT_S", 0.3)
    with running(tmp_path) as admin, connect(admin) as sock:
        sock.sendall(POST + b"Content-Length: 100000\r\n\r\n{")
        said = drip(sock, b" ") if dripping else _all(sock)
        assert said.startswith(b"HTTP/1.1 408 "), said
        assert said.count(b"HTTP/1.1 ") == 1
        assert json.loads(said.partition(b"\r\n\r\n")[2])["code"] == "timeout"
        assert admin.control.calls == []


def _all(sock: socket.socket) -> bytes:
    said = b""
    while received := sock.recv(65536):
        said += received
    return said


def test_a_stop_does_not_wait_for_idle_connections(tmp_path: Path) -> None:
    with running(tmp_path) as admin, connect(admin) as kept, connect(admin) as silent:
        assert ask(kept) == 200
        admin.stop()
        assert ended(kept)
        assert ended(silent)
        assert admin.ended.wait(serving.GRACE_S / 2)


@pytest.mark.promise("A20")
def test_one_connection_ends_after_a_thousand_requests(tmp_path: Path) -> None:
    control = FakeControl()
    with running(tmp_path, control, app=public_app(control)) as public, connect(public) as sock:
        try:
            sock.sendall(b"GET /leader HTTP/1.1\r\nHost: x\r\n\r\n" * PIPELINED)
        except (BrokenPipeError, ConnectionResetError):
            pass
        said = _all(sock)
        answered = said.count(b"HTTP/1.1 200 ")
        assert 500 < answered <= 1001
        assert said.count(b"connection: close") == 1


@pytest.mark.promise("A20")
@pytest.mark.parametrize("where", ["tcp", "unix"])
def test_http_2_is_not_spoken(admin: Running, where: str) -> None:
    """A client that knows it beforehand resets no streams here: there are none."""
    preface = (
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0" + b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08" * 5000
    )
    if where == "tcp":
        sock = connect(admin)
    else:
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(15)
        sock.connect(str(admin.socket))
    with sock:
        try:
            sock.sendall(preface)
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert sock.recv(9) == b"HTTP/1.1 "
        assert sock.recv(4).startswith(b"505")
