"""The live feed of a real server: a raw reader sees a model come, its traffic, what was written, and a restart."""

import http.client
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from llmgw.api.paths import with_query
from llmgw.api.types import KeyCreate, ServeRequest
from llmgw.api.watch import TOPICS, Delta, Message, Snapshot, Subscription
from llmgw.core.sockets import connect_unix
from tests.support.cluster import DemoCluster, running_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance
SEEN_S = 20.0


class RawReader:
    """Reads the feed with nothing of ours but the message types, and keeps rows as a console does."""

    def __init__(self, sock: socket.socket, wanted: Subscription, token: str | None = None) -> None:
        self.sock = sock
        sock.settimeout(10)
        head = f"GET {with_query('/api/v1/watch', wanted.query())} HTTP/1.1\r\nHost: x\r\n"
        sock.sendall((head + (f"Authorization: Bearer {token}\r\n" if token else "") + "\r\n").encode())
        self.answer = http.client.HTTPResponse(sock)
        self.answer.begin()
        assert self.answer.status == 200
        assert self.answer.headers["content-type"] == "application/x-ndjson"
        self.rows: dict[str, dict[str, object]] = {}
        self.messages: list[Message] = []
        self.epoch = ""

    def read(self) -> Message:
        """One message, applied."""
        line = self.answer.readline()
        if not line.endswith(b"\n"):
            raise EOFError
        message = msgspec.json.decode(line, type=Message)
        self.messages.append(message)
        if isinstance(message, Snapshot):
            self.rows, self.epoch = {topic: {} for topic in message.rows}, message.epoch
        if isinstance(message, Snapshot | Delta):
            for topic, rows in message.rows.items():
                self.rows[topic].update({key: msgspec.json.decode(row) for key, row in rows.items()})
        if isinstance(message, Delta):
            for topic, names in message.gone.items():
                for name in names:
                    self.rows[topic].pop(name, None)
        return message

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        """Read until the rows are so."""
        deadline = time.monotonic() + SEEN_S
        while not condition():
            assert time.monotonic() < deadline, f"not seen within {SEEN_S:.0f} s: {what}: {self.rows}"
            self.read()

    def value(self, topic: str, key: str, field: str) -> object:
        """A field of a row, none while it is not there."""
        row = self.rows.get(topic, {}).get(key)
        return row.get(field) if isinstance(row, dict) else None

    def close(self) -> None:
        """Leave."""
        self.answer.close()
        self.sock.close()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    with running_demo(tmp_path_factory.mktemp("watch"), model="sim") as running:
        yield running


def unix_reader(cluster: DemoCluster, **over: object) -> RawReader:
    wanted = msgspec.structs.replace(Subscription(), **over)
    return RawReader(connect_unix(cluster.data / "admin.sock", timeout_s=5), wanted)


def test_a_model_is_seen_to_come_to_serve_and_to_go(cluster: DemoCluster) -> None:
    reader = unix_reader(cluster)
    first = reader.read()
    assert isinstance(first, Snapshot)
    assert set(first.rows) == set(TOPICS)
    assert reader.value("models", "sim", "state") == "ready"
    cluster.admin.serve(ServeRequest(source="sim:second", name="second"))
    reader.until("the model is ready", lambda: reader.value("models", "second", "state") == "ready")
    reader.until(
        "its replica is ready",
        lambda: any(isinstance(r, dict) and r["model"] == "second" for r in reader.rows["replicas"].values()),
    )
    reader.until("the audit names it", lambda: _audited(reader, "model.add", "second"))
    assert sum(isinstance(message, Snapshot) for message in reader.messages) == 1

    created = cluster.admin.create_key(KeyCreate(name="reader"))
    reader.until("the key is there", lambda: reader.value("keys", created.id, "name") == "reader")
    for _ in range(5):
        assert post(cluster, "/v1/chat/completions", chat_body("second", tokens=4), key=created.key).status == 200
    reader.until("traffic is counted", lambda: _figure(reader, "traffic", "second", "requests_per_s") > 0)
    assert _figure(reader, "traffic", "*", "output_tokens_per_s") > 0
    reader.until("the key's use is summed", lambda: _figure(reader, "keys", created.id, "requests") == 5)
    cluster.admin.revoke_key(created.id)
    reader.until("the key is revoked", lambda: reader.value("keys", created.id, "revoked") is not None)

    cluster.admin.remove("second")
    reader.until("the model is gone", lambda: "second" not in reader.rows["models"])
    reader.until("its traffic is gone", lambda: "second" not in reader.rows["traffic"])
    reader.until("its replica is gone", lambda: len(reader.rows["replicas"]) == 1)
    reader.close()


def test_weights_are_followed_refused_while_needed_and_removed(cluster: DemoCluster) -> None:
    reader = unix_reader(cluster, topics=("weights", "audit"))
    reader.read()
    source = "file:/nowhere/to/be/found.gguf"
    cluster.admin.serve(ServeRequest(source=source, name="lost"))
    reader.until("the set failed", lambda: reader.value("weights", source, "state") == "failed")
    assert reader.value("weights", source, "models") == ["lost"]
    refused = cluster.ctl("--yes", "weights", "remove", source, check=False)
    assert refused.returncode == 1
    assert "1 model needs it (lost)" in refused.stderr
    cluster.admin.remove("lost")
    reader.until("nobody needs it", lambda: reader.value("weights", source, "models") is None)
    assert "lost" not in cluster.ctl("weights").stdout.replace(source, "")
    cluster.ctl("--yes", "weights", "remove", source)
    reader.until("it is gone", lambda: source not in reader.rows["weights"])
    cluster.ctl("weights", "fetch", source)
    reader.until("it is asked for again", lambda: source in reader.rows["weights"])
    reader.until(
        "both are in the audit", lambda: all(_audited(reader, f"weights.{v}", source) for v in ("fetch", "remove"))
    )
    cluster.ctl("--yes", "weights", "remove", source)
    assert cluster.ctl("weights", "fetch", "sim:x", check=False).returncode == 1
    reader.close()


def test_a_reader_continues_where_it_was_and_only_there(cluster: DemoCluster) -> None:
    one = unix_reader(cluster)
    one.read()
    last = one.read()
    one.close()
    cluster.ctl("node", "cordon", next(iter(one.rows["nodes"])))
    again = unix_reader(cluster, epoch=one.epoch, since=last.rev)
    again.rows = {topic: dict(rows) for topic, rows in one.rows.items()}
    assert isinstance(again.read(), Delta)
    node = next(iter(one.rows["nodes"]))
    again.until("the node is cordoned", lambda: again.value("nodes", node, "state") == "cordoned")
    assert not any(isinstance(message, Snapshot) for message in again.messages)
    again.close()
    cluster.ctl("node", "uncordon", node)
    other = unix_reader(cluster, epoch=one.epoch, since=last.rev, topics=("nodes",))
    assert isinstance(other.read(), Snapshot)
    other.close()


def test_over_tcp_with_a_token_and_for_chosen_nodes_only(cluster: DemoCluster) -> None:
    token = (cluster.data / "admin.token").read_text().strip()
    sock = socket.create_connection(("127.0.0.1", cluster.admin_port), timeout=60)
    reader = RawReader(sock, Subscription(topics=("nodes", "figures"), nodes=("elsewhere",)), token)
    first = reader.read()
    assert isinstance(first, Snapshot)
    assert first.actor == "token:admin"
    assert reader.rows["nodes"]
    assert reader.rows["figures"] == {}
    reader.close()


def test_a_reader_that_does_not_read_keeps_no_other_from_reading(cluster: DemoCluster) -> None:
    stuck = unix_reader(cluster)
    for number in range(20):
        cluster.admin.scale("sim", 1, 2 + number % 2)
    live = unix_reader(cluster)
    live.read()
    assert live.value("models", "sim", "state") == "ready"
    live.close()
    stuck.until("the latest state comes", lambda: _scaled(stuck) == 3)
    stuck.close()
    cluster.admin.scale("sim", 1, 1)


def test_history_is_there_for_a_console_that_just_opened(cluster: DemoCluster) -> None:
    assert post(cluster, "/v1/chat/completions", chat_body("sim", tokens=4), key=cluster.key).status == 200
    wait_for("a point of history", lambda: sum(cluster.admin.history("sim").output_tokens_per_s) > 0)
    history = cluster.admin.history()
    assert len(history.requests_per_s) * history.step_s == 900
    assert abs(time.time() - history.end) < 30


def test_a_restarted_server_is_a_new_epoch_and_a_snapshot(cluster: DemoCluster) -> None:
    reader = unix_reader(cluster)
    last = reader.read()
    assert isinstance(last, Snapshot)
    os.kill(cluster.server_pid(), signal.SIGKILL)
    with pytest.raises((EOFError, OSError, http.client.HTTPException)):
        reader.until("the end", lambda: False)
    reader.close()
    wait_for("the server is back", cluster.quiet_status, within_s=60)
    again = unix_reader(cluster, epoch=reader.epoch, since=last.rev)
    first = again.read()
    assert isinstance(first, Snapshot)
    assert first.epoch != reader.epoch
    again.until("the model serves again", lambda: again.value("models", "sim", "state") == "ready")
    again.close()


def test_a_stopped_server_ends_the_answer_properly(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim") as running:
        feed = running.admin.watch()
        assert isinstance(next(feed), Snapshot)
        assert running.stop() == 0
        # An answer that is cut raises.
        assert len(list(feed)) < 100


def _audited(reader: RawReader, action: str, target: str) -> bool:
    rows = reader.rows["audit"].values()
    return any(isinstance(r, dict) and (r["action"], r["target"]) == (action, target) for r in rows)


def _figure(reader: RawReader, topic: str, key: str, field: str) -> float:
    value = reader.value(topic, key, field)
    return float(value) if isinstance(value, int | float) else 0.0


def _scaled(reader: RawReader) -> int:
    spec = reader.value("models", "sim", "spec")
    return int(spec["scaling"]["max"]) if isinstance(spec, dict) else 0
