"""The router compiled and plain: which of the two runs, that a stale one never does, and that both do the same."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from llmgw.router import build, compiled

ROOT = Path(__file__).resolve().parents[2]
LOOK = """
import json
from importlib import import_module
from llmgw.router.build import MODULES
from llmgw.router.compiled import describe
files = {name: import_module(f"llmgw.router.{name}").__file__ for name in MODULES}
print(json.dumps([describe(), files]))
"""
ALIKE = ("tests/unit/test_express.py", "tests/unit/test_router_limiter.py", "tests/unit/test_router_windows.py")


def _package(root: Path) -> Path:
    """A router's package with one source, and the core beside it."""
    package = root / "llmgw" / "router"
    (root / "llmgw" / "core").mkdir(parents=True)
    package.mkdir()
    (package / "relay.py").write_text("ONE = 1\n")
    (root / "llmgw" / "core" / "routing.py").write_text("TWO = 2\n")
    return package


def _built(package: Path, **changed: str) -> None:
    """A record as the build leaves it."""
    (package / "native").mkdir(exist_ok=True)
    record = {"suffix": compiled.suffix(), "sources": compiled.digest(package)} | changed
    (package / "native" / compiled.RECORD).write_text(json.dumps(record))


def _imported(*, plain: bool) -> tuple[str, dict[str, str]]:
    environment = {name: value for name, value in os.environ.items() if name != compiled.PLAIN_VARIABLE}
    environment |= {compiled.PLAIN_VARIABLE: "1"} if plain else {}
    said = subprocess.run(
        [sys.executable, "-c", LOOK], cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=60
    ).stdout
    described, files = json.loads(said)
    return described, files


@pytest.fixture(autouse=True)
def _no_preference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiled.PLAIN_VARIABLE, raising=False)


def test_what_was_built_of_these_sources_is_used(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _built(package)
    assert compiled.found(package) == (package / "native", "")


def test_without_a_build_everything_is_plain_and_says_why(tmp_path: Path) -> None:
    directory, why = compiled.found(_package(tmp_path))
    assert directory is None
    assert why == "it was not compiled, which `make native` does where there is a C compiler"


@pytest.mark.parametrize("source", ["router/relay.py", "core/routing.py"])
def test_a_build_older_than_a_source_is_left_alone(tmp_path: Path, source: str) -> None:
    package = _package(tmp_path)
    _built(package)
    changed = tmp_path / "llmgw" / source
    changed.write_text(changed.read_text() + "\n")
    assert compiled.found(package) == (
        None,
        "its sources changed since it was compiled: `make native` compiles it again",
    )


def test_a_build_is_left_alone_when_a_source_was_added_or_removed(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _built(package)
    (package / "more.py").touch()
    assert compiled.found(package)[0] is None
    (package / "more.py").unlink()
    assert compiled.found(package)[0] is not None
    (package / "relay.py").unlink()
    assert compiled.found(package)[0] is None


def test_a_build_for_another_python_is_left_alone(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _built(package, suffix=".cpython-399-x86_64-linux-gnu.so")
    directory, why = compiled.found(package)
    assert directory is None
    assert "another Python (.cpython-399-x86_64-linux-gnu.so)" in why


def test_a_build_that_failed_says_again_why(tmp_path: Path) -> None:
    package = _package(tmp_path)
    _built(package, failed="there is no C compiler 'gcc'")
    assert compiled.found(package) == (None, "there is no C compiler 'gcc'")


def test_a_record_that_is_none_is_no_build(tmp_path: Path) -> None:
    package = _package(tmp_path)
    (package / "native").mkdir()
    (package / "native" / compiled.RECORD).write_text("{")
    directory, why = compiled.found(package)
    assert directory is None
    assert "built.json cannot be read" in why


def test_plain_python_can_be_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = _package(tmp_path)
    _built(package)
    monkeypatch.setenv(compiled.PLAIN_VARIABLE, "1")
    assert compiled.found(package) == (None, "LLMGW_ROUTER_PLAIN is set")


def test_without_a_compiler_nothing_is_built_and_the_record_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = _package(tmp_path)
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(build.CannotCompile, match="there is no C compiler"):
        build.build(package, ("relay",))
    assert not (package / "native").exists()


def test_every_compiled_module_is_a_source_of_the_router() -> None:
    package = Path(compiled.__file__).parent
    assert [name for name in build.MODULES if not (package / f"{name}.py").is_file()] == []
    assert list(build.MODULES) == sorted(set(build.MODULES))


def test_no_compiled_module_calls_anything_within_a_slice() -> None:
    """mypyc works out such a bound twice where it does not know how to cut: what is sent there is sent twice."""
    package = Path(compiled.__file__).parent
    found = [
        f"{name}.py:{cut.lineno}: {ast.unparse(cut)}"
        for name in build.MODULES
        for cut in ast.walk(ast.parse((package / f"{name}.py").read_text()))
        if isinstance(cut, ast.Slice) and any(isinstance(part, ast.Call | ast.NamedExpr) for part in ast.walk(cut))
    ]
    assert found == []


def test_asked_for_plain_every_module_is_its_source() -> None:
    described, files = _imported(plain=True)
    assert described == "plain Python (LLMGW_ROUTER_PLAIN is set)"
    assert {name for name, file in files.items() if not file.endswith(f"/router/{name}.py")} == set()


def test_compiled_every_module_of_the_list_is_an_extension() -> None:
    directory, why = compiled.found()
    if directory is None:
        record = Path(compiled.__file__).parent / "native" / compiled.RECORD
        assert "compiling failed" not in (record.read_text() if record.exists() else ""), why
        pytest.skip(f"not compiled here: {why}")
    described, files = _imported(plain=False)
    assert described == "compiled"
    assert {name for name, file in files.items() if not file.endswith(compiled.suffix())} == set()


def test_plain_python_does_the_same() -> None:
    """What runs compiled in all other tests is run once as it is on a machine without a compiler."""
    if compiled.status()[0] is None:
        pytest.skip("everything here runs plain already")
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ALIKE]
    environment = os.environ | {compiled.PLAIN_VARIABLE: "1"}
    done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
