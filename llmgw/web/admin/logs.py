"""Logs as text, a line a line. The reading lives in the request's nursery and ends with the request, or at a stop."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import trio
from quart import Response, request

from llmgw.api.paths import MAX_TAIL_LINES
from llmgw.core.errors import LlmgwError
from llmgw.web.admin.routes import Routes, checked_name, query_flag, query_int
from llmgw.web.bodies import LinesBody
from llmgw.web.serve import connection_facts

DEFAULT_TAIL_LINES = 200
FIRST_S = 2.0
"""An answer begins after this long at the latest, whether or not there is a line."""
BUFFERED_LINES = 64
"""Lines read ahead of a slow reader; beyond that its source waits."""
_QUERY = ("tail", "follow")


def register(routes: Routes) -> None:
    """Add this group's route."""
    control = routes.control

    async def logs(target: str) -> Response:
        tail = query_int("tail", _QUERY, default=DEFAULT_TAIL_LINES, low=0, high=MAX_TAIL_LINES)
        source = control.logs(checked_name(target), tail=tail, follow=query_flag("follow", _QUERY))
        _, closing, nursery = connection_facts(request.scope)
        lines: trio.MemoryReceiveChannel[str | LlmgwError] = await nursery.start(_pump, source, closing)
        first = await _first(lines)
        return Response(LinesBody(lines, first), content_type="text/plain; charset=utf-8")

    routes.handle("cluster.logs", logs)


async def _first(lines: trio.MemoryReceiveChannel[str | LlmgwError]) -> str | None:
    """The first line, if it comes soon; raises what the source refused with in its place.

    A node says only when it is asked that it has no such log. Once an answer has begun it can but break off, and the
    reason would be lost.
    """
    with trio.move_on_after(FIRST_S):
        try:
            item = await lines.receive()
        except trio.EndOfChannel:
            return None
        if isinstance(item, LlmgwError):
            lines.close()
            raise item
        return item
    return None


async def _pump(
    source: AbstractAsyncContextManager[AsyncIterator[str]],
    closing: trio.Event,
    *,
    task_status: trio.TaskStatus[trio.MemoryReceiveChannel[str | LlmgwError]],
) -> None:
    send, receive = trio.open_memory_channel[str | LlmgwError](BUFFERED_LINES)
    async with send, source as lines, trio.open_nursery() as nursery:
        task_status.started(receive)
        nursery.start_soon(_end_at_stop, closing, nursery.cancel_scope)
        try:
            async for line in lines:
                await send.send(line)
        except LlmgwError as error:
            await send.send(error)
        except trio.BrokenResourceError:
            # The reader has gone; closing the source is all that is left to do.
            pass
        nursery.cancel_scope.cancel()


async def _end_at_stop(closing: trio.Event, scope: trio.CancelScope) -> None:
    await closing.wait()
    scope.cancel()
