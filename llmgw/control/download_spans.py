"""Downloads of the mirror as spans: one for each try at a set, with a child for each of its files.

They go where routers' spans go (`router.telemetry.endpoint`), as OTLP over HTTP in JSON. A collector that is away costs
the spans of that time and no download anything.
"""

import logging
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec
import trio

from llmgw import __version__
from llmgw.core.errors import LlmgwError
from llmgw.core.requests import Seen
from llmgw.mirror.fetched import FetchedFile, FetchedSet
from llmgw.router.span_headers import BadHeaders, read_headers
from llmgw.transfer.errors import Refused
from llmgw.transfer.http import Remote, request

MAX_WAITING = 64
"""Fetches whose spans wait for the collector; those of more are dropped."""
EXPORT_S = 10.0
"""A collector that did not answer by then has not taken them."""
COMPLAIN_S = 60.0
"""Trouble with a collector is told at most this often."""
MAX_ANSWER_BYTES = 64 * 1024
_CLIENT, _ERROR = 3, 2

_log = logging.getLogger(__name__)


class DownloadSpans:
    """Spans of one server's mirror."""

    def __init__(self, seen: Callable[[], Seen], *, private: Sequence[Path]) -> None:
        """`seen` has the collector; no headers are read from files in `private`."""
        self._seen = seen
        self._private = private
        self._instance = socket.gethostname()
        self._send, self._receive = trio.open_memory_channel[FetchedSet](MAX_WAITING)
        self._complained_at = float("-inf")

    def add(self, fetched: FetchedSet) -> None:
        """Keep a fetch that is over, if anybody collects. Never blocks, never raises."""
        if not self._seen().endpoint:
            return
        try:
            self._send.send_nowait(fetched)
        except trio.WouldBlock:
            self._complain("it takes spans more slowly than sets are fetched")

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: sends what waits."""
        task_status.started()
        async for fetched in self._receive:
            with trio.move_on_after(EXPORT_S) as waited:
                try:
                    await self._post(export_of(fetched, instance=self._instance))
                except (BadHeaders, LlmgwError, OSError, ValueError) as error:
                    self._complain(str(error))
            if waited.cancelled_caught:
                self._complain(f"it gave no answer within {EXPORT_S:g} s")

    async def _post(self, body: bytes) -> None:
        """One try; raises BadHeaders or LlmgwError."""
        seen = self._seen()
        headers = await trio.to_thread.run_sync(read_headers, seen.headers_file, self._private)
        headers["Content-Type"] = "application/json"
        async with request(Remote(url=seen.endpoint), method="POST", headers=headers, body=body) as answer:
            await answer.read(MAX_ANSWER_BYTES)
            if not 200 <= answer.status < 300:
                raise Refused(f"it answered {answer.status}", status=answer.status)

    def _complain(self, why: str) -> None:
        now = time.monotonic()
        if now - self._complained_at >= COMPLAIN_S:
            self._complained_at = now
            _log.warning("the collector of spans takes nothing of the mirror's downloads: %s", why)


def export_of(fetched: FetchedSet, *, instance: str) -> bytes:
    """The body of one export; `instance` tells servers apart."""
    trace, root = secrets.token_hex(16), secrets.token_hex(8)
    whole: dict[str, str | int] = {
        "llmgw.source": fetched.source,
        "llmgw.files": len(fetched.files),
        "llmgw.resumed_from": sum(file.resumed_from for file in fetched.files),
        "llmgw.bytes": sum(file.bytes for file in fetched.files),
    }
    spans = [_span(trace, root, "", f"fetch {fetched.source}", fetched, whole)]
    for file in fetched.files:
        part: dict[str, str | int] = {
            "llmgw.source": fetched.source,
            "llmgw.file": file.name,
            "llmgw.resumed_from": file.resumed_from,
            "llmgw.bytes": file.bytes,
        }
        spans.append(_span(trace, secrets.token_hex(8), root, f"download {file.name}", file, part))
    who = {"service.name": "llmgw-mirror", "service.version": __version__, "service.instance.id": instance}
    scope = {"scope": {"name": "llmgw.mirror", "version": __version__}, "spans": spans}
    return msgspec.json.encode(
        {"resourceSpans": [{"resource": {"attributes": _attributes(who)}, "scopeSpans": [scope]}]}
    )


def _span(
    trace: str,
    span: str,
    parent: str,
    name: str,
    of: FetchedSet | FetchedFile,
    told: Mapping[str, str | int],
) -> dict[str, object]:
    found: dict[str, object] = {
        "traceId": trace,
        "spanId": span,
        "name": name,
        "kind": _CLIENT,
        "startTimeUnixNano": str(int(of.began * 1e9)),
        "endTimeUnixNano": str(int(of.ended * 1e9)),
        "attributes": _attributes(told),
        "status": {"code": _ERROR, "message": of.failed} if of.failed else {},
        "flags": 1,
    }
    return {**found, "parentSpanId": parent} if parent else found


def _attributes(told: Mapping[str, str | int]) -> list[dict[str, object]]:
    """As OTLP has them in JSON: a whole number is a string of digits."""
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in told.items()
    ]
