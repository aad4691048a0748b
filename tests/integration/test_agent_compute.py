"""Where an engine computes, from its log to what operators are told: the real llama.cpp, and one that falls back."""

import io
import os
import signal
import uuid
from pathlib import Path

import pytest

from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Command, Launch
from agent.engines.llamacpp_compute import LLAMACPP
from agent.engines.llamacpp_words import NO_CARD_ASKED, NO_CARD_SEEN
from agent.engines.sim import Sim
from llmgw.agents.replicas_told import replica_from_status
from llmgw.api.types import ReplicaInfo
from llmgw.cli.groups.replicas import replica_table
from llmgw.cli.output import Output
from llmgw.control import views
from llmgw.control.compute_views import compute_sentence
from llmgw.core.cluster import Card, Node
from llmgw.core.compute import compute_words
from llmgw.core.snapshot import Snapshot
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState, ShardStatus
from tests.integration.test_agent_llamacpp import model, spec
from tests.support.agent_site import yard

CARD = "GPU-00000000-promised"
NO_GPU = "warning: no usable GPU found, --gpu-layers option will be ignored"


class Fallen(Sim):
    """The simulated engine, as one that finds no card and serves on."""

    says_compute = LLAMACPP  # type: ignore[assignment]  # what other adapters declare

    def command(self, launch: Launch) -> Command:
        """What it says first, and the engine."""
        plain = super().command(launch)
        shell = ("/bin/sh", "-c", f'echo "{NO_GPU}"; exec "$@"', "sh")
        return Command(argv=(*shell, *plain.argv), env=plain.env)


def in_table(info: ReplicaInfo) -> str:
    """Its line of `ctl replicas`."""
    out = io.StringIO()
    replica_table(Output(json=False, out=out), [info])
    return out.getvalue().splitlines()[-1].rstrip()


def cluster(status: ShardStatus, shard: ShardSpec) -> Snapshot:
    """The replica as the leader has it after what its agent said, and the node it is on."""
    heard = ShardStatus.parse(bytes(status))
    heard.spec = ShardSpec.parse(bytes(shard))
    heard.spec.profile = "p"
    card = Card(uuid=CARD, index=0, name="H100", gpu_class="h100-80g")
    node = Node(name="gpu1", address="10.0.0.1", cards=(card,))
    heard.endpoint = ""
    return Snapshot(now=10.0, nodes=(node,), replicas=(replica_from_status(heard, node="gpu1"),))


@pytest.mark.trio
async def test_the_real_engine_says_that_it_runs_on_the_cpu(tmp_path: Path) -> None:
    cluster_id = f"test-{uuid.uuid4().hex}"
    plain = spec(source=f"file:{model()}", args=["--threads", "1", "--no-warmup"])
    async with yard(tmp_path, cluster_id=cluster_id, keep_engines=True) as node:
        node.start(plain)
        status = await node.state("r1/0", ShardState.READY)
        assert status.compute is not None
        assert (status.compute.cpu_only, status.compute.less_than_asked) == (True, False)
        assert status.compute.line == NO_CARD_ASKED
        (replica,) = cluster(status, plain).replicas
        info = views.replica_info(replica, cluster(status, plain))
        assert info.compute is not None
        assert compute_words(info.compute) == "on the CPU"
        assert in_table(info).endswith("computes on the CPU")
        assert views.problems(cluster(status, plain), (), "", {}) == ()
    # The next agent knows it from the journal, whatever became of the log since.
    (tmp_path / "shards").joinpath("r1%2F0", "output.log").unlink(missing_ok=True)
    async with yard(tmp_path, cluster_id=cluster_id) as node:
        again = await node.state("r1/0", ShardState.READY)
        assert again.adopted
        assert again.compute == status.compute


@pytest.mark.trio
async def test_the_real_engine_that_was_promised_a_card_and_sees_none_needs_attention(tmp_path: Path) -> None:
    promised = spec(source=f"file:{model()}", args=["--threads", "1", "--no-warmup"], card_uuids=[CARD])
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(promised)
        status = await node.state("r1/0", ShardState.READY)
        sentence = f"the engine runs it on the CPU although it has card 0 (its log: {NO_CARD_SEEN})"
        assert views.problems(cluster(status, promised), (), "", {}) == (f"org/smol on gpu1: {sentence}",)
        assert compute_sentence(cluster(status, promised).replicas, cluster(status, promised)) == f"on gpu1 {sentence}"


@pytest.mark.trio
async def test_an_engine_that_falls_back_is_found_out_each_time_it_is_ready(tmp_path: Path) -> None:
    engines = {**known_engines(AgentConfig(data=str(tmp_path))), "sim": Fallen()}
    fallen = ShardSpec(shard_id="r1/0", engine="sim", model="m", context_length=128, slots=1, card_uuids=[CARD])
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(fallen)
        status = await node.state("r1/0", ShardState.READY)
        (replica,) = cluster(status, fallen).replicas
        info = views.replica_info(replica, cluster(status, fallen))
        assert in_table(info).endswith(f"computes on the CPU, less than asked (its log: {NO_GPU})")
        (problem,) = views.problems(cluster(status, fallen), (), "", {})
        assert problem == f"m on gpu1: the engine runs it on the CPU although it has card 0 (its log: {NO_GPU})"
        node.forget()
        os.kill(status.pid, signal.SIGKILL)
        again = await node.state("r1/0", ShardState.READY)
        assert (again.restarts, again.compute) == (1, status.compute)
        starting = [said for said in node.history if said.state == ShardState.STARTING]
        assert starting
        assert all(said.compute is None for said in starting)


@pytest.mark.trio
async def test_an_engine_that_does_not_say_tells_nothing(tmp_path: Path) -> None:
    quiet = ShardSpec(shard_id="r1/0", engine="sim", model="m", context_length=128, slots=1, card_uuids=[CARD])
    async with yard(tmp_path, cluster_id=f"test-{uuid.uuid4().hex}") as node:
        node.start(quiet)
        status = await node.state("r1/0", ShardState.READY)
        assert status.compute is None
        assert views.problems(cluster(status, quiet), (), "", {}) == ()
