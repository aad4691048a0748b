"""Requests as the admin API tells of them: pages of the request log, and why one of them waited or failed."""

import msgspec

from llmgw.core.requests import RequestLine


class RequestPage(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that the routers of this server's machine wrote down, the newest first."""

    requests: tuple[RequestLine, ...]
    cursor: str | None = None
    """Where the next page begins; null where there is none. Pages that follow one another hold each request once, of
    the log as it was when the first was asked for. A page may be empty and have a next one: of a large log only a part
    is looked through at a time."""


class RequestTold(msgspec.Struct, frozen=True, kw_only=True):
    """One request, and what became of it in sentences."""

    request: RequestLine
    why: tuple[str, ...]
    """In the order in which it happened."""


class RequestQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which requests are asked for; what is left out matches all."""

    model: str | None = None
    """Model that answered or was asked for."""
    key: str | None = None
    """Id or name of the key."""
    team: str | None = None
    status: str | None = None
    """`ok`, `failed`, a class such as `5xx`, or one status."""
    waited_ms: int = 0
    """Those that waited at least this long to be let in."""
    since: float | None = None
    """Unix seconds: those that ended then or later."""
    limit: int = 100
    cursor: str | None = None

    def matches(self, line: RequestLine) -> bool:
        """Whether a request is one of those; where pages begin is not looked at."""
        return (
            (self.model is None or self.model in (line.model, line.asked))
            and (self.key is None or self.key in (line.key_id, line.key))
            and (self.team is None or self.team == line.team)
            and line.waited_ms >= self.waited_ms
            and (self.since is None or line.at >= self.since)
            and (self.status is None or _is_status(self.status, line))
        )


def _is_status(wanted: str, line: RequestLine) -> bool:
    if wanted in ("ok", "failed"):
        return line.well == (wanted == "ok")
    if wanted.endswith("xx"):
        return line.status // 100 == int(wanted[0])
    return line.status == int(wanted)
