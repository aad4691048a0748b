"""Usage, summed over UTC days."""

import re
from datetime import date
from typing import cast, get_args

from quart import Response

from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, query_text
from llmgw.web.bodies import document
from llmgw.web.key_ports import By

_QUERY = ("by", "since", "until")
_KINDS: tuple[str, ...] = get_args(By)
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def register(routes: Routes) -> None:
    """Add this group's routes."""
    control = routes.control

    async def usage() -> Response:
        by = query_text("by", _QUERY) or "key_model"
        if by not in _KINDS:
            raise InvalidInput(f"{by[:40]!r} is not one of {', '.join(_KINDS)}", field="by")
        since, until = _day("since"), _day("until")
        if since is not None and until is not None and until < since:
            raise InvalidInput(f"{until} is before {since}", field="until")
        return document(list(await control.usage(cast("By", by), since, until)))

    routes.handle("usage.list", usage)


def _day(key: str) -> date | None:
    text = query_text(key, _QUERY)
    if text is None:
        return None
    try:
        if _DAY.fullmatch(text):
            return date.fromisoformat(text)
    except ValueError:
        pass
    raise InvalidInput(f"{text[:40]!r} is not a day: write it as 2026-01-31", field=key)
