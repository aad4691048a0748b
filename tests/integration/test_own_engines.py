"""TensorRT-LLM and ComfyUI under the agent: their place is taken by programs that read the same command line.

The stand-ins parse what the agent builds as strictly as the engines do, and read the files it writes for them. The one
of TensorRT-LLM then serves as the sim engine, the one of ComfyUI answers its health check and lists no models.
"""

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

TRTLLM = """
import runpy, sys, tempfile
import click, yaml

@click.group()
def main(): pass

@main.command("serve")
@click.argument("model")
@click.option("--served_model_name")
@click.option("--host")
@click.option("--port", type=int)
@click.option("--max_seq_len", type=int)
@click.option("--tp_size", "--tensor_parallel_size", type=int)
@click.option("--kv_cache_free_gpu_memory_fraction", "--free_gpu_memory_fraction", type=float)
@click.option("--extra_llm_api_options", "--config")
@click.option("--max_batch_size", type=int)
def serve(model, served_model_name, host, port, max_seq_len, extra_llm_api_options, **rest):
    with open(extra_llm_api_options) as file:
        assert yaml.safe_load(file) == {"return_perf_metrics": True, "enable_iter_perf_stats": True}
    sys.path.insert(0, ROOT)
    with tempfile.NamedTemporaryFile("w", delete=False) as file:
        file.write(KEY)
    sys.argv = ["engine", "--host", host, "--port", str(port), "--model", served_model_name,
                "--ctx-size", str(max_seq_len), "--slots", "2", "--api-key-file", file.name]
    runpy.run_module("llmgw.sim.engine", run_name="__main__")

main()
"""
COMFYUI = """
import argparse, http.server, os, sys
import yaml
parser = argparse.ArgumentParser()
for name in ("--listen", "--port", "--extra-model-paths-config", "--input-directory", "--output-directory",
             "--temp-directory", "--user-directory", "--cache-lru"):
    parser.add_argument(name)
for name in ("--disable-auto-launch", "--disable-api-nodes", "--lowvram"):
    parser.add_argument(name, action="store_true")
args = parser.parse_args()
for name in ("input", "output", "temp", "user"):
    assert os.listdir(getattr(args, f"{name}_directory")) == []
with open(args.extra_model_paths_config) as file:
    (folders,) = yaml.safe_load(file).values()
assert os.listdir(os.path.join(folders["base_path"], folders["checkpoints"])) == ["flux.safetensors"]

class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = self.path == "/system_stats"
        self.send_response(200 if found else 404)
        self.end_headers()
        self.wfile.write(b'{"system": {}, "devices": []}' if found else b"")

http.server.ThreadingHTTPServer((args.listen, int(args.port)), Handler).serve_forever()
"""


def spec(engine: str, model: str, weights: Path, **fields: object) -> ShardSpec:
    """A shard of one engine."""
    plain: dict[str, object] = {"shard_id": "r1/0", "source": f"file:{weights}", "slots": 2, "tp": 1}
    return ShardSpec(engine=engine, model=model, **(plain | fields))  # type: ignore[arg-type]  # its fields are checked


@pytest.mark.trio
async def test_tensorrt_llm_starts_as_built_with_no_key_of_its_own(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.mkdir()
    (weights / "config.json").write_text("{}")
    program = tmp_path / "environment" / "bin" / "trtllm-serve"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\nROOT, KEY = {str(ROOT)!r}, {KEY!r}\n" + TRTLLM)
    program.chmod(0o755)
    engines = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"trtllm": str(tmp_path / "environment")}))
    asked = spec("trtllm", "org/m", weights, context_length=1024, args=["--max_batch_size=8"])
    async with yard(tmp_path / "node", cluster_id=f"test-{uuid.uuid4().hex}", engines=engines) as node:
        node.start(asked)
        status = await node.state("r1/0", ShardState.READY)
        assert status.endpoint
        command = Path(f"/proc/{status.pid}/cmdline").read_bytes()
        environment = Path(f"/proc/{status.pid}/environ").read_bytes()
        assert KEY.encode() not in command + environment


@pytest.mark.trio
async def test_comfyui_is_ready_when_it_answers_and_this_node_alone_reaches_it(tmp_path: Path) -> None:
    home = tmp_path / "ComfyUI"
    (home / ".venv" / "bin").mkdir(parents=True)
    (home / ".venv" / "bin" / "python").symlink_to(sys.executable)
    (home / "main.py").write_text(f"import sys\nsys.path += {sys.path!r}\n" + COMFYUI)
    weights = tmp_path / "set"
    weights.mkdir()
    (weights / "flux.safetensors").write_bytes(b"")
    engines = known_engines(AgentConfig(data=str(tmp_path), engine_paths={"comfyui": str(home)}))
    asked = spec("comfyui", "flux", weights / "flux.safetensors", args=["--lowvram", "--cache-lru", "2"])
    async with yard(
        tmp_path / "node", cluster_id=f"test-{uuid.uuid4().hex}", engines=engines, host="127.0.0.2"
    ) as node:
        node.start(asked)
        status = await node.state("r1/0", ShardState.READY)
        assert status.endpoint == ""
        arguments = Path(f"/proc/{status.pid}/cmdline").read_bytes().decode().split("\0")
        assert arguments[arguments.index("--listen") + 1] == "127.0.0.1"
        port = arguments[arguments.index("--port") + 1]
        url = f"http://127.0.0.1:{port}"
        assert (await trio.to_thread.run_sync(partial(ask, f"{url}/system_stats")))[0] == 200
        assert (await trio.to_thread.run_sync(partial(ask, f"{url}/v1/models")))[0] == 404
        assert node.supervisor.serving() == [], "it has no page that says how busy it is"
