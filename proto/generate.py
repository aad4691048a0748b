"""Regenerates `llmgw/wire/` from the .proto files, or with `--check` says whether what is committed is up to date.

Exit 0: done, or up to date. Exit 1: stale, or the generator failed; stderr has a sentence.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "llmgw" / "wire"
PROTOS = ("llmgw/v1/agent.proto",)
OPTIONS = ("server_generation=async", "client_generation=async")
ROOT_DOCSTRING = '"""The agent protocol\'s messages, generated from `proto/` by `proto/generate.py`. Do not edit."""\n'


def generate(into: Path) -> None:
    """Write fresh code into the empty directory `into`; raises SystemExit with a sentence."""
    plugins = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", str(HERE), f"--python_betterproto2_out={into}"]
    command += [f"--python_betterproto2_opt={option}" for option in OPTIONS]
    done = subprocess.run(
        [*command, *PROTOS], cwd=HERE, env={**os.environ, "PATH": plugins}, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the generator failed (grpcio-tools and betterproto2_compiler are needed):\n{done.stderr}")
    (into / "__init__.py").write_text(ROOT_DOCSTRING, encoding="utf-8")
    (into / "py.typed").touch()


def differences(fresh: Path, committed: Path) -> list[str]:
    """Files that differ, are missing or should not be there, relative to the target."""

    def files(root: Path) -> set[Path]:
        return {p.relative_to(root) for p in root.rglob("*") if p.is_file() and "__pycache__" not in p.parts}

    wanted, there = files(fresh), files(committed)
    same = {name for name in wanted & there if filecmp.cmp(fresh / name, committed / name, shallow=False)}
    return sorted(str(name) for name in (wanted | there) - same)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 if the committed code is stale")
    parser.add_argument("--target", type=Path, default=TARGET, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        fresh = Path(temporary)
        generate(fresh)
        changed = differences(fresh, options.target)
        if options.check:
            if changed:
                print(f"llmgw/wire is stale ({', '.join(changed)}): run `make proto` and commit", file=sys.stderr)
            return 1 if changed else 0
        for name in changed:
            if (fresh / name).exists():
                (options.target / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(fresh / name, options.target / name)
            else:
                (options.target / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
