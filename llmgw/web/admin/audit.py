"""The audit: who changed what."""

from datetime import datetime

from quart import Response

from llmgw.api.paths import MAX_AUDIT_ROWS
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, query_int, query_text
from llmgw.web.bodies import document

DEFAULT_AUDIT_ROWS = 200
_QUERY = ("since", "limit")


def register(routes: Routes) -> None:
    """Add this group's route."""
    control = routes.control

    async def audit() -> Response:
        limit = query_int("limit", _QUERY, default=DEFAULT_AUDIT_ROWS, low=1, high=MAX_AUDIT_ROWS)
        return document(list(await control.audit(_since(query_text("since", _QUERY)), limit)))

    routes.handle("audit.list", audit)


def _since(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        since = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"{text[:40]!r} is not an ISO 8601 time", field="since") from None
    if since.tzinfo is None:
        raise InvalidInput(f"{text[:40]!r} has no offset from UTC", field="since")
    return since
