"""Why a request waited, failed or was refused, and where its time went: sentences made of its line in the log."""

from datetime import UTC, datetime
from typing import NamedTuple

from llmgw.core.meters import LOAD
from llmgw.core.requests import COMPLETE, FAILED, LEFT, LOST, REFUSED, STALLED, RequestLine, Tried

NOTICED_MS = 1.0
"""A shorter wait is none to anybody."""
_LIMITS = {
    "rpm": "limit of requests a minute",
    "tpm": "limit of tokens a minute",
    "parallel": "limit of requests at once",
    "budget": "budget",
}
_CHOSEN = {
    "load": "it had the least to do",
    "prefix": "it had read the beginning of the prompt",
    "sticky": "its session had been there",
}
"""By what a replica was chosen (`core.meters.CHOICES`); the only one there is needs no reason."""
_STATUS = {401: "its key is not known", 404: "there is nothing of that name", 413: "its body is too long"}


class Phase(NamedTuple):
    """A stretch of a request's time, in milliseconds from its body having arrived."""

    name: str
    from_ms: float
    to_ms: float


def sentences(line: RequestLine) -> tuple[str, ...]:
    """All that can be told of a request, in the order in which it happened; never empty."""
    told = (_waited(line), *_tried(line), _ended(line), _pace(line), _passed_over(line))
    return tuple(text for text in told if text)


def headline(line: RequestLine) -> str:
    """The one sentence that matters most, for a table's last column."""
    if not line.well:
        return _ended(line)
    return "; ".join(text for text in (_waited(line), *_tried(line)) if text)


def phases(line: RequestLine) -> tuple[Phase, ...]:
    """Its time in order: waited, each try that failed, up to the first token, the rest of the answer."""
    found: list[Phase] = []
    end = line.duration_ms
    at = min(line.waited_ms, end)
    if at >= NOTICED_MS:
        found.append(Phase("waited", 0.0, at))
    for number, tried in enumerate(line.attempts, 1):
        if tried.failed:
            until = min(end, max(at, tried.at_ms + tried.duration_ms))
            found.append(Phase(f"try {number} failed", max(at, tried.at_ms), until))
            at = until
    first = line.first_token_ms
    if first is not None and line.stream:
        first = min(end, max(at, first))
        found.append(Phase("first token", at, first))
        found.append(Phase("streaming", first, end))
    elif end > at:
        found.append(Phase("answer" if first is not None or line.well else "no answer", at, end))
    return tuple(found)


def length(ms: float) -> str:
    """`41 ms`, `1.8 s`, `2 min 5 s`."""
    if ms < 9.95:
        return f"{ms:.1f} ms"
    if ms < 999.5:
        return f"{ms:.0f} ms"
    seconds = ms / 1000
    if seconds < 99.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def clock(at: float) -> str:
    """A time of day, UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%H:%M:%S")


def place_of(tried: Tried) -> str:
    """`gpu02/r1`; the replica alone where its node is not known, and its model where another one answered."""
    place = f"{tried.node}/{tried.replica}" if tried.node else tried.replica
    return f"{tried.model} on {place}" if tried.model else place


def _waited(line: RequestLine) -> str:
    if line.waited_ms < NOTICED_MS:
        return ""
    band = f" in band {line.band}" if line.band else ""
    reason = f" because {line.waited_for}" if line.waited_for else ""
    return f"waited {length(line.waited_ms)}{band}{reason}"


def _tried(line: RequestLine) -> tuple[str, ...]:
    """A sentence for each replica that was asked; one that answered at once needs none."""
    count = len(line.attempts)
    if count == 1 and not line.attempts[0].failed:
        only = line.attempts[0]
        reason = "" if only.chosen_by == LOAD else _CHOSEN.get(only.chosen_by, "")
        return (f"went to {place_of(only)}: {reason}",) if reason else ()
    return tuple(_try(line, number, tried) for number, tried in enumerate(line.attempts))


def _try(line: RequestLine, number: int, tried: Tried) -> str:
    place = place_of(tried)
    reason = _CHOSEN.get(tried.chosen_by, "")
    chosen = f" ({reason})" if reason else ""
    if not tried.failed:
        return f"answered by {place}{chosen}, asked after {length(tried.at_ms)}"
    order = ("first", "then")[min(number, 1)]
    return f"{order} tried on {place}{chosen}: {tried.failed}, after {length(tried.duration_ms)}"


def _ended(line: RequestLine) -> str:
    if line.end == COMPLETE:
        return _answered(line)
    if line.end == REFUSED:
        return _refused(line)
    if line.end == FAILED:
        asked = len(line.attempts)
        who = {0: "nobody could be asked", 1: "the one replica that was asked failed"}.get(
            asked, f"{asked} tries failed"
        )
        return f"failed with {line.status}{_code(line)}: {line.said.removesuffix('.') or who}{_next(line)}"
    if line.end == LEFT:
        when = "before an answer began" if line.first_token_ms is None else f"after {line.output_tokens} tokens"
        return f"the client left after {length(line.duration_ms)}, {when}"
    if line.end == STALLED:
        return f"the client stopped reading and was cut after {length(line.duration_ms)}"
    if line.end == LOST:
        where = f" of {line.node or line.replica}" if line.replica else ""
        return f"the answer{where} broke off after {length(line.duration_ms)} and {line.output_tokens} tokens"
    return f"ended as {line.end} with {line.status}"


def _answered(line: RequestLine) -> str:
    instead = f" in place of {line.asked}" if line.fallback else ""
    by = f" by {line.model}{instead}" if line.model else ""
    verb = "answered" if line.status < 400 else f"answered with the engine's own {line.status}"
    return f"{verb}{by} in {length(line.duration_ms)}"


def _refused(line: RequestLine) -> str:
    if line.limit:
        scope, _, limit = line.limit.partition("/")
        whose = {"key": f"key {line.key!r}", "team": f"team {line.team!r}", "tenant": f"tenant {line.tenant!r}"}
        who = whose.get(scope, scope)
        said = f": {line.said.removesuffix('.')}" if line.said else ""
        return f"refused with {line.status} by the {_LIMITS.get(limit, limit)} of {who}{said}{_next(line)}"
    if line.code == "model_not_found":
        return f"refused with {line.status}: there is no model {line.asked!r}, or its key may not use it"
    reason = line.said.removesuffix(".") or _STATUS.get(line.status, "")
    return f"refused with {line.status}{_code(line)}{': ' if reason else ''}{reason}{_next(line)}"


def _code(line: RequestLine) -> str:
    return f" ({line.code})" if line.code else ""


def _next(line: RequestLine) -> str:
    """When it may be asked again."""
    return "" if line.retry_s is None else f"; to be asked again from {clock(line.at + line.retry_s)} UTC on"


def _pace(line: RequestLine) -> str:
    """How fast the tokens came, where there were some."""
    first = line.first_token_ms
    if first is None or not line.stream or line.output_tokens < 2 or line.duration_ms <= first:
        return ""
    per_s = (line.output_tokens - 1) / (line.duration_ms - first) * 1000
    return f"first token after {length(first)}, then {line.output_tokens} tokens at {per_s:.0f} a second"


def _passed_over(line: RequestLine) -> str:
    if not line.passed_over:
        return ""
    whose = f"of key {line.key!r}" if line.key_id else "without a good key"
    return f"{line.passed_over} more requests {whose} were refused before it and not written down"
