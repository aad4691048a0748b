"""Fallbacks on a real cluster, by `ctl` alone; and what a person may not find out by asking for what is not there."""

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.api.actions import ACTIONS, Action
from llmgw.api.paths import fill, parameters
from tests.integration.test_admin_access import BODIES
from tests.support.cluster import DemoCluster, running_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance
MODEL_FILE = """
name: {name}
source: "sim:{name}"
prices: {{input: 10, output: {price}}}
profiles: [{{name: cpu, engine: sim}}]
"""
NAMELESS = "no-such-thing"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    with running_demo(tmp_path_factory.mktemp("fallbacks"), model="sim") as running:
        for name, price in (("first", 1000), ("second", 100_000)):
            file = Path(running.data) / f"{name}.yaml"
            file.write_text(MODEL_FILE.format(name=name, price=price))
            running.ctl("model", "add", "-f", str(file), "--wait")
        yield running


def test_a_stopped_model_is_answered_by_the_next_and_everything_says_so(cluster: DemoCluster) -> None:
    cluster.ctl("model", "fallbacks", "first", "second")
    key = cluster.ctl_json("keys", "create", "app")["key"]

    def asked(model: str) -> tuple[int, str | None, str | None]:
        answer = post(cluster, "/v1/chat/completions", chat_body(model, tokens=4), key=key)
        return answer.status, answer.headers.get("x-llmgw-model"), answer.headers.get("x-llmgw-fallback-from")

    assert asked("first") == (200, None, None)
    cluster.ctl("model", "stop", "first", "--yes")
    wait_for("the other model to answer", lambda: asked("first") == (200, "second", "first"))
    narrow = cluster.ctl_json("keys", "create", "narrow", "--models", "first")["key"]
    refused = post(cluster, "/v1/chat/completions", chat_body("first", tokens=4), key=narrow)
    assert refused.status == 503
    assert "may be used with this key" in refused.json()["error"]["message"]
    assert "second" not in refused.body.decode()

    family = b'llmgw_fallbacks_total{model="first",answered_by="second"}'
    wait_for("the counter", lambda: family in over_socket(cluster, "GET", "/metrics")[1])

    def billed() -> bool:
        rows = {row["model"]: row for row in cluster.ctl_json("usage", "--by", "model")}
        return int(rows.get("second", {"cost_micros": 0})["cost_micros"]) >= 4 * 100_000

    wait_for("the bill at the second model's price", billed)
    cluster.ctl("model", "start", "first", "--wait")
    wait_for("it to answer for itself", lambda: asked("first") == (200, None, None))
    removed = cluster.ctl("model", "remove", "second", "--yes")
    assert "1 model (first) fell back to second" in removed.stdout + removed.stderr


def over_socket(cluster: DemoCluster, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    """One request at `admin.sock`, as this account, which is an admin there."""
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(30)
    connection.sock.connect(str(cluster.data / "admin.sock"))
    try:
        connection.request(method, path, body=None if body is None else json.dumps(body).encode())
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


MAKING = {"band.set"}
"""Routes that make what they name."""
NAMED = [action for action in ACTIONS if parameters(action.path) and action.id not in MAKING]


@pytest.mark.parametrize("action", NAMED, ids=lambda action: action.id)
def test_what_is_not_there_is_a_404_on_every_route_that_names_something(cluster: DemoCluster, action: Action) -> None:
    path = fill(action.path, dict.fromkeys(parameters(action.path), NAMELESS))
    status, body = over_socket(cluster, action.method, path, BODIES.get(action.id))
    assert (status, json.loads(body)["code"]) == (404, "not_found")
