"""The public app holds no admin route: whatever path is asked for, however it is written, ends in a JSON 404."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from quart_trio import QuartTrio

from llmgw.web.public import public_app
from tests.support.admin_server import TOKENS, Running, running
from tests.support.fake_control import FakeControl


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    control = FakeControl()
    with running(tmp_path_factory.mktemp("public"), control, app=public_app(control)) as server:
        yield server


def get(server: Running, path: str, method: str = "GET") -> tuple[int, str, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {TOKENS['admin']}"})
        answer = connection.getresponse()
        return answer.status, answer.headers["content-type"], json.loads(answer.read())
    finally:
        connection.close()


def test_the_leader_is_named(public: Running) -> None:
    assert get(public, "/leader") == (200, "application/json", {"leader": "server-1", "epoch": 3, "is_self": True})


def test_no_leader_is_a_503(tmp_path: Path) -> None:
    control = FakeControl(leads=None)
    with running(tmp_path, control, app=public_app(control)) as server:
        status, kind, problem = get(server, "/leader")
    assert (status, kind, problem["code"]) == (503, "application/problem+json", "unavailable")


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/api/v1/status",
        "/metrics",
        "/leader/",
        "/leader%2fapi",
        "/static/x",
        "/%00",
    ],
)
def test_everything_else_is_a_json_404(public: Running, path: str) -> None:
    status, kind, problem = get(public, path)
    assert (status, kind, problem["code"]) == (404, "application/problem+json", "not_found")


@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    "path",
    [
        "/v1/%2e%2e/api/v1/status",
        "/v1/../api/v1/status",
        "/v1/%2E./api/v1/status",
        "/v1/..;x/api/v1/status",
        "/v1//api/v1/status",
        "//api/v1/status",
        "/%2e%2e/leader",
        "/leader/..%2fapi",
        "/leader/..%5Capi",
        "/leader\\..\\api",
    ],
)
def test_a_path_that_another_reader_could_shorten_is_refused(public: Running, path: str) -> None:
    status, kind, problem = get(public, path)
    assert (status, kind, problem["code"]) == (400, "application/problem+json", "invalid")


def test_a_standby_tells_who_leads_with_the_status_of_one_that_does_not(tmp_path: Path) -> None:
    control = FakeControl(is_self=False)
    with running(tmp_path, control, app=public_app(control)) as server:
        status, kind, answer = get(server, "/leader")
    assert (status, kind) == (503, "application/json")
    assert answer == {"leader": "server-1", "epoch": 3, "is_self": False}


def test_methods_are_refused(public: Running) -> None:
    assert get(public, "/leader", "POST")[0] == 405
    assert get(public, "/leader", "DELETE")[0] == 405


def test_it_has_no_other_route() -> None:
    app: QuartTrio = public_app(FakeControl())
    assert [rule.rule for rule in app.url_map.iter_rules()] == ["/leader"]


def test_nothing_of_the_request_comes_back(public: Running) -> None:
    with socket.create_connection(("127.0.0.1", public.port), timeout=60) as sock:
        sock.sendall(b"GET /<script> HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = b""
        while chunk := sock.recv(4096):
            answer += chunk
    assert b"script" not in answer
