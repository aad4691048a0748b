"""What is imported where, seen in the source and in `sys.modules`: the async seams and the costs of starting."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("llmgw", "agent", "console")
SEAMS = {
    "asyncio": ("llmgw/agents/bridge*.py", "agent/link*.py", "console/*"),
    "trio_asyncio": ("llmgw/agents/bridge*.py", "agent/link*.py"),
    "grpclib": ("llmgw/agents/*", "agent/link*.py", "agent/join.py", "llmgw/wire/*"),
    "betterproto2": ("llmgw/wire/*", "llmgw/core/frames.py", "llmgw/agents/*", "agent/*"),
    "psycopg": ("llmgw/store/*",),
    "psycopg_pool": ("llmgw/store/*",),
    "textual": ("console/*",),
    "quart": ("llmgw/web/*",),
    "hypercorn": ("llmgw/web/*",),
}
"""Library → the only files that may import it."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def imported(tree: ast.Module) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


@pytest.mark.parametrize("library", SEAMS)
def test_a_library_stays_behind_its_seam(library: str) -> None:
    wrong = [
        f"{name}:{line}"
        for name, tree in sources()
        for module, line in imported(tree)
        if module.partition(".")[0] == library and not any(fnmatch(name, seam) for seam in SEAMS[library])
    ]
    assert wrong == []


def test_the_scan_sees_something() -> None:
    found = {module.partition(".")[0] for _, tree in sources() for module, _ in imported(tree)}
    assert {"asyncio", "grpclib", "psycopg", "trio", "quart", "hypercorn"} <= found


def test_import_contracts_hold() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    result = subprocess.run([lint, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]


CLIENTS = {"llmgw.api.client", "http.client", "httpx", "yaml"}
"""20 to 100 ms each: loaded by whoever first needs one, never before there is something to see."""
HEAVY = ("trio", "psycopg", "textual", "quart", "hypercorn", "grpclib", "betterproto2", "cryptography", "asyncio")
_PROBE = """
import json, sys
from llmgw.cli.main import main
try:
    code = main(sys.argv[1:])
except SystemExit as end:
    code = end.code
print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded(*arguments: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", _PROBE, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    modules: list[str] = json.loads(result.stderr.splitlines()[-1])
    return {module.partition(".")[0] for module in modules} | set(modules)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["version"],
        ["ctl", "--help"],
        ["ctl", "model", "serve", "--help"],
        ["ctl", "--server", "unix:/none", "status"],
    ],
    ids=" ".join,
)
def test_light_commands_load_nothing_heavy(arguments: list[str]) -> None:
    modules = loaded(*arguments)
    assert "llmgw.cli.main" in modules
    assert modules.isdisjoint(HEAVY), modules & set(HEAVY)
    assert "yaml" not in modules


def test_help_does_not_even_load_the_contract() -> None:
    assert "msgspec" not in loaded("--help")
    assert "llmgw.api.actions" in loaded("ctl", "--help")


def test_the_consoles_first_paint_loads_no_client_of_anything() -> None:
    probe = "import json, sys, console.app, console.screens.overview; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", probe], cwd=ROOT, capture_output=True, text=True, timeout=60)
    modules = set(json.loads(result.stdout))
    assert "console.client.access" in modules
    assert modules.isdisjoint(CLIENTS), modules & CLIENTS
