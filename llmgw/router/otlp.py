"""Spans of requests as OTLP/HTTP has them in JSON: ids in hexadecimal, times as strings of nanoseconds.

A request is a server span with a child for its wait and a client span for each try, which is the parent of the engine's
own. Names and attributes are those of OpenTelemetry's conventions for HTTP and generative AI; ours begin with `llmgw.`.
"""

from collections.abc import Iterable, Sequence

import msgspec

from llmgw import __version__
from llmgw.core.requests import COMPLETE, RequestLine, Tried
from llmgw.core.why import NOTICED_MS
from llmgw.router.traces import Trace, new_span_id

INTERNAL, SERVER, CLIENT = 1, 2, 3
ERROR = 2
_OPERATIONS = {
    "/v1/chat/completions": "chat",
    "/v1/messages": "chat",
    "/v1/responses": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
}
Value = str | int | float | bool


class _AnyValue(msgspec.Struct, rename="camel", omit_defaults=True):
    string_value: str | None = None
    int_value: str | None = None
    double_value: float | None = None
    bool_value: bool | None = None


class _Attribute(msgspec.Struct):
    key: str
    value: _AnyValue


class _Status(msgspec.Struct, omit_defaults=True):
    code: int = 0
    message: str = ""


class Span(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """One span."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    name: str
    kind: int
    start_time_unix_nano: str
    end_time_unix_nano: str
    attributes: list[_Attribute]
    status: _Status = msgspec.field(default_factory=_Status)
    flags: int = 0


class _Scope(msgspec.Struct):
    name: str
    version: str


class _ScopeSpans(msgspec.Struct):
    scope: _Scope
    spans: Sequence[Span]


class _Resource(msgspec.Struct):
    attributes: list[_Attribute]


class _ResourceSpans(msgspec.Struct, rename="camel"):
    resource: _Resource
    scope_spans: list[_ScopeSpans]


class _Export(msgspec.Struct, rename="camel"):
    resource_spans: list[_ResourceSpans]


_encode = msgspec.json.Encoder().encode


def export_of(spans: Sequence[Span], *, instance: str) -> bytes:
    """The body of one export; `instance` tells routers apart."""
    who = _attributes(
        ("service.name", "llmgw-router"), ("service.version", __version__), ("service.instance.id", instance)
    )
    scope = _ScopeSpans(_Scope("llmgw.router", __version__), spans)
    return _encode(_Export([_ResourceSpans(_Resource(who), [scope])]))


def spans_of(line: RequestLine, trace: Trace, tries: Sequence[str]) -> list[Span]:
    """The spans of a request; `tries` are the ids of the spans of its tries, in their order."""
    own = trace.span
    found = [_request(line, trace)]
    if line.waited_ms >= NOTICED_MS:
        told = _attributes(("llmgw.band", line.band), ("llmgw.waited_for", line.waited_for))
        found.append(_child(line, trace, new_span_id(), own, "wait", INTERNAL, (0.0, line.waited_ms), told))
    for number, (tried, span) in enumerate(zip(line.attempts, tries, strict=True), 1):
        found.append(_try(line, trace, span, tried, number))
    return found


def _request(line: RequestLine, trace: Trace) -> Span:
    operation = _OPERATIONS.get(line.route, line.route.removeprefix("/v1/"))
    told = _attributes(
        ("http.request.method", "POST"),
        ("http.route", line.route),
        ("http.response.status_code", line.status),
        ("client.address", line.client),
        ("error.type", _error(line)),
        ("gen_ai.operation.name", operation),
        ("gen_ai.request.model", line.asked or line.model),
        ("gen_ai.response.model", line.model if line.end == COMPLETE else ""),
        ("gen_ai.response.id", line.id),
        ("gen_ai.usage.input_tokens", line.input_tokens or None),
        ("gen_ai.usage.output_tokens", line.output_tokens or None),
        ("llmgw.cached_tokens", line.cached_tokens or None),
        ("llmgw.cost_micros", line.cost_micros or None),
        ("llmgw.key_id", line.key_id),
        ("llmgw.team", line.team),
        ("llmgw.tenant", line.tenant),
        ("llmgw.stream", line.stream),
        ("llmgw.end", line.end),
        ("llmgw.band", line.band),
        ("llmgw.first_token_ms", line.first_token_ms),
    )
    model = line.model or line.asked
    # A server span is an error for what is the server's doing; a client's own 4xx is none.
    failed = line.status >= 500 or line.end in ("failed", "lost")
    return Span(
        trace_id=trace.id,
        span_id=trace.span,
        parent_span_id=trace.parent,
        name=f"{operation} {model}" if model else operation,
        kind=SERVER,
        start_time_unix_nano=_nanos(line.began_at),
        end_time_unix_nano=_nanos(line.at),
        attributes=told,
        status=_Status(ERROR, line.code or line.end) if failed else _Status(),
        flags=1,
    )


def _error(line: RequestLine) -> str:
    """What went wrong, as few different words as there can be; empty where nothing did."""
    if line.well:
        return ""
    return line.code or (str(line.status) if line.end == COMPLETE else line.end)


def _try(line: RequestLine, trace: Trace, span: str, tried: Tried, number: int) -> Span:
    told = _attributes(
        ("llmgw.replica", tried.replica),
        ("llmgw.node", tried.node),
        ("llmgw.chosen_by", tried.chosen_by),
        ("gen_ai.request.model", tried.model or line.model),
        ("http.request.resend_count", number - 1 or None),
        ("error.type", tried.failed),
    )
    within = (tried.at_ms, tried.at_ms + tried.duration_ms)
    return _child(line, trace, span, trace.span, f"try {tried.replica}", CLIENT, within, told, failed=tried.failed)


def _child(
    line: RequestLine,
    trace: Trace,
    span: str,
    parent: str,
    name: str,
    kind: int,
    within_ms: tuple[float, float],
    attributes: list[_Attribute],
    failed: str = "",
) -> Span:
    began = line.began_at
    return Span(
        trace_id=trace.id,
        span_id=span,
        parent_span_id=parent,
        name=name,
        kind=kind,
        start_time_unix_nano=_nanos(began + within_ms[0] / 1000),
        end_time_unix_nano=_nanos(began + within_ms[1] / 1000),
        attributes=attributes,
        status=_Status(ERROR, failed) if failed else _Status(),
        flags=1,
    )


def _attributes(*pairs: tuple[str, Value | None]) -> list[_Attribute]:
    """Those that say something."""
    return list(_told(pairs))


def _told(pairs: Iterable[tuple[str, Value | None]]) -> Iterable[_Attribute]:
    for key, value in pairs:
        if value is None or value == "":
            continue
        if isinstance(value, bool):
            yield _Attribute(key, _AnyValue(bool_value=value))
        elif isinstance(value, int):
            yield _Attribute(key, _AnyValue(int_value=str(value)))
        elif isinstance(value, float):
            yield _Attribute(key, _AnyValue(double_value=value))
        else:
            yield _Attribute(key, _AnyValue(string_value=value))


def _nanos(at: float) -> str:
    return str(int(at * 1e9))
