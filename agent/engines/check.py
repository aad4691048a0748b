"""Whether an engine that is installed here takes every flag that this version gives it, by its own help.

Engines rename and drop flags between versions; a flag that is gone is found out here and not by a model that fails.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from agent.command import ToolFailed, run_tool
from agent.config import AgentConfig
from agent.engines import known_engines
from agent.engines.base import Engine, Launch
from agent.engines.ray import further_ports
from agent.provision.service import provisions_of
from llmgw.core.catalog import PICTURE_ENGINES
from llmgw.core.cluster import RUNTIME
from llmgw.core.engine_checks import EngineCheck
from llmgw.core.engine_flags import ALLOWED
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import ShardPlace, ShardSpec

HELP_TIMEOUT_S = 180.0
"""Some engines import everything they have before they say how they are called."""

_FLAG = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_CONDENSED = re.compile(r"--\[no-\]([\w-]+)")


def check(engine: Engine) -> EngineCheck:
    """Ask an engine, blocking for as long as it takes to answer."""
    name, version = engine.name, ""
    try:
        build = engine.detect()
        if build is None:
            return EngineCheck(engine=name, installed=False)
        version = build.version
        if not build.usable:
            return EngineCheck(engine=name, version=version, failed=build.why_not)
        written, allowed = written_flags(engine), allowed_flags(engine)
        result = run_tool(engine.help_argv(), timeout_s=HELP_TIMEOUT_S, env=engine.help_env())
    except (ToolFailed, LlmgwError, OSError) as error:
        return EngineCheck(engine=name, version=version, failed=str(error))
    failed = ""
    if result.code != 0:
        last = result.output.strip().rpartition("\n")[2].strip()[:300]
        failed = f"its help ended with exit code {result.code}: {last or 'it printed nothing'}"
    known = known_in(result.output)
    return EngineCheck(
        engine=name,
        version=version,
        written=len(written),
        allowed=len(allowed),
        unknown_written=() if failed else tuple(flag for flag in written if flag not in known),
        unknown_allowed=() if failed else tuple(flag for flag in allowed if flag not in known),
        failed=failed,
    )


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
        good = good and found.good and (found.installed or not names)
        print(found.said())
    return good


def written_flags(engine: Engine) -> tuple[str, ...]:
    """Flags of the command lines that this version writes for the engine; raises InvalidInput."""
    with TemporaryDirectory() as directory:
        weights = Path(directory)
        (weights / "config.json").write_text("{}")
        (weights / "model.gguf").touch()
        spec = ShardSpec(
            model="m",
            engine=engine.name,
            source="sim:",
            memory_bytes=1 << 30,
            card_uuids=["GPU-a"],
            context_length=2048,
            slots=1,
            tp=1,
            places=[ShardPlace(node="n", address="127.0.0.1")] if engine.name == RUNTIME else [],
        )
        command = engine.command(
            Launch(
                spec=spec,
                weights=weights / "model.safetensors" if engine.name in PICTURE_ENGINES else weights,
                host="127.0.0.1",
                port=1,
                key_file=weights / "engine.key",
                cpus=1,
                card_bytes=1 << 32,
                further=tuple(range(2, 2 + further_ports(spec))),
            )
        )
    return tuple(sorted({word for word in command.argv[1:] if word.startswith("--")}))


def allowed_flags(engine: Engine) -> tuple[str, ...]:
    """Flags that a profile may add, each by the name the engine is given."""
    return tuple(sorted({flag.name for flag in ALLOWED.get(engine.name, {}).values()}))


def known_in(text: str) -> frozenset[str]:
    """The flags that a help text names, also where it writes `--[no-]flag`."""
    return frozenset(_named(text))


def _named(text: str) -> Iterable[str]:
    yield from _FLAG.findall(text)
    for name in _CONDENSED.findall(text):
        yield from (f"--{name}", f"--no-{name}")
