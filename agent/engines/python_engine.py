"""What engines that are Python packages have in common: where they are installed, and how their memory is told.

The agent installs the versions that agent.yaml names (`engines: {vllm: 0.30.0}`), or the file says where one is
(`engine_paths: {vllm: /opt/vllm}`); what is on PATH is found without that.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from agent.engines.base import Launch
from agent.provision.service import Provisions
from llmgw.core.cluster import EngineBuild
from llmgw.core.errors import InvalidInput
from llmgw.core.fit import PYTHON_ENGINE_BYTES

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MAX_SHARE = 0.97
"""Of a card; the driver and whatever draws on it need the rest."""
MIN_SHARE = 0.02


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


def find(
    engine: str, program: str, package: str, *, configured: str, provisions: Provisions | None
) -> Installation | EngineBuild | None:
    """The installation, or why the one that was named cannot be used; none when none is named or on PATH.

    Reads directories and starts nothing: importing such an engine takes longer than looking at everything else.
    """
    if configured:
        path = Path(configured)
        named = path / "bin" / program if path.is_dir() else path
        if not named.is_file():
            why = f"engine_paths.{engine} in agent.yaml is {configured}, and there is no {named}"
            return EngineBuild(engine=engine, version="", usable=False, why_not=why)
    elif provisions is not None and (here := provisions.program(engine)) is not None:
        named = here
    elif provisions is not None and (build := provisions.told(engine)) is not None:
        return build
    else:
        found = shutil.which(program, path=_PATH) or shutil.which(program)
        if found is None:
            return None
        named = Path(found)
    # A link in /usr/local/bin leads into the environment, in which the package is.
    real = named.resolve()
    return Installation(program=named, version=_version(real.parent.parent, package) or "unknown")


def build_of(engine: str, found: Installation | EngineBuild | None) -> EngineBuild | None:
    """What the control plane is told of it."""
    return EngineBuild(engine=engine, version=found.version) if isinstance(found, Installation) else found


def installed(engine: str, found: Installation | EngineBuild | None) -> Installation:
    """The installation; raises InvalidInput saying why there is none."""
    if isinstance(found, Installation):
        return found
    why = found.why_not if found is not None else f"not installed: name it as engine_paths.{engine} in agent.yaml"
    raise InvalidInput(f"{engine} cannot be started here: {why}", field="engine")


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


def _version(environment: Path, package: str) -> str:
    """Version of a package in an environment, by the name of its metadata's directory."""
    for directory in sorted(environment.glob(f"lib/python3*/site-packages/{package}-*.dist-info")):
        return directory.name.removeprefix(f"{package}-").removesuffix(".dist-info")
    return ""
