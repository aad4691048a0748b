"""Whether this router runs compiled, or as plain Python, and why.

`python -m llmgw.router.build` compiles the modules a token or a request passes through, from the sources as they stand,
into `native/` beside them. What it leaves is used only if not a byte of the router or of `llmgw.core`, against whose
types it was compiled, has changed since; else everything runs as plain Python, which does the same and costs more.
"""

import functools
import hashlib
import importlib.machinery
import json
import os
from pathlib import Path

PLAIN_VARIABLE = "LLMGW_ROUTER_PLAIN"
"""Set to anything, the compiled modules are left alone."""
RECORD = "built.json"
"""What the build says of itself: what it was made for and of, or in a sentence why there is nothing."""
AGAIN = "`make native` compiles it again"

_PACKAGE = Path(__file__).parent


def suffix() -> str:
    """How extension modules of this interpreter end."""
    return importlib.machinery.EXTENSION_SUFFIXES[0]


def digest(package: Path = _PACKAGE) -> str:
    """Of every source that compiled modules were made of, or were checked against."""
    seen = hashlib.sha256()
    for directory in (package, package.parent / "core"):
        for source in sorted(directory.glob("*.py")):
            content = source.read_bytes()
            seen.update(f"{directory.name}/{source.name} {len(content)}\n".encode())
            seen.update(content)
    return seen.hexdigest()


def found(package: Path = _PACKAGE) -> tuple[Path | None, str]:
    """Where usable compiled modules of the router in `package` are, if anywhere; if not, why."""
    directory = package / "native"
    if os.environ.get(PLAIN_VARIABLE):
        return None, f"{PLAIN_VARIABLE} is set"
    try:
        record = json.loads((directory / RECORD).read_text())
    except FileNotFoundError:
        return None, "it was not compiled, which `make native` does where there is a C compiler"
    except (OSError, ValueError) as error:
        return None, f"{directory / RECORD} cannot be read: {error}"
    if record.get("failed"):
        return None, str(record["failed"])
    if record.get("suffix") != suffix():
        return None, f"it was compiled for another Python ({record.get('suffix')}): {AGAIN}"
    try:
        same = record.get("sources") == digest(package)
    except OSError as error:
        return None, f"its sources cannot be read: {error}"
    if not same:
        return None, f"its sources changed since it was compiled: {AGAIN}"
    return directory, ""


@functools.cache
def status() -> tuple[Path | None, str]:
    """The same for this process, found out once: modules are imported by it."""
    return found()


def describe() -> str:
    """In a few words for a log, or for a figure that depends on it."""
    directory, why = status()
    return "compiled" if directory is not None else f"plain Python ({why})"
