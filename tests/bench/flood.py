"""A flood of connections: how long a stranger's request takes then, beside how long it took before.

`python -m tests.bench.flood PORT IDLE PER_SECOND` is the flood, a process of its own: IDLE connections that have been
answered once and stay, and, as soon as it reads a line, PER_SECOND new ones each second until its input ends.
"""

import contextlib
import math
import select
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.bench.native import child
from tests.bench.openstreams import raise_descriptors
from tests.bench.ours import router
from tests.bench.proc import memory
from tests.bench.report import MIB, spread, table

IDLE = 5000
PER_SECOND = 3000
PROBES = 600
"""In each state of a round, one after the other."""
PAUSE_S = 0.005
"""Between two probes: they shall fall anywhere in what the router does meanwhile."""
DESCRIPTORS = IDLE + 2 * PER_SECOND + 500
LIVE = b"GET /live HTTP/1.1\r\nHost: gw\r\n\r\n"
ANSWER_S = 60.0
STEP_S = 0.001


@dataclass(frozen=True, kw_only=True)
class Flood:
    """One round of one router."""

    calm_ms: tuple[float, float]
    """50th and 99th percentile of the probes before anybody came."""
    idle_ms: tuple[float, float]
    """The same with the idle connections."""
    flooded_ms: tuple[float, float]
    """The same while new connections come as well."""
    opened: int
    """New connections that were answered during that."""
    per_s: float
    added_mib: float
    """Memory that the router took meanwhile."""

    @property
    def times(self) -> float:
        """How much longer the 99th of a hundred probes took under the flood."""
        return self.flooded_ms[1] / self.calm_ms[1]


@dataclass(kw_only=True)
class FloodFigures:
    """All rounds, each with a router of its own."""

    rounds: list[Flood] = field(default_factory=list)


def measure_flood(rounds: int, directory: Path) -> FloodFigures:
    """Each round anew; raises Missing when so many descriptors cannot be had."""
    raise_descriptors(DESCRIPTORS)
    figures = FloodFigures()
    for number in range(rounds):
        with contextlib.ExitStack() as stack:
            # Nobody asks for an answer of an engine's: a port that is nobody's will do.
            gateway = router(stack, directory / str(number), engine_port=9)
            _probe(gateway.port, PROBES // 4)
            before = memory(list(gateway.roots)).rss
            calm = _probe(gateway.port, PROBES)
            argv = [sys.executable, "-m", "tests.bench.flood", str(gateway.port), str(IDLE), str(PER_SECOND)]
            flood = stack.enter_context(child(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
            assert flood.stdin is not None
            assert flood.stdout is not None
            assert flood.stdout.readline() == b"idle\n", "the idle connections were not answered"
            idle = _probe(gateway.port, PROBES)
            flood.stdin.write(b"\n")
            flood.stdin.flush()
            began = time.monotonic()
            flooded = _probe(gateway.port, PROBES)
            lasted = time.monotonic() - began
            added = memory(list(gateway.roots)).rss - before
            flood.stdin.close()
            opened = int(flood.stdout.read())
        figures.rounds.append(
            Flood(
                calm_ms=_p50_p99(calm),
                idle_ms=_p50_p99(idle),
                flooded_ms=_p50_p99(flooded),
                opened=opened,
                per_s=opened / lasted,
                added_mib=added / MIB,
            )
        )
    return figures


def _probe(port: int, count: int) -> list[float]:
    """Milliseconds from connecting to the answer, of one stranger after the other."""
    taken = []
    for _ in range(count):
        began = time.perf_counter()
        with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_S) as sock:
            sock.sendall(LIVE)
            answer = sock.recv(4096)
        taken.append((time.perf_counter() - began) * 1000)
        assert answer.startswith(b"HTTP/1.1 200 "), answer[:200]
        time.sleep(PAUSE_S)
    return taken


def _p50_p99(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[math.ceil(0.99 * len(ordered)) - 1]


def flood_text(figures: FloodFigures) -> str:
    """A row a state."""
    rounds = figures.rounds
    title = (
        f"flood: {IDLE} idle connections and {PER_SECOND} new ones a second; GET /live over a connection of its own, "
        f"{PROBES} times in each state; medians (lowest–highest) of {len(rounds)} rounds"
    )
    states = (
        ("before", [r.calm_ms for r in rounds]),
        ("idle ones there", [r.idle_ms for r in rounds]),
        ("new ones too", [r.flooded_ms for r in rounds]),
    )
    rows = [["", "p50 ms", "p99 ms", "p99 × before"]]
    for name, seen in states:
        times = [s[1] / r.calm_ms[1] for s, r in zip(seen, rounds, strict=True)]
        rows.append([name, spread([s[0] for s in seen], 2), spread([s[1] for s in seen], 2), spread(times, 2)])
    came, held = spread([r.per_s for r in rounds], 0), spread([r.added_mib for r in rounds], 1)
    return "\n".join([title, table(rows), f"answered of the flood: {came} a second; memory added: {held} MiB"])


def _flood(port: int, idle: int, per_second: int) -> None:
    """The flood itself: said to be there with `idle`, and at the end how many new connections were answered."""
    raise_descriptors(idle + 2 * per_second + 100)
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port), ANSWER_S)) for _ in range(idle)]
        for sock in held:
            sock.sendall(LIVE)
        if all(sock.recv(4096).startswith(b"HTTP/1.1 200 ") for sock in held):
            print("idle", flush=True)
        sys.stdin.readline()
        print(_new_ones(port, per_second), flush=True)


def _new_ones(port: int, per_second: int) -> int:
    """Connections begun at a fixed rate, whatever becomes of them, each closed once it is answered."""
    epoll, told = select.epoll(), sys.stdin.fileno()
    epoll.register(told, select.EPOLLIN)
    waiting: dict[int, socket.socket] = {}
    began, begun, answered = time.monotonic(), 0, 0
    while True:
        while begun < (time.monotonic() - began) * per_second and len(waiting) < per_second:
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            waiting[sock.fileno()] = sock
            epoll.register(sock, select.EPOLLOUT)
            begun += 1
        for fd, events in epoll.poll(STEP_S):
            if fd == told:
                for sock in waiting.values():
                    sock.close()
                return answered
            sock = waiting[fd]
            if events & select.EPOLLOUT:
                sock.send(LIVE)
                epoll.modify(fd, select.EPOLLIN)
            else:
                with contextlib.suppress(ConnectionResetError):
                    answered += sock.recv(4096).startswith(b"HTTP/1.1 200 ")
                del waiting[fd]
                sock.close()


if __name__ == "__main__":
    _flood(*map(int, sys.argv[1:]))
