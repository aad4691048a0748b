"""All paced streams share one task: it sleeps until the next token of any stream is due and writes what is due.

A write never waits. A stream whose client does not take all of a write leaves the pacer with the rest in `unsent`;
its own task drains that and returns it.
"""

import heapq
import itertools
import random
import socket
from collections.abc import Iterator

import trio

MAX_WRITES_A_TURN = 64
"""A stream gives way to the others after so many writes."""


class PacedStream:
    """One stream: writes from an iterator, a gap of `period_s` (varied by `jitter`) between one and the next."""

    def __init__(
        self, sock: socket.socket, writes: Iterator[bytes], *, period_s: float, jitter: float, source: random.Random
    ) -> None:
        self._sock = sock
        self._writes = writes
        self._period_s = period_s
        self._jitter = jitter
        self._random = source
        self.unsent = b""
        self.finished = False
        self.error: OSError | None = None
        self.attention = trio.Event()
        """Set when the stream's own task must act: finished, failed, or `unsent` is not empty."""
        self.withdrawn = False

    def step(self, due: float, now: float) -> float | None:
        """Write everything due by `now`; returns when the next write is due, none when the task must act."""
        for _ in range(MAX_WRITES_A_TURN):
            if not self._write_one():
                self.attention.set()
                return None
            due += self._gap()
            if due > now:
                break
        return due

    def _write_one(self) -> bool:
        data = next(self._writes, None)
        if data is None:
            self.finished = True
            return False
        try:
            sent = self._sock.send(data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.error = error
            return False
        self.unsent = data[sent:] if sent < len(data) else b""
        return not self.unsent

    def _gap(self) -> float:
        if not self._jitter:
            return self._period_s
        return self._period_s * (1 + self._jitter * self._random.uniform(-1, 1))


class Pacer:
    """The task and its heap of due writes."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, PacedStream]] = []
        self._order = itertools.count()
        self._wake = trio.Event()

    def add(self, stream: PacedStream, *, due: float) -> None:
        """Write `stream` from `due` (trio's clock) on, until its `attention` is set."""
        stream.attention = trio.Event()
        if not self._heap or due < self._heap[0][0]:
            self._wake.set()
        heapq.heappush(self._heap, (due, next(self._order), stream))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Never returns."""
        task_status.started()
        while True:
            self._write_due(trio.current_time())
            self._wake = trio.Event()
            with trio.CancelScope(deadline=self._heap[0][0] if self._heap else float("inf")):
                await self._wake.wait()
            await trio.lowlevel.checkpoint()

    def _write_due(self, now: float) -> None:
        again = []
        while self._heap and self._heap[0][0] <= now:
            due, order, stream = heapq.heappop(self._heap)
            if stream.withdrawn:
                continue
            following = stream.step(due, now)
            if following is not None:
                again.append((following, order, stream))
        for item in again:
            heapq.heappush(self._heap, item)
