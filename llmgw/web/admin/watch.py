"""The live feed and the history of traffic.

Life of a watch: its parameters are checked, the answer begins, the reader is counted in, each line is made when the
connection has taken the one before, and the reader is counted out when it leaves or the server stops, whichever
comes first. A stop ends the answer properly.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from types import TracebackType

import trio
from quart import Response, request
from quart.wrappers.response import ResponseBody

from llmgw.api.actions import BY_ID
from llmgw.api.paths import NDJSON_TYPE
from llmgw.api.watch import MAX_INTERVAL_MS, MAX_NODES, MIN_INTERVAL_MS, TOPICS, Subscription
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, caller, query_int, query_text
from llmgw.web.bodies import document
from llmgw.web.serve import connection_facts

GUARDED = {"keys": "key.list", "scopes": "team.list", "audit": "audit.list"}
"""Topics that show what a route of its own shows, to those who may use that route."""
MAX_NAME_CHARS = 256
_QUERY = ("topics", "nodes", "interval_ms", "epoch", "since")


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def watch() -> Response:
        subscription = _subscription()
        who = caller()
        hidden = frozenset(t for t, action in GUARDED.items() if who.permission < BY_ID[action].permission)
        source = control.watch(subscription, actor=who.actor, role=who.permission.role, hidden=hidden)
        if request.method == "HEAD":
            return Response(b"", content_type=NDJSON_TYPE)
        _, closing, nursery = connection_facts(request.scope)
        body = _WatchBody(source)
        nursery.start_soon(_end_at_stop, closing, body)
        response = Response(body, content_type=NDJSON_TYPE)
        response.headers["Cache-Control"] = "no-store"
        return response

    async def history() -> Response:
        return document(await control.history(query_text("model", ("model",))))

    routes.handle("cluster.watch", watch)
    routes.handle("cluster.history", history)


def _subscription() -> Subscription:
    topics = _names("topics")
    for topic in topics or ():
        if topic not in TOPICS:
            raise InvalidInput(f"{topic[:40]!r} is not one of {', '.join(TOPICS)}", field="topics")
    nodes = _names("nodes")
    if nodes is not None and len(nodes) > MAX_NODES:
        raise InvalidInput(f"{len(nodes)} nodes are over the limit of {MAX_NODES}: leave it out for all", field="nodes")
    since = query_int("since", _QUERY, default=-1, low=0, high=99_999_999_999)
    return Subscription(
        topics=TOPICS if topics is None else topics,
        nodes=nodes,
        interval_ms=query_int(
            "interval_ms", _QUERY, default=MIN_INTERVAL_MS, low=MIN_INTERVAL_MS, high=MAX_INTERVAL_MS
        ),
        epoch=query_text("epoch", _QUERY),
        since=since if since >= 0 else None,
    )


def _names(key: str) -> tuple[str, ...] | None:
    text = query_text(key, _QUERY)
    if text is None:
        return None
    names = tuple(dict.fromkeys(part for part in text.split(",") if part))
    if any(len(name) > MAX_NAME_CHARS for name in names):
        raise InvalidInput(f"a name is longer than {MAX_NAME_CHARS} characters", field=key)
    return names


class _WatchBody(ResponseBody):
    """Lines as the connection takes them, until `end`. Enters its source and leaves it, in the same task."""

    def __init__(self, source: AbstractAsyncContextManager[AsyncIterator[bytes]]) -> None:
        self._source = source
        self._lines: AsyncIterator[bytes] | None = None
        self._ended = False
        self._waiting = trio.CancelScope()

    def end(self) -> None:
        """No more lines; the answer ends as it should."""
        self._ended = True
        self._waiting.cancel()

    async def __aenter__(self) -> "_WatchBody":
        self._lines = await self._source.__aenter__()
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._source.__aexit__(exc_type, exc_value, tb)

    def __aiter__(self) -> "_WatchBody":
        return self

    async def __anext__(self) -> bytes:
        assert self._lines is not None
        if not self._ended:
            with trio.CancelScope() as self._waiting:
                return await anext(self._lines)
        raise StopAsyncIteration


async def _end_at_stop(closing: trio.Event, body: _WatchBody) -> None:
    await closing.wait()
    body.end()
