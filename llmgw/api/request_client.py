"""The admin client's calls about requests."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TypeVar

import msgspec

from llmgw.api.key_client import Query
from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold

T = TypeVar("T")


class RequestCalls(ABC):
    """One method an action; `_call` is the client's."""

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

    @abstractmethod
    def _call(
        self,
        action_id: str,
        type_: type[T],
        params: Mapping[str, str] | None = None,
        query: Query | None = None,
        body: msgspec.Struct | None = None,
    ) -> T:
        """One request, its answer decoded; raises ClientError."""
