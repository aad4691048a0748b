"""Spans of a request as they are exported: what stands under what, when, and which of them are errors."""

import json

import msgspec
import pytest

from llmgw.router.otlp import export_of, spans_of
from llmgw.router.traces import Trace
from tests.console.showcase_requests import REQUEST, request_lines
from tests.support.collector import SpanSeen, decode

TRACE = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", "00f067aa0ba902b8", True, True)
LINE = next(line for line in request_lines() if line.id == REQUEST)


def exported(**changes: object) -> list[SpanSeen]:
    """The spans of LINE with these changes, through the bytes that are sent."""
    line = msgspec.structs.replace(LINE, **changes)
    spans = spans_of(line, TRACE, [f"{number + 1:016x}" for number in range(len(line.attempts))])
    return decode(json.loads(export_of(spans, instance="host/1")))


def test_a_request_that_waited_and_was_tried_twice_is_four_spans() -> None:
    request, wait, first, second = exported()
    assert (request.id, request.parent, request.kind) == (TRACE.span, TRACE.parent, 2)
    assert {(span.trace, span.parent) for span in (wait, first, second)} == {(TRACE.id, TRACE.span)}
    assert [span.kind for span in (wait, first, second)] == [1, 3, 3]
    assert [span.error for span in (request, wait, first, second)] == [False, False, True, False]
    assert wait.attributes == {"llmgw.band": "bronze", "llmgw.waited_for": LINE.waited_for}
    assert request.began_ns <= wait.began_ns < wait.ended_ns <= first.began_ns < first.ended_ns <= second.began_ns
    assert second.ended_ns <= request.ended_ns
    assert (request.ended_ns - request.began_ns) // 10**6 == pytest.approx(LINE.duration_ms, abs=1)
    assert (wait.ended_ns - wait.began_ns) // 10**6 == pytest.approx(LINE.waited_ms, abs=1)
    assert request.resource["service.instance.id"] == "host/1"


def test_it_says_what_the_conventions_have_names_for() -> None:
    request, *_ = exported()
    for key, value in {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.model": LINE.model,
        "gen_ai.response.model": LINE.model,
        "gen_ai.usage.input_tokens": 2310,
        "gen_ai.usage.output_tokens": 640,
        "http.response.status_code": 200,
        "http.route": "/v1/chat/completions",
        "llmgw.key_id": "key-6",
        "llmgw.stream": True,
    }.items():
        assert request.attributes[key] == value, key
    assert "error.type" not in request.attributes


@pytest.mark.parametrize(
    ("changes", "error", "type_"),
    [
        ({"status": 502, "end": "failed", "code": "engine_error"}, True, "engine_error"),
        ({"end": "lost"}, True, "lost"),
        ({"status": 400}, False, "400"),
        ({"status": 429, "end": "refused", "code": "queue_full"}, False, "queue_full"),
        ({"status": 499, "end": "left"}, False, "left"),
    ],
)
def test_only_what_is_the_gateways_or_an_engines_doing_is_an_error(
    changes: dict[str, object], error: bool, type_: str
) -> None:
    request, *_ = exported(**changes)
    assert (request.error, request.attributes["error.type"]) == (error, type_)


def test_a_request_that_waited_for_nothing_has_no_span_of_waiting() -> None:
    assert [span.kind for span in exported(waited_ms=0.0, attempts=LINE.attempts[1:])] == [2, 3]
