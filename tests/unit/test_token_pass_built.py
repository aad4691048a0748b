"""The way of a token, as it is built and found: only what was made of these sources for this Python ever runs."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.router import build, compiled, token_pass
from tests.support.passes import in_c

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(token_pass.__file__).parent
LOOK = """
from llmgw.router import express, reactor
from llmgw.router.token_pass import describe
print(express.TOKEN_PASS is not None, reactor.TOKEN_PASS is not None)
print(describe())
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A router's package with the C sources alone."""
    monkeypatch.delenv(compiled.PLAIN_VARIABLE, raising=False)
    made = tmp_path / "llmgw" / "router"
    shutil.copytree(PACKAGE / "csrc", made / "csrc")
    return made


def _built(package: Path, **changed: str) -> None:
    """A record as the build leaves it."""
    token_pass.built(package).mkdir(parents=True)
    record = {"suffix": compiled.suffix(), "sources": token_pass.digest(package)} | changed
    (token_pass.built(package) / compiled.RECORD).write_text(json.dumps(record))


def _looked(**environment: str) -> list[str]:
    """What a fresh process says of its passes."""
    inherited = {name: value for name, value in os.environ.items() if name != compiled.PLAIN_VARIABLE}
    argv = [sys.executable, "-c", LOOK]
    said = subprocess.run(
        argv, cwd=ROOT, env=inherited | environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    return said.splitlines()


def test_what_was_built_of_these_sources_is_used(package: Path) -> None:
    _built(package)
    assert token_pass.found(package) == (token_pass.built(package) / f"_token_pass{compiled.suffix()}", "")


def test_without_a_build_it_says_how_to_get_one(package: Path) -> None:
    why = "it was not built, which `make setup` does where there is a C compiler"
    assert token_pass.found(package) == (None, why)


@pytest.mark.parametrize("source", ["token.c", "token_pass.h", "more.c"])
def test_a_build_of_other_sources_is_left_alone(package: Path, source: str) -> None:
    _built(package)
    with (package / "csrc" / source).open("a") as file:
        file.write("\n")
    path, why = token_pass.found(package)
    assert path is None
    assert why.startswith("its sources changed since it was built: ")


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"suffix": ".cpython-399.so"}, "it was built for another Python (.cpython-399.so)"),
        ({"failed": "there is no C compiler 'gcc'"}, "there is no C compiler 'gcc'"),
    ],
)
def test_a_build_that_is_none_for_this_python_is_left_alone(package: Path, changed: dict[str, str], why: str) -> None:
    _built(package, **changed)
    path, said = token_pass.found(package)
    assert path is None
    assert said.startswith(why)


def test_it_builds_within_a_package_of_its_own_and_again(package: Path) -> None:
    in_c()
    for _ in range(2):
        build.build_pass(package)
        path, why = token_pass.found(package)
        assert (path is not None and path.is_file(), why) == (True, "")


def test_without_a_compiler_the_record_says_so_and_nothing_fails(
    package: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(build, "__file__", str(package / "build.py"))
    assert build.main(["--pass-only"]) == 0
    assert build.main(["--pass-only", "--required"]) == 1
    said = "there is no C compiler 'no-such-compiler' (Debian, Ubuntu: apt install gcc libc6-dev)"
    assert said in capsys.readouterr().err
    assert token_pass.found(package) == (None, said)


def test_the_parts_do_not_remove_each_other(package: Path) -> None:
    """What mypyc made lies in the folder above."""
    in_c()
    (package / "native").mkdir()
    (package / "native" / compiled.RECORD).write_text("{}")
    build.build_pass(package)
    assert (package / "native" / compiled.RECORD).is_file()


def test_the_sources_compile_without_a_warning(package: Path) -> None:
    in_c()
    build.build_pass(package, ("-Wall", "-Wextra", "-Wshadow", "-Werror"))
    assert token_pass.found(package)[0] is not None


def test_a_process_uses_it_where_it_is_built_and_says_so() -> None:
    in_c()
    used, said = _looked()
    assert used == "True True"
    assert said.endswith("; tokens pass in C")


def test_a_process_asked_for_plain_python_goes_without() -> None:
    used, said = _looked(LLMGW_ROUTER_PLAIN="1")
    assert used == "False False"
    assert said == "plain Python (LLMGW_ROUTER_PLAIN is set); tokens pass in Python (LLMGW_ROUTER_PLAIN is set)"
