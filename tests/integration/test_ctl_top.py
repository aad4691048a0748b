"""`ctl top` and `ctl nodes --gpus` as scripts and people meet them, against a server's own admin app."""

import json
import os
import pty
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.admin_server import Running, running

LLMGW = [sys.executable, "-m", "llmgw.cli.main"]


@pytest.fixture
def admin(tmp_path: Path) -> Iterator[Running]:
    with running(tmp_path) as server:
        yield server


def environment(home: Path) -> dict[str, str]:
    kept = {key: os.environ[key] for key in ("PATH", "LANG", "PYTHONPATH") if key in os.environ}
    return {**kept, "HOME": str(home), "COLUMNS": "120", "LINES": "40"}


def ctl(admin: Running, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LLMGW, "ctl", "--server", admin.unix, *arguments],
        env=environment(admin.socket.parent),
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_a_pipe_gets_it_once_and_a_script_a_document(admin: Running) -> None:
    plain = ctl(admin, "top")
    assert plain.returncode == 0, plain.stderr
    assert "\x1b" not in plain.stdout
    document = json.loads(ctl(admin, "top", "--json", "--by", "power").stdout)
    assert set(document) == {"at", "models", "nodes", "cards"}
    assert ctl(admin, "top", "--by", "colour").returncode == 2


def test_a_line_a_card(admin: Running) -> None:
    cards = [card for node in json.loads(ctl(admin, "nodes", "--json").stdout) for card in node["cards"]]
    lines = json.loads(ctl(admin, "nodes", "--gpus", "--json").stdout)
    assert [line["index"] for line in lines] == [card["index"] for card in cards]
    table = ctl(admin, "nodes", "--gpus")
    assert table.returncode == 0
    assert len(table.stdout.splitlines()) == (len(cards) + 1 if cards else 0)


def test_a_terminal_is_given_back_at_ctrl_c(admin: Running) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [*LLMGW, "ctl", "--server", admin.unix, "top"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(admin.socket.parent),
    ) as process:
        os.close(theirs)
        seen = b""
        while b"most work first" not in seen:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while True:
            try:
                read = os.read(ours, 65536)
            except OSError:
                break
            if not read:
                break
            seen += read
        assert process.wait(timeout=30) == 0
    os.close(ours)
    assert seen.startswith(b"\x1b[?1049h")
    assert seen.rstrip().endswith(b"\x1b[?1049l")
