"""A real agent process: orders, engines that outlive it, and engines that do not."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trio

from agent.process import marks_of
from llmgw.agents.nodes_told import node_from_hello
from llmgw.agents.readings import figures_from, wear_from
from llmgw.core.processes import start_time
from llmgw.wire.llmgw.v1 import LogCancel, ServerMessage, ShardState
from tests.support.agent_node import KEY, ROOT, running_node, sim_spec
from tests.support.gpu_files import MIB, OWN
from tests.support.waiting import until

READY = ShardState.READY


def ask(url: str, *, key: str = KEY, body: dict[str, object] | None = None) -> tuple[int, bytes]:
    """One request to an engine."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Authorization": f"Bearer {key}"})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


@pytest.mark.trio
async def test_a_shard_is_served_repeated_logged_and_stopped(tmp_path: Path) -> None:
    async with running_node(tmp_path / "a dir") as node:
        hello = node.hellos[0]
        assert hello.inventory is not None
        assert {engine.name for engine in hello.inventory.engines if engine.usable} >= {"sim", "llamacpp"}
        assert hello.inventory.address == "127.0.0.1"
        node.start_shard(sim_spec())
        status = await node.state("r1/0", READY)
        states = [said.state for said in node.history if said.shard_id == "r1/0"]
        assert states[-2:] == [ShardState.STARTING, READY]

        code, body = await trio.to_thread.run_sync(ask, f"{status.endpoint}/v1/models")
        assert code == 200
        assert json.loads(body)["data"][0]["id"] == "m"
        denied, _ = await trio.to_thread.run_sync(lambda: ask(f"{status.endpoint}/v1/models", key="ek-wrong-key"))
        assert denied == 401

        pid = status.pid
        assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert KEY.encode() not in Path(f"/proc/{pid}/environ").read_bytes()
        assert marks_of(pid)["LLMGW_MARK"] == f"{node.port.authority.cluster_id}/r1/0"
        assert os.getsid(pid) == pid
        key_files = list(node.directory.glob("shards/*/engine.key"))
        assert [file.stat().st_mode & 0o777 for file in key_files] == [0o600]

        heard = len(node.history)
        node.start_shard(sim_spec())
        await node.until(lambda: len(node.history) > heard)
        assert (node.statuses["r1/0"].state, node.statuses["r1/0"].pid) == (READY, pid)

        node.ask_log("l1", "r1/0")
        await node.until(lambda: any(lines.end for lines in node.logs))
        assert any("listening on" in line for lines in node.logs for line in lines.lines)
        await node.until(lambda: bool(node.sensors))
        assert node.sensors[-1].memory_available_bytes

        node.stop_shard("r1/0")
        await node.state("r1/0", ShardState.STOPPED)
        assert start_time(pid) is None
        assert list((node.directory / "journal").iterdir()) == []
        assert list(node.directory.glob("shards/*/engine.key")) == []
        node.stop_shard("never/0")
        await node.state("never/0", ShardState.STOPPED)
        assert node.end(signal.SIGTERM) == 0
        assert not (node.directory / "lock").exists()


@pytest.mark.trio
async def test_cards_their_figures_and_wear_and_what_an_engine_takes_are_told(tmp_path: Path) -> None:
    (tool := tmp_path / "bin" / "nvidia-smi").parent.mkdir()
    tool.write_text(f"""#!/bin/sh
case "$*" in "-q -x") cat {OWN / "mig.xml"} ;; "-L") cat {OWN / "mig_list.txt"} ;; *) exit 2 ;; esac
""")
    tool.chmod(0o700)
    async with running_node(tmp_path / "data") as node:
        node.end()
        node.settings = {"prefer_nvml": False, "dcgm_exporter": "off"}
        node.start(PATH=f"{tool.parent}:{os.environ['PATH']}")
        hello = await node.connected(count=2)
        assert hello.inventory is not None
        described = node_from_hello(hello, node="n1", peer_address="127.0.0.1")
        assert [card.uuid for card in described.cards] == ["GPU-a", "MIG-a-first", "MIG-a-second", "GPU-b"]
        node.start_shard(sim_spec())
        await node.state("r1/0", READY)
        await node.until(lambda: bool(node.wear) and any(s.shard_memory_bytes for s in node.sensors))
        figures, _ = figures_from(node.sensors[-1], ())
        assert figures.cards["GPU-a"].utilization_percent is None
        assert figures.cards["MIG-a-second"].memory_used_bytes == 20000 * MIB
        assert figures.cards["GPU-b"].utilization_percent == 37.0
        assert (figures.replicas["r1"].memory_bytes or 0) > 0
        assert set(wear_from(node.wear[-1])) == {"GPU-a", "GPU-b"}


@pytest.mark.trio
@pytest.mark.promise("A4")
async def test_a_killed_agent_breaks_no_stream_and_its_engine_is_taken_over(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        node.start_shard(sim_spec(source="sim:rate=40,prefill-ms=0"))
        status = await node.state("r1/0", READY)
        name = (status.pid, start_time(status.pid))
        body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "stream": True, "sim": {"tokens": 80}}
        url = f"{status.endpoint}/v1/chat/completions"
        request = urllib.request.Request(
            url, data=json.dumps(body).encode(), headers={"Authorization": f"Bearer {KEY}"}
        )
        answer = await trio.to_thread.run_sync(lambda: urllib.request.urlopen(request, timeout=30))
        with answer:
            first = await trio.to_thread.run_sync(answer.readline)
            node.end(signal.SIGKILL)
            node.start()
            hello = await node.connected(count=2, deadline_s=10.0)
            text = first + await trio.to_thread.run_sync(answer.read)
        (shard,) = hello.shards
        assert (shard.state, shard.adopted, shard.pid) == (READY, True, status.pid)
        assert shard.spec is not None
        assert shard.spec == sim_spec(source="sim:rate=40,prefill-ms=0")
        assert (status.pid, start_time(status.pid)) == name
        assert text.rstrip().endswith(b"data: [DONE]")
        assert text.count(b'"content"') >= 80

        os.kill(status.pid, signal.SIGKILL)
        await node.until(lambda: node.statuses["r1/0"].restarts == 1 and node.statuses["r1/0"].state == READY)
        assert node.statuses["r1/0"].pid != status.pid
        assert not node.statuses["r1/0"].adopted


@pytest.mark.trio
async def test_a_killed_engine_is_started_again_at_once(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        node.start_shard(sim_spec())
        first = await node.state("r1/0", READY)
        began = trio.current_time()
        os.kill(first.pid, signal.SIGKILL)
        await node.until(lambda: node.statuses["r1/0"].restarts == 1 and node.statuses["r1/0"].state == READY)
        assert trio.current_time() - began < 10
        again = next(status for status in node.history if status.restarts == 1)
        assert again.state == ShardState.STARTING
        assert "signal SIGKILL" in again.message
        assert node.statuses["r1/0"].pid != first.pid
        assert node.statuses["r1/0"].endpoint == first.endpoint


@pytest.mark.trio
@pytest.mark.promise("A5")
async def test_an_engine_that_died_meanwhile_is_reported_failed(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        node.start_shard(sim_spec())
        status = await node.state("r1/0", READY)
        node.end(signal.SIGKILL)
        os.kill(status.pid, signal.SIGKILL)
        await until(lambda: start_time(status.pid) is None)
        node.start()
        hello = await node.connected(count=2, deadline_s=10.0)
        assert [shard.state for shard in hello.shards] == [ShardState.FAILED]
        assert "while the agent was away" in hello.shards[0].message
        node.stop_shard("r1/0")
        await node.state("r1/0", ShardState.STOPPED)


@pytest.mark.trio
async def test_sigterm_leaves_engines_unless_told_to_end_them(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        node.start_shard(sim_spec())
        status = await node.state("r1/0", READY)
        assert node.end(signal.SIGTERM) == 0
        assert start_time(status.pid) is not None
        node.start(LLMGW_STOP_ENGINES="1")
        await node.connected(count=2)
        assert node.statuses["r1/0"].pid == status.pid
        assert node.end(signal.SIGTERM) == 0
        assert start_time(status.pid) is None
        assert list((node.directory / "journal").iterdir()) == []


@pytest.mark.trio
async def test_a_second_agent_on_the_same_data_names_the_first(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        assert node.process is not None
        argv = [sys.executable, "-m", "agent.main", str(node.directory / "agent.yaml")]
        second = await trio.to_thread.run_sync(
            lambda: subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=30)
        )
        assert second.returncode == 1
        assert f"pid {node.process.pid}" in second.stderr
        assert node.process.poll() is None


def test_a_machine_that_has_not_joined_is_told_what_to_do(tmp_path: Path) -> None:
    config = tmp_path / "agent.yaml"
    config.write_text("data: node\n")
    argv = [sys.executable, "-m", "agent.main", str(config)]
    ended = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=30)
    assert ended.returncode == 1
    assert "llmgw agent join" in ended.stderr
    assert not (tmp_path / "node" / "lock").exists()


@pytest.mark.trio
@pytest.mark.case("C21")
async def test_two_clusters_on_one_host_leave_each_other_alone(tmp_path: Path) -> None:
    async with running_node(tmp_path / "one") as one, running_node(tmp_path / "two") as two:
        one.start_shard(sim_spec())
        two.start_shard(sim_spec())
        first, second = await one.state("r1/0", READY), await two.state("r1/0", READY)
        one.end(signal.SIGKILL)
        # The journal is lost, so the engine belongs to nobody: the next agent ends its own and no other.
        for file in (one.directory / "journal").iterdir():
            file.write_text("{ damaged")
        one.start()
        hello = await one.connected(count=2)
        assert hello.shards == []
        assert hello.inventory is not None
        assert any("cannot be read" in problem for problem in hello.inventory.problems)
        assert start_time(first.pid) is None
        assert start_time(second.pid) is not None
        two.stop_shard("r1/0")
        await two.state("r1/0", ShardState.STOPPED)


@pytest.mark.trio
async def test_a_log_is_followed_until_it_is_cancelled(tmp_path: Path) -> None:
    async with running_node(tmp_path) as node:
        node.start_shard(sim_spec())
        await node.state("r1/0", READY)
        node.ask_log("f1", "r1/0", follow=True)
        await node.until(lambda: any(lines.request_id == "f1" for lines in node.logs))
        (output,) = node.directory.glob("shards/*/output.log")
        with output.open("ab") as file:
            file.write(b"first\x00\x1b[31m red\x1b[0m\nsecond\n")
        await node.until(lambda: any("second" in lines.lines for lines in node.logs))
        assert any("first red" in lines.lines for lines in node.logs)
        node.order(ServerMessage(log_cancel=LogCancel(request_id="f1")))
        node.ask_log("f2", "nobody/0")
        await node.until(lambda: any(lines.request_id == "f2" and lines.end for lines in node.logs))
        assert "no output" in next(lines.error for lines in node.logs if lines.request_id == "f2")
