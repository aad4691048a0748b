"""Checks of engines from a control plane's service to a real agent and its engines, and from ctl to its exit code."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from llmgw.agents.bridge import Limits
from llmgw.control.engine_checks import EngineCheckService
from llmgw.control.inventory import Inventory
from llmgw.control.logs import LogService
from llmgw.control.samples import SampleService
from llmgw.control.sessions import AgentCheckOrders, AgentLogOrders, AgentSampleOrders, SessionLoop
from llmgw.core.layout import ServerLayout
from tests.integration.test_ctl import Ctl, admin, ctl
from tests.integration.test_loads_feed import agent
from tests.support.agentport import make_port, running
from tests.support.waiting import until

__all__ = ["admin", "ctl"]

LOST = """#!/bin/sh
echo '  --host HOST, --port PORT'
"""


@contextlib.asynccontextmanager
async def checked_node(tmp_path: Path) -> AsyncIterator[EngineCheckService]:
    """A service with one real agent, n1, connected to it."""
    port = make_port(tmp_path / "server", limits=Limits())
    inventory = Inventory(trio.current_time, lambda: None)
    logs = LogService(
        layout=ServerLayout(data=tmp_path / "server"), inventory=inventory, orders=AgentLogOrders(port.server)
    )
    checks = EngineCheckService(inventory=inventory, orders=AgentCheckOrders(port.server))
    samples = SampleService(inventory=inventory, orders=AgentSampleOrders(port.server), clock=trio.current_time)
    sessions = SessionLoop(
        server=port.server, inventory=inventory, logs=logs, checks=checks, samples=samples, ordered=lambda _: True
    )
    async with running(port), agent(port, tmp_path / "n1"), trio.open_nursery() as nursery:
        await nursery.start(sessions.run)
        await until(lambda: inventory.is_connected("n1"))
        yield checks
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_a_real_agent_asks_its_engines_for_their_flags(tmp_path: Path) -> None:
    async with checked_node(tmp_path) as checks:
        verdicts = {verdict.engine: verdict for verdict in await checks.check(engine=None, node=None)}
        assert {"sim", "llamacpp"} <= verdicts.keys(), "they are part of llmgw"
        for engine in ("sim", "llamacpp"):
            verdict = verdicts[engine]
            assert (verdict.unknown_written, verdict.unknown_allowed, verdict.failed) == ((), (), "")
            assert verdict.good
            assert verdict.written > 5
            assert f"on n1 takes all {verdict.written} flags" in verdict.message
        (absent,) = await checks.check(engine="comfyui", node="n1")
        assert (absent.installed, absent.good) == (False, True)


@pytest.mark.trio
async def test_a_flag_that_an_engine_lost_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "trtllm-serve"
    program.parent.mkdir()
    program.write_text(LOST)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    async with checked_node(tmp_path) as checks:
        (verdict,) = await checks.check(engine="trtllm", node="n1")
        assert not verdict.good
        assert verdict.unknown_written == (
            "--extra_llm_api_options",
            "--kv_cache_free_gpu_memory_fraction",
            "--max_seq_len",
            "--served_model_name",
            "--tp_size",
        )
        assert "--max_batch_size" in verdict.unknown_allowed


def test_ctl_says_a_line_an_engine_and_ends_with_one_when_a_flag_is_gone(ctl: Ctl) -> None:
    good = ctl("engine-check", "--engine", "sim")
    assert ctl("engine-check", "sim").stdout == good.stdout
    assert ctl("engine-check", "sim", "--engine", "sim").stdout == good.stdout
    assert ctl("engine-check", "sim", "--engine", "vllm").returncode == 2
    assert good.returncode == 0
    assert good.stdout.splitlines() == [
        f"sim 1 on {node} takes all 6 flags that llmgw writes and 16 of 16 flags that profiles may add"
        for node in ("gpu0", "gpu1")
    ]
    bad = ctl("engine-check", "--node", "gpu1")
    assert bad.returncode == 1
    assert "vllm 0.31.0 on gpu1 takes all 11 flags that llmgw writes and 2 of 3 flags" in bad.stdout
    assert bad.stderr == "llmgw ctl: 1 of 2 answers is not good\n"
    assert ctl("engine-check", "--node", "gpu9").returncode == 1
    document = ctl("--json", "engine-check", "--node", "gpu1")
    assert document.returncode == 1
    assert '"unknown_allowed":' in document.stdout
