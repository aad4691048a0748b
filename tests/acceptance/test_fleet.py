"""The demo's simulated fleet: real protocol, real placement, real answers, and everything says that it is simulated."""

from pathlib import Path

import pytest

from llmgw.api.types import NodeInfo
from tests.support.cluster import DemoCluster, llmgw, processes_of, running_demo, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance

FLEET = ("--fleet", "3x2", "--no-visitors")
NODES = ["sim-a100-02", "sim-h100-01", "sim-l40s-03"]


def simulated(cluster: DemoCluster) -> list[NodeInfo]:
    status = cluster.quiet_status()
    found = [node for node in status.nodes if node.simulated] if status else []
    return found if len(found) == 3 and all(node.state == "connected" for node in found) else []


def test_a_fleet_serves_models_on_its_cards_and_ends_without_a_trace(tmp_path: Path) -> None:
    with running_demo(tmp_path, model="sim", options=FLEET) as cluster:
        nodes = wait_for("three simulated nodes", lambda: simulated(cluster), within_s=60)
        assert [node.name for node in nodes] == NODES
        assert all("(simulated)" in card.name for node in nodes for card in node.cards)
        worn = [card for node in nodes for card in node.cards if not card.healthy]
        assert [card.problem.endswith("(simulated)") for card in worn] == [True]

        replica = cluster.replica("sim-llama-3.3-70b")
        assert (replica.node, len(replica.cards)) == ("sim-h100-01", 2)
        assert replica.endpoint.endswith(f"/r/{replica.id}")
        held = {card.uuid for card in cluster.admin.node(replica.node).cards if card.replica == replica.id}
        assert held == set(replica.cards)
        wait_for("sensors of held cards", lambda: _holds_memory(cluster, replica.node), within_s=30)

        idle = wait_for("what its engine works on", lambda: _load(cluster, replica.id), within_s=30)
        assert idle == (0, 0, 0.0)
        assert "0 running, 0 waiting, KV 0%" in cluster.ctl("replicas").stdout

        answer = post(cluster, "/v1/chat/completions", chat_body("sim-llama-3.3-70b", tokens=3))
        assert answer.status == 200
        assert answer.json()["usage"]["completion_tokens"] == 3
        assert "fetched 71 GB of simulated weights" in cluster.ctl("logs", replica.id).stdout

        unplaced = cluster.model_info("sim-deepseek-r1")
        assert "class b200-180g" in unplaced.message
        assert any("sim-deepseek-r1" in problem for problem in cluster.status().problems)

        assert cluster.stop() == 0
        assert processes_of(tmp_path) == []
        assert [p for p in tmp_path.rglob("*") if p.is_socket() or p.name == "lock"] == []
        key = (tmp_path / "fleet" / "nodes" / NODES[0] / "node.key").read_bytes()

    # The fleet comes back by itself, with the identities it had.
    with running_demo(tmp_path, model="sim") as cluster:
        wait_for("the same nodes", lambda: [n.name for n in simulated(cluster)] == NODES, within_s=60)
        assert (tmp_path / "fleet" / "nodes" / NODES[0] / "node.key").read_bytes() == key
        cluster.replica("sim-qwen3-8b")
        assert post(cluster, "/v1/chat/completions", chat_body("sim-qwen3-8b", tokens=2)).status == 200
        assert post(cluster, "/r/sim-qwen3-8b/v1/models", None, method="GET").status == 404


def _holds_memory(cluster: DemoCluster, node: str) -> bool:
    cards = cluster.admin.node(node).cards
    return all((card.memory_used_bytes or 0) > 40 * 10**9 and card.power_limit_w == 700 for card in cards)


def _load(cluster: DemoCluster, replica_id: str) -> tuple[int | None, int | None, float | None] | None:
    """Requests its engine works on, requests that wait there, and its KV use; none before it says."""
    [replica] = [r for r in cluster.admin.replicas() if r.id == replica_id]
    return None if replica.running is None else (replica.running, replica.waiting, replica.kv_used)


def test_a_size_that_is_none_is_told_before_anything_starts(tmp_path: Path) -> None:
    import subprocess

    for command in (("demo", "--fleet", "12"), ("sim-fleet", "--nodes", "0", "--server", "unix:/none")):
        done = subprocess.run(
            llmgw(*command, "--data", str(tmp_path / "d")), capture_output=True, text=True, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert "12x8" in done.stderr or "outside 1 to" in done.stderr
    assert not (tmp_path / "d").exists()
