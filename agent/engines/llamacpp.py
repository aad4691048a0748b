"""llama.cpp: the operator's `llama-server`, the one the agent installed, one on PATH, or the one built into llmgw.

All take the same flags.
"""

import importlib.metadata
import importlib.util
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.command import ToolFailed, run_tool
from agent.engines.base import Command, Launch
from agent.engines.environment import python_path
from agent.engines.llamacpp_compute import LLAMACPP as SAYS_COMPUTE
from agent.engines.loads import LLAMACPP
from agent.provision.service import Provisions
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env, given
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

VERSION_TIMEOUT_S = 10.0
"""`llama-server --version` loads the CUDA libraries first."""
LAUNCHER = "agent.engines.llamacpp_launcher"
ALL_LAYERS = "999"
"""More layers than any model has: all of them on the cards."""

_VERSION = re.compile(r"version: *([0-9A-Za-z.()+ -]{1,40})")
_PART = re.compile(r"-([0-9]{5})-of-([0-9]{5})\.gguf$")


class LlamaCpp:
    """Adapter of `llama-server` and of our launcher, `python -m agent.engines.llamacpp_launcher`."""

    name = "llamacpp"
    needs_weights = True
    health_path = "/health"
    load_metrics = LLAMACPP
    says_compute = SAYS_COMPUTE

    def __init__(self, *, binary: str = "", provisions: Provisions | None = None) -> None:
        self._configured = binary
        self._provisions = provisions

    def detect(self) -> EngineBuild:
        """The binary's version, else the built-in one's."""
        binary = self._binary()
        if binary:
            return self._detect_binary(binary)
        if importlib.util.find_spec("xllamacpp") is None:
            why = (
                "no llama-server on PATH, none set as llama_server in agent.yaml, and the package xllamacpp is missing"
            )
            return EngineBuild(engine=self.name, version="", usable=False, why_not=why)
        return EngineBuild(engine=self.name, version=f"xllamacpp {importlib.metadata.version('xllamacpp')}")

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Threads, batches, cache types and the like; raises InvalidInput."""
        check_env(env)
        return check_args(self.name, args)

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when there is no GGUF file to load."""
        spec = launch.spec
        if launch.weights is None:
            raise InvalidInput("llama.cpp needs the path of a model, and the shard has none", field="source")
        slots = max(1, spec.slots)
        own = [
            *("--model", str(find_gguf(launch.weights))),
            *("--alias", spec.model),
            *("--host", launch.host),
            *("--port", str(launch.port)),
            # llama.cpp divides its context among the slots.
            *("--ctx-size", str(spec.context_length * slots)),
            *("--parallel", str(slots)),
            *("--api-key-file", str(launch.key_file)),
            "--metrics",
        ]
        args = self.check_args(spec.args, spec.env)
        if not given(args, "--n-gpu-layers"):
            own += ["--n-gpu-layers", ALL_LAYERS if spec.card_uuids else "0"]
        if not given(args, "--threads"):
            # One CPU is left to everybody else: llama.cpp's threads spin on each other, and one that has to wait for
            # its CPU holds up all of them.
            own += ["--threads", str(max(1, launch.cpus - 1))]
        binary = self._binary()
        if binary:
            # As a variable, because older servers end on a flag they do not know. The prompt cache in host memory is
            # 8 GiB by default, which nobody reserved.
            cache = {} if given(args, "--cache-ram") else {"LLAMA_ARG_CACHE_RAM": "0"}
            return Command(argv=(binary, *own, *args), env=cache)
        launcher = (sys.executable, "-P", "-m", LAUNCHER)
        return Command(argv=(*launcher, *own, *args), env={"PYTHONPATH": python_path()})

    def help_argv(self) -> tuple[str, ...]:
        """The server's help, or our launcher's."""
        binary = self._binary()
        return (binary, "--help") if binary else (sys.executable, "-P", "-m", LAUNCHER, "--help")

    def help_env(self) -> Mapping[str, str]:
        """Where our launcher is."""
        return {"PYTHONPATH": python_path()}

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The alias it was started under."""
        return (spec.model,)

    def _binary(self) -> str:
        installed = self._provisions.program(self.name) if self._provisions is not None else None
        return self._configured or str(installed or "") or shutil.which("llama-server") or ""

    def _detect_binary(self, binary: str) -> EngineBuild:
        try:
            result = run_tool([binary, "--version"], timeout_s=VERSION_TIMEOUT_S)
        except ToolFailed as error:
            return EngineBuild(engine=self.name, version="", usable=False, why_not=str(error))
        match = _VERSION.search(result.output)
        if result.code != 0:
            why = f"{binary} --version ended with {result.code}"
            return EngineBuild(engine=self.name, version="", usable=False, why_not=why)
        return EngineBuild(engine=self.name, version=match[1].strip() if match else "unknown")


def find_gguf(path: Path) -> Path:
    """The file to load: `path` itself, or the only model in the directory, its first part when it is split.

    Raises InvalidInput when there is none or more than one.
    """
    if path.is_file():
        return path
    files = sorted(file for file in path.rglob("*.gguf") if not file.name.lower().startswith("mmproj"))
    models = [file for file in files if (part := _PART.search(file.name)) is None or part[1] == "00001"]
    if len(models) == 1:
        return models[0]
    if not models:
        raise InvalidInput("there is no .gguf file, and llama.cpp loads nothing else", field="source")
    names = ", ".join(file.name for file in models[:5])
    raise InvalidInput(f"there are {len(models)} models ({names}); name one file in the source", field="source")
