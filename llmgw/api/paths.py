"""Where the admin API's routes are. Path templates are written once, in the actions registry, and filled in here."""

import re
from collections.abc import Mapping
from urllib.parse import quote, urlencode

PREFIX = "/api/v1"
METRICS = "/metrics"
OPENAPI = f"{PREFIX}/openapi.json"
PROBLEM_TYPE = "application/problem+json"
NDJSON_TYPE = "application/x-ndjson"
MAX_BODY_BYTES = 1024 * 1024
"""Longest request body of the admin API."""
MAX_TAIL_LINES = 10_000
"""Most log lines one request may ask for."""
MAX_AUDIT_ROWS = 10_000
"""Most audit rows one request may ask for."""

_PARAMETER = re.compile(r"\{([a-z_]+)\}")


def parameters(template: str) -> tuple[str, ...]:
    """Names in braces of a path template, in order."""
    return tuple(_PARAMETER.findall(template))


def fill(template: str, values: Mapping[str, str]) -> str:
    """The template with each `{name}` replaced by its percent-encoded value; raises KeyError for a missing one."""
    return _PARAMETER.sub(lambda match: quote(values[match[1]], safe=""), template)


def with_query(path: str, query: Mapping[str, str | int | bool | None] | None) -> str:
    """`path` with those of `query` that are not None; booleans as `true` and `false`."""
    given = {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in (query or {}).items()
        if value is not None
    }
    return f"{path}?{urlencode(given)}" if given else path
