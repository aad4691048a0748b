"""A program on a pseudo-terminal: what it writes is counted and searched, keys go in, and it always ends."""

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Iterator, Sequence

TAIL_BYTES = 2 * 1024 * 1024
"""How much of what was written can still be searched."""
END_S = 10.0


class Silent(RuntimeError):
    """What was waited for did not come."""


class Terminal:
    """One program; a thread reads what it draws and keeps the newest part."""

    def __init__(self, command: Sequence[str], columns: int, rows: int) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "LC_ALL": "C.UTF-8"}
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)
        self.total = 0
        """Bytes written so far."""
        self.writes = 0
        """Reads that brought something: about the bursts it wrote in."""
        self._tail = b""
        self._heard = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def press(self, keys: str) -> int:
        """Type; returns the bytes written before, to wait from."""
        with self._heard:
            before = self.total
        os.write(self._master, keys.encode())
        return before

    def wait_for(self, needle: bytes, *, after: int = 0, within_s: float = 30.0) -> float:
        """Monotonic time at which `needle` was written, past the first `after` bytes; raises Silent."""
        deadline = time.monotonic() + within_s
        with self._heard:
            while True:
                start = max(0, after - (self.total - len(self._tail)))
                if self._tail.find(needle, start) >= 0:
                    return time.monotonic()
                left = deadline - time.monotonic()
                if left <= 0 or (self.process.poll() is not None and not self._thread.is_alive()):
                    raise Silent(f"{needle!r} was not drawn within {within_s:g} s")
                self._heard.wait(min(left, 0.5))

    def end(self) -> None:
        """SIGTERM, and SIGKILL for one that stays."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(END_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._thread.join(END_S)
        os.close(self._master)

    def _read(self) -> None:
        # Reading a terminal whose program has gone fails on Linux instead of ending.
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 65536):
                with self._heard:
                    self.total += len(data)
                    self.writes += 1
                    self._tail = (self._tail + data)[-TAIL_BYTES:]
                    self._heard.notify_all()


@contextlib.contextmanager
def on_terminal(command: Sequence[str], *, columns: int = 120, rows: int = 40) -> Iterator[Terminal]:
    """A program on a terminal of this size while the context is open."""
    terminal = Terminal(command, columns, rows)
    try:
        yield terminal
    finally:
        terminal.end()
