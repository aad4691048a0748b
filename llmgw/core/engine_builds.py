"""Which engines nodes install, and how a version is written: for agent.yaml and for what the cluster asks of a node."""

import re
from datetime import date

from llmgw.core.errors import InvalidInput

PACKAGED = ("vllm", "sglang", "freetoken")
"""Installed as Python packages; each needs a card."""
RELEASED = "llamacpp"
"""Installed from a release's archive, on machines without cards too."""
INSTALLED = (*PACKAGED, RELEASED)
NONE = "none"
"""In a version's place: installs none."""
AUTO = "auto"
"""In a version's place: as the node's own agent.yaml says."""

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,40}(@[0-9]{4}-[0-9]{2}-[0-9]{2})?")
_TAG = re.compile(r"b[0-9]{1,7}")


def check_build(engine: str, version: str, *, field: str | None = None) -> None:
    """Raise InvalidInput unless it is a version of an engine that is installed, or `none`."""
    if engine not in INSTALLED:
        raise InvalidInput(f"{engine[:40]!r} is not one of {', '.join(INSTALLED)}", field=field)
    if version == NONE:
        return
    if engine == RELEASED:
        if not _TAG.fullmatch(version):
            raise InvalidInput(
                f"{version[:40]!r} is no release of llama.cpp: write its tag, such as b10991", field=field
            )
    elif not _is_version(version):
        raise InvalidInput(
            f"{version[:40]!r} is no version: write 0.30.0, or 0.30.0@2026-09-24 for the index of a day", field=field
        )


def _is_version(text: str) -> bool:
    """Whether it is a version, and its day, if it has one, a day of the calendar."""
    try:
        _, _, day = text.partition("@")
        return _VERSION.fullmatch(text) is not None and (not day or bool(date.fromisoformat(day)))
    except ValueError:
        return False
