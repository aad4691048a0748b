"""CUDA toolkits by major version: `CUDA_HOME` first, then `/usr/local/cuda`, then `/usr/local/cuda-*`, newest first.

A directory without `nvcc` is no toolkit: a driver's package leaves libraries there.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from agent.command import ToolFailed, ToolResult, run_tool

NVCC_TIMEOUT_S = 10.0
MAX_DIRECTORIES = 64
_MAX_READ = 64 * 1024
_VERSION = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9]{1,4})?")
_RELEASE = re.compile(r"release ([0-9]{1,3}\.[0-9]{1,3})")
_DIRECTORY = re.compile(r"cuda-([0-9]{1,3})(?:\.([0-9]{1,3}))?")


@dataclass(frozen=True, kw_only=True)
class Toolkit:
    """One toolkit."""

    path: Path
    major: int
    minor: int

    @property
    def version(self) -> str:
        """`12.8`."""
        return f"{self.major}.{self.minor}"


def toolkits(
    environment: Mapping[str, str], *, root: Path = Path("/"), run: Callable[..., ToolResult] = run_tool
) -> tuple[Toolkit, ...]:
    """The toolkit of each major version, the newest major first. Blocking."""
    found: dict[int, Toolkit] = {}
    seen: set[str] = set()
    for directory in _directories(environment, root):
        real = os.path.realpath(directory)
        toolkit = None if real in seen else _toolkit(directory, run)
        seen.add(real)
        if toolkit is not None:
            found.setdefault(toolkit.major, toolkit)
    return tuple(found[major] for major in sorted(found, reverse=True))


def toolkit(
    major: int,
    environment: Mapping[str, str],
    *,
    root: Path = Path("/"),
    run: Callable[..., ToolResult] = run_tool,
) -> Toolkit | None:
    """The toolkit of a major version; one of another version is none."""
    return next((found for found in toolkits(environment, root=root, run=run) if found.major == major), None)


def _directories(environment: Mapping[str, str], root: Path) -> Iterator[Path]:
    home = environment.get("CUDA_HOME", "")
    if home:
        yield Path(home)
    local = root / "usr/local"
    yield local / "cuda"
    try:
        versions = [(_order(path.name), path) for path in local.glob("cuda-*")]
    except OSError:
        return
    yield from (path for _, path in sorted(versions, reverse=True)[:MAX_DIRECTORIES])


def _order(name: str) -> tuple[int, int]:
    """By number and not by letter: 13.10 is newer than 13.4."""
    match = _DIRECTORY.fullmatch(name)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _toolkit(directory: Path, run: Callable[..., ToolResult]) -> Toolkit | None:
    nvcc = directory / "bin" / "nvcc"
    if not os.path.isfile(nvcc):
        return None
    match = _VERSION.match(_from_file(directory / "version.json") or _from_nvcc(nvcc, run))
    return Toolkit(path=directory, major=int(match[1]), minor=int(match[2])) if match else None


def _from_file(path: Path) -> str:
    try:
        with path.open("rb") as file:
            told = json.loads(file.read(_MAX_READ))
        version = told["cuda"]["version"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return ""
    return version if isinstance(version, str) else ""


def _from_nvcc(nvcc: Path, run: Callable[..., ToolResult]) -> str:
    try:
        result = run([str(nvcc), "--version"], timeout_s=NVCC_TIMEOUT_S)
    except ToolFailed:
        return ""
    match = _RELEASE.search(result.output)
    return match[1] if match and result.code == 0 else ""
