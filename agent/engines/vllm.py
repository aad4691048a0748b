"""vLLM, installed by the agent or the operator: `vllm serve`, on cards of one node, or of several on Ray."""

import sys
from collections.abc import Mapping, Sequence

from agent.engines import ray
from agent.engines.base import Command, Launch
from agent.engines.environment import python_path
from agent.engines.loads import VLLM
from agent.engines.python_compute import VLLM as SAYS_COMPUTE
from agent.engines.python_engine import QUIET, PythonEngine, directory_of, share_of_card
from agent.engines.ray_launcher import BETWEEN
from agent.shared import WEIGHTS
from llmgw.core.errors import InvalidInput

LAUNCHER = "agent.engines.ray_launcher"


class Vllm(PythonEngine):
    """Adapter of `vllm serve`. Its key protects `/v1` alone: keep its ports from everybody but routers."""

    name = "vllm"
    help_flag = "--help=all"
    quiet = {**QUIET, "VLLM_NO_USAGE_STATS": "1"}  # noqa: RUF012 - read only, as the base class declares
    load_metrics = VLLM
    says_compute = SAYS_COMPUTE

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Batches, caches, parsers and the like; raises InvalidInput."""
        checked = super().check_args(args, env)
        if "--enable-auto-tool-choice" in checked and "--tool-call-parser" not in checked:
            raise InvalidInput("--enable-auto-tool-choice needs a --tool-call-parser beside it", field="args")
        return checked

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, self.installed(), directory_of(launch, self.name)
        if launch.shared is not None:
            # Every node loads what the head names.
            weights = launch.shared / WEIGHTS
        share = share_of_card(launch)
        own = [
            *(str(here.program), "serve", str(weights)),
            *("--served-model-name", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            *("--max-model-len", str(spec.context_length)),
            *("--tensor-parallel-size", str(max(1, spec.tp))),
            *(("--pipeline-parallel-size", str(spec.pp)) if spec.pp > 1 else ()),
            *(("--distributed-executor-backend", "ray") if spec.places else ()),
            *(("--gpu-memory-utilization", share) if share else ()),
            "--enable-prompt-tokens-details",
            *("--uvicorn-log-level", "warning"),
        ]
        # vLLM tells its processes on other nodes to use the same directory.
        compiled = launch.shared / "cache" if launch.shared is not None else launch.cache
        cache = {"VLLM_CACHE_ROOT": str(compiled)} if compiled is not None else {}
        command = Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env={**self.environment(here), **cache},
            key_variable="VLLM_API_KEY",
        )
        return self._on_ray(launch, command) if spec.places else command

    def _on_ray(self, launch: Launch, command: Command) -> Command:
        """The head of several shards: Ray's head first, and beside it the engine; raises InvalidInput without Ray."""
        address = ray.address_of(launch.spec)
        host = f"[{address}]" if ":" in address else address
        return Command(
            argv=(
                *(sys.executable, "-P", "-m", LAUNCHER, f"{host}:{ray.ports_of(launch).join}"),
                *(BETWEEN, *ray.start_argv(ray.Ray(self).program(), launch)),
                *(BETWEEN, *command.argv),
            ),
            env={**command.env, **ray.environment(launch), "PYTHONPATH": python_path()},
            key_variable=command.key_variable,
            token_variable=ray.TOKEN_VARIABLE,
        )
