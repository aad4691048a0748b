"""Whether an engine that is installed here takes every flag that this version gives it, by its own help.

Engines rename and drop flags between versions; a flag that is gone is found out here and not by a model that fails.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.command import ToolFailed, run_tool
from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Engine, Launch
from agent.provision.service import provisions_of
from llmgw.core.engine_flags import ALLOWED
from llmgw.core.errors import InvalidInput
from llmgw.core.layout import AgentLayout
from llmgw.core.units import plural
from llmgw.wire.llmgw.v1 import ShardSpec

HELP_TIMEOUT_S = 180.0
"""Some engines import everything they have before they say how they are called."""

_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_CONDENSED = re.compile(r"--\[no-\]([\w-]+)")


@dataclass(frozen=True, kw_only=True)
class Check:
    """What an engine's help says of our flags."""

    engine: str
    version: str
    flags: int
    """Flags looked for."""
    missing: tuple[str, ...] = ()
    """Those it does not know."""
    failed: str = ""
    """Why it could not be asked."""

    def said(self) -> str:
        """The outcome as a sentence."""
        if self.failed:
            return f"it could not be asked: {self.failed}"
        if self.missing:
            return f"it does not know {', '.join(self.missing)}, of {plural(self.flags, 'flag')}"
        return f"it takes all {self.flags} flags"


def check(engine: Engine) -> Check | None:
    """Ask an engine, blocking for as long as it takes to answer; none for one that is not installed here."""
    build = engine.detect()
    if build is None:
        return None
    flags = flags_of(engine) if build.usable else ()
    if not build.usable:
        return Check(engine=engine.name, version=build.version, flags=0, failed=build.why_not)
    try:
        result = run_tool(engine.help_argv(), timeout_s=HELP_TIMEOUT_S, env=engine.help_env())
    except ToolFailed as error:
        return Check(engine=engine.name, version=build.version, flags=len(flags), failed=str(error))
    if result.code != 0:
        last = result.output.strip().rpartition("\n")[2].strip()[:300]
        failed = f"its help ended with exit code {result.code}: {last or 'it printed nothing'}"
        return Check(engine=engine.name, version=build.version, flags=len(flags), failed=failed)
    missing = tuple(sorted(set(flags) - known_in(result.output)))
    return Check(engine=engine.name, version=build.version, flags=len(flags), missing=missing)


def report(config: AgentConfig | None, names: Sequence[str]) -> bool:
    """Print a line an engine; whether all is well. Raises InvalidInput for a name of no engine."""
    config = config or AgentConfig(data=".")
    engines = known_engines(config, provisions_of(config, AgentLayout(data=config.data_path)))
    for name in names:
        if name not in engines:
            raise InvalidInput(f"{name!r} is not one of {', '.join(engines)}", field="engine")
    good = True
    for name in names or engines:
        found = check(engines[name])
        if found is None:
            print(f"{name}: not installed here")
            good = good and not names
            continue
        good = good and not found.failed and not found.missing
        print(f"{name} {found.version}: {found.said()}" if found.version else f"{name}: {found.said()}")
    return good


def flags_of(engine: Engine) -> tuple[str, ...]:
    """Every flag this version may give the engine: those of each command line, and those a profile may add."""
    with TemporaryDirectory() as directory:
        weights = Path(directory)
        (weights / "config.json").touch()
        (weights / "model.gguf").touch()
        spec = ShardSpec(model="m", engine=engine.name, source="sim:", memory_bytes=1 << 30, card_uuids=["GPU-a"])
        command = engine.command(
            Launch(
                spec=spec,
                weights=weights,
                host="127.0.0.1",
                port=1,
                key_file=weights / "engine.key",
                cpus=1,
                card_bytes=1 << 32,
            )
        )
    built = (word for word in command.argv[1:] if word.startswith("--"))
    return tuple(sorted({*built, *(flag.name for flag in ALLOWED.get(engine.name, {}).values())}))


def known_in(text: str) -> frozenset[str]:
    """The flags that a help text names, also where it writes `--[no-]flag`."""
    return frozenset(_named(text))


def _named(text: str) -> Iterable[str]:
    yield from _FLAG.findall(text)
    for name in _CONDENSED.findall(text):
        yield from (f"--{name}", f"--no-{name}")
