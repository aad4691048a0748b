"""What a node says of its engines' flags, made harmless: possible names, possible counts, clean texts."""

import re

from llmgw.agents.plausible import NAME_CHARS, clean, whole
from llmgw.core.engine_checks import EngineCheck
from llmgw.wire.llmgw import v1 as wire

MAX_FLAGS = 1000
"""More flags than any engine has."""
_FLAG = re.compile(r"--?[A-Za-z][A-Za-z0-9_-]{0,100}")


def check_from(message: wire.EngineChecked) -> EngineCheck:
    """One engine's answer; without an engine's name it is a refusal of the whole request."""
    return EngineCheck(
        engine=clean(message.engine, NAME_CHARS),
        version=clean(message.version, NAME_CHARS),
        installed=message.installed,
        written=whole(message.written, MAX_FLAGS),
        allowed=whole(message.allowed, MAX_FLAGS),
        unknown_written=_flags(message.unknown_written),
        unknown_allowed=_flags(message.unknown_allowed),
        failed=clean(message.failed),
    )


def _flags(names: list[str]) -> tuple[str, ...]:
    return tuple(name for name in names[:MAX_FLAGS] if _FLAG.fullmatch(name))
