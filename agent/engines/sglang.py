"""SGLang, installed by the agent or the operator: `sglang serve`, on one card or several of one node."""

from agent.engines.base import Command, Launch, key_config_of
from agent.engines.loads import SGLANG
from agent.engines.python_compute import SGLANG as SAYS_COMPUTE
from agent.engines.python_engine import PythonEngine, directory_of, static_share_of_card


class Sglang(PythonEngine):
    """Adapter of `sglang serve`."""

    name = "sglang"
    load_metrics = SGLANG
    says_compute = SAYS_COMPUTE

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are nothing it loads."""
        spec, here, weights = launch.spec, self.installed(), directory_of(launch, self.name)
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
            env=self.environment(here),
            key_text="api-key: '{key}'\n",
        )
