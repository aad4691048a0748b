"""Strata, installed by the operator: a mixture's experts in memory, the rest on one card. It is set up, then it serves.

What `strata_launcher.py` does is what its own container does: setup for the model with the context that is wanted, then
the server on what the setup wrote.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.engines.base import Command, Launch
from agent.engines.environment import python_path
from agent.engines.llamacpp import find_gguf
from agent.provision.meant import Machine, Requirements, standing
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

LAUNCHER = "agent.engines.strata_launcher"
NEEDS = Requirements(architecture="x86_64", drivers=(((6, 0), 575), ((9, 0), 580)))
"""Pascal to Ada by CUDA 12.9, what is newer by CUDA 13."""
SETUP_S = 4 * 3600.0
"""Its first start fetches gigabytes and prepares the model."""
_PARTS = ("setup.py", "serve/server.py", ".venv/bin/python")


class Strata:
    """Adapter of Strata's setup and server. It says nowhere in Prometheus' words how busy it is."""

    name = "strata"
    needs_weights = True
    health_path = "/health"
    load_metrics = None
    says_compute = None

    def __init__(self, *, configured: str = "", machine: Machine | None = None) -> None:
        """Started from the directory that is `configured`; `machine` is what its kernels run on."""
        self._configured = configured
        self._machine = machine or Machine()

    def detect(self) -> EngineBuild | None:
        """Its version, or what is missing; none where no directory was named, or its kernels cannot run."""
        if not self._configured:
            return None
        here = standing(NEEDS, self._machine)
        if here.elsewhere:
            return None
        why = self._missing() or here.lacks
        return EngineBuild(engine=self.name, version=self._version(), usable=not why, why_not=why)

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Which model it is, and how it keeps it; raises InvalidInput."""
        check_env(env)
        return check_args(self.name, args)

    def command(self, launch: Launch) -> Command:
        """Our launcher and what the setup is told; raises InvalidInput when it cannot run here, or load the weights."""
        spec, root = launch.spec, self._installed()
        if launch.weights is None:
            raise InvalidInput("strata needs the path of a model, and the shard has none", field="source")
        if len(spec.card_uuids) != 1:
            raise InvalidInput(f"strata runs on one card, and this replica has {len(spec.card_uuids)}", field="tp")
        card = self._machine.card(spec.card_uuids[0])
        data = (launch.cache or launch.key_file.parent) / "data"
        own = [
            *(sys.executable, "-P", "-m", LAUNCHER),
            *(str(root), str(data), spec.model, launch.host, str(launch.port)),
            *("--setup", "--yes", "--no-start", "--no-browser"),
            *("--gguf-dir", str(find_gguf(launch.weights).parent)),
            *("--data-dir", str(data)),
            *("--context", str(spec.context_length)),
            *("--vision", "no"),
            *("--experimental-speed-projection", "off"),
            # The setup looks at cards as nvidia-smi numbers them; the engine sees the one it is given.
            *("--gpu", str(card.index if card is not None else 0)),
        ]
        return Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env={"PYTHONPATH": python_path(), "HOME": str(data)},
            key_variable="STRATA_API_KEY",
            directories=(data,),
            patience_s=SETUP_S,
        )

    def help_argv(self) -> tuple[str, ...]:
        """Its setup's help; raises InvalidInput when it is not installed."""
        root = self._installed()
        return (str(root / ".venv/bin/python"), str(root / "setup.py"), "--help")

    def help_env(self) -> Mapping[str, str]:
        """Nothing besides."""
        return {}

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """The name our launcher writes into what the setup wrote."""
        return (spec.model,)

    def _missing(self) -> str:
        absent = next((part for part in _PARTS if not (Path(self._configured) / part).is_file()), "")
        if not absent:
            return ""
        hint = ": its own setup.sh makes it" if absent.startswith(".venv") else ""
        return f"engine_paths.strata in agent.yaml is {self._configured}, and there is no {absent} in it{hint}"

    def _installed(self) -> Path:
        """Its directory; raises InvalidInput saying why there is none, or what it lacks."""
        why = "not installed: name its directory as engine_paths.strata in agent.yaml"
        if self._configured:
            why = self._missing() or standing(NEEDS, self._machine).lacks
        if why:
            raise InvalidInput(f"strata cannot be started here: {why}", field="engine")
        return Path(self._configured)

    def _version(self) -> str:
        """As the engine that came with it says."""
        try:
            told = json.loads((Path(self._configured) / "engine" / "BUILD.json").read_bytes())
            return str(told["version"])[:40]
        except (OSError, ValueError, KeyError, TypeError):
            return "unknown"
