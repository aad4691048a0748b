"""Spans on their way to a collector: bounded, in batches, in a thread, and never a reason for a request to wait.

A collector that is away, slow or refuses costs the spans of that time, which are counted, and nothing else.
"""

import contextlib
import http.client
import logging
import os
import socket
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import trio

from llmgw.core.requests import Seen
from llmgw.router.ended import Ended
from llmgw.router.otlp import Span, export_of, spans_of
from llmgw.router.span_headers import BadHeaders, read_headers

SEND_S = 1.0
"""Spans are sent after at most this long, if the collector takes them."""
BATCH_REQUESTS = 256
"""Requests whose spans go in one export."""
MAX_WAITING = 4_096
"""Requests whose spans wait; those of more are dropped."""
LOOK_S = 0.02
"""How often a router that ends looks whether the last spans are sent."""
EXPORT_S = 10.0
"""A collector that did not answer by then has not taken the batch."""
RETRY = frozenset({429, 502, 503, 504})
"""Answers after which the specification has a batch sent again."""
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 30.0
"""After a failure nothing is sent for this long at first and at most, doubling in between."""
TRIES = 3
"""Times a batch is sent."""
COMPLAIN_S = 60.0
"""Trouble with a collector is told at most this often."""
MAX_ANSWER_BYTES = 64 * 1024
AT_ONCE = 16
"""Requests told in a row before the thread lets tokens pass."""

_log = logging.getLogger(__name__)


class NotTaken(Exception):
    """The collector did not take a batch; the message says why."""

    def __init__(self, message: str, *, again: bool) -> None:
        super().__init__(message)
        self.again = again
        """Whether it may take it later."""


class SpanExport:
    """The spans of one router."""

    def __init__(self, seen: Callable[[], Seen], *, private: Sequence[Path], on_dropped: Callable[[int], None]) -> None:
        """`on_dropped` is told of requests whose spans were lost; no headers are read from files in `private`."""
        self._seen = seen
        self._private = private
        self._on_dropped = on_dropped
        self._instance = f"{socket.gethostname()}/{os.getpid()}"
        self._waiting: list[Ended] = []
        self._sending = False
        self._wake = trio.Event()
        self._complained_at = float("-inf")
        # A thread that a collector keeps waiting is left behind, at most this many of them.
        self._threads = trio.CapacityLimiter(2)

    def add(self, ended: Ended) -> None:
        """Keep a request that is traced. Never blocks, never raises."""
        if len(self._waiting) >= MAX_WAITING:
            self._on_dropped(1)
            return
        self._waiting.append(ended)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: sends what waits."""
        task_status.started()
        while True:
            with trio.move_on_after(SEND_S):
                await self._wake.wait()
            self._wake = trio.Event()
            self._sending = True
            try:
                while self._waiting:
                    batch, self._waiting = self._waiting[:BATCH_REQUESTS], self._waiting[BATCH_REQUESTS:]
                    await self._send(batch)
            finally:
                self._sending = False

    async def finish(self, *, deadline_s: float) -> None:
        """Before the router ends, while `run` still runs: up to `deadline_s` for what waits."""
        with trio.move_on_after(deadline_s):
            while self._waiting or self._sending:
                self._wake.set()
                await trio.sleep(LOOK_S)

    async def _body(self, batch: Sequence[Ended]) -> bytes:
        return await trio.to_thread.run_sync(_told, batch, self._instance)

    async def _send(self, batch: Sequence[Ended]) -> None:
        """Send a batch until it is taken, or given up."""
        body = await self._body(batch)
        pause_s = FIRST_PAUSE_S
        for number in range(1, TRIES + 1):
            try:
                await self._post(body)
                return
            except NotTaken as error:
                trouble = error
            if not trouble.again or number == TRIES:
                break
            await trio.sleep(pause_s)
            pause_s = min(LAST_PAUSE_S, pause_s * 2)
        self._lost(len(batch), trouble)
        await trio.sleep(pause_s)

    async def _post(self, body: bytes) -> None:
        """One try; raises NotTaken."""
        seen = self._seen()
        if not seen.endpoint:
            raise NotTaken("there is no collector any more", again=False)
        posting = _Posting(seen, self._private)
        with trio.move_on_after(EXPORT_S) as waited:
            try:
                await trio.to_thread.run_sync(posting.post, body, abandon_on_cancel=True, limiter=self._threads)
            finally:
                posting.end()
        if waited.cancelled_caught:
            raise NotTaken(f"it gave no answer within {EXPORT_S:g} s", again=True)

    def _lost(self, count: int, trouble: NotTaken) -> None:
        self._on_dropped(count)
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_S:
            self._complained_at = now
            _log.warning("the collector of spans takes nothing: %s (%d requests untraced)", trouble, count)


class _Posting:
    """One export, in a thread, which `end` cuts short."""

    def __init__(self, seen: Seen, private: Sequence[Path]) -> None:
        self._seen = seen
        self._private = private
        self._connection: http.client.HTTPConnection | None = None
        self._ended = False

    def end(self) -> None:
        """Nobody waits for it any more: a thread that still does is woken."""
        self._ended = True
        sock = self._connection.sock if self._connection is not None else None
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def post(self, body: bytes) -> None:
        """Send it; raises NotTaken."""
        try:
            headers = read_headers(self._seen.headers_file, self._private)
        except BadHeaders as error:
            raise NotTaken(str(error), again=True) from None
        url = urlsplit(self._seen.endpoint)
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        try:
            connection = self._connection = kind(url.hostname or "", url.port, timeout=EXPORT_S)
            with contextlib.closing(connection):
                connection.connect()
                if self._ended:
                    return
                path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
                connection.request("POST", path, body, headers | {"Content-Type": "application/json"})
                answer = connection.getresponse()
                answer.read(MAX_ANSWER_BYTES)
        except (OSError, http.client.HTTPException, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
            raise NotTaken(f"{url.hostname}: {reason}", again=True) from None
        if not 200 <= answer.status < 300:
            raise NotTaken(f"{url.hostname} answered {answer.status}", again=answer.status in RETRY)


def _told(batch: Sequence[Ended], instance: str) -> bytes:
    """A batch's spans as they are sent."""
    found: list[Span] = []
    for number, ended in enumerate(batch, 1):
        trace = ended.trail.trace
        if trace is not None:
            found += spans_of(ended.line(), trace, [attempt.span for attempt in ended.trail.tries])
        if number % AT_ONCE == 0:
            time.sleep(0)
    return export_of(found, instance=instance)
