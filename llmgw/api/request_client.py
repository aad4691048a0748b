"""The admin client's calls about requests."""

from datetime import UTC, datetime

from llmgw.api.calls import Calls, Query
from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold


class RequestCalls(Calls):
    """One method an action."""

    def requests(self, query: RequestQuery) -> RequestPage:
        """Requests of the routers of the server's machine, the newest first."""
        since = None if query.since is None else datetime.fromtimestamp(query.since, UTC).isoformat()
        given: Query = {
            "model": query.model,
            "key": query.key,
            "team": query.team,
            "status": query.status,
            "waited": query.waited_ms or None,
            "since": since,
            "limit": query.limit,
            "cursor": query.cursor,
        }
        return self._call("request.list", RequestPage, query=given)

    def request(self, request_id: str) -> RequestTold:
        """One request, and why it went as it did."""
        return self._call("request.show", RequestTold, {"id": request_id})
