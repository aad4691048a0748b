"""Compiles what the router can have compiled: `python -m llmgw.router.build`, which `make native` calls.

There are two parts, and either runs without the other: the way of a token, which is C, within seconds (`--pass-only`,
which `make setup` calls; see `token_pass`), and the busy modules, which are Python, with mypyc, within minutes (see
`compiled`). Without a C compiler, Python's headers or mypyc, or when something cannot be compiled, it says so in one
sentence and the router does the same in Python: that is no failure of an installation. `--required` makes it one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmgw.router import token_pass
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

_PASS_FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-O2", "-fPIC", "-fvisibility=hidden", "-shared")
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
    parser.add_argument("--pass-only", action="store_true", help="build the way of a token alone")
    options = parser.parse_args(arguments)
    package = Path(__file__).parent
    done = _attempt(
        token_pass.built(package),
        lambda: build_pass(package),
        "The way of a token is built, in C.",
        "The way of a token is not built and runs in Python",
    )
    if not options.pass_only:
        done &= _attempt(
            package / "native",
            lambda: build(package, MODULES),
            f"The router is compiled: {len(MODULES)} modules in {package / 'native'}.",
            "The router is not compiled and runs as plain Python",
        )
    return 1 if options.required and not done else 0


def _attempt(directory: Path, make: Callable[[], None], made: str, failed: str) -> bool:
    """Build one part; whether that went well."""
    try:
        make()
    except CannotCompile as error:
        _keep(directory, {"failed": str(error)})
        print(f"{failed}: {error}", file=sys.stderr)
        return False
    print(made)
    return True


def build_pass(package: Path, flags: tuple[str, ...] = ()) -> None:
    """Put the way of a token, of the sources in `package`, where it is found; raises CannotCompile."""
    compiler = _check_tools()
    sources = token_pass.digest(package)
    with tempfile.TemporaryDirectory(prefix="llmgw-build-") as scratch:
        made = Path(scratch, f"{token_pass.NAME}{suffix()}")
        units = [str(source) for source in token_pass.sources(package) if source.suffix == ".c"]
        include = f"-I{sysconfig.get_path('include')}"
        _run([*compiler, *_PASS_FLAGS, *flags, include, *units, "-o", str(made)], package)
        if token_pass.digest(package) != sources:
            raise CannotCompile("its sources changed while it was being compiled: once more, please")
        _keep(token_pass.built(package), {"suffix": suffix(), "sources": sources}, [made])


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
        _keep(package / "native", {"suffix": suffix(), "sources": sources}, made)


def _check_tools() -> list[str]:
    """The C compiler's command; raises CannotCompile without one, or without what it needs."""
    command = os.environ.get("CC", sysconfig.get_config_var("CC") or "cc").split()
    if not command or shutil.which(command[0]) is None:
        what = command[0] if command else ""
        raise CannotCompile(f"there is no C compiler {what!r} (Debian, Ubuntu: apt install gcc libc6-dev)")
    header = Path(sysconfig.get_path("include"), "Python.h")
    if not header.exists():
        raise CannotCompile(f"Python's headers are missing, {header} (Debian, Ubuntu: apt install python3-dev)")
    return command


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


def _keep(directory: Path, record: dict[str, str], made: list[Path] | None = None) -> None:
    """Replace what a part left here before; the record comes last, so that half of a build is none."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / RECORD).unlink(missing_ok=True)
    for old in directory.glob("*.so"):
        old.unlink()
    for extension in made or []:
        shutil.copy(extension, directory / extension.name)
    (directory / RECORD).write_text(json.dumps(record) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
