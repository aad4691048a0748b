"""What an engine leaves behind when it dies, and what an agent finds of a start that its predecessor did not finish."""

import json
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import replace
from pathlib import Path

import pytest

from agent.adoption import take_stock
from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Command, Launch
from agent.engines.environment import MARK_VARIABLE, NODE_VARIABLE, mark
from agent.engines.sim import Sim
from agent.journal import Entry, Journal
from agent.process import marked_processes
from llmgw.wire.llmgw.v1 import ShardState
from tests.support.agent_node import end_marked, sim_spec
from tests.support.agent_site import yard
from tests.support.waiting import until

CHILD = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
PARENT = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)
print(child.pid, flush=True)
child.wait()
"""


class Parent(Sim):
    """The simulated engine with a child that outlives it."""

    def command(self, launch: Launch) -> Command:
        """A shell that starts the child and becomes the engine."""
        command = super().command(launch)
        script = '"$0" -c "$1" & shift; exec "$@"'
        return replace(command, argv=("/bin/sh", "-c", script, sys.executable, CHILD, *command.argv))


class Slow(Sim):
    """The simulated engine as one that prepares something first."""

    def command(self, launch: Launch) -> Command:
        """The same, to be waited for longer."""
        return replace(super().command(launch), patience_s=60.0)


@pytest.fixture
def cluster() -> str:
    return f"test-{uuid.uuid4().hex}"


def children(cluster: str) -> list[int]:
    """Children of this cluster's engines."""
    marked = [pid for pid, found, _ in marked_processes() if found == mark(cluster, "r1/0")]
    return [pid for pid in marked if CHILD.encode() in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2:3]]


@pytest.mark.trio
async def test_what_an_engine_started_is_ended_before_it_starts_again(tmp_path: Path, cluster: str) -> None:
    engines = {**known_engines(AgentConfig(data=str(tmp_path))), "sim": Parent()}
    async with yard(tmp_path, cluster_id=cluster, engines=engines) as node:
        node.start(sim_spec())
        first = await node.state("r1/0", ShardState.READY)
        (left,) = children(cluster)
        os.kill(first.pid, signal.SIGKILL)
        await node.until(lambda status: status.state == ShardState.READY and status.restarts == 1)
        (child,) = children(cluster)
        assert child != left


@pytest.mark.trio
async def test_an_engine_that_prepares_something_is_waited_for_by_the_next_agent_too(
    tmp_path: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.probing.START_TIMEOUT_S", 0.0)
    engines = {**known_engines(AgentConfig(data=str(tmp_path))), "sim": Slow()}
    try:
        async with yard(tmp_path, cluster_id=cluster, engines=engines, keep_engines=True) as node:
            node.start(sim_spec(args=("--start-delay", "2")))
            started = await node.until(lambda status: status.pid > 0)
        async with yard(tmp_path, cluster_id=cluster, engines=engines) as node:
            ready = await node.state("r1/0", ShardState.READY)
            assert (ready.pid, ready.restarts, ready.adopted) == (started.pid, 0, True)
    finally:
        end_marked(cluster)


def entry_of(cluster: str, key_file: Path) -> Entry:
    """The journal's word that an engine was about to be started."""
    return Entry(
        shard_id="r1/0", cluster_id=cluster, host="127.0.0.1", port=1, key_file=str(key_file), spec=sim_spec().to_json()
    )


@pytest.mark.trio
async def test_of_processes_that_bear_a_mark_the_first_one_started_is_the_engine(tmp_path: Path, cluster: str) -> None:
    journal, key_file = Journal(tmp_path / "journal"), tmp_path / "engine.key"
    key_file.write_text("k\n")
    journal.write(entry_of(cluster, key_file))
    engine = subprocess.Popen(
        [sys.executable, "-c", PARENT, CHILD],
        env={MARK_VARIABLE: mark(cluster, "r1/0"), NODE_VARIABLE: "n1"},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert engine.stdout is not None
        child = int(engine.stdout.readline())
        await until(lambda: len(children(cluster)) == 1)
        findings = take_stock(journal, cluster_id=cluster, node="n1")
        (survivor,) = findings.survivors
        survivor.process.close()
        assert survivor.process.pid == engine.pid != child
        assert findings.orphans == ()
    finally:
        end_marked(cluster)
        engine.communicate()


def test_an_entry_of_an_earlier_version_is_understood(tmp_path: Path, cluster: str) -> None:
    journal, key_file = Journal(tmp_path / "journal"), tmp_path / "engine.key"
    journal.write(entry_of(cluster, key_file))
    (file,) = (tmp_path / "journal").glob("*.json")
    written = json.loads(file.read_text())
    for fresh in ("further", "private", "patience_s"):
        del written[fresh]
    file.write_text(json.dumps(written))
    (entry,), problems = journal.load()
    assert problems == []
    assert (entry.further, entry.private, entry.patience_s) == ((), False, 0.0)
