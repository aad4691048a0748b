"""Figures over time."""

import math
from datetime import datetime

from quart import Response

from llmgw.api.series import MAX_SERIES, parse_of
from llmgw.core.errors import InvalidInput
from llmgw.web.admin.routes import Routes, query_text
from llmgw.web.bodies import document

_QUERY = ("figure", "of", "from", "to", "step")


def register(routes: Routes) -> None:
    """Add this group's route."""
    control = routes.control

    async def series() -> Response:
        figures, of = _names("figure"), _names("of") or ("cluster",)
        step_s = _number("step")
        if step_s is not None and not 0 < step_s <= 7 * 24 * 3600:
            raise InvalidInput(f"{step_s:g} is not a number of seconds over 0, up to a week", field="step")
        answer = await control.series(
            figures, tuple(map(parse_of, of)), start=_moment("from"), end=_moment("to"), step_s=step_s
        )
        return document(answer)

    routes.handle("cluster.series", series)


def _names(key: str) -> tuple[str, ...]:
    names = tuple(part for part in (query_text(key, _QUERY) or "").split(",") if part)
    if len(names) > MAX_SERIES:
        raise InvalidInput(f"{len(names)} names are more than {MAX_SERIES}", field=key)
    return names


def _number(key: str) -> float | None:
    text = query_text(key, _QUERY)
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or len(text) > 32:
        raise InvalidInput(f"{text[:40]!r} is not a number", field=key)
    return value


def _moment(key: str) -> float | None:
    """Unix seconds, or an ISO 8601 time with its offset."""
    text = query_text(key, _QUERY)
    if text is None:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return _number(key)
    if time.tzinfo is None:
        raise InvalidInput(f"{text[:40]!r} has no offset from UTC", field=key)
    return time.timestamp()
