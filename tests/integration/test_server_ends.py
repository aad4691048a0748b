"""How `llmgw server` ends: by a sentence when something is in its way, and never at its clients' expense."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmgw.core.layout import ServerLayout
from llmgw.router.handover import RouterRecord, read_record
from tests.support.waiting import until_sync

FAULTY = """
import sys, trio
from pathlib import Path
from llmgw.control.live import LiveFeed
from llmgw.control import server

async def run(self, *, task_status):
    task_status.started()
    while not Path(sys.argv[2]).exists():
        await trio.sleep(0.05)
    raise RuntimeError("a fault for the test")

LiveFeed.run = run
from llmgw.cli.launch import guarded
sys.exit(guarded("llmgw server", lambda: server.run(Path(sys.argv[1]))))
"""


@pytest.fixture
def data(tmp_path: Path) -> Iterator[Path]:
    """A data directory whose routers are gone afterwards, whatever became of the server."""
    yield tmp_path / "data"
    record = read_record(ServerLayout(data=tmp_path / "data"), 0)
    if record is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(record.pid, signal.SIGKILL)


def _config(data: Path, listen: str = "127.0.0.1:0") -> Path:
    file = data.with_name("server.yaml")
    lines = [f"data: {data}", f"listen: {listen}", *(f"{key}: 127.0.0.1:0" for key in ("admin", "agents", "mirror"))]
    file.write_text("\n".join(lines) + "\n")
    return file


def _start(*arguments: str | Path) -> "subprocess.Popen[str]":
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as sock:
        sock.sendall(b"GET /live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        return sock.recv(64).startswith(b"HTTP/1.1 200")
    return False


def _serving(layout: ServerLayout) -> RouterRecord:
    """The router once it answers and the server behind it too."""
    until_sync(lambda: '"serving"' in log.read_text() if (log := layout.log / "server.log").exists() else False)
    record = read_record(layout, 0)
    assert record is not None
    assert _answers(record.port)
    return record


def test_a_taken_client_port_is_one_sentence(data: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        listen = f"127.0.0.1:{taken.getsockname()[1]}"
        server = _start("-m", "llmgw.cli.main", "server", "-c", _config(data, listen))
        _, said = server.communicate(timeout=60)
    assert server.returncode == 1
    assert said == (
        f"llmgw server: cannot listen on {listen}: another program listens there; stop it or choose another port\n"
    )
    assert not (data / "admin.sock").exists()


@pytest.mark.promise("A1")
def test_a_fault_of_the_server_ends_no_router(data: Path, tmp_path: Path) -> None:
    fault, layout = tmp_path / "fault", ServerLayout(data=data)
    config = _config(data)
    server = _start("-c", FAULTY, config, fault)
    router = _serving(layout)
    fault.touch()
    _, said = server.communicate(timeout=60)
    assert server.returncode == 1
    assert "RuntimeError: a fault for the test" in said
    assert len(said.splitlines()) == 1
    assert "a fault for the test" in (layout.log / "server.log").read_text()
    assert _answers(router.port)

    successor = _start("-m", "llmgw.cli.main", "server", "-c", config)
    log = layout.log / "server.log"
    until_sync(lambda: '"serving"' in log.read_text().partition(f"router 0 (pid {router.pid}) is adopted")[2])
    assert _answers(router.port)
    successor.send_signal(signal.SIGTERM)
    _, said = successor.communicate(timeout=60)
    assert (successor.returncode, said) == (0, "")
    assert not _answers(router.port)
    assert read_record(layout, 0) is None


def test_a_server_told_to_end_while_its_routers_start_leaves_none(data: Path) -> None:
    layout = ServerLayout(data=data)
    server = _start("-m", "llmgw.cli.main", "server", "-c", _config(data))
    until_sync(lambda: read_record(layout, 0) is not None)
    record = read_record(layout, 0)
    assert record is not None
    server.send_signal(signal.SIGTERM)
    _, said = server.communicate(timeout=60)
    assert (server.returncode, said) == (0, "")
    assert not Path(f"/proc/{record.pid}").exists()
    assert read_record(layout, 0) is None


def test_a_second_word_to_end_does_not_cut_the_first_short(data: Path) -> None:
    """A dead parent is told of once for every thread it had, so a supervisor's end brings several at once."""
    layout = ServerLayout(data=data)
    server = _start("-m", "llmgw.cli.main", "server", "-c", _config(data))
    router = _serving(layout)
    log = layout.log / "server.log"
    server.send_signal(signal.SIGTERM)
    until_sync(lambda: '"stopping"' in log.read_text())
    while server.poll() is None and '"stopped"' not in log.read_text():
        for _ in range(8):
            server.send_signal(signal.SIGTERM)
        time.sleep(0.005)  # a flood faster than its handler runs would end any Python process
    server.communicate(timeout=60)
    assert '"stopped"' in log.read_text()
    until_sync(lambda: not Path(f"/proc/{router.pid}").exists())
