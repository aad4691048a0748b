"""`llmgw demo` on a terminal: the console comes first, and what runs ends or stays as the person chooses."""

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from llmgw.api.client import AdminClient
from llmgw.api.problems import ClientError
from llmgw.api.targets import ServerTarget
from tests.support.cluster import free_port, llmgw, processes_of, wait_for

pytestmark = pytest.mark.acceptance

_ESCAPES = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[P_^][^\x1b]*\x1b\\|[ -/]*[0-~])")


class Terminal:
    """A program on a terminal of 120×40, what it wrote kept as bytes."""

    def __init__(self, arguments: list[str]) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 120, 0, 0))
        self.master = master
        self.written = bytearray()
        self.process = subprocess.Popen(
            arguments,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        os.close(slave)

    def read(self, wait_s: float) -> bool:
        """Take what comes; whether there can be more."""
        if not select.select([self.master], [], [], wait_s)[0]:
            return True
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return False
        self.written += data
        return bool(data)

    def text(self) -> str:
        """Everything written so far, without what moves the cursor and colours."""
        return _ESCAPES.sub(b"", bytes(self.written)).decode(errors="replace")

    def until(self, word: str, *, within_s: float = 60.0) -> None:
        """Wait until `word` was written since the last key."""
        deadline = time.monotonic() + within_s
        while word not in self.text():
            assert time.monotonic() < deadline, f"not within {within_s:.0f} s: {word!r} in {self.text()[-2000:]!r}"
            assert self.read(0.1), f"ended without {word!r}: {self.text()[-2000:]!r}"

    def press(self, keys: bytes) -> None:
        """Type, and look only at what comes from here on."""
        self.written.clear()
        os.write(self.master, keys)

    def end(self, *, within_s: float = 90.0) -> int:
        """Wait for the program's end; its exit code."""
        deadline = time.monotonic() + within_s
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still there after {within_s:.0f} s: {self.text()[-2000:]!r}"
            self.read(0.1)
        while self.read(0.0) and select.select([self.master], [], [], 0)[0]:
            pass
        return self.process.returncode


@pytest.fixture
def ports() -> tuple[str, ...]:
    """Options with ports that are free."""
    return ("--port", str(free_port()), "--admin-port", str(free_port()))


@contextlib.contextmanager
def demo(data: Path, ports: tuple[str, ...]) -> Iterator[Terminal]:
    """`llmgw demo` on a terminal."""
    terminal = Terminal(llmgw("demo", "--model", "sim", "--data", str(data), *ports))
    try:
        yield terminal
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
        os.close(terminal.master)


@pytest.fixture
def clean(tmp_path: Path) -> Iterator[Path]:
    """A data directory; what a failed test left running in it is killed."""
    data = tmp_path / "demo"
    yield data
    for process in processes_of(data):
        with contextlib.suppress(psutil.Error):
            process.kill()


def test_stop_in_the_question_leaves_nothing_running(clean: Path, ports: tuple[str, ...]) -> None:
    with demo(clean, ports) as terminal:
        terminal.until("starting the demo in")
        terminal.until("Overview")
        terminal.until("live")
        terminal.press(b"q")
        terminal.until("Leave it running")
        terminal.press(b"\x1b[C\x1b[C\r")
        assert terminal.end() == 0
        assert "stopped" in terminal.text()
        # The screen that was there before is back, and the cursor is seen.
        assert b"\x1b[?1049l" in bytes(terminal.written)
    assert processes_of(clean) == []
    assert [p.name for p in clean.rglob("*") if p.is_socket() or p.name in ("lock", "demo.lock")] == []
    assert "stopping" in (clean / "log" / "demo.out").read_text()


def test_left_running_it_goes_on_and_a_second_demo_opens_its_console(clean: Path, ports: tuple[str, ...]) -> None:
    with demo(clean, ports) as first:
        first.until("Overview")
        first.until("live")
        first.press(b"q")
        first.until("Leave it running")
        first.press(b"\x1b[C\r")
        assert first.end() == 0
        assert "goes on" in first.text()
    assert _answers(clean)
    key = wait_for("the demo's key", lambda: _text(clean / "demo.key"), within_s=60)

    with demo(clean, ports) as second:
        second.until("Overview")
        second.until("live")
        # The model of the demo answers in the playground, with the demo's own key.
        second.press(b":try sim\r")
        second.until("demo.key")
        second.press(b"hello\r")
        second.until("tokens/s")
        assert key not in second.text()
        # A closed terminal is no reason to stop.
        second.process.send_signal(signal.SIGHUP)
        assert second.end() == 0
    assert _answers(clean)

    with demo(clean, ports) as third:
        third.until("live")
        third.press(b"q")
        third.until("Stop the demo")
        third.press(b"\x1b[C\x1b[C\r")
        assert third.end() == 0
    assert processes_of(clean) == []


def test_sigterm_ends_the_demo_it_started(clean: Path, ports: tuple[str, ...]) -> None:
    with demo(clean, ports) as terminal:
        terminal.until("live")
        terminal.process.terminate()
        assert terminal.end() == 0
    assert processes_of(clean) == []


def test_what_keeps_it_from_starting_is_told_on_the_terminal(clean: Path) -> None:
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with demo(clean, ("--port", port, "--admin-port", str(free_port()))) as terminal:
            assert terminal.end() == 1
            assert f"127.0.0.1:{port} is in use" in terminal.text()
            assert b"\x1b[?1049h" not in bytes(terminal.written)
    assert processes_of(clean) == []


def _answers(data: Path) -> bool:
    try:
        return AdminClient(ServerTarget(socket=data / "admin.sock")).status().leader is not None
    except ClientError:
        return False


def _text(path: Path) -> str:
    return path.read_text().strip() if path.exists() else ""
