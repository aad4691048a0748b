"""A cluster whose port speaks TLS and one of whose models is a provider's, as an operator meets it."""

import contextlib
import datetime as dt
import http.client
import http.server
import json
import signal
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
import yaml

from tests.support.certificates import TestAuthority
from tests.support.cluster import DemoCluster, running_demo, wait_for

pytestmark = pytest.mark.acceptance

CANARY = "sk-canary-of-a-provider-0123456789"
REFUSED = "sk-canary-that-it-refuses-0123456789"


class _Handler(http.server.BaseHTTPRequestHandler):
    """Answers a chat completion to whoever shows the right key."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """One answer."""
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        shown = self.headers["authorization"]
        status = 200 if shown == f"Bearer {CANARY}" else 401
        self.server.seen.append((self.path, shown, body["model"]))  # type: ignore[attr-defined]
        whole = {"id": "c", "choices": [{"message": {"content": "from outside"}}], "usage": {"prompt_tokens": 3}}
        answer = json.dumps(whole if status == 200 else {"error": {"message": f"bad key {shown}"}}).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@contextlib.contextmanager
def provider(authority: TestAuthority) -> Iterator[tuple[str, list[tuple[str, str, str]]]]:
    """Its base URL, and the path, key and model of every request."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    seen: list[tuple[str, str, str]] = []
    server.seen = seen  # type: ignore[attr-defined]
    context = authority.leaf("127.0.0.1", file="provider").server_context()
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"https://127.0.0.1:{server.server_address[1]}/v1", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _ask(cluster: DemoCluster, authority: TestAuthority, model: str) -> tuple[int, dict[str, object]]:
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, timeout=30, context=authority.client_context())
    with contextlib.closing(connection):
        body = json.dumps({"model": model, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 9000})
        connection.request("POST", "/v1/chat/completions", body, {"Authorization": f"Bearer {cluster.key}"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())


def _serial(cluster: DemoCluster, authority: TestAuthority) -> int:
    connection = http.client.HTTPSConnection("127.0.0.1", cluster.port, timeout=30, context=authority.client_context())
    with contextlib.closing(connection):
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        shown = connection.sock.getpeercert()
        assert shown is not None
        return int(str(shown["serialNumber"]), 16)


def test_a_providers_model_behind_a_secure_port(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    leaf = authority.leaf("127.0.0.1", file="port")
    data = tmp_path / "demo"
    data.mkdir(mode=0o700)
    tls = {"certificate": str(leaf.certificate), "key": str(leaf.key)}
    (data / "server.yaml").write_text(yaml.safe_dump({"client": {"tls": tls}}))
    keys = tmp_path / "provider.keys"
    keys.write_text(f"{REFUSED}\n{CANARY}\n")
    with provider(authority) as (url, seen), running_demo(data, model="sim") as cluster:
        assert f"READY url=https://127.0.0.1:{cluster.port} " in cluster.ready
        assert cluster.status().client_url == f"https://127.0.0.1:{cluster.port}"

        file = tmp_path / "model.yaml"
        external = {"base_url": url, "model": "their-name", "api_keys_file": str(keys), "ca_file": str(authority.ca)}
        file.write_text(yaml.safe_dump({"name": "gpt-outside", "external": external}))
        added = cluster.ctl("model", "add", "-f", str(file), "--wait")
        assert "gpt-outside is ready: 1 of 1 ready" in added.stderr
        for _ in range(4):
            assert _ask(cluster, authority, "gpt-outside")[0] == 200
        assert ("/v1/chat/completions", f"Bearer {CANARY}", "their-name") in seen
        assert sum(shown == f"Bearer {REFUSED}" for _, shown, _ in seen) == 1
        assert _ask(cluster, authority, "sim")[0] == 400  # a local model's own limit on max_tokens stands

        _operate(cluster, authority)

        for secret in (CANARY, REFUSED):
            for path in data.rglob("*"):
                if path.is_file():
                    with contextlib.suppress(FileNotFoundError):
                        assert secret.encode() not in path.read_bytes(), path
            for process in cluster.processes():
                with contextlib.suppress(psutil.Error):
                    assert not any(secret in part for part in process.cmdline())

        _renew(cluster, authority)
        cluster.ctl("model", "remove", "gpt-outside", "--purge", "--yes")
        assert _ask(cluster, authority, "gpt-outside")[0] == 404


def _operate(cluster: DemoCluster, authority: TestAuthority) -> None:
    """What operators do with models, done to one that has no replica."""
    info = cluster.model_info("gpt-outside")
    assert (info.state, info.ready, info.wanted) == ("ready", 1, 1)
    assert info.source.startswith("https://127.0.0.1")
    shown = cluster.ctl("model", "show", "gpt-outside").stdout
    assert "their-name" in shown
    assert "provider.keys" in shown
    assert "gpt-outside" in cluster.ctl("models").stdout
    assert "outside the cluster" in cluster.ctl("explain", "gpt-outside").stdout
    for refused in (("model", "scale", "gpt-outside", "1", "2"), ("restart", "gpt-outside", "--yes")):
        done = cluster.ctl(*refused, check=False)
        assert done.returncode == 1
        assert "no replica to" in done.stderr
    cluster.ctl("model", "stop", "gpt-outside", "--yes")
    assert cluster.model_info("gpt-outside").state == "stopped"
    wait_for("it is out of routing", lambda: _ask(cluster, authority, "gpt-outside")[0] == 503)
    cluster.ctl("model", "start", "gpt-outside", "--wait")
    wait_for("it is routed again", lambda: _ask(cluster, authority, "gpt-outside")[0] == 200)


def _renew(cluster: DemoCluster, authority: TestAuthority) -> None:
    """A certificate that expires soon is told of; its successor is shown after a SIGHUP."""
    soon = authority.leaf("127.0.0.1", file="port", life=dt.timedelta(days=2))
    wait_for("routers show it", lambda: _serial(cluster, authority) == soon.serial)
    wait_for("operators are told", lambda: any("expires on" in text for text in cluster.status().problems))
    pid = cluster.server_pid()
    renewed = authority.leaf("127.0.0.1", file="port")
    psutil.Process(pid).send_signal(signal.SIGHUP)
    wait_for("routers show the new one", lambda: _serial(cluster, authority) == renewed.serial)
    wait_for("nothing is left to tell", lambda: not any("expires on" in text for text in cluster.status().problems))
    assert cluster.server_pid() == pid
