"""Compiles the router's busy modules with mypyc: `python -m llmgw.router.build`, which `make native` calls.

The sources stay Python and are all there is to read; what is made of them is described in `compiled`. Without a C
compiler, Python's headers or mypyc, or when something cannot be compiled, it says so in one sentence and the router
runs as plain Python: that is no failure of an installation. `--required` makes it one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

from llmgw.router.compiled import RECORD, digest, suffix

MODULES = (
    *("admission", "affinity", "attempts", "bands", "big_bodies", "breaker", "charge", "choose", "comments"),
    *("counter_locks", "counters", "credentials", "ended", "ends", "entry", "events", "exchange", "expected"),
    *("express", "front", "gauge", "heads", "health", "hints", "inference", "limiter", "meters", "pace", "reactor"),
    *("refusals", "relay", "requests", "responses", "ring", "rows", "saturation", "scopes", "seats", "seen"),
    *("shares", "spool", "standins", "succession", "token_usage", "traces", "trail", "turned_away", "typed_events"),
    *("upstream", "usage", "verdicts", "waiting", "windows"),
)
"""What a token or a request passes through, compiled as one group: within it calls and attributes are C's.

Modules with msgspec structs cannot be among them, nor any whose class inherits from a built-in type.
"""
BUILD_S = 900.0
"""A compiler that takes longer is stopped: a machine under load needs four minutes."""

_OPTIONS = ("--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports")
_SETUP = """
import json, sys
from mypyc.build import mypycify
from setuptools import setup

options, target, lib, temp = json.loads(sys.argv[1])
extensions = mypycify(
    options, opt_level="2", debug_level="0", group_name="llmgw.router.native", target_dir=target, verbose=False
)
setup(
    name="llmgw-router-native", packages=[], ext_modules=extensions,
    script_args=["build_ext", "--build-lib", lib, "--build-temp", temp],
)
"""


class CannotCompile(Exception):
    """Why not, in a sentence."""


def main(arguments: list[str]) -> int:
    """Build for the package this file is in; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m llmgw.router.build", description="Compile the router.")
    parser.add_argument("--required", action="store_true", help="fail if it cannot be compiled")
    options = parser.parse_args(arguments)
    package = Path(__file__).parent
    try:
        build(package, MODULES)
    except CannotCompile as error:
        _keep(package, {"failed": str(error)})
        print(f"The router is not compiled and runs as plain Python: {error}", file=sys.stderr)
        return 1 if options.required else 0
    print(f"The router is compiled: {len(MODULES)} modules in {package / 'native'}.")
    return 0


def build(package: Path, modules: tuple[str, ...]) -> None:
    """Put compiled `modules` of the router in `package` where they are found; raises CannotCompile."""
    _check_tools()
    sources = digest(package)
    root = package.parent.parent
    with tempfile.TemporaryDirectory(prefix="llmgw-build-") as scratch:
        target, lib, temp = (os.path.join(scratch, name) for name in ("c", "lib", "temp"))
        version = f"--python-version={sys.version_info[0]}.{sys.version_info[1]}"
        options = [*_OPTIONS, version, f"--cache-dir={scratch}/cache"]
        options += [str(Path("llmgw", "router", f"{name}.py")) for name in modules]
        _run([sys.executable, "-c", _SETUP, json.dumps([options, target, lib, temp])], root)
        if digest(package) != sources:
            raise CannotCompile("its sources changed while it was being compiled: once more, please")
        made = sorted(Path(lib, "llmgw", "router").glob(f"*{suffix()}"))
        _keep(package, {"suffix": suffix(), "sources": sources}, made)


def _check_tools() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    if shutil.which(os.environ.get("CC", compiler).split()[0]) is None:
        raise CannotCompile(f"there is no C compiler {compiler!r} (Debian, Ubuntu: apt install gcc libc6-dev)")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise CannotCompile(f"Python's headers are missing, {header} (Debian, Ubuntu: apt install python3-dev)")


def _run(argv: list[str], root: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MYPY")}
    # The modules are read by mypyc as they are, whatever was compiled before.
    environment |= {"PYTHONPATH": str(root), "MYPYPATH": str(root)}
    try:
        done = subprocess.run(
            argv, cwd=root, env=environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise CannotCompile(f"compiling took longer than {BUILD_S:g} s") from None
    if done.returncode:
        said = (done.stdout + done.stderr).strip().splitlines()
        lines = [line for line in said if "error" in line.lower()] or said[-1:] or ["it said nothing"]
        raise CannotCompile(f"compiling failed: {' / '.join(lines[:3])[:600]}")


def _keep(package: Path, record: dict[str, str], made: list[Path] | None = None) -> None:
    """Replace what was compiled before; the record comes last, so that half of a build is none."""
    directory = package / "native"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    for extension in made or []:
        shutil.copy(extension, directory / extension.name)
    (directory / RECORD).write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
