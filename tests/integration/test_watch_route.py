"""The watch route over a real unix socket and TCP: what it takes, who sees what, and that no reader leaves a trace."""

import contextlib
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget, parse_server
from llmgw.api.watch import TOPICS, Snapshot, Subscription, Tick
from llmgw.control.live_table import LiveTable
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import FakeControl
from tests.support.waiting import until_sync


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


def client(admin: Running, role: str | None = None) -> AdminClient:
    """Over the unix socket, or over TCP with a role's token."""
    if role is None:
        return AdminClient(parse_server(admin.unix, source="test"))
    return AdminClient(ServerTarget(host="127.0.0.1", port=admin.port, token=TOKENS[role]))


@pytest.mark.parametrize("role", [None, "viewer", "operator", "admin"])
def test_who_reads_is_told_and_sees_what_the_list_routes_would_show(admin: Running, role: str | None) -> None:
    feed = client(admin, role).watch()
    first = next(feed)
    assert isinstance(first, Snapshot)
    assert first.role == (role or "admin")
    assert first.actor.startswith("unix:" if role is None else f"token:{role}")
    assert set(first.rows) == set(TOPICS) - ({"audit"} if role == "viewer" else set())
    assert isinstance(next(feed), Tick)
    feed.close()
    until_sync(lambda: admin.control.open_watches == 0)


def test_parameters_arrive(admin: Running) -> None:
    wanted = Subscription(topics=("nodes", "figures"), nodes=("gpu0", "gpu1"), interval_ms=250, epoch="e", since=7)
    feed = client(admin).watch(wanted)
    first = next(feed)
    assert isinstance(first, Snapshot)
    assert set(first.rows) == {"nodes", "figures"}
    feed.close()
    assert [entry[0] for entry in admin.control.watched] == [wanted]


@pytest.mark.parametrize(
    ("query", "field"),
    [
        ("topics=nodes,nothing", "topics"),
        ("interval_ms=99", "interval_ms"),
        ("interval_ms=60001", "interval_ms"),
        ("since=-1", "since"),
        ("since=x", "since"),
        ("topic=nodes", "topic"),
        ("topics=nodes&topics=models", "topics"),
        ("nodes=" + ",".join(f"n{i}" for i in range(1001)), "nodes"),
        ("nodes=" + "x" * 300, "nodes"),
    ],
)
def test_what_it_does_not_take_is_named(admin: Running, query: str, field: str) -> None:
    status, body = _ask(admin, f"/api/v1/watch?{query}")
    assert (status, body["field"]) == (400, field)
    assert admin.control.watched == []


def test_too_many_readers_are_refused_before_the_answer_begins(admin: Running) -> None:
    status, body = _ask(admin, "/api/v1/watch?nodes=full")
    assert (status, body["code"]) == (503, "unavailable")


def test_a_head_request_ends(admin: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    connection.request("HEAD", "/api/v1/watch", headers={"Authorization": f"Bearer {TOKENS['viewer']}"})
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    connection.close()
    assert admin.control.open_watches == 0


@pytest.mark.promise("A17")
def test_a_stop_ends_the_answer_properly(tmp_path: Path) -> None:
    with running(tmp_path) as admin:
        feed = client(admin).watch()
        next(feed)
        rest: list[object] = []
        thread = threading.Thread(target=lambda: rest.extend(feed))
        thread.start()
        admin.stop()
        thread.join(5)
        # The iterator ended: a connection that is cut raises.
        assert not thread.is_alive()
        assert admin.ended.wait(5)
        assert admin.control.open_watches == 0


def test_readers_that_vanish_in_any_way_are_counted_out(admin: Running) -> None:
    head = f"GET /api/v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['viewer']}\r\n\r\n".encode()
    socks = []
    for number in range(30):
        sock = socket.create_connection(("127.0.0.1", admin.port), timeout=60)
        sock.sendall(head)
        if number % 3:
            assert sock.recv(4096)
        socks.append(sock)
    until_sync(lambda: admin.control.open_watches == 30)
    for number, sock in enumerate(socks):
        with contextlib.suppress(OSError):
            if number % 2:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        sock.close()
    until_sync(lambda: admin.control.open_watches == 0)
    assert client(admin).status().version


def test_nothing_waits_for_a_reader_that_does_not_read(tmp_path: Path) -> None:
    """200 MB of versions of one row: what a reader gets in the end is the last one and what its socket held."""
    control = FakeControl(feed=LiveTable(TOPICS))
    with running(tmp_path, control) as admin, socket.socket() as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.settimeout(10)
        sock.connect(("127.0.0.1", admin.port))
        sock.sendall(
            f"GET /api/v1/watch HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['viewer']}\r\n\r\n".encode()
        )
        assert sock.recv(1)
        for number in range(100):
            _put(admin, b'"%d %s"' % (number, b"x" * 2_000_000))
        received, lines = bytearray(), 0
        while b'"99 x' not in received:
            received += sock.recv(1_000_000)
            lines += received.count(b"}\n")
            del received[: received.rfind(b"\n") + 1]
        assert lines < 12


def _put(admin: Running, row: bytes) -> None:
    """A version of a row, and time for the readers to hear of it."""
    done = threading.Event()

    def put() -> None:
        assert admin.control.feed is not None
        admin.control.feed.put_encoded("nodes", "n", row)
        admin.control.feed.announce()
        done.set()

    admin.token.run_sync_soon(put)
    assert done.wait(60)


def test_history_and_weights(admin: Running) -> None:
    asked = client(admin, "operator")
    history = asked.history()
    assert (history.model, history.requests_per_s, history.first_token_p95_ms) == ("*", (0.0, 1.5), (None, 40.0))
    with pytest.raises(ClientError, match="no model"):
        asked.history("nothing")
    assert [info.source for info in asked.weights()] == ["file:/m/needed.gguf", "file:/m/orphan.gguf"]
    assert "looks the source up" in asked.fetch_weights("file:/m/new.gguf").message
    with pytest.raises(ClientError, match="needs it"):
        asked.remove_weights("file:/m/needed.gguf")
    assert "98 MB freed" in asked.remove_weights("file:/m/orphan.gguf").message
    assert [call[0] for call in admin.control.calls] == ["fetch_weights", "remove_weights"]
    status, body = _ask(admin, "/api/v1/weights", method="DELETE", role="operator")
    assert (status, body["field"]) == (400, "source")


def test_checks_and_orphans(admin: Running) -> None:
    asked = client(admin, "operator")
    assert "checking 1 file" in asked.verify_weights("file:/m/needed.gguf").message
    with pytest.raises(ClientError, match="not on the mirror"):
        asked.verify_weights("file:/m/none.gguf")
    orphans = client(admin, "viewer").orphans()
    assert ([orphan.id for orphan in orphans.orphans], orphans.total_bytes) == (["orphan.gguf"], 98_000_000)
    assert "98 MB freed" in asked.remove_orphans(["orphan.gguf"]).message
    with pytest.raises(ClientError, match="none of these"):
        asked.remove_orphans(["orphan.gguf"])
    with pytest.raises(ClientError, match="ids"):
        asked.remove_orphans([])


def _ask(admin: Running, path: str, *, method: str = "GET", role: str = "viewer") -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {TOKENS[role]}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()
