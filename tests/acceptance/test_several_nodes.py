"""A replica over several nodes: it starts, serves, falls and ends as one, whichever of its parts is hit."""

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from agent.process import marked_processes
from agent.shared import shared_directory
from llmgw.api.types import ReplicaInfo
from llmgw.core.cluster import LOST_AFTER_S
from tests.support import ray_standin
from tests.support.agent_node import free_ports
from tests.support.cluster import DemoCluster, llmgw, processes_of, running_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance

MODEL = "wide"
NODES = ("wide-a", "wide-b", "wide-c")
PATIENCE_S = 180.0
"""Everything is waited for so long, on a machine that has other things to do too."""


@dataclass
class Hall:
    """Three machines with two cards each, as far as a control plane can tell."""

    cluster: DemoCluster
    directory: Path
    agents: dict[str, "subprocess.Popen[bytes]"] = field(default_factory=dict)
    told: dict[str, Any] = field(default_factory=dict)
    """What was said of the model before it was served."""

    def join(self, number: int, node: str) -> None:
        """Join a node and write its agent.yaml."""
        token = self.cluster.ctl_json("join-token")
        data = self.directory / node
        joined = subprocess.run(
            llmgw("agent", "join", token["token"], token["url"], "--data", str(data), "--name", node),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert joined.returncode == 0, joined.stderr
        ray_standin.cards_on_path(self.directory / f"bin-{node}", node, 2)
        config = {
            "data": str(data),
            "address": f"127.0.0.{number + 2}",
            "engine_ports": free_ports(200),
            "engine_paths": {"vllm": str(self.directory / "environment")},
            "prefer_nvml": False,
            "dcgm_exporter": "off",
        }
        (self.directory / f"{node}.yaml").write_text(json.dumps(config))

    def start(self, node: str) -> None:
        """Start its agent."""
        path = f"{self.directory / f'bin-{node}'}:{os.environ['PATH']}"
        self.agents[node] = subprocess.Popen(
            llmgw("agent", "-c", str(self.directory / f"{node}.yaml")),
            env={**os.environ, "PATH": path},
            start_new_session=True,
        )

    def kill(self, node: str) -> None:
        """Kill its agent; what it runs goes on."""
        self.agents[node].kill()
        self.agents[node].wait(timeout=60)

    def replicas(self) -> list[ReplicaInfo]:
        """The model's replicas."""
        status = self.cluster.quiet_status()
        return [r for r in status.replicas if r.model == MODEL] if status is not None else []

    def ready(self, *, other_than: str = "", within_s: float = PATIENCE_S) -> ReplicaInfo:
        """Wait for the one replica to serve."""

        def found() -> ReplicaInfo | None:
            return next((r for r in self.replicas() if r.state == "ready" and r.id != other_than), None)

        try:
            replica: ReplicaInfo = wait_for("the replica is ready", found, within_s=within_s)
        except AssertionError as error:
            raise AssertionError(f"{error}; {self.cluster.model_info(MODEL).message}; {self.replicas()}") from error
        return replica

    def serves(self) -> bool:
        """Whether a request is answered."""
        return post(self.cluster, "/v1/chat/completions", chat_body(MODEL, tokens=2)).status == 200

    def all_ended(self, replica: ReplicaInfo) -> None:
        """Wait until no process of the replica is left, nor the directory its shards shared."""

        def gone() -> bool:
            return not _running(replica) and not shared_directory(replica.id).exists()

        wait_for("every process of it ended, and what they shared is gone", gone, within_s=PATIENCE_S)


def _running(replica: ReplicaInfo) -> list[int]:
    """Processes that bear the mark of one of the replica's shards."""
    return [pid for pid, mark, _ in marked_processes() if f"/{replica.id}/" in mark]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DemoCluster]:
    """A cluster of its own: its nodes come and go."""
    with running_demo(tmp_path_factory.mktemp("several") / "data", model="sim") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def hall(cluster: DemoCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hall]:
    directory = tmp_path_factory.mktemp("hall")
    ray_standin.install(directory / "environment")
    weights = directory / "weights"
    weights.mkdir()
    (weights / "config.json").write_text(json.dumps({"num_hidden_layers": 4, "num_attention_heads": 4}))
    header = json.dumps({"w": {"dtype": "F32", "shape": [256], "data_offsets": [0, 1024]}}).encode()
    (weights / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes(1024))
    made = Hall(cluster=cluster, directory=directory)
    for number, node in enumerate(NODES):
        made.join(number, node)
        made.start(node)
    for node in NODES:
        wait_for(f"{node} is connected", lambda node=node: _state(cluster, node) == "connected", within_s=PATIENCE_S)
    shape = ("--gpu-class", ray_standin.GPU_CLASS, "--tp", "2", "--nodes", "2", "--context", "1024")
    made.told = cluster.ctl_json("explain", MODEL, "--source", f"file:{weights}", *shape)
    cluster.ctl("model", "serve", f"file:{weights}", "--name", MODEL, *shape)
    try:
        yield made
    finally:
        cluster.ctl("model", "remove", MODEL, "--yes", check=False)
        try:
            wait_for("its replicas are gone", lambda: not made.replicas(), within_s=PATIENCE_S)
        finally:
            for agent in made.agents.values():
                agent.terminate()
                agent.wait(timeout=30)
            for left in processes_of(directory):
                with contextlib.suppress(psutil.Error):
                    left.kill()


def _state(cluster: DemoCluster, node: str) -> str:
    status = cluster.quiet_status()
    return next((n.state for n in status.nodes if n.name == node), "") if status is not None else ""


def test_it_starts_as_one_and_serves(hall: Hall) -> None:
    replica = hall.ready()
    assert hall.told["spans"] == 2
    assert set(hall.told["would_place"].split(" and ")) < set(NODES)
    assert {verdict["node"] for verdict in hall.told["verdicts"] if verdict["fits"]} == set(NODES)
    (profile,) = hall.cluster.model_info(MODEL).spec.profiles
    assert (profile.engine, profile.tp, profile.pp, profile.nodes) == ("vllm", 2, 2, 2)
    head, worker = replica.shards
    assert (head.role, worker.role) == ("head", "worker")
    assert {head.node, worker.node} < set(NODES)
    assert replica.node == head.node
    assert {shard.state for shard in replica.shards} == {"ready"}
    assert len(replica.cards) == 4
    assert hall.serves()
    for pid in _running(replica):
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
        environ = dict(
            entry.partition(b"=")[::2] for entry in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0") if entry
        )
        for name in (b"VLLM_API_KEY", b"RAY_AUTH_TOKEN"):
            assert not environ.get(name) or environ[name] not in command


def test_a_worker_that_dies_takes_all_of_it_down_and_it_starts_again_as_one(hall: Hall) -> None:
    before = hall.ready()
    os.kill(before.shards[1].pid, signal.SIGKILL)
    after = hall.ready(other_than=before.id)
    hall.all_ended(before)
    assert {shard.state for shard in after.shards} == {"ready"}
    assert hall.serves()


def test_a_head_that_dies_takes_its_workers_along(hall: Hall) -> None:
    before = hall.ready()
    os.kill(before.shards[0].pid, signal.SIGKILL)
    hall.ready(other_than=before.id)
    hall.all_ended(before)
    assert hall.serves()


def test_agents_that_start_anew_take_their_shards_over(hall: Hall) -> None:
    before = hall.ready()
    for shard in before.shards:
        hall.kill(shard.node)
    assert hall.serves()
    for shard in before.shards:
        hall.start(shard.node)

    def adopted() -> ReplicaInfo | None:
        return next((r for r in hall.replicas() if r.id == before.id and all(s.adopted for s in r.shards)), None)

    after: ReplicaInfo = wait_for("both shards are taken over", adopted, within_s=PATIENCE_S)
    assert after.state == "ready"
    assert [shard.pid for shard in after.shards] == [shard.pid for shard in before.shards]
    assert hall.serves()


def test_a_node_that_is_lost_gives_its_part_to_another(hall: Hall) -> None:
    before = hall.ready()
    gone = before.shards[1].node
    hall.kill(gone)
    after = hall.ready(other_than=before.id, within_s=LOST_AFTER_S + PATIENCE_S)
    assert gone not in {shard.node for shard in after.shards}
    assert hall.serves()
    hall.start(gone)
    hall.all_ended(before)
    assert [r.id for r in hall.replicas() if r.state == "ready"] == [after.id]


def test_a_new_control_plane_puts_it_together_from_what_its_nodes_say(hall: Hall) -> None:
    before, server = hall.ready(), hall.cluster.server_pid()
    os.kill(server, signal.SIGKILL)

    def another() -> bool:
        status = hall.cluster.quiet_status()
        return status is not None and bool(status.servers) and status.servers[0].pid != server

    wait_for("another server leads", another, within_s=PATIENCE_S)

    def whole() -> ReplicaInfo | None:
        return next((r for r in hall.replicas() if r.shards and all(s.state == "ready" for s in r.shards)), None)

    after: ReplicaInfo = wait_for("both of its nodes spoke", whole, within_s=PATIENCE_S)
    assert after.id == before.id
    assert [shard.pid for shard in after.shards] == [shard.pid for shard in before.shards]
    assert hall.serves()


def test_a_restart_brings_the_new_one_up_before_the_old_one_goes(hall: Hall) -> None:
    before = hall.ready()
    hall.cluster.ctl("restart", MODEL, "--yes")

    def took_over() -> bool:
        assert hall.serves()
        return [r.id for r in hall.replicas() if r.state == "ready"] not in ([], [before.id])

    wait_for("a new one serves", took_over, within_s=PATIENCE_S)
    hall.all_ended(before)
    assert hall.serves()


def test_it_stops_whole_and_starts_again(hall: Hall) -> None:
    before = hall.ready()
    hall.cluster.ctl("model", "stop", MODEL, "--yes")
    wait_for("it is gone", lambda: not hall.replicas(), within_s=PATIENCE_S)
    hall.all_ended(before)
    hall.cluster.ctl("model", "start", MODEL)
    assert hall.ready(other_than=before.id)


def test_explain_counts_in_nodes(hall: Hall) -> None:
    replica = hall.ready()
    told = hall.cluster.ctl_json("explain", MODEL)
    assert len(set(told["would_place"].split(" and ")) & set(NODES)) == 2
    assert {v["node"] for v in told["verdicts"] if v["fits"]} == set(NODES)
    listed = hall.cluster.ctl("replicas").stdout
    assert all(words in listed for words in ("/0 head", "/1 worker", replica.shards[1].node))
