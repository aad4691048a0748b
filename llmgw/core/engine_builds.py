"""Which engines nodes install, and how a version is written: for agent.yaml and for what the cluster asks of a node."""

import re
from collections.abc import Mapping
from datetime import date

from llmgw.core.errors import InvalidInput

PACKAGED = ("vllm", "sglang", "freetoken")
"""Installed as Python packages; each needs a card."""
RELEASED = "llamacpp"
"""Installed from a release's archive, on machines without cards too."""
INSTALLED = (*PACKAGED, RELEASED)
OWN: Mapping[str, str] = {
    "trtllm": "install it, and name its environment",
    "comfyui": "install it, and name its directory",
    "strata": "no checksum of its releases is known that a download could be held against, and nothing is run "
    "unchecked. Get the release yourself, check it, run its setup.sh, and name its directory",
}
"""Operators install these themselves: what is to be done, before the key that names the place."""
FOLLOWED: Mapping[str, str] = {"vllm": "0.30.0", "sglang": "0.5.23", "freetoken": "0.2.1", RELEASED: "b10991"}
"""By engine: the version whose flags were compared with ours."""
DEFAULT = "default"
"""In a version's place: the one that is followed."""
NONE = "none"
"""In a version's place: installs none."""
AUTO = "auto"
"""In a version's place: as the node's own agent.yaml says."""

_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!]{0,40}(@[0-9]{4}-[0-9]{2}-[0-9]{2})?")
_TAG = re.compile(r"b[0-9]{1,7}")


def check_build(engine: str, version: str, *, field: str | None = None) -> None:
    """Raise InvalidInput unless it is a version of an engine that is installed, `default` or `none`."""
    if engine in OWN:
        raise InvalidInput(
            f"{engine} is not installed by llmgw: {OWN[engine]} as engine_paths.{engine} in agent.yaml", field=field
        )
    if engine not in INSTALLED:
        raise InvalidInput(f"{engine[:40]!r} is not one of {', '.join(INSTALLED)}", field=field)
    if version in (DEFAULT, NONE):
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


def version_meant(engine: str, version: str) -> str:
    """The version itself, where `default` stands for one."""
    return FOLLOWED.get(engine, version) if version == DEFAULT else version


def _is_version(text: str) -> bool:
    """Whether it is a version, and its day, if it has one, a day of the calendar."""
    try:
        _, _, day = text.partition("@")
        return _VERSION.fullmatch(text) is not None and (not day or bool(date.fromisoformat(day)))
    except ValueError:
        return False
