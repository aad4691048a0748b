"""A head's two programs: the second waits for the first to listen, and whichever ends takes the other along."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from agent.engines.ray_launcher import BETWEEN
from tests.support.agent_node import ROOT
from tests.support.cluster import free_port, wait_for

LISTENER = """
import os, socket, sys, time
where, told, ends = sys.argv[1:4]
assert "PYTHONPATH" not in os.environ and not os.environ["VLLM_API_KEY"]
host, _, port = where.rpartition(":")
listener = socket.create_server((host, int(port)))
open(told, "w").write(str(os.getpid()))
while not os.path.exists(ends):
    time.sleep(0.02)
sys.exit(3)
"""
ENGINE = """
import os, socket, sys, time
where, told, ends = sys.argv[1:4]
assert os.environ["RAY_ADDRESS"] == where and os.environ["VLLM_API_KEY"] == "k"
host, _, port = where.rpartition(":")
socket.create_connection((host, int(port))).close()
open(told, "w").write(str(os.getpid()))
while not os.path.exists(ends):
    time.sleep(0.02)
sys.exit(4)
"""


class Head:
    """A launcher with both of its programs running."""

    def __init__(self, directory: Path, *, first: str = LISTENER) -> None:
        where = f"127.0.0.1:{free_port()}"
        self.ends = {name: directory / f"{name}.end" for name in ("runtime", "engine")}
        self._told = {name: directory / f"{name}.pid" for name in ("runtime", "engine")}
        argv = [where]
        for name, text in (("runtime", first), ("engine", ENGINE)):
            program = directory / f"{name}.py"
            program.write_text(text)
            argv += [BETWEEN, sys.executable, str(program), where, str(self._told[name]), str(self.ends[name])]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "agent.engines.ray_launcher", *argv],
            env={**os.environ, "PYTHONPATH": str(ROOT), "VLLM_API_KEY": "k"},
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def pid(self, name: str) -> int:
        """Wait for one of the programs to say that it runs."""
        told = self._told[name]
        wait_for(f"{name} runs", lambda: told.exists() and told.read_text())
        return int(told.read_text())

    def ended(self) -> tuple[int, str]:
        """Wait for the launcher's end: its exit code and last words."""
        _, said = self.process.communicate(timeout=60)
        return self.process.returncode, said.decode()


@pytest.fixture
def head(tmp_path: Path) -> Head:
    return Head(tmp_path)


@pytest.mark.parametrize(("first", "other", "code"), [("runtime", "engine", 3), ("engine", "runtime", 4)])
def test_one_that_ends_takes_the_other_along(head: Head, first: str, other: str, code: int) -> None:
    left = psutil.Process(head.pid(other))
    head.pid(first)
    head.ends[first].touch()
    assert head.ended()[0] == code
    assert not left.is_running() or left.status() == psutil.STATUS_ZOMBIE


def test_both_end_when_it_is_told_to(head: Head) -> None:
    processes = [psutil.Process(head.pid(name)) for name in ("runtime", "engine")]
    head.process.send_signal(signal.SIGTERM)
    assert head.ended()[0] == 0
    assert not any(process.is_running() for process in processes)


def test_a_runtime_that_never_listens_is_all_there_is(tmp_path: Path) -> None:
    head = Head(tmp_path, first="import sys\nsys.exit('no port is free')\n")
    code, said = head.ended()
    assert code == 1
    assert "no port is free" in said
    assert "Ray's head ended with 1" in said
    assert not (tmp_path / "engine.pid").exists()
