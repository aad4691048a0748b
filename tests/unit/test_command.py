"""Foreign tools under a deadline: what one of them started ends with it."""

import os
from pathlib import Path

import pytest

from agent.command import ToolFailed, run_tool
from llmgw.core.processes import start_time
from tests.support.cluster import wait_for


def script(directory: Path, text: str) -> str:
    """A program of these lines."""
    path = directory / "tool"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_tool_that_hangs_ends_with_what_it_started(tmp_path: Path) -> None:
    told = tmp_path / "pid"
    tool = script(tmp_path, f"sleep 600 & echo $! > {told}\nwait")
    with pytest.raises(ToolFailed, match=r"did not answer within 0\.5 s"):
        run_tool([tool], timeout_s=0.5)
    child = int(told.read_text())
    wait_for("its child ended", lambda: start_time(child) is None)


def test_a_tool_that_never_stops_talking_is_ended() -> None:
    with pytest.raises(ToolFailed, match="said more than 1000 bytes"):
        run_tool(["yes"], timeout_s=30.0, max_bytes=1000)


def test_what_a_tool_says_on_both_streams_is_kept_with_its_exit_code(tmp_path: Path) -> None:
    result = run_tool([script(tmp_path, "echo a\necho b >&2\nexit 3")], timeout_s=30.0)
    assert (result.code, result.output) == (3, "a\nb\n")


def test_a_tool_gets_nothing_of_the_environment_but_a_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET", "s")
    result = run_tool([script(tmp_path, "env")], timeout_s=30.0, env={"GIVEN": "g"})
    assert "GIVEN=g" in result.output
    assert f"PATH={os.environ['PATH']}" in result.output
    assert "SECRET" not in result.output


def test_a_tool_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToolFailed, match="cannot be started"):
        run_tool([str(tmp_path / "none")], timeout_s=1.0)
