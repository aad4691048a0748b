"""The request log's writer: lines are made and written in a thread, and what the disk does not take is dropped.

The data plane appends to a list; nothing it does waits for a disk, and a disk that hangs costs no more memory than
MAX_WAITING requests take.
"""

import logging
import time
from collections.abc import Callable, Sequence

import msgspec
import trio

from llmgw.core.requests import RequestLine, Seen
from llmgw.router.ended import Ended
from llmgw.router.request_files import RequestFiles

WRITE_S = 0.5
"""Lines are on disk after at most about this long."""
MAX_WAITING = 20_000
"""Requests that wait to be written; more are dropped."""
AT_ONCE = 32
"""Lines made in a row before the thread lets tokens pass: it shares the interpreter with them."""
COMPLAIN_S = 30.0
"""Trouble with the disk is told at most this often."""

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class RequestLog:
    """The log of one router."""

    def __init__(self, files: RequestFiles, seen: Callable[[], Seen], *, on_dropped: Callable[[int], None]) -> None:
        """`seen` tells the settings in force; `on_dropped` is told of lines that were lost."""
        self._files = files
        self._seen = seen
        self._on_dropped = on_dropped
        self._waiting: list[Ended | RequestLine] = []
        self._complained_at = float("-inf")

    def add(self, ended: Ended | RequestLine) -> None:
        """Keep a request. Never blocks, never raises."""
        if len(self._waiting) >= MAX_WAITING:
            self._on_dropped(1)
            return
        self._waiting.append(ended)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: writes what waits."""
        task_status.started()
        while True:
            await trio.sleep(WRITE_S)
            if self._waiting:
                with trio.CancelScope(shield=True):  # what was taken is written, even if the router ends just now
                    self._count(await trio.to_thread.run_sync(self._write, self._take()))

    def close(self) -> None:
        """After `run` ended: write the last of it."""
        if self._waiting:
            self._count(self._write(self._take()))
        self._files.close()

    def _count(self, dropped: int) -> None:
        if dropped:
            self._on_dropped(dropped)

    def _take(self) -> list[Ended | RequestLine]:
        taken, self._waiting = self._waiting, []
        return taken

    def _write(self, ended: Sequence[Ended | RequestLine]) -> int:
        """Write what is to be kept of them; how many lines were lost."""
        seen = self._seen()
        lines, count = _lines(ended, only_failed=seen.log == "failed")
        if not count or seen.log == "off":
            return 0
        try:
            self._files.write(lines, most_bytes=seen.log_bytes, kept=seen.log_files)
        except OSError as error:
            now = time.monotonic()
            if now - self._complained_at >= COMPLAIN_S:
                self._complained_at = now
                _log.error("the request log cannot be written: %s (%d lines dropped)", error.strerror or error, count)
            return count
        return 0


def _lines(ended: Sequence[Ended | RequestLine], *, only_failed: bool) -> tuple[bytes, int]:
    """JSON lines, and how many."""
    made: list[bytes] = []
    for number, each in enumerate(ended, 1):
        line = each if isinstance(each, RequestLine) else each.line()
        if not (only_failed and line.well):
            made.append(_encode(line))
        if number % AT_ONCE == 0:
            time.sleep(0)
    return b"".join(line + b"\n" for line in made), len(made)
