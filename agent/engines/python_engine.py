"""What engines that are Python packages have in common: where they are installed, and how their memory is told.

The agent installs the versions that agent.yaml names (`engines: {vllm: 0.30.0}`), or the file says where one is
(`engine_paths: {vllm: /opt/vllm}`); what is on PATH is found without that.
"""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from agent.engines.base import Launch
from agent.engines.compute import ComputeWords
from agent.provision.service import Provisions
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import PYTHON_ENGINE_BYTES
from llmgw.wire.llmgw.v1 import ShardSpec

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_SHARE = 0.97
"""Of a card; the driver and whatever draws on it need the rest."""
MIN_SHARE = 0.02
QUIET = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "DO_NOT_TRACK": "1"}
"""Weights are here already, and an engine has nobody to call."""


@dataclass(frozen=True, kw_only=True)
class Installation:
    """An engine that is here."""

    program: Path
    """What is started."""
    version: str
    """As its package says; `unknown` where it does not."""

    @property
    def path(self) -> str:
        """PATH with the environment's own programs first: compilers and the like are looked up by name."""
        return f"{self.program.parent}:{_PATH}"


class PythonEngine:
    """What `vllm` and `sglang` adapters share: being found, asked for help, and named."""

    name: str
    """As profiles name it, and its package and program too unless these are set."""
    program: str = ""
    """What is started, where it is not called like the engine."""
    package: str = ""
    """What it is installed from, where that is not called like the engine."""
    help_flag = "--help"
    """What makes its `serve` print every flag."""
    quiet: ClassVar[Mapping[str, str]] = QUIET
    needs_weights = True
    health_path = "/health"
    says_compute: ComputeWords | None = None

    def __init__(self, *, configured: str = "", provisions: Provisions | None = None) -> None:
        """Started from the place that is `configured`, else as the agent installed it, else as it is on PATH."""
        self._configured = configured
        self._provisions = provisions

    def detect(self) -> EngineBuild | None:
        """The version of the environment it is in."""
        found = self._find()
        return EngineBuild(engine=self.name, version=found.version) if isinstance(found, Installation) else found

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Batches, caches, parsers and the like; raises InvalidInput."""
        check_env(env)
        return check_args(self.name, args)

    def help_argv(self) -> tuple[str, ...]:
        """Its help with every flag; raises InvalidInput when it is not installed."""
        return (str(self.installed().program), "serve", self.help_flag)

    def help_env(self) -> Mapping[str, str]:
        """The environment's own programs, and nobody called."""
        return self.environment(self.installed())

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The name it was started under."""
        return (spec.model,)

    def installed(self) -> Installation:
        """The installation; raises InvalidInput saying why there is none."""
        found = self._find()
        if isinstance(found, Installation):
            return found
        missing = f"not installed: name it as engine_paths.{self.name} in agent.yaml"
        why = found.why_not if found is not None else missing
        raise InvalidInput(f"{self.name} cannot be started here: {why}", field="engine")

    def environment(self, here: Installation) -> dict[str, str]:
        """What it needs besides the common environment: its own programs first, and nobody to call."""
        return {"PATH": here.path, **self.quiet}

    def _find(self) -> Installation | EngineBuild | None:
        """The installation, or why the one that was named cannot be used; none when none is named or on PATH.

        Reads directories and starts nothing: importing such an engine takes longer than looking at everything else.
        """
        name, provisions = self.name, self._provisions
        program = self.program or name
        if self._configured:
            path = Path(self._configured)
            named = path / "bin" / program if path.is_dir() else path
            if not named.is_file():
                why = f"engine_paths.{name} in agent.yaml is {self._configured}, and there is no {named}"
                return EngineBuild(engine=name, version="", usable=False, why_not=why)
        elif provisions is not None and (here := provisions.program(name)) is not None:
            named = here
        elif provisions is not None and (build := provisions.told(name)) is not None:
            return build
        else:
            found = shutil.which(program, path=_PATH) or shutil.which(program)
            if found is None:
                return None
            named = Path(found)
        return Installation(program=named, version=self._version(named) or "unknown")

    def _version(self, program: Path) -> str:
        """Of the environment a program is in: a link in /usr/local/bin leads into it, and there the package is."""
        return version_of(program, self.package or self.name)


def directory_of(launch: Launch, engine: str) -> Path:
    """The set of files to load; raises InvalidInput when there is none, or a single file."""
    path = launch.weights
    if path is None:
        raise InvalidInput(f"{engine} needs the path of a model, and the shard has none", field="source")
    if not (path / "config.json").is_file():
        raise InvalidInput(
            f"{engine} loads a directory with config.json, tokenizer and safetensors, and {path.name} is none: "
            "write the source as hf:ORG/REPO@REVISION, without a file",
            field="source",
        )
    return path


def share_of_card(launch: Launch, *, beside_bytes: int = 0) -> str:
    """The part of each card that was reserved, less `beside_bytes`, as such engines take it; empty where unknown."""
    if not launch.card_bytes or not launch.spec.memory_bytes:
        return ""
    share = (launch.spec.memory_bytes - beside_bytes) / launch.card_bytes
    return f"{min(MAX_SHARE, max(MIN_SHARE, share)):.4f}"


def static_share_of_card(launch: Launch) -> str:
    """The same for engines that are told what weights and KV cache may take, and take what they work in besides."""
    return share_of_card(launch, beside_bytes=PYTHON_ENGINE_BYTES)


def version_of(program: Path, package: str) -> str:
    """Version of a package in the environment a program is in, by its metadata's directory; empty when it is not."""
    environment = program.resolve().parent.parent
    for directory in sorted(environment.glob(f"lib/python3*/site-packages/{package}-*.dist-info")):
        return directory.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return ""
