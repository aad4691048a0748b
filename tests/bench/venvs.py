"""Other gateways' programs, each in a virtual environment of its own outside the tree, every file pinned by its hash.

They are asked of whatever index pip is configured for. What cannot be installed is a sentence in the report.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.bench.native import HERE, Missing

INSTALL_S = 900.0
"""LiteLLM's 116 packages take two minutes over a good line."""


def cache() -> Path:
    """Where the environments are kept: `$XDG_CACHE_HOME/llmgw-bench`, else `~/.cache/llmgw-bench`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "llmgw-bench"


def installed(name: str) -> Path:
    """The `bin` of an environment that holds `tests/bench/NAME.txt` and nothing else; made when needed.

    Another list or another Python is another environment. Raises Missing when pip cannot install it.
    """
    wanted = HERE / f"{name}.txt"
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    mark = hashlib.sha256(wanted.read_bytes() + python.encode()).hexdigest()[:12]
    home = cache() / f"{name}-{mark}"
    if not (home / "complete").exists():
        print(f"installing {name} for the benchmark into {home} …", file=sys.stderr, flush=True)
        shutil.rmtree(home, ignore_errors=True)
        _install(home, wanted, name)
        (home / "complete").touch()
    return home / "bin"


def version(name: str) -> str:
    """Of the package NAME, as its list pins it."""
    pins = (line.split() for line in (HERE / f"{name}.txt").read_text().splitlines() if "==" in line.split(" ")[0])
    return next(pin[0].partition("==")[2] for pin in pins if pin[0].startswith(f"{name}=="))


def _install(home: Path, wanted: Path, name: str) -> None:
    pip = [sys.executable, "-m", "pip", "--python", str(home / "bin" / "python"), "--disable-pip-version-check"]
    steps = (
        [sys.executable, "-m", "venv", "--without-pip", str(home)],
        [*pip, "install", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", str(wanted)],
    )
    try:
        for argv in steps:
            subprocess.run(argv, capture_output=True, text=True, timeout=INSTALL_S, check=True)
    except subprocess.CalledProcessError as error:
        said = [line for line in error.stderr.splitlines() if line.startswith("ERROR")] or ["it did not say why"]
        raise Missing(f"pip could not install {name}: {said[-1][:300]}") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{name} could not be installed: {error}") from None
