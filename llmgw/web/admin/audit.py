"""The audit: who changed what."""

from quart import Response

from llmgw.api.paths import MAX_AUDIT_ROWS
from llmgw.web.admin.routes import Routes, query_int, query_time
from llmgw.web.bodies import document

DEFAULT_AUDIT_ROWS = 200
_QUERY = ("since", "limit")


def register(routes: Routes) -> None:
    """Add this group's route."""
    control = routes.control

    async def audit() -> Response:
        limit = query_int("limit", _QUERY, default=DEFAULT_AUDIT_ROWS, low=1, high=MAX_AUDIT_ROWS)
        return document(list(await control.audit(query_time("since", _QUERY), limit)))

    routes.handle("audit.list", audit)
