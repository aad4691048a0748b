"""The request log: pages of it, and one request with why it went as it did."""

import re

from quart import Response

from llmgw.api.request_types import RequestQuery
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, checked_name, query_int, query_text, query_time
from llmgw.web.bodies import document

DEFAULT_REQUESTS = 100
MAX_REQUESTS = 1000
MAX_WAIT_MS = 86_400_000
_QUERY = ("model", "key", "team", "status", "waited", "since", "limit", "cursor")
_STATUS = re.compile(r"ok|failed|[2345]xx|[2345][0-9]{2}")


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def requests() -> Response:
        return document(await control.requests(_query()))

    async def request(id: str) -> Response:
        return document(await control.request(checked_name(id)))

    routes.handle("request.list", requests)
    routes.handle("request.show", request)


def _query() -> RequestQuery:
    status = query_text("status", _QUERY)
    if status is not None and not _STATUS.fullmatch(status):
        raise InvalidInput(f"{status[:40]!r} is not ok, failed, 4xx or a status such as 429", field="status")
    since = query_time("since", _QUERY)
    return RequestQuery(
        model=query_text("model", _QUERY),
        key=query_text("key", _QUERY),
        team=query_text("team", _QUERY),
        status=status,
        waited_ms=query_int("waited", _QUERY, default=0, low=0, high=MAX_WAIT_MS),
        since=None if since is None else since.timestamp(),
        limit=query_int("limit", _QUERY, default=DEFAULT_REQUESTS, low=1, high=MAX_REQUESTS),
        cursor=query_text("cursor", _QUERY),
    )
