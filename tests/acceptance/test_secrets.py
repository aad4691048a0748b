"""Secrets planted in a whole run appear only where they are kept: in no log, argv, environment, audit or database."""

import contextlib
import http.client
import json
from pathlib import Path

import psutil
import pytest

from tests.support.cluster import DemoCluster, running_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance

OPERATOR = {"PGPASSWORD": "canary-database-password", "HF_TOKEN": "canary-hub-token", "AWS_SECRET": "canary-provider"}
"""What an operator's shell may hold; the demo's own children get it, nothing that they start does."""
SIGNATURE = "canary-signature"
HOMES = ("secrets", "demo.key", "admin.token")
"""Files and directories of the data directory in which secrets live, private to the account."""


def _ask(cluster: DemoCluster, path: str, headers: dict[str, str]) -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.port, timeout=30)
    with contextlib.closing(connection):
        connection.request("POST", path, json.dumps(chat_body("sim", tokens=2)), headers)
        answer = connection.getresponse()
        return answer.status, answer.read()


def _is_home(path: Path, data: Path) -> bool:
    if path.suffix == ".key" or path.relative_to(data).parts[0] in HOMES:
        assert path.stat().st_mode & 0o077 == 0, path
        return True
    return False


def _files_with(secret: bytes, data: Path) -> list[str]:
    found = []
    for path in data.rglob("*"):
        if path.is_file() and not _is_home(path, data):
            with contextlib.suppress(FileNotFoundError):
                if secret in path.read_bytes():
                    found.append(str(path.relative_to(data)))
    return found


def _processes_with(secret: str, cluster: DemoCluster, *, environments: bool) -> list[str]:
    """Command lines that show it; environments too of what the demo's children started."""
    own = {cluster.process.pid, *(p.pid for p in psutil.Process(cluster.process.pid).children())}
    found = []
    for process in cluster.processes():
        with contextlib.suppress(psutil.Error):
            shown = list(process.cmdline())
            if environments and process.pid not in own:
                shown += [f"{name}={value}" for name, value in process.environ().items()]
            if any(secret in text for text in shown):
                found.append(" ".join(process.cmdline())[:200])
    return found


def test_planted_secrets_appear_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in OPERATOR.items():
        monkeypatch.setenv(name, value)
    with running_demo(tmp_path / "demo", model="sim") as cluster:
        made = cluster.ctl_json("keys", "create", "canary", "--models", "sim")
        key: str = made["key"]
        wrong = "sk-canary-of-a-key-nobody-made-0123456789"
        assert _ask(cluster, "/v1/chat/completions", {"Authorization": f"Bearer {key}"})[0] == 200
        status, said = _ask(cluster, "/v1/chat/completions", {"Authorization": f"Bearer {wrong}"})
        assert status == 401
        assert wrong.encode() not in said
        assert _ask(cluster, "/v1/files", {"Authorization": f"Bearer {key}"})[0] >= 400
        token = cluster.ctl_json("join-token")["token"]
        source = f"http://127.0.0.1:1/model.gguf?X-Signature={SIGNATURE}"
        cluster.ctl("model", "serve", source, "--name", "signed")
        wait_for("the fetch fails", lambda: cluster.model_info("signed").message or None)
        admin = (cluster.data / "admin.token").read_text().strip()
        engine_keys = [p.read_text().strip() for p in cluster.data.rglob("*.key") if p.name != "demo.key"]
        assert post(cluster, "/v1/chat/completions", chat_body("sim", tokens=2)).status == 200
        cluster.ctl("keys", "revoke", made["id"], "--yes")

        everywhere = [key, wrong, token, admin, cluster.key, *(k for k in engine_keys if "PRIVATE" not in k)]
        assert len(everywhere) > 5, "no engine's key was found: look where the agent keeps them now"
        for secret in (*everywhere, *OPERATOR.values()):
            assert _processes_with(secret, cluster, environments=True) == [], secret
            assert _files_with(secret.encode(), cluster.data) == [], secret
            assert secret not in cluster.ctl("audit", "--json").stdout, secret
        logs = [name for name in _files_with(SIGNATURE.encode(), cluster.data) if name.startswith(("log", "agent"))]
        assert logs == []
        assert _processes_with(SIGNATURE, cluster, environments=True) == []
    said_by_demo = "".join(path.read_text() for path in tmp_path.glob("demo-*.err"))
    for secret in (*everywhere, *OPERATOR.values(), SIGNATURE):
        assert secret not in said_by_demo
        assert secret == SIGNATURE or _files_with(secret.encode(), cluster.data) == [], secret
