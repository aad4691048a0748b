"""Who may do what, over a real unix socket and real TCP: every route against every role, and nothing beside."""

import http.client
import json
import os
import pwd
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.api.actions import ACTIONS, Action, Permission
from llmgw.api.client import AdminClient
from llmgw.api.paths import NDJSON_TYPE, PROBLEM_TYPE, fill, parameters
from llmgw.api.problems import Denied
from llmgw.api.targets import ServerTarget, parse_server
from llmgw.api.types import ServeRequest
from llmgw.core.catalog import Model
from llmgw.core.config import AdminToken
from llmgw.core.errors import InvalidInput, NotAllowed
from llmgw.web.access import Access, load_tokens
from llmgw.web.serve import Peer
from tests.support.admin_server import TOKENS, Running, running

BODIES = {
    "model.serve": {"source": "sim:"},
    "model.add": {"model": {"name": "m", "source": "sim:"}},
    "model.scale": {"min": 1, "max": 1},
    "model.fallbacks": {"fallbacks": ["x"]},
    "model.explain-serve": {"source": "sim:"},
    "replica.restart": {"target": "m"},
    "key.create": {"name": "k"},
    "key.limits": {"rpm": 1},
    "key.budget": {"budgets": []},
    "key.move": {"team": None},
    "key.band": {"band": None},
    "band.set": {"priority": 1},
    "team.create": {"name": "t"},
    "team.band": {"band": None},
    "team.limits": {"tpm": None},
    "team.budget": {"budgets": [{"amount_micros": 1, "period": "day"}]},
    "team.move": {"tenant": None},
    "tenant.create": {"name": "t"},
    "tenant.limits": {"parallel": 0},
    "tenant.budget": {"budgets": []},
    "node.build": {"engine": "vllm", "version": "none"},
    "node.join-token": {},
    "setting.set": {"value": 1},
    "weights.fetch": {"source": "file:/m/x.gguf"},
    "weights.verify": {"source": "file:/m/needed.gguf"},
    "weights.remove-orphans": {"ids": ["orphan.gguf"]},
}


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("admin")) as server:
        yield server


def request(
    server: Running, method: str, path: str, *, token: str | None = None, body: bytes | None = None
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    try:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        endless = answer.headers["content-type"] == NDJSON_TYPE
        return answer.status, answer.headers, answer.readline() if endless else answer.read()
    finally:
        connection.close()


def call(server: Running, action: Action, token: str | None) -> int:
    path = fill(action.path, dict.fromkeys(parameters(action.path), "nothing"))
    body = json.dumps(BODIES[action.id]).encode() if action.id in BODIES else None
    status, headers, content = request(server, action.method, path, token=token, body=body)
    if status >= 400:
        assert headers["content-type"] == PROBLEM_TYPE
        assert json.loads(content)["status"] == status
    return status


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_route_against_every_role(admin: Running, action: Action) -> None:
    assert call(admin, action, None) == 401
    assert call(admin, action, "unknown-token-000000") == 401
    for role in Permission:
        status = call(admin, action, TOKENS[role.role])
        assert (status == 403) == (role < action.permission), role
        assert status in (200, 201, 202, 400, 403, 404, 409)


def test_metrics_need_no_token_and_everything_else_does(admin: Running) -> None:
    status, headers, body = request(admin, "GET", "/metrics")
    assert (status, headers["content-type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert b"llmgw_nodes 2" in body
    for path in ("/", "/api/v1/openapi.json", "/api/v1/nothing", "/metrics/", "/metrics%2f"):
        status, headers, _ = request(admin, "GET", path)
        assert status == 401, path
        assert headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("path", ["/api/v1//status", "//metrics", "/%2e%2e/metrics", "/api/v1/x/..%2f..%2fmetrics"])
def test_a_path_that_another_reader_could_shorten_is_refused_before_anybody_is_asked(admin: Running, path: str) -> None:
    for token in (None, TOKENS["admin"]):
        status, headers, body = request(admin, "GET", path, token=token)
        assert (status, headers["content-type"]) == (400, PROBLEM_TYPE)
        assert json.loads(body)["code"] == "invalid"


def test_what_is_not_there_is_a_problem(admin: Running) -> None:
    token = TOKENS["viewer"]
    for path in ("/", "/api", "/api/v1", "/api/v1/", "/api/v1/status/", "/api/v1/x", "/static/x"):
        status, headers, body = request(admin, "GET", path, token=token)
        assert (status, headers["content-type"]) == (404, PROBLEM_TYPE), path
        assert json.loads(body)["code"] == "not_found"
    status, headers, _ = request(admin, "PATCH", "/api/v1/status", token=token)
    assert (status, headers["allow"]) == (405, "GET, HEAD")
    assert request(admin, "OPTIONS", "/api/v1/status", token=token)[0] == 405
    assert request(admin, "HEAD", "/metrics")[0] in (200, 405)


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Bearer",
        "Bearer ",
        "Basic YTpi",
        "bearer x",
        "Bearer ' OR '1'='1",
        f"Bearer {TOKENS['admin']}x",
        "Bearer \xe9",
        f"Bearer  {TOKENS['admin']}",
    ],
)
def test_other_credentials_are_nobodys(admin: Running, header: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    connection.request("GET", "/api/v1/status", headers={"Authorization": header.encode("latin-1")})
    assert connection.getresponse().status == 401
    connection.close()


def test_the_actor_is_the_token_or_the_account_and_no_header(admin: Running) -> None:
    account = pwd.getpwuid(os.geteuid()).pw_name
    AdminClient(parse_server(admin.unix, source="x")).serve(ServeRequest(source="sim:", name="by-account"))
    tcp = ServerTarget(host="127.0.0.1", port=admin.port, token=TOKENS["operator"])
    AdminClient(tcp).serve(ServeRequest(source="sim:", name="by-token"))
    connection = http.client.HTTPConnection("127.0.0.1", admin.port, timeout=60)
    headers = {
        "Authorization": f"Bearer {TOKENS['operator']}",
        "X-Actor": "root",
        "X-Llmgw-Actor": "root",
        "From": "r@x",
    }
    connection.request("POST", "/api/v1/serve", body=b'{"source":"sim:","name":"by-header"}', headers=headers)
    assert connection.getresponse().status == 201
    connection.close()
    actors = {c[1].name: c[2] for c in admin.control.calls if c[0] == "serve" and isinstance(c[1], ServeRequest)}
    assert actors["by-account"] == f"unix:{account}"
    assert actors["by-token"] == "token:operator"
    assert actors["by-header"] == "token:operator"


def test_only_an_admin_says_whose_keys_go_where(admin: Running) -> None:
    """A file of keys and an address to send them to would be a way to carry any token off."""
    endpoint = {"base_url": "https://evil.example/v1", "api_keys_file": "/etc/x.keys"}
    body = json.dumps({"model": {"name": "outside", "external": endpoint}}).encode()
    status, _, answer = request(admin, "POST", "/api/v1/models", token=TOKENS["operator"], body=body)
    assert status == 403
    assert "api_keys_file needs the role admin" in json.loads(answer)["message"]
    assert not [c for c in admin.control.calls if c[0] == "add" and isinstance(c[1], Model) and c[1].external]
    assert request(admin, "POST", "/api/v1/models", token=TOKENS["admin"], body=body)[0] == 201
    keyless = {"name": "keyless", "external": {"base_url": endpoint["base_url"]}}
    body = json.dumps({"model": keyless}).encode()
    assert request(admin, "POST", "/api/v1/models", token=TOKENS["operator"], body=body)[0] == 201


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another account")
def test_another_account_is_refused_at_the_socket(admin: Running) -> None:
    # The file's mode keeps other accounts out; a descriptor handed on would still meet SO_PEERCRED.
    pid = os.fork()
    if pid == 0:
        os.setuid(65534)
        try:
            AdminClient(parse_server(admin.unix, source="x")).status()
        except Denied:
            os._exit(0)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_accounts_have_the_roles_they_were_given() -> None:
    nobody = pwd.getpwuid(65534).pw_name
    assert Access(users={nobody: "operator"}).identify(Peer(uid=65534), None).permission is Permission.OPERATOR
    with pytest.raises(NotAllowed, match="admin_users"):
        Access().identify(Peer(uid=65534), f"Bearer {TOKENS['admin']}")
    assert Access().identify(Peer(uid=0), None).permission is Permission.ADMIN


def test_token_files_are_private_and_long_enough(tmp_path: Path) -> None:
    own, other = tmp_path / "admin.token", tmp_path / "ci.token"
    for path, text in ((own, "own-token-0123456789\n"), (other, "ci-token-0123456789\nsecond line\n")):
        path.write_text(text)
        path.chmod(0o600)
    further = (AdminToken(name="ci", role="viewer", token_file=str(other)),)
    assert [(t.name, t.permission) for t in load_tokens(own, further)] == [
        ("admin", Permission.ADMIN),
        ("ci", Permission.VIEWER),
    ]
    other.chmod(0o640)
    with pytest.raises(InvalidInput, match="0600"):
        load_tokens(own, further)
    other.chmod(0o600)
    for text in ("short\n", "", "with a space in the middle\n", own.read_text()):
        other.write_text(text)
        with pytest.raises(InvalidInput):
            load_tokens(own, further)


def test_so_peercred_is_of_the_connecting_process(admin: Running) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(admin.socket))
        pid, _, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        assert pid == os.getpid()
