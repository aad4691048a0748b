"""A second node on one machine joins under its own name, shares the work and dies alone."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from llmgw.api.types import NodeInfo
from tests.support.cluster import DemoCluster, llmgw, wait_for
from tests.support.streams import chat_body, post

pytestmark = pytest.mark.acceptance


def _join(cluster: DemoCluster, data: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    token = cluster.ctl_json("join-token")
    return subprocess.run(
        llmgw("agent", "join", token["token"], token["url"], "--data", str(data), *options),
        capture_output=True,
        text=True,
        timeout=60,
    )


def _state(cluster: DemoCluster, node: str) -> str:
    status = cluster.quiet_status()
    found: list[NodeInfo] = [n for n in status.nodes if n.name == node] if status is not None else []
    return found[0].state if found else ""


@pytest.fixture
def second(sim_cluster: DemoCluster, tmp_path: Path) -> list[str]:
    """Command line of the agent of a node called `second`, joined and not running."""
    data = tmp_path / "node two é"
    joined = _join(sim_cluster, data, "--name", "second")
    assert joined.returncode == 0, joined.stderr
    config = tmp_path / "agent.yaml"
    config.write_text(f'data: "{data}"\naddress: 127.0.0.1\nstop_engines_on_exit: true\n')
    return llmgw("agent", "-c", str(config))


def test_a_second_machine_of_the_same_name_does_not_put_the_first_out(sim_cluster: DemoCluster, tmp_path: Path) -> None:
    (first,) = [n.name for n in sim_cluster.status().nodes if n.state == "connected"]
    refused = _join(sim_cluster, tmp_path / "other", "--name", first)
    assert refused.returncode == 1
    assert "--name" in refused.stderr
    assert not (tmp_path / "other" / "node.key").exists()
    assert _state(sim_cluster, first) == "connected"


def test_replicas_are_shared_and_outlive_their_agent(sim_cluster: DemoCluster, second: list[str]) -> None:
    agent = subprocess.Popen(second, start_new_session=True)
    try:
        wait_for("the second node", lambda: _state(sim_cluster, "second") == "connected")
        sim_cluster.ctl("model", "scale", "sim", "2", "2")
        wait_for("two replicas", lambda: sim_cluster.model_info("sim").ready == 2)
        (here,) = [r for r in sim_cluster.status().replicas if r.node == "second"]
        agent.send_signal(signal.SIGKILL)
        agent.wait(timeout=60)
        wait_for("its silence is noticed", lambda: _state(sim_cluster, "second") == "silent")
        assert psutil.pid_exists(here.pid)
        assert {post(sim_cluster, "/v1/chat/completions", chat_body("sim", tokens=2)).status for _ in range(4)} == {200}
        agent = subprocess.Popen(second, start_new_session=True)
        wait_for("the second node again", lambda: _state(sim_cluster, "second") == "connected")
        assert any(r.pid == here.pid and r.adopted for r in sim_cluster.status().replicas)
    finally:
        sim_cluster.ctl("model", "scale", "sim", "1", "1")
        agent.send_signal(signal.SIGTERM)
        agent.wait(timeout=30)
    wait_for("its engine ended with it", lambda: not os.path.exists(f"/proc/{here.pid}"))
    wait_for("one replica", lambda: sim_cluster.model_info("sim").ready == 1)
