"""What the live feed costs: the server's CPU and each reader's bytes a second, at 1,000 nodes of 8 cards.

The server is `tests.bench.watch_server`, a process of its own; readers are plain sockets that keep nothing.
"""

import contextlib
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from llmgw.api.paths import with_query
from llmgw.api.watch import TOPICS, Subscription
from llmgw.core.sockets import connect_unix
from tests.bench.proc import cpu_ms, memory
from tests.bench.report import MIB, spread, table

NODES = 1000
CARDS = 8
SHOWN = 40
"""Rows a console shows at once."""
START_S = 60.0
FIRST_S = 30.0
SETTLE_S = 2.0
READ_BYTES = 1024 * 1024
FEED = tuple(topic for topic in TOPICS if topic not in ("keys", "audit"))
"""Topics without those of the store, which is not there."""


@dataclass(kw_only=True)
class Reading:
    """One way of reading, over all rounds."""

    name: str
    readers: int
    cpu_percent: list[float] = field(default_factory=list)
    """Of one core, the server's, all of it."""
    bytes_per_s: list[float] = field(default_factory=list)
    """Of one reader, after its snapshot."""
    messages_per_s: list[float] = field(default_factory=list)
    first_bytes: int = 0
    """The snapshot's size."""
    first_ms: float = 0.0
    """From asking to the snapshot's end, the first time."""


@dataclass(kw_only=True)
class WatchFigures:
    """All readings on one inventory."""

    nodes: int
    cards: int
    readings: list[Reading] = field(default_factory=list)
    rss_mib: float = 0.0
    """The server's memory at the end."""


class _Reader:
    """A connection that is read to nothing."""

    def __init__(self, path: Path, wanted: Subscription) -> None:
        began = time.monotonic()
        self.bytes = 0
        self.lines = 0
        self._sock = connect_unix(path, timeout_s=START_S)
        self._sock.settimeout(FIRST_S)
        query = with_query("/api/v1/watch", wanted.query())
        self._sock.sendall(f"GET {query} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        while not self.lines:
            self._take()
        self.first_ms = (time.monotonic() - began) * 1000
        self.first_bytes = self.bytes
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Leave."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._sock.close()

    def _take(self) -> bool:
        data = self._sock.recv(READ_BYTES)
        self.bytes += len(data)
        # Rows hold no raw newline; a chunk ends a message with "\n" before its "\r\n".
        self.lines += data.count(b"}\n")
        return bool(data)

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while self._take():
                pass


def measure_watch(
    directory: Path, rounds: int, seconds: float, *, nodes: int = NODES, cards: int = CARDS
) -> WatchFigures:
    """Every way of reading, in turn, `rounds` times."""
    figures = WatchFigures(nodes=nodes, cards=cards)
    shown = tuple(f"gpu{number:04d}" for number in range(SHOWN))
    ways = {
        "nobody reads": (0, Subscription(topics=FEED)),
        "one reader, everything": (1, Subscription(topics=FEED)),
        f"one reader, figures of {SHOWN} nodes": (1, Subscription(topics=FEED, nodes=shown)),
        "one reader, no figures": (1, Subscription(topics=tuple(t for t in FEED if t != "figures"))),
        "one reader, everything, once a second": (1, Subscription(topics=FEED, interval_ms=1000)),
        "ten readers, everything": (10, Subscription(topics=FEED)),
    }
    figures.readings = [Reading(name=name, readers=readers) for name, (readers, _) in ways.items()]
    with served(directory, nodes, cards) as (pid, path):
        for _ in range(rounds):
            for reading, (readers, wanted) in zip(figures.readings, ways.values(), strict=True):
                _measure(reading, pid, path, readers, wanted, seconds)
        figures.rss_mib = memory([pid]).rss / MIB
    return figures


def _measure(reading: Reading, pid: int, path: Path, readers: int, wanted: Subscription, seconds: float) -> None:
    connected = [_Reader(path, wanted) for _ in range(readers)]
    try:
        if connected and not reading.first_bytes:
            reading.first_bytes, reading.first_ms = connected[0].first_bytes, connected[0].first_ms
        time.sleep(SETTLE_S)
        cpu, began = cpu_ms([pid]), time.monotonic()
        before = [(reader.bytes, reader.lines) for reader in connected]
        time.sleep(seconds)
        took = time.monotonic() - began
        reading.cpu_percent.append((cpu_ms([pid]) - cpu) / 10 / took)
        for reader, (size, lines) in zip(connected[:1], before[:1], strict=True):
            reading.bytes_per_s.append((reader.bytes - size) / took)
            reading.messages_per_s.append((reader.lines - lines) / took)
    finally:
        for reader in connected:
            reader.close()


@contextlib.contextmanager
def served(directory: Path, nodes: int, cards: int) -> Iterator[tuple[int, Path]]:
    """A server of the feed of so many nodes: its pid, and the socket it answers on."""
    path = directory / "watch.sock"
    command = [sys.executable, "-m", "tests.bench.watch_server", str(path), str(nodes), str(cards)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdin is not None
    try:
        if process.stdout.readline().strip() != "ready":
            raise RuntimeError("the server of the live feed did not start")
        yield process.pid, path
    finally:
        process.stdin.close()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def watch_text(figures: WatchFigures) -> str:
    """The figures as a table."""
    cards = figures.nodes * figures.cards
    title = f"live feed: {figures.nodes:,} nodes, {cards:,} cards, new readings every 5 s; medians (lowest–highest)"
    head = ["", "server CPU %", "kB/s a reader", "messages/s", "snapshot kB", "snapshot ms"]
    rows = [
        [
            reading.name,
            spread(reading.cpu_percent, 1),
            spread([value / 1000 for value in reading.bytes_per_s], 1),
            spread(reading.messages_per_s, 1),
            f"{reading.first_bytes / 1000:.0f}" if reading.readers else "–",
            f"{reading.first_ms:.0f}" if reading.readers else "–",
        ]
        for reading in figures.readings
    ]
    return "\n".join([title, table([head, *rows]), f"memory of the server: {figures.rss_mib:.0f} MiB"])


if __name__ == "__main__":
    import tempfile

    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as made:
        print(watch_text(measure_watch(Path(made), 2, 8.0)))
