"""vLLM, as the operator installed it: `vllm serve`, on one card or several of one node."""

from collections.abc import Mapping, Sequence

from agent.engines.base import Command, Launch
from agent.engines.loads import VLLM
from agent.engines.python_engine import Installation, build_of, directory_of, find, installed, share_of_card
from agent.provision.service import Provisions
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

QUIET = {
    # Weights are here already, and an engine has nobody to call.
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}


class Vllm:
    """Adapter of `vllm serve`. Its key protects `/v1` alone: keep its ports from everybody but routers."""

    name = "vllm"
    needs_weights = True
    health_path = "/health"
    load_metrics = VLLM

    def __init__(self, *, configured: str = "", provisions: Provisions | None = None) -> None:
        """Started from the place that is `configured`, else as the agent installed it, else as it is on PATH."""
        self._configured = configured
        self._provisions = provisions

    def detect(self) -> EngineBuild | None:
        """The version of the environment it is in."""
        return build_of(self.name, self._find())

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Batches, caches, parsers and the like; raises InvalidInput."""
        check_env(env)
        checked = check_args(self.name, args)
        if "--enable-auto-tool-choice" in checked and "--tool-call-parser" not in checked:
            raise InvalidInput("--enable-auto-tool-choice needs a --tool-call-parser beside it", field="args")
        return checked

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, installed(self.name, self._find()), directory_of(launch, self.name)
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
            env={"PATH": here.path, **QUIET, **cache},
            key_variable="VLLM_API_KEY",
        )

    def help_argv(self) -> tuple[str, ...]:
        """Its help with every flag; raises InvalidInput when it is not installed."""
        return (str(installed(self.name, self._find()).program), "serve", "--help=all")

    def help_env(self) -> Mapping[str, str]:
        """The environment's own programs, and nobody called."""
        return {"PATH": installed(self.name, self._find()).path, **QUIET}

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The name it was started under."""
        return (spec.model,)

    def _find(self) -> Installation | EngineBuild | None:
        return find(self.name, "vllm", "vllm", configured=self._configured, provisions=self._provisions)
