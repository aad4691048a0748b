"""`llmgw` before it becomes a process: mistakes end in a sentence and exit 2 within a second, nothing touched."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

LLMGW = [sys.executable, "-m", "llmgw.cli.main"]


def llmgw(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("LLMGW_")}
    return subprocess.run([*LLMGW, *arguments], env={**kept, **environ}, capture_output=True, text=True, timeout=30)


def test_help_and_version() -> None:
    assert llmgw("--help").returncode == 0
    assert "demo" in llmgw("--help").stdout
    assert "sim-engine" not in llmgw("--help").stdout
    assert llmgw("version").stdout == llmgw("--version").stdout
    assert llmgw("version").stdout[0].isdigit()
    assert llmgw().returncode == 2


@pytest.mark.parametrize("command", ["mirror", "ctrl", "--verbose", "\x1b[31m"])
def test_unknown_commands(command: str) -> None:
    result = llmgw(command)
    assert (result.returncode, result.stdout) == (2, "")
    known = "did you mean 'ctl'?" if command == "ctrl" else "known are demo, console, ctl, server"
    assert f"is not a command; {known}" in result.stderr
    assert "\x1b" not in result.stderr


@pytest.mark.case("C29")
@pytest.mark.parametrize("value", ["localhost", "http://x:1", "0.0.0.0:99999", ""])
@pytest.mark.parametrize("way", ["flag", "environment", "file"])
def test_wrong_addresses_end_at_once(tmp_path: Path, value: str, way: str) -> None:
    config, data = tmp_path / "server.yaml", tmp_path / "data"
    listen = f"listen: '{value}'\n" if way == "file" else ""
    config.write_text(f"data: data\n{listen}")
    flags = ["--listen", value] if way == "flag" else []
    environ = {"LLMGW_LISTEN": value} if way == "environment" else {}
    began = time.monotonic()
    result = llmgw("server", "-c", str(config), *flags, **environ)
    took = time.monotonic() - began
    assert (result.returncode, result.stdout) == (2, "")
    source = {"flag": "--listen", "environment": "LLMGW_LISTEN", "file": str(config)}[way]
    assert result.stderr.startswith(f"llmgw server: {source}")
    assert repr(value) in result.stderr
    assert "HOST:PORT" in result.stderr
    assert took < 3, "1 s on an idle machine"
    assert not data.exists()


def test_wrong_files_are_named(tmp_path: Path) -> None:
    missing = llmgw("server", "-c", str(tmp_path / "none.yaml"))
    assert (missing.returncode, "No such file" in missing.stderr) == (2, True)
    config = tmp_path / "server.yaml"
    config.write_text("data: x\nlisten: 8000\nadmn: 9090\n")
    wrong = llmgw("server", "-c", str(config))
    assert wrong.returncode == 2
    assert wrong.stderr == f"llmgw server: {config}:3: unknown key 'admn'; did you mean 'admin'?\n"
    agent = tmp_path / "agent.yaml"
    agent.write_text("data: x\nservres: []\n")
    assert "did you mean 'servers'" in llmgw("agent", "-c", str(agent)).stderr
    assert llmgw("server").returncode == 2
    assert llmgw("agent", "join", "token").returncode == 2
    joined = llmgw("agent", "join", "token", "127.0.0.1:1", "--data", str(tmp_path / "node"))
    assert (joined.returncode, "this is not a join token" in joined.stderr) == (2, True)
    assert not (tmp_path / "node").exists()
