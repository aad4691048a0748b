"""The sim engine: the OpenAI API at a set pace, without weights and without cards."""

import sys
from collections.abc import Mapping, Sequence

import llmgw
from agent.engines.base import Command, Launch
from agent.engines.environment import python_path
from agent.engines.loads import LLAMACPP
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.sim.options import SOURCE_SCHEME, engine_argv
from llmgw.wire.llmgw.v1 import ShardSpec


class Sim:
    """Adapter of `python -m llmgw.sim.engine`."""

    name = "sim"
    needs_weights = False
    health_path = "/health"
    load_metrics = LLAMACPP
    """It speaks of itself under llama.cpp's names, among others."""
    says_compute = None
    """It computes nothing."""

    def detect(self) -> EngineBuild:
        """Always there: it is part of llmgw."""
        return EngineBuild(engine=self.name, version=llmgw.__version__)

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Pace, queue and faults; raises InvalidInput."""
        check_env(env)
        return check_args(self.name, args)

    def command(self, launch: Launch) -> Command:
        """Our module under this interpreter; raises InvalidInput for a source that is no `sim:` source."""
        spec = launch.spec
        flags = engine_argv(
            host=launch.host,
            port=launch.port,
            model=spec.model,
            slots=max(1, spec.slots),
            ctx_size=max(8, spec.context_length),
            api_key_file=launch.key_file,
            source=spec.source if spec.source.startswith(SOURCE_SCHEME) else SOURCE_SCHEME,
            args=self.check_args(spec.args, spec.env),
        )
        argv = (sys.executable, "-P", "-m", "llmgw.sim.engine", *flags)
        return Command(argv=argv, env={"PYTHONPATH": python_path()})

    def help_argv(self) -> tuple[str, ...]:
        """Our module's own help."""
        return (sys.executable, "-P", "-m", "llmgw.sim.engine", "--help")

    def help_env(self) -> Mapping[str, str]:
        """Where our module is."""
        return {"PYTHONPATH": python_path()}

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The model's own name."""
        return (spec.model,)
