"""SGLang, as the operator installed it: `sglang serve`, on one card or several of one node."""

from collections.abc import Mapping, Sequence

from agent.engines.base import Command, Launch, key_config_of
from agent.engines.loads import SGLANG
from agent.engines.python_engine import Installation, build_of, directory_of, find, installed, static_share_of_card
from agent.provision.service import Provisions
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.wire.llmgw.v1 import ShardSpec

QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""Weights are here already, and an engine has nobody to call."""


class Sglang:
    """Adapter of `sglang serve`."""

    name = "sglang"
    needs_weights = True
    health_path = "/health"
    load_metrics = SGLANG

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
        return check_args(self.name, args)

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, installed(self.name, self._find()), directory_of(launch, self.name)
        share = static_share_of_card(launch)
        own = [
            *(str(here.program), "serve"),
            *("--model-path", str(weights)),
            # It takes a key on its command line, which everybody on the machine can read, or in a file.
            *("--config", str(key_config_of(launch))),
            *("--served-model-name", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            *("--context-length", str(spec.context_length)),
            *("--tp-size", str(max(1, spec.tp))),
            *(("--mem-fraction-static", share) if share else ()),
            "--enable-metrics",
            "--enable-cache-report",
            *("--log-level-http", "warning"),
        ]
        return Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env={"PATH": here.path, **QUIET},
            key_text="api-key: '{key}'\n",
        )

    def help_argv(self) -> tuple[str, ...]:
        """Its help with every flag; raises InvalidInput when it is not installed."""
        return (str(installed(self.name, self._find()).program), "serve", "--help")

    def help_env(self) -> Mapping[str, str]:
        """The environment's own programs, and nobody called."""
        return {"PATH": installed(self.name, self._find()).path, **QUIET}

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The name it was started under."""
        return (spec.model,)

    def _find(self) -> Installation | EngineBuild | None:
        return find(self.name, "sglang", "sglang", configured=self._configured, provisions=self._provisions)
