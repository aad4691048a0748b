"""ComfyUI, installed by the operator: started with one checkpoint on one card, watched, and asked nothing by routers.

It knows no key and runs whatever workflow it is sent, so it listens on loopback unless agent.yaml opens it. It lists no
models either: ready is what answers its health check.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.engines.base import Command, Launch, key_config_of
from agent.engines.python_engine import QUIET
from llmgw.core.addresses import LOOPBACK
from llmgw.core.cluster import EngineBuild
from llmgw.core.engine_rules import check_args, check_env
from llmgw.core.errors import InvalidInput
from llmgw.wire.llmgw.v1 import ShardSpec

PROGRAM = "main.py"
CHECKPOINT_SUFFIX = ".safetensors"
_PYTHONS = (".venv/bin/python", "venv/bin/python")
"""Where its own documentation puts the environment it runs in; else the system's Python."""
_VERSION = re.compile(r"__version__ *= *[\"']([0-9A-Za-z.+-]{1,40})[\"']")


class ComfyUi:
    """Adapter of ComfyUI's `main.py`."""

    name = "comfyui"
    needs_weights = True
    health_path = "/system_stats"
    load_metrics = None
    """It tells the length of its queue, in no form that metrics have."""
    says_compute = None

    def __init__(self, *, configured: str = "", opened: bool = False) -> None:
        """Started from the directory that is `configured`; `opened`, it listens where the other engines do."""
        self._configured = configured
        self._opened = opened

    def detect(self) -> EngineBuild | None:
        """The version its directory names; none where no directory was named."""
        if not self._configured:
            return None
        main = self._main()
        if not main.is_file():
            why = f"engine_paths.{self.name} in agent.yaml is {self._configured}, and there is no {main}"
            return EngineBuild(engine=self.name, version="", usable=False, why_not=why)
        if not self._python():
            why = f"{self._configured} has no {_PYTHONS[0]}, and there is no python3 on PATH"
            return EngineBuild(engine=self.name, version="", usable=False, why_not=why)
        return EngineBuild(engine=self.name, version=self._version())

    def check_args(self, args: Sequence[str], env: Mapping[str, str]) -> tuple[str, ...]:
        """Precisions, attention, caches and the like; raises InvalidInput."""
        check_env(env)
        return check_args(self.name, args)

    def command(self, launch: Launch) -> Command:
        """The command line; raises InvalidInput when it is not installed or the weights are no checkpoint."""
        spec, program = launch.spec, self._program()
        checkpoint = _checkpoint(launch)
        host = launch.host if self._opened else LOOPBACK
        place = launch.key_file.parent
        directories = {name: place / name for name in ("input", "output", "temp", "user")}
        own = [
            *program,
            *("--listen", host),
            *("--port", str(launch.port)),
            *("--extra-model-paths-config", str(key_config_of(launch))),
            # Beside the installation these would be shared by every replica; the user directory has to be there.
            *(word for name, path in directories.items() for word in (f"--{name}-directory", str(path))),
            "--disable-auto-launch",
            "--disable-api-nodes",
        ]
        folders = {"llmgw": {"base_path": str(checkpoint.parent), "checkpoints": "."}}
        return Command(
            argv=(*own, *self.check_args(spec.args, spec.env)),
            env=QUIET,
            key_text=json.dumps(folders) + "\n",  # JSON is YAML, and quotes a path whatever is in it
            host=host,
            directories=tuple(directories.values()),
        )

    def help_argv(self) -> tuple[str, ...]:
        """Its parser's help, which it prints before it imports what is slow; raises InvalidInput."""
        return (*self._program(), "--help")

    def help_env(self) -> Mapping[str, str]:
        """Nobody called."""
        return QUIET

    def served_names(self, spec: ShardSpec) -> tuple[str, ...]:
        """None: it has no list of models."""
        return ()

    def _program(self) -> tuple[str, str]:
        build = self.detect()
        if build is None or not build.usable:
            missing = f"not installed: name its directory as engine_paths.{self.name} in agent.yaml"
            raise InvalidInput(
                f"{self.name} cannot be started here: {build.why_not if build else missing}", field="engine"
            )
        return self._python(), str(self._main())

    def _main(self) -> Path:
        return Path(self._configured) / PROGRAM

    def _python(self) -> str:
        here = Path(self._configured)
        own = next((here / name for name in _PYTHONS if (here / name).is_file()), None)
        return str(own) if own is not None else shutil.which("python3") or ""

    def _version(self) -> str:
        try:
            text = (Path(self._configured) / "comfyui_version.py").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return "unknown"
        match = _VERSION.search(text[:4096])
        return match[1] if match else "unknown"


def _checkpoint(launch: Launch) -> Path:
    """The file to load; raises InvalidInput when there is none."""
    path = launch.weights
    if path is None:
        raise InvalidInput("comfyui needs the path of a model, and the shard has none", field="source")
    if path.suffix.lower() != CHECKPOINT_SUFFIX:
        raise InvalidInput(
            f"comfyui loads one checkpoint ending in {CHECKPOINT_SUFFIX}, and {path.name} is none: "
            "write the source with the file at its end",
            field="source",
        )
    return path
