"""vLLM, installed by the agent or the operator: `vllm serve`, on one card or several of one node."""

from collections.abc import Mapping, Sequence

from agent.engines.base import Command, Launch
from agent.engines.loads import VLLM
from agent.engines.python_engine import QUIET, PythonEngine, directory_of, share_of_card
from llmgw.core.errors import InvalidInput


class Vllm(PythonEngine):
    """Adapter of `vllm serve`. Its key protects `/v1` alone: keep its ports from everybody but routers."""

    name = "vllm"
    help_flag = "--help=all"
    quiet = {**QUIET, "VLLM_NO_USAGE_STATS": "1"}  # noqa: RUF012 - read only, as the base class declares
    load_metrics = VLLM

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Batches, caches, parsers and the like; raises InvalidInput."""
        checked = super().check_args(args, env)
        if "--enable-auto-tool-choice" in checked and "--tool-call-parser" not in checked:
            raise InvalidInput("--enable-auto-tool-choice needs a --tool-call-parser beside it", field="args")
        return checked

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, self.installed(), directory_of(launch, self.name)
        share = share_of_card(launch)
        own = [
            *(str(here.program), "serve", str(weights)),
            *("--served-model-name", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            *("--max-model-len", str(spec.context_length)),
            *("--tensor-parallel-size", str(max(1, spec.tp))),
            *(("--gpu-memory-utilization", share) if share else ()),
            "--enable-prompt-tokens-details",
            *("--uvicorn-log-level", "warning"),
        ]
        cache = {"VLLM_CACHE_ROOT": str(launch.cache)} if launch.cache is not None else {}
        return Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env={**self.environment(here), **cache},
            key_variable="VLLM_API_KEY",
        )
