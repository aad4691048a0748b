"""What is wrong with a request is named; what is too much is refused; what fails inside stays inside."""

import http.client
import json
import socket
from collections.abc import Iterator

import pytest

from llmgw.api.paths import MAX_BODY_BYTES
from llmgw.api.types import ServeRequest
from tests.support.admin_server import TOKENS, Running, running


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("admin")) as server:
        yield server


def send(admin: Running, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
    try:
        connection.request(method, path, body=body, headers={"Authorization": f"Bearer {TOKENS['admin']}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("body", "field", "part"),
    [
        (b"", None, "a body is needed: JSON of ServeRequest"),
        (b"{", None, "not JSON"),
        (b"\xff", None, "not JSON"),
        (b'{"source": "\xff"}', None, "not JSON"),
        (b"[]", None, "Expected `object`, got `array`"),
        (b"{}", None, "missing required field `source`"),
        (b'{"source": 3}', "source", "Expected `str`, got `int`"),
        (b'{"source": "s", "scaling": {"min": "1"}}', "scaling.min", "Expected `int`, got `str`"),
        (b'{"source": "s", "scaling": {"min": 1e999}}', None, ""),
        (b'{"source": "s", "args": ["a", 1]}', "args[1]", "Expected `str`, got `int`"),
        (b'{"source": "s", "rpm": 5}', None, "unknown field `rpm`"),
        (b'{"source": "s", "context_length": NaN}', None, "not JSON"),
        (b'{"source": ' + b"[" * 100_000, None, ""),
        (b'{"source": "s"} trailing', None, "not JSON"),
    ],
)
def test_strict_decoding_names_the_field(admin: Running, body: bytes, field: str | None, part: str) -> None:
    calls = len(admin.control.calls)
    status, problem = send(admin, "POST", "/api/v1/serve", body)
    assert status == 400
    assert part in str(problem["message"])
    if field is not None:
        assert problem["field"] == field
    assert len(admin.control.calls) == calls


def test_the_catalogs_rules_hold_before_the_control_plane(admin: Running) -> None:
    body = json.dumps({"model": {"name": "../x", "source": "sim:"}}).encode()
    status, problem = send(admin, "POST", "/api/v1/models", body)
    assert (status, problem["field"]) == (400, "name")
    assert send(admin, "POST", "/api/v1/models/x/scale", b'{"min": 3, "max": 2}')[1]["field"] == "max"
    assert send(admin, "POST", "/api/v1/models/x/scale", b'{"min": -1, "max": 2}')[1]["field"] == "min"
    assert send(admin, "POST", "/api/v1/keys", b'{"name": "a\\nb"}')[1]["field"] == "name"
    assert send(admin, "POST", "/api/v1/join-tokens", b'{"minutes": 0}')[1]["field"] == "minutes"


@pytest.mark.promise("A18")
def test_bodies_end_at_the_limit(admin: Running) -> None:
    body = b'{"source": "s", "name": "' + b"x" * MAX_BODY_BYTES + b'"}'
    status, problem = send(admin, "POST", "/api/v1/serve", body)
    assert (status, problem["code"]) == (413, "too_large")
    fits = json.dumps({"source": "sim:", "name": "m", "args": ["x" * (MAX_BODY_BYTES - 200)]}).encode()
    assert send(admin, "POST", "/api/v1/serve", fits)[0] == 201


def test_domain_errors_become_their_problems(admin: Running) -> None:
    assert send(admin, "POST", "/api/v1/serve", b'{"source": "sim:full"}') == (
        409,
        {
            "code": "cannot_place",
            "message": "it needs 9 GB and 3.2 GB are missing on gpu0",
            "status": 409,
            "field": None,
        },
    )
    assert send(admin, "POST", "/api/v1/serve", b'{"source": "sim:away"}')[0] == 503
    assert send(admin, "GET", "/api/v1/models/none")[1]["code"] == "not_found"
    status, problem = send(admin, "POST", "/api/v1/serve", b'{"source": "sim:bug"}')
    assert (status, problem["code"]) == (500, "internal")
    assert "secret" not in str(problem)


@pytest.mark.parametrize(
    ("path", "field"),
    [
        ("/api/v1/replicas?modle=x", "modle"),
        ("/api/v1/replicas?model=a&model=b", "model"),
        ("/api/v1/audit?limit=0", "limit"),
        ("/api/v1/audit?limit=1e3", "limit"),
        ("/api/v1/audit?limit=99999999", "limit"),
        ("/api/v1/audit?since=yesterday", "since"),
        ("/api/v1/audit?since=2030-01-01T00:00:00", "since"),
        ("/api/v1/logs/server?follow=1", "follow"),
        ("/api/v1/logs/server?tail=-1", "tail"),
    ],
)
def test_queries_are_as_strict(admin: Running, path: str, field: str) -> None:
    status, problem = send(admin, "GET", path)
    assert (status, problem["field"]) == (400, field)


@pytest.mark.parametrize("name", ["%00", "a%0Ab", "%1b[31m", "x" * 300, "%E2%80%AE"])
def test_names_that_can_be_none_are_not_there(admin: Running, name: str) -> None:
    status, problem = send(admin, "GET", f"/api/v1/models/{name}")
    assert status == 404
    assert str(problem["message"]).isprintable()


def test_names_with_slashes_are_one_name(admin: Running) -> None:
    for name in ("org/m", "org/m/stop", "stop"):
        admin.control.calls.clear()
        assert send(admin, "POST", "/api/v1/serve", json.dumps({"source": "sim:", "name": name}).encode())[0] == 201
        path = "/api/v1/models/" + name.replace("/", "%2F")
        assert send(admin, "GET", path)[1]["name"] == name
        assert send(admin, "POST", f"{path}/stop")[0] == 200
        assert send(admin, "DELETE", path + "?purge=true")[0] == 200
        assert [c[:2] for c in admin.control.calls[1:]] == [("stop", name), ("remove", name)]
    asked = [c[1] for c in admin.control.calls if c[0] == "serve"]
    assert all(isinstance(request, ServeRequest) for request in asked)


def test_settings_take_any_json(admin: Running) -> None:
    path = "/api/v1/settings/router.timeouts.connect"
    assert send(admin, "PUT", path, b'{"value": 2.5}') == (200, {"message": "router.timeouts.connect is 2.5 s"})
    assert send(admin, "GET", path)[1]["value"] == 2.5
    assert send(admin, "PUT", path, b'{"value": {"a": [1]}}')[1]["field"] == "router.timeouts.connect"
    assert send(admin, "PUT", path, b"{}")[0] == 400


def test_a_key_is_not_cached(admin: Running) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=20)
    headers = {"Authorization": f"Bearer {TOKENS['admin']}"}
    connection.request("POST", "/api/v1/keys", body=b'{"name": "x"}', headers=headers)
    answer = connection.getresponse()
    assert (answer.status, answer.headers["cache-control"]) == (201, "no-store")
    connection.close()


def test_a_half_sent_body_leaves_the_server_well(admin: Running) -> None:
    with socket.create_connection(("127.0.0.1", admin.port), timeout=60) as sock:
        head = f"POST /api/v1/serve HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS['admin']}\r\n"
        sock.sendall(f"{head}Content-Length: 100\r\n\r\n{{".encode())
    assert send(admin, "GET", "/api/v1/status")[0] == 200
