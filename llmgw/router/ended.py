"""A request that ended, as the data plane leaves it behind: cheap to make, told as a line only where nobody waits.

Nothing here keeps a body alive: a request is let go of with its answer's last byte.
"""

from collections.abc import Mapping
from typing import NamedTuple

from llmgw.core import requests as r
from llmgw.core.requests import RequestLine
from llmgw.core.routing import KeyRecord, UsageRow
from llmgw.router.ends import End
from llmgw.router.exchange import InferenceRequest
from llmgw.router.meters import CLIENT_LEFT
from llmgw.router.ports import Refusal
from llmgw.router.trail import Trail
from llmgw.router.turned_away import TurnedAway

_OWN_WORDS = frozenset({429, 503, 504})
"""Refusals of these statuses, before anybody was asked, are in words of ours alone, about limits, queues and models."""
_ENDS: Mapping[End, str] = {
    End.COMPLETE: r.COMPLETE,
    End.LEFT: r.LEFT,
    End.STALLED: r.STALLED,
    End.LOST: r.LOST,
}


class Ended:
    """One request with what its usage row does not say. Not changed once made."""

    __slots__ = ("asked", "began_at", "client", "end", "key", "route", "row", "tenant", "told", "trail")

    def __init__(
        self,
        row: UsageRow,
        route: str,
        end: str,
        key: KeyRecord,
        tenant: str,
        asked: str,
        client: str,
        began_at: float,
        trail: Trail,
        told: "Told",
    ) -> None:
        self.row = row
        self.route = route
        self.end = end
        self.key = key
        self.tenant = tenant
        self.asked = asked
        self.client = client
        self.began_at = began_at
        self.trail = trail
        self.told = told

    def line(self) -> RequestLine:
        """As it stands in the log."""
        row, told, trail = self.row, self.told, self.trail
        # In the order of the fields and without a gap: anything else takes five times as long.
        return RequestLine(
            id=row.id,
            at=row.at,
            status=row.status,
            end=self.end,
            route=self.route,
            key_id=row.key_id,
            key=self.key.name,
            team=row.team or "",
            tenant=self.tenant,
            asked="" if self.asked == row.model else self.asked,
            fallback=bool(row.asked),
            model=row.model,
            replica=row.replica,
            node=trail.tries[-1].replica.node if trail.tries else "",
            code=told.code,
            said=told.said,
            limit="",
            retry_s=told.retry_s,
            stream=row.stream,
            input_tokens=row.input_tokens,
            cached_tokens=row.cached_tokens,
            output_tokens=row.output_tokens,
            estimated=row.estimated,
            cost_micros=row.cost_micros,
            band=row.band,
            waited_ms=round(row.waited_ms, 3),
            waited_for=trail.waited_for,
            attempts=tuple(attempt.told(self.began_at, row.model) for attempt in trail.tries),
            first_token_ms=_rounded(row.first_token_ms),
            duration_ms=round(row.duration_ms, 3),
            client=self.client,
            trace=trail.trace.id if trail.trace is not None else "",
        )


class Told(NamedTuple):
    """What a client was told instead of an answer. A Refusal itself is not kept: its traceback keeps a whole body."""

    code: str = ""
    said: str = ""
    retry_s: float | None = None


NOTHING = Told()


def told_by(refusal: Refusal | None, *, asked: bool) -> Told:
    """What may be kept of a refusal; `asked` is whether a replica was."""
    if refusal is None:
        return NOTHING
    return Told(refusal.code or "", _own_words(refusal, asked=asked), _rounded(refusal.retry_after_s))


def end_of(request: InferenceRequest, row: UsageRow, refusal: Refusal | None) -> str:
    """How a request ended that got as far as a model."""
    if refusal is not None:
        return r.FAILED if row.failed or row.attempts or refusal.status >= 500 else r.REFUSED
    stream = request.stream
    end = stream.end if stream is not None else None
    if row.status == CLIENT_LEFT and end not in (End.LEFT, End.STALLED):
        return r.LEFT
    if end is End.COMPLETE and row.failed:
        return r.FAILED
    return r.COMPLETE if end is None else _ENDS.get(end, r.FAILED)


def turned_away(
    request_id: str,
    at: float,
    *,
    refusal: Refusal | None,
    route: str,
    key: KeyRecord | None,
    tenant: str,
    asked: str,
    model: str,
    client: str,
    duration_s: float,
    trace: str,
    stream: bool,
    passed_over: int,
) -> RequestLine:
    """The line of a request that ended before it was relayed; without a refusal its client left."""
    limit = refusal.hit if refusal is not None else None
    told = told_by(refusal, asked=False)
    return RequestLine(
        id=request_id,
        at=at,
        status=refusal.status if refusal is not None else CLIENT_LEFT,
        end=r.REFUSED if refusal is not None else r.LEFT,
        route=route,
        key_id=key.id if key is not None else "",
        key=key.name if key is not None else "",
        team=key.team if key is not None else "",
        tenant=tenant,
        asked="" if asked == model else asked,
        model=model,
        code=told.code,
        said=told.said,
        limit="/".join(limit) if limit is not None else "",
        retry_s=told.retry_s,
        stream=stream,
        band=refusal.band if isinstance(refusal, TurnedAway) else "",
        client=client,
        duration_ms=round(duration_s * 1000, 3),
        trace=trace,
        passed_over=passed_over,
    )


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def _own_words(refusal: Refusal, *, asked: bool) -> str:
    """What a refusal says where it can hold no word of a client's or an engine's; `asked` is a replica having been."""
    if isinstance(refusal, TurnedAway) or (not asked and refusal.status in _OWN_WORDS):
        return refusal.message
    return ""
