"""Each API's events, usage and errors, whatever pieces they come in."""

import itertools
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmgw.router.engine_errors import cut_refusal, engine_refusal
from llmgw.router.errors import engine_failed
from llmgw.router.limits import MAX_EVENT_BYTES
from llmgw.router.routes import Route
from llmgw.router.shapes import ANTHROPIC, MEDIA, OPENAI, RESPONSES, Shape, TypedShape
from llmgw.router.token_usage import Usage, usage_at_end, usage_from
from llmgw.router.typed_events import TypedEvents
from tests.support.typed_streams import message_stream, response_stream, speech_stream, typed

SAID = {"input_tokens": 9, "output_tokens": 4}
STREAMS = {
    "responses": (RESPONSES, response_stream(["He", "llo é🙂", '"usage"'], usage=(9, 4, 3)), Usage(9, 3, 4), 3),
    "messages": (ANTHROPIC, message_stream(["He", "llo é🙂", '"error"'], usage=(2, 7, 3)), Usage(9, 7, 3), 3),
    "speech": (MEDIA, speech_stream([b"abc", b"def"], usage=(9, 3)), Usage(9, 0, 3), 2),
}


def feed(shape: TypedShape, pieces: list[bytes]) -> tuple[TypedEvents, bytes]:
    """A reader that was fed all of a stream, and what it passed on."""
    events = shape.events(withhold=True)
    assert isinstance(events, TypedEvents)
    out = b"".join(events.feed(piece) for piece in pieces)
    return events, out + events.finish()


@pytest.mark.parametrize("name", STREAMS)
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n", b"\r"])
@settings(max_examples=80, deadline=None)
@given(at=st.lists(st.integers(0, 4000), max_size=10), comments=st.integers(0, 2))
def test_every_byte_passes_and_usage_is_read_however_a_stream_is_cut(
    name: str, line_end: bytes, at: list[int], comments: int
) -> None:
    shape, parts, usage, content = STREAMS[name]
    parts = [*parts[:2], *[b": ping\n\n"] * comments, *parts[2:]]
    raw = b"".join(parts).replace(b"\n", line_end)
    edges = [0, *sorted({i % len(raw) for i in at}), len(raw)]
    events, out = feed(shape, [raw[a:b] for a, b in itertools.pairwise(edges)])
    assert out == raw
    assert events.usage == usage
    assert events.done
    assert events.events == content
    assert b"[DONE]" not in out


@pytest.mark.parametrize("name", STREAMS)
def test_an_event_a_read_and_byte_by_byte(name: str) -> None:
    shape, parts, usage, content = STREAMS[name]
    raw = b"".join(parts)
    for pieces in (parts, [bytes([byte]) for byte in raw], [raw]):
        events, out = feed(shape, pieces)
        assert (out, events.usage, events.done, events.events) == (raw, usage, True, content)


@pytest.mark.parametrize("step", [1000, 65_536, MAX_EVENT_BYTES])
@pytest.mark.parametrize("name", ["response.completed", "image_generation.completed"])
def test_a_last_event_too_long_to_hold_ends_the_stream_and_its_usage_counts(name: str, step: int) -> None:
    usage = {"input_tokens": 5, "output_tokens": 6, "input_tokens_details": {"cached_tokens": 4}}
    long: dict[str, object] = {"b64_json": "x" * 3 * MAX_EVENT_BYTES, "output": []}
    document: dict[str, object] = (
        {"response": long | {"usage": usage, "metadata": {}}} if name[0] == "r" else {**long, "usage": usage}
    )
    raw = typed(name, document)
    events, out = feed(RESPONSES if name[0] == "r" else MEDIA, [raw[i : i + step] for i in range(0, len(raw), step)])
    assert out == raw
    assert events.usage == Usage(5, 4, 6)
    assert events.done
    assert not events.loose


@pytest.mark.parametrize("text", [b'"\\ud83d"', b"NaN", b'"\xff"', b"{not JSON"])
def test_a_last_event_that_is_no_strict_json_is_the_last(text: bytes) -> None:
    raw = b'event: response.completed\ndata: {"type":"response.completed","response":{"text":%b,' % text
    raw += b'"usage":{"input_tokens":5,"output_tokens":6}}}\n\n'
    events, out = feed(RESPONSES, [raw])
    assert (events.done, out) == (True, raw)
    assert events.usage == (None if text[:1] == b"{" else Usage(5, 0, 6))
    assert not events.says_error
    events, _ = feed(RESPONSES, [raw.replace(b"completed", b"created")])
    assert not events.done


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        (b'{"response":{"output":[{"type":"message","text":"', b'"}]},"type":"response.completed"}', True),
        (b'{"response":{"text":"', b'"},"type": "response.failed" , "sequence_number":7}', True),
        (b'{"response":{"output":[{"type":"message","text":"', b'"}]},"type":"response.created"}', False),
        (b'{"item":{"text":"', b'","type":"error"},"type":"response.output_item.done"}', False),
        (b'{"type":"response.output_item.done","item":{"text":"', b'","type":"error"}}', False),
        (b'{"response":{"text":"\\"type\\":\\"error\\"', b'"}}', False),
    ],
)
def test_the_type_of_a_long_event_may_stand_at_its_end(before: bytes, after: bytes, done: bool) -> None:
    raw = b"data: " + before + b"x" * 2 * MAX_EVENT_BYTES + after + b"\n\n"
    events, out = feed(RESPONSES, [raw[at : at + 65_536] for at in range(0, len(raw), 65_536)])
    assert (events.done, out) == (done, raw)
    events, _ = feed(RESPONSES, [b"event: response.created\n" + raw[:200_000], raw[200_000:]])
    assert not events.done


def test_a_stream_is_not_whole_without_its_last_event() -> None:
    for shape, parts, _, _ in STREAMS.values():
        events, out = feed(shape, [b"".join(parts[:-1])])
        assert not events.done
        assert out == b"".join(parts[:-1])
        events, _ = feed(shape, [b"".join(parts)[:-2]])
        assert events.done  # only its blank line was missing


def data_of(event: bytes) -> dict[str, object]:
    """The document of an event of two lines."""
    name, data, *rest = event.split(b"\n")
    assert rest == [b"", b""]
    document = json.loads(data.removeprefix(b"data: "))
    assert name == b"event: " + document["type"].encode()
    return dict(document)


def test_a_broken_stream_ends_as_its_api_says() -> None:
    refusal = engine_failed(502, "It broke off.", "engine_lost")
    events = RESPONSES.events(withhold=False)
    for part in (*STREAMS["responses"][1][:4], b": ping\n\n"):
        events.feed(part)
    assert data_of(RESPONSES.broken(refusal, events)) == {
        "type": "error",
        "code": "engine_lost",
        "message": "It broke off.",
        "param": None,
        "sequence_number": 4,
        "error": {"message": "It broke off.", "type": "server_error", "code": "engine_lost", "param": None},
    }
    assert data_of(RESPONSES.broken(refusal))["sequence_number"] == 0
    assert data_of(ANTHROPIC.broken(refusal)) == {
        "type": "error",
        "error": {"type": "api_error", "message": "It broke off."},
    }
    assert data_of(MEDIA.broken(refusal))["error"] == json.loads(OPENAI.body(refusal))["error"]
    done, _ = feed(RESPONSES, STREAMS["responses"][1])
    assert RESPONSES.broken(refusal, done) == b""
    assert OPENAI.broken(refusal).endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("shape", "last"),
    [
        (RESPONSES, b'data: {"type":"response.failed","response":{"error":{"message":"x"}}}\n\n'),
        (RESPONSES, b'data: {"type":"error","code":"x","message":"x","error":{"message":"x"}}\n\n'),
        (ANTHROPIC, b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"x"}}\n\n'),
        (MEDIA, b'data: {"type":"error","error":{"message":"x"}}\n\n'),
        (OPENAI, b'data: {"error":{"message":"x"}}\n\n'),
    ],
)
def test_a_stream_that_ends_in_an_error_says_so_in_every_api(shape: Shape, last: bytes) -> None:
    events = shape.events(withhold=False)
    events.feed(last)
    events.finish()
    assert events.says_error


@pytest.mark.parametrize(("shape", "name"), [(RESPONSES, "responses"), (ANTHROPIC, "messages")])
def test_a_stream_that_ends_well_says_no_error(shape: TypedShape, name: str) -> None:
    events, _ = feed(shape, STREAMS[name][1])
    assert not events.says_error


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        ({"prompt_tokens": 5, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}}, Usage(5, 5, 2)),
        ({"input_tokens": 5, "output_tokens": 2, "input_tokens_details": {"cached_tokens": 3}}, Usage(5, 3, 2)),
        ({"input_tokens": 5, "output_tokens": 2}, Usage(5, 0, 2)),
        ({"input_tokens": 1, "cache_read_input_tokens": 31, "output_tokens": 4}, Usage(32, 31, 4)),
        ({"input_tokens": 1, "cache_creation_input_tokens": 8, "output_tokens": 4}, Usage(9, 0, 4)),
        ({"total_tokens": 56}, Usage(56, 0, 0)),
        ({"type": "duration", "seconds": 3}, None),
        ({"input_tokens": -5, "output_tokens": 1}, None),
        ({"input_tokens": 5, "output_tokens": 1e300}, None),
        ({"input_tokens": "5", "output_tokens": 1}, None),
        ({"input_tokens": 5, "output_tokens": 1, "input_tokens_details": 4}, Usage(5, 0, 1)),
        ("x", None),
    ],
)
def test_usage_in_every_words(said: object, usage: Usage | None) -> None:
    assert usage_from(said) == usage
    tail = (json.dumps({"output": "x", "usage": said, "user": None})[5:]).encode()
    assert usage_at_end(tail) == usage


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["input_tokens", "prompt_tokens", "cache_read_input_tokens", "total_tokens", "output_tokens"]),
        st.none() | st.integers() | st.floats() | st.text(max_size=3) | st.dictionaries(st.text(max_size=2), st.none()),
    )
)
def test_no_usage_is_beyond_belief(said: dict[str, object]) -> None:
    usage = usage_from(said) or Usage()
    assert 0 <= usage.cached_tokens <= usage.input_tokens <= 1_000_000_000
    assert 0 <= usage.output_tokens <= 1_000_000_000


NO_ROUTE = [
    b"<html><body>404 Not Found</body></html>",
    b"",
    b'{"detail":"Not Found"}',
    b'{"error":{"message":"File Not Found","type":"not_found_error","code":404}}',
    b'{"error":{"message":"Unknown request URL: POST /v1/x","code":"unknown_url"}}',
    b'{"error":"Not Found"}',
    b'{"object":"error","message":"Method Not Allowed"}',
]


@pytest.mark.parametrize("status", [404, 405])
@pytest.mark.parametrize("body", NO_ROUTE)
def test_an_engine_without_the_route_is_told_in_a_sentence(status: int, body: bytes) -> None:
    for route in Route:
        refusal = engine_refusal(route, status, body)
        assert refusal is not None
        assert refusal.status == 404
        assert refusal.message == f"This model's engine has no route {route.path}."


def test_other_errors_are_the_clients_and_in_its_shape() -> None:
    missing = b'{"error":{"message":"Response with id resp_1 not found.","param":"previous_response_id"}}'
    assert engine_refusal(Route.RESPONSES, 404, missing) is None
    for own in (b'{"error":"no such adapter"}', b'{"detail":"The model x is not loaded"}'):
        assert engine_refusal(Route.CHAT, 404, own) is None
    assert engine_refusal(Route.RESPONSES, 400, missing) is None
    told = engine_refusal(Route.MESSAGES, 400, b'{"error":{"message":"too long","type":"x","code":7}}')
    assert told is not None
    assert json.loads(ANTHROPIC.body(told)) == {
        "type": "error",
        "error": {"type": "invalid_request_error", "message": "too long"},
    }
    theirs = b'{"type":"error","error":{"type":"not_found_error","message":"model: x"}}'
    assert engine_refusal(Route.MESSAGES, 404, theirs) is None
    blank = engine_refusal(Route.MESSAGES, 422, b"\xff\xfe")
    assert blank is not None
    assert blank.message == "The model's engine answered 422."


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error":{"message":"too long","type":"x","code":"c"}}', ("too long", "x", "c")),
        (b'{"error":{"mess', ("The model's engine answered 413.", "invalid_request_error", None)),
        (b"", ("The model's engine answered 413.", "invalid_request_error", None)),
    ],
)
def test_an_error_that_broke_off_is_told_as_far_as_it_can_be_read(
    body: bytes, said: tuple[str, str, str | None]
) -> None:
    told = cut_refusal(Route.CHAT, 413, body)
    assert (told.status, told.message, told.type, told.code) == (413, *said)


@pytest.mark.parametrize(
    ("shape", "documents"),
    [
        (RESPONSES, [{"type": "response.completed", "response": {"id": "r"}, "usage": SAID}]),
        (RESPONSES, [{"type": "response.completed", "response": {"usage": None}, "usage": SAID}]),
        (ANTHROPIC, [{"type": "message_delta", "delta": {"stop_reason": "end_turn", "usage": SAID}}]),
        (
            ANTHROPIC,
            [
                {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
                {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 4}},
                {"type": "message_stop", "usage": None},
            ],
        ),
    ],
)
def test_usage_in_an_odd_place_of_a_typed_stream_is_read(shape: TypedShape, documents: list[dict[str, object]]) -> None:
    events = shape.events(withhold=False)
    for document in documents:
        events.feed(typed(str(document["type"]), document))
    assert events.usage is not None
    assert (events.usage.input_tokens, events.usage.output_tokens) == (9, 4)
