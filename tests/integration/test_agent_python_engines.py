"""vLLM and SGLang under the agent: their place is taken by programs that read the same command line.

The stand-ins parse what the agent builds as strictly as the engines do, take the key where the engines take it, and
then serve as the sim engine.
"""

import os
import sys
import uuid
from functools import partial
from pathlib import Path

import pytest
import trio

from agent.config import AgentConfig
from agent.engines import known_engines
from llmgw.wire.llmgw.v1 import ShardSpec, ShardState
from tests.integration.test_agent_node import ask
from tests.support.agent_node import KEY, ROOT
from tests.support.agent_site import yard

VLLM = """
import argparse, os, sys
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("command", choices=["serve"])
parser.add_argument("model")
for name in ("--served-model-name", "--host", "--port", "--max-model-len", "--tensor-parallel-size",
             "--uvicorn-log-level", "--gpu-memory-utilization", "--max-num-seqs"):
    parser.add_argument(name)
parser.add_argument("--enable-prompt-tokens-details", action="store_true")
args = parser.parse_args()
name, context, key = args.served_model_name, args.max_model_len, os.environ["VLLM_API_KEY"]
"""
SGLANG = """
import argparse, sys, yaml
parser = argparse.ArgumentParser(allow_abbrev=False)
parser.add_argument("command", choices=["serve"])
for name in ("--model-path", "--config", "--served-model-name", "--host", "--port", "--context-length", "--tp-size",
             "--log-level-http", "--mem-fraction-static"):
    parser.add_argument(name)
for name in ("--enable-metrics", "--enable-cache-report"):
    parser.add_argument(name, action="store_true")
args = parser.parse_args()
with open(args.config) as file:
    key = yaml.safe_load(file)["api-key"]
name, context = args.served_model_name, args.context_length
"""
SERVE = """
import runpy, tempfile
sys.path.insert(0, ROOT)
with tempfile.NamedTemporaryFile("w", delete=False) as file:
    file.write(key)
sys.argv = ["engine", "--host", args.host, "--port", args.port, "--model", name, "--ctx-size", context,
            "--slots", "2", "--api-key-file", file.name]
runpy.run_module("llmgw.sim.engine", run_name="__main__")
"""


def install(tmp_path: Path, engine: str) -> Path:
    """An environment with the stand-in of an engine."""
    root = tmp_path / "environments" / engine
    (root / "bin").mkdir(parents=True)
    text = f"#!{sys.executable}\nROOT = {str(ROOT)!r}\n" + {"vllm": VLLM, "sglang": SGLANG}[engine] + SERVE
    program = root / "bin" / engine
    program.write_text(text)
    program.chmod(0o755)
    return root


@pytest.mark.trio
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_an_engine_starts_as_built_and_answers_to_its_key_alone(engine: str, tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    engines = known_engines(AgentConfig(data=str(tmp_path), engine_paths={engine: str(install(tmp_path, engine))}))
    spec = ShardSpec(
        shard_id="r1/0",
        engine=engine,
        model="org/m",
        source=f"file:{weights}",
        context_length=1024,
        slots=2,
        tp=1,
    )
    async with yard(tmp_path / "node", cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(spec)
        status = await node.state("r1/0", ShardState.READY)
        models = f"{status.endpoint}/v1/models"
        assert (await trio.to_thread.run_sync(partial(ask, models)))[0] == 200
        assert (await trio.to_thread.run_sync(partial(ask, models, key="ek-wrong")))[0] == 401
        command = Path(f"/proc/{status.pid}/cmdline").read_bytes()
        assert KEY.encode() not in command
        config = node.site.key_file("r1/0").with_name("engine.yaml")
        assert config.exists() == (engine == "sglang")
        for path in (tmp_path / "node").rglob("*"):
            if path.is_file() and KEY in path.read_text(errors="replace"):
                assert path.stat().st_mode & 0o777 == 0o600
                assert path.parent == config.parent
        assert os.environ.get("VLLM_API_KEY") is None
