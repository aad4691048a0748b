"""Shards over real engines: failures, restarts, hung engines, drains, ports, and who may be signalled."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import msgspec
import pytest
import trio

from agent.engines.environment import mark
from agent.journal import Entry, Journal
from agent.output import OUTPUT_MAX_BYTES
from agent.process import ProcessName, adopt, marks_of, name_of, signal_every
from llmgw.core.errors import Unavailable
from llmgw.core.processes import boot_id, start_time
from llmgw.wire.llmgw.v1 import DrainShard, ShardSpec, ShardState
from tests.support.agent_node import sim_spec
from tests.support.agent_site import LocalCache, yard
from tests.support.waiting import until

READY, FAILED, STOPPED = ShardState.READY, ShardState.FAILED, ShardState.STOPPED


@pytest.fixture
def cluster() -> str:
    return f"test-{uuid.uuid4().hex}"


@pytest.mark.trio
async def test_an_engine_that_never_starts_fails_with_its_last_words(
    tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.restarts.FIRST_WAIT_S", 0.01)
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec(args=("--crash-on-start",)))
        failed = await node.state("r1/0", FAILED)
        assert failed.restarts == 4
        assert "failed 5 times in a row" in failed.message
        assert "exit code 1" in failed.message
        assert "crashing at start, as asked" in failed.message
        assert list(node.site.layout.journal.iterdir()) == []
        node.forget()
        node.start(sim_spec(args=("--crash-on-start",)))
        assert (await node.until(lambda status: True)).state == FAILED
        node.stop("r1/0")
        await node.state("r1/0", STOPPED)
        assert node.supervisor.statuses() == []


@pytest.mark.trio
@pytest.mark.promise("A8")
async def test_a_hung_engine_is_ended_and_started_again(
    tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.probing.LIVENESS_EVERY_S", 0.05)
    monkeypatch.setattr("agent.shard.STUCK_GRACE_S", 0.1)
    monkeypatch.setattr("agent.readiness.get.__kwdefaults__", {"timeout_s": 0.5})
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec())
        first = await node.state("r1/0", READY)
        os.kill(first.pid, signal.SIGSTOP)
        again = await node.until(lambda status: status.state == READY and status.restarts == 1)
        assert again.pid != first.pid
        assert start_time(first.pid) is None
        why = next(status.message for status in node.history if status.restarts == 1)
        assert "stopped answering" in why


@pytest.mark.trio
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (sim_spec(args=("--api-key-file=/etc/shadow",)), "the agent hands each engine its own key"),
        (ShardSpec(shard_id="r1/0", engine="nowhere", model="m"), "llamacpp, sglang, sim, "),
        (ShardSpec(shard_id="r1/0", engine="llamacpp", model="m"), "a model path is required"),
        (ShardSpec(shard_id="r1/0", engine="sim", model="m", env={"LD_PRELOAD": "/x"}), "LD_PRELOAD"),
        (ShardSpec(shard_id="../x", engine="sim", model="m"), "no id of a shard"),
    ],
)
async def test_what_cannot_be_run_is_refused_with_a_reason(
    tmp_path: Path, cluster: str, spec: ShardSpec, words: str
) -> None:
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(spec)
        failed = await node.state(spec.shard_id, FAILED)
        assert words in failed.message
        assert failed.pid == 0


@pytest.mark.trio
async def test_weights_that_do_not_come_fail_the_shard_in_a_sentence(tmp_path: Path, cluster: str) -> None:
    cache = LocalCache(refusal=Unavailable("the disk is full: 98 MB are missing"))
    async with yard(tmp_path, cluster_id=cluster, cache=cache) as node:
        node.start(ShardSpec(shard_id="r1/0", engine="llamacpp", model="m", source="file:/x"))
        failed = await node.state("r1/0", FAILED)
        assert failed.message == "the disk is full: 98 MB are missing"
        states = [status.state for status in node.history]
        assert ShardState.FETCHING in states or ShardState.CHECKING in states
        assert node.progress[-1].phase == "failed"
        assert node.progress[-1].message == failed.message


@pytest.mark.trio
async def test_a_drain_ends_at_its_deadline(tmp_path: Path, cluster: str) -> None:
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec())
        ready = await node.state("r1/0", READY)
        node.supervisor.drain(DrainShard(shard_id="r1/0", deadline_s=0.3, reason="cordoned"))
        draining = await node.state("r1/0", ShardState.DRAINING)
        assert draining.message == "draining: cordoned"
        assert start_time(ready.pid) is not None
        await node.state("r1/0", STOPPED)
        assert start_time(ready.pid) is None


@pytest.mark.trio
async def test_an_engine_deaf_to_sigterm_is_killed_after_its_grace(tmp_path: Path, cluster: str) -> None:
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec(args=("--ignore-term",)))
        ready = await node.state("r1/0", READY)
        began = trio.current_time()
        node.stop("r1/0", grace_s=0.3)
        await node.state("r1/0", STOPPED)
        assert 0.3 <= trio.current_time() - began < 5
        assert start_time(ready.pid) is None


@pytest.mark.trio
async def test_ports_in_use_are_passed_over_and_their_end_is_told(tmp_path: Path, cluster: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        async with yard(tmp_path, cluster_id=cluster, ports=range(port, port + 1)) as node:
            node.start(sim_spec())
            failed = await node.state("r1/0", FAILED)
            assert f"all ports from {port} to {port}" in failed.message


@pytest.mark.trio
async def test_two_shards_get_two_ports(tmp_path: Path, cluster: str) -> None:
    async with yard(tmp_path, cluster_id=cluster) as node:
        for number in range(3):
            node.start(sim_spec(f"r{number}/0"))
        endpoints = {(await node.state(f"r{number}/0", READY)).endpoint for number in range(3)}
        assert len(endpoints) == 3


def journalled(data: Path, cluster: str, process: ProcessName | None) -> None:
    """A journal entry of shard r1/0 with that process."""
    spec = sim_spec()
    entry = Entry(
        shard_id=spec.shard_id,
        cluster_id=cluster,
        host="127.0.0.1",
        port=1,
        key_file=str(data / "key"),
        spec=spec.to_json(),
        process=process,
        ready=True,
    )
    Journal(data / "journal").write(entry)
    (data / "key").write_text("ek-x\n")


@pytest.mark.trio
@pytest.mark.promise("A5")
@pytest.mark.parametrize("change", ["no mark", "other shard", "other start", "other boot"])
async def test_a_stranger_is_never_adopted_nor_signalled(tmp_path: Path, cluster: str, change: str) -> None:
    shard = "r2/0" if change == "other shard" else "r1/0"
    environment = {} if change == "no mark" else {"LLMGW_MARK": mark(cluster, shard), "LLMGW_NODE": "another"}
    stranger = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, env=environment)
    try:
        await until(lambda: change == "no mark" or "LLMGW_MARK" in marks_of(stranger.pid))
        name = name_of(stranger.pid)
        assert name is not None
        if change == "other start":
            name = _later(name)
        if change == "other boot":
            name = ProcessName(boot_id="0" * 36, pid=name.pid, start_time=name.start_time)
        journalled(tmp_path, cluster, name)
        async with yard(tmp_path, cluster_id=cluster, keep_engines=True) as node:
            (status,) = node.supervisor.statuses()
            assert (status.state, status.pid) == (FAILED, 0)
            assert ("restarted" if change == "other boot" else "while the agent was away") in status.message
            node.stop("r1/0")
            await node.state("r1/0", STOPPED)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.communicate()


def _later(name: ProcessName) -> ProcessName:
    return ProcessName(boot_id=name.boot_id, pid=name.pid, start_time=name.start_time + 1)


@pytest.mark.trio
async def test_an_engine_whose_start_was_not_noted_is_found_by_its_mark(tmp_path: Path, cluster: str) -> None:
    async with yard(tmp_path, cluster_id=cluster, keep_engines=True) as node:
        node.start(sim_spec())
        first = await node.state("r1/0", READY)
        (file,) = node.site.layout.journal.glob("*.json")  # the state is told before it is noted
    entry = msgspec.json.decode(file.read_bytes(), type=Entry)
    node.site.journal.write(msgspec.structs.replace(entry, process=None, ready=False))
    async with yard(tmp_path, cluster_id=cluster) as node:
        ready = await node.state("r1/0", READY)
        assert (ready.pid, ready.adopted) == (first.pid, True)
        assert start_time(first.pid) == name_start(first.pid)


@pytest.mark.trio
async def test_an_engine_nobody_has_the_key_of_is_ended(tmp_path: Path, cluster: str) -> None:
    async with yard(tmp_path, cluster_id=cluster, keep_engines=True) as node:
        node.start(sim_spec())
        first = await node.state("r1/0", READY)
    node.site.key_file("r1/0").unlink()
    async with yard(tmp_path, cluster_id=cluster) as node:
        (status,) = node.supervisor.statuses()
        assert status.state == FAILED
        assert "key file" in status.message
        assert start_time(first.pid) is None


def name_start(pid: int) -> int:
    name = name_of(pid)
    assert name is not None
    return name.start_time


@pytest.mark.trio
async def test_a_flood_of_output_is_cut_while_the_engine_runs(
    tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.supervise.ROTATE_EVERY_S", 0.05)
    async with yard(tmp_path, cluster_id=cluster) as node:
        node.start(sim_spec())
        ready = await node.state("r1/0", READY)
        output = node.site.output("r1/0")
        with output.open("ab") as engine:
            engine.write(b"x" * OUTPUT_MAX_BYTES + b"\n")
        await until(lambda: output.stat().st_size == 0)
        assert output.with_name("output.log.1").stat().st_size == OUTPUT_MAX_BYTES
        assert start_time(ready.pid) is not None


CARELESS_PARENT = """
import os, subprocess, sys
child = subprocess.Popen(["sleep", "60"], env={"LLMGW_MARK": sys.argv[1], "PATH": os.environ["PATH"]})
print(child.pid, flush=True)
input()
"""


@pytest.mark.trio
async def test_a_zombie_under_another_parent_is_dead(cluster: str) -> None:
    shard_mark = mark(cluster, "r1/0")
    argv = [sys.executable, "-c", CARELESS_PARENT, shard_mark]
    parent = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        await until(lambda: bool(marks_of(pid)))
        name = name_of(pid)
        assert name is not None
        process = adopt(name, mark=shard_mark)
        assert process is not None
        assert signal_every(shard_mark, signal.SIGKILL) == 1
        with trio.fail_after(60):
            assert str(await process.wait()) == "an unknown exit code"
        process.close()
        assert Path(f"/proc/{pid}").exists()
        assert adopt(name, mark=shard_mark) is None
    finally:
        parent.communicate(b"\n")


def test_a_process_of_another_boot_is_nobody() -> None:
    name = ProcessName(boot_id="x", pid=os.getpid(), start_time=start_time(os.getpid()) or 0)
    assert adopt(name, mark="a/b") is None
    assert boot_id() != "x"
