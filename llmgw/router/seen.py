"""What a router leaves behind of each request besides its usage row: a line in the request log, and spans.

The data plane calls `ended` or `turned_away` once a request and goes on; all that costs time or waits happens in
`request_log` and `span_export`.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import trio

from llmgw.core.requests import Seen
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.router.ended import Ended, end_of, told_by, turned_away
from llmgw.router.exchange import InferenceRequest
from llmgw.router.fields import Fields
from llmgw.router.heads import RequestHead
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.refusal_ration import RefusalRation
from llmgw.router.request_files import RequestFiles
from llmgw.router.request_log import RequestLog
from llmgw.router.span_export import SpanExport
from llmgw.router.traces import Trace, trace_of

AGAIN_S = 1.0
"""A writer that met a fault of its own goes on after this long."""
MAX_NAME_CHARS = 200
"""Of a model's name that a client made up."""
LAST_SPANS_S = 2.0
"""A router that ends waits this long for its last spans to be taken."""


_log = logging.getLogger(__name__)


class RequestsSeen:
    """Writes down and traces the requests of one router."""

    def __init__(self, state: RouterState, directory: Path | None, index: int, private: Sequence[Path] = ()) -> None:
        """Lines go to `directory`, and nowhere without one; no headers for collectors are read in `private`."""
        self._state = state
        self._spans = SpanExport(self._settings, private=private, on_dropped=self._spans_dropped)
        self._log: RequestLog | None = None
        if directory is not None:
            self._log = RequestLog(RequestFiles(directory, index), self._settings, on_dropped=self._lines_dropped)
        self._ration = RefusalRation()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: writes and sends what is left to it."""
        async with trio.open_nursery() as nursery:
            if self._log is not None:
                nursery.start_soon(_keep_up, self._log.run)
            nursery.start_soon(_keep_up, self._spans.run)
            task_status.started()

    async def finish(self) -> None:
        """Before the router ends: what can be sent within LAST_SPANS_S is."""
        await self._spans.finish(deadline_s=LAST_SPANS_S)

    def close(self) -> None:
        """After `run` ended: the last lines to disk."""
        if self._log is not None:
            self._log.close()

    def trace(self, head: RequestHead) -> Trace | None:
        """The trace a request belongs to, if it belongs to one."""
        return trace_of(head, self._settings())

    def ended(self, request: InferenceRequest, row: UsageRow, refusal: Refusal | None, client: str) -> None:
        """A request that got as far as a model ended as `row` says; `refusal` is what its client was told instead."""
        trail, log = request.trail, self._log
        if log is not None and self._state.routes.seen.log == "off":
            log = None
        traced = trail.trace is not None and trail.trace.exported
        if log is None and not traced:
            return
        trail.close()
        team = request.key.team
        ended = Ended(
            row,
            request.route.path,
            end_of(request, row, refusal),
            request.key,
            self._state.tenant_of(team) if team else "",
            request.asked or (request.fields.model or "")[:MAX_NAME_CHARS],
            client,
            request.began_at,
            trail,
            told_by(refusal, asked=bool(trail.tries)),
        )
        if log is not None:
            log.add(ended)
        if traced:
            self._spans.add(ended)

    def turned_away(
        self,
        request_id: str,
        head: RequestHead,
        refusal: Refusal | None,
        *,
        key: KeyRecord | None,
        fields: Fields | None,
        model: str,
        client: str,
        since: float,
    ) -> None:
        """A request ended before it was relayed; without a refusal its client left. `since` is monotonic."""
        if self._log is None or self._settings().log == "off":
            return
        now = time.monotonic()
        passed_over = self._ration.take(key.id if key is not None else "", now)
        if passed_over is None:
            return
        trace = self.trace(head)
        line = turned_away(
            request_id,
            time.time(),
            refusal=refusal,
            route=head.path.decode("ascii", "replace")[:MAX_NAME_CHARS],
            key=key,
            tenant=self._state.tenant_of(key.team) if key is not None else "",
            asked=(fields.model or "")[:MAX_NAME_CHARS] if fields is not None else "",
            model=model,
            client=client,
            duration_s=now - since,
            trace=trace.id if trace is not None and trace.parent else "",
            stream=fields is not None and fields.streamed,
            passed_over=passed_over,
        )
        self._log.add(line)

    def _settings(self) -> Seen:
        return self._state.routes.seen

    def _lines_dropped(self, count: int) -> None:
        self._state.meters.log_lines_dropped += count

    def _spans_dropped(self, count: int) -> None:
        self._state.meters.spans_dropped += count


async def _keep_up(run: Callable[[], Awaitable[None]]) -> None:
    """Run a writer for ever."""
    while True:
        try:
            await run()
        except Exception:  # supervised border: what is only written down must not end what serves
            _log.exception("requests could not be written down or traced for a moment")
        await trio.sleep(AGAIN_S)
