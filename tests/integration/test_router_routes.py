"""The rest of the client API through the router: each route's shape, its errors, its usage, its limits."""

import json
from pathlib import Path

import pytest

from llmgw.core.limits import Limits
from llmgw.core.routing import Timeouts
from llmgw.router.ends import End
from llmgw.router.limits import FORM_HELD_BYTES, MAX_FORM_BYTES
from llmgw.router.requests import read_fields
from llmgw.router.routes import Forms, Route
from tests.integration.test_router_limits import limited
from tests.support.limits import ROOMY, key, month
from tests.support.provider import KEYS, Provider, routing_to, write_keys
from tests.support.relay_rig import body_of, rig
from tests.support.router_plane import (
    KEY,
    LIMITED_KEY,
    Answer,
    Plane,
    chat,
    get,
    post,
    routing_of,
    running,
    settled,
)
from tests.support.scripted_engine import (
    LAST_CHUNK,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    json_answer,
    streaming,
)
from tests.support.typed_streams import message_stream, response_stream

ASK: dict[str, object] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
BODIES: dict[Route, dict[str, object]] = {
    Route.RESPONSES: {"model": "m", "input": "hi"},
    Route.MESSAGES: ASK,
    Route.COUNT_TOKENS: ASK,
    Route.RERANK: {"model": "m", "query": "q", "documents": ["a", "b"]},
    Route.SPEECH: {"model": "m", "input": "say it", "voice": "v"},
    Route.IMAGES: {"model": "m", "prompt": "a cat"},
    Route.IMAGE_EDITS: {"model": "m", "prompt": "a dog", "images": [{"image_url": "https://x/y.png"}]},
}
FORM_ROUTES = [route for route in Route if route.forms is not Forms.NEVER]
RESPONSE = response_stream(["one ", "two ", "three"], usage=(20, 3, 8))
MESSAGE = message_stream(["one ", "two ", "three"], usage=(12, 8, 3))
HTML = b"HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nContent-Length: 20\r\n\r\n<h1>Not here</h1>\n\r\n"


def asking(route: Route, **fields: object) -> bytes:
    """A request for a JSON route."""
    return post(BODIES[route] | fields, route.path)


def form(route: Route, *parts: tuple[str, bytes], key: bytes = KEY, more: bytes = b"") -> bytes:
    """A request with a form; a part whose name is `file` has a file's head."""
    body = b""
    for name, value in parts:
        file = b'; filename="a.wav"\r\nContent-Type: audio/wav' if name == "file" else b""
        head = b'--b0\r\nContent-Disposition: form-data; name="%b"%b\r\n\r\n' % (name.encode(), file)
        body += head + value + b"\r\n"
    body += b"--b0--\r\n"
    head = b"POST %b HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer %b\r\n%b" % (route.path.encode(), key, more)
    return head + b"Content-Type: multipart/form-data; boundary=b0\r\nContent-Length: %d\r\n\r\n" % len(body) + body


def typed_events(events: list[bytes], *, whole: bool = True) -> Behaviour:
    """Answer with these events, one a chunk; broken off if not `whole`."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(chunk(event) for event in events) + (LAST_CHUNK if whole else b""))
        if not whole:
            await exchange.close()

    return behave


def anthropic_error(answer: Answer) -> dict[str, str]:
    """The error of an answer in Anthropic's shape."""
    document = json.loads(answer.body)
    assert (document["type"], set(document["error"])) == ("error", {"type", "message"})
    return dict(document["error"])


def used(plane: Plane) -> list[tuple[int, int, int, bool]]:
    """Input, cached, output and whether estimated, of each row."""
    return [(row.input_tokens, row.cached_tokens, row.output_tokens, row.estimated) for row in plane.state.rows]


@pytest.mark.trio
@pytest.mark.parametrize(("route", "events"), [(Route.RESPONSES, RESPONSE), (Route.MESSAGES, MESSAGE)])
async def test_typed_events_arrive_as_they_came_and_are_counted(route: Route, events: list[bytes]) -> None:
    async with running(typed_events(events)) as plane:
        answer = await plane.ask(asking(route, stream=True))
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body == b"".join(events)  # no [DONE], nothing withheld
        await settled(plane)
        (request,) = plane.engines[0].received
        assert request.head.startswith(b"POST %b HTTP/1.1\r\n" % route.path.encode())
        assert request.json == BODIES[route] | {"stream": True}
        assert used(plane) == [(20, 8, 3, False)]
        (row,) = plane.state.rows
        assert row.stream
        assert row.first_token_ms is not None


@pytest.mark.trio
@pytest.mark.parametrize(
    ("route", "answer", "usage"),
    [
        (Route.RESPONSES, {"usage": {"input_tokens": 20, "output_tokens": 3}, "user": None}, (20, 0, 3, False)),
        (Route.RESPONSES, {"output": []}, (7, 0, 3, True)),
        (
            Route.MESSAGES,
            {"usage": {"input_tokens": 1, "cache_read_input_tokens": 7, "output_tokens": 3}},
            (8, 7, 3, False),
        ),
        (Route.COUNT_TOKENS, {"input_tokens": 32}, (0, 0, 0, False)),
        (Route.RERANK, {"results": [], "usage": {"total_tokens": 56}}, (56, 0, 0, False)),
        (Route.RERANK, {"results": []}, (0, 0, 0, False)),
        (Route.SPEECH, {"odd": True}, (0, 0, 0, False)),
        (Route.IMAGES, {"data": [], "usage": {"input_tokens": 5, "output_tokens": 800}}, (5, 0, 800, False)),
        (Route.IMAGE_EDITS, {"data": []}, (0, 0, 0, False)),
    ],
)
async def test_what_each_route_used(route: Route, answer: dict[str, object], usage: tuple[int, int, int, bool]) -> None:
    async with running(answering(json_answer(answer))) as plane:
        found = await plane.ask(asking(route))
        assert (found.status, json.loads(found.body)) == (200, answer)
        await settled(plane)
        assert used(plane) == [usage]


@pytest.mark.trio
async def test_input_that_an_engine_never_named_is_estimated_and_its_output_believed() -> None:
    async with running(typed_events(MESSAGE[1:])) as plane:
        assert (await plane.ask(asking(Route.MESSAGES, stream=True))).status == 200
        await settled(plane)
        ((read, _, wrote, estimated),) = used(plane)
        assert (read > 0, wrote, estimated) == (True, 3, True)


@pytest.mark.trio
@pytest.mark.parametrize("seen", [3, 4])
async def test_a_stream_lost_midway_ends_with_the_apis_own_error_event(seen: int) -> None:
    async with running(typed_events(RESPONSE[:seen], whole=False)) as plane:
        answer = await plane.ask(asking(Route.RESPONSES, stream=True))
        assert answer.whole
        assert answer.body.startswith(b"".join(RESPONSE[:seen]))
        name, _, data = answer.body.removeprefix(b"".join(RESPONSE[:seen])).partition(b"\n")
        document = json.loads(data.removeprefix(b"data: "))
        assert name == b"event: error"
        assert (document["type"], document["code"], document["sequence_number"]) == ("error", "engine_lost", seen)
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.failed, row.output_tokens, row.estimated) == (True, seen - 2, True)


@pytest.mark.trio
async def test_a_message_lost_midway_and_one_lost_after_its_last_event() -> None:
    async with running(typed_events(MESSAGE[:5], whole=False)) as plane:
        answer = await plane.ask(asking(Route.MESSAGES, stream=True))
        tail = answer.body.removeprefix(b"".join(MESSAGE[:5]))
        assert tail.startswith(b'event: error\ndata: {"type":"error","error":{"type":"api_error","message":')
        assert answer.whole
    async with running(typed_events(MESSAGE, whole=False)) as plane:
        answer = await plane.ask(asking(Route.MESSAGES, stream=True))
        assert (answer.whole, answer.body) == (True, b"".join(MESSAGE))


@pytest.mark.parametrize("route", [Route.RESPONSES, Route.MESSAGES, Route.SPEECH])
@pytest.mark.parametrize("step", [1, 3, 40, 4096])
def test_a_stream_in_pieces_of_any_size_is_whole(route: Route, step: int) -> None:
    events = MESSAGE if route is Route.MESSAGES else RESPONSE
    raw = SSE_HEAD + b"".join(chunk(event) for event in events) + LAST_CHUNK
    with rig(route=route) as r:
        r.say(*(raw[i : i + step] for i in range(0, len(raw), step)))
        assert body_of(r.client.received()) == b"".join(events)
        assert r.ended is End.COMPLETE
        assert not r.upstream.closed


@pytest.mark.trio
@pytest.mark.parametrize("route", Route)
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (HTML, 404),
        (json_answer({"detail": "Not Found"}, b"404 Not Found"), 404),
        (json_answer({"error": {"message": "File Not Found", "code": 404}}, b"404 Not Found"), 404),
        (json_answer({"detail": "Method Not Allowed"}, b"405 Method Not Allowed"), 404),
        (json_answer({"error": {"message": "Start it with `--reranking`"}}, b"501 Not Implemented"), 400),
    ],
)
async def test_an_engine_without_the_route_is_told_in_a_sentence_and_not_blamed(
    route: Route, raw: bytes, status: int
) -> None:
    body: dict[str, object] = {"prompt": "p", "input": "i"} | ASK | BODIES.get(route, {})
    request = form(route, ("model", b"m")) if route.forms is Forms.ALWAYS else post(body, route.path)
    async with running(answering(raw)) as plane:
        for _ in range(4):
            answer = await plane.ask(request)
            assert answer.status == status
            message = anthropic_error(answer)["message"] if route.shape.translates else answer.error["message"]
            assert "This model's engine" in str(message)
            assert status == 400 or route.path in str(message)
            if not route.shape.translates:
                assert answer.error["code"] == "unsupported_by_engine"
        await settled(plane)
        assert not plane.state.breakers
        assert plane.engines[0].connections == 1 or status == 400
        assert [(row.failed, row.attempts, row.input_tokens) for row in plane.state.rows] == [(False, 1, 0)] * 4


@pytest.mark.trio
async def test_another_replicas_engine_may_have_the_route() -> None:
    async with running(answering(HTML), answering(json_answer({"results": []}))) as plane:
        assert [(await plane.ask(asking(Route.RERANK))).status for _ in range(4)] == [200] * 4


@pytest.mark.trio
async def test_what_an_engine_does_not_find_is_the_clients_to_read() -> None:
    lost = {"error": {"message": "Response with id 'resp_1' not found.", "param": "previous_response_id"}}
    async with running(answering(json_answer(lost, b"404 Not Found"))) as plane:
        answer = await plane.ask(asking(Route.RESPONSES, previous_response_id="resp_1"))
        assert (answer.status, json.loads(answer.body)) == (404, lost)


@pytest.mark.trio
async def test_anthropics_clients_read_errors_in_their_own_shape() -> None:
    refusing = answering(json_answer({"error": {"message": "no such tool", "type": "x"}}, b"400 Bad Request"))
    own = {"type": "error", "error": {"type": "invalid_request_error", "message": "as it was"}}
    async with running(refusing, refusing) as plane:
        answer = await plane.ask(asking(Route.MESSAGES))
        assert (answer.status, anthropic_error(answer)) == (
            400,
            {"type": "invalid_request_error", "message": "no such tool"},
        )
        assert sum(len(engine.received) for engine in plane.engines) == 1  # a client's fault is tried once
        denied = await plane.ask(post(ASK, "/v1/messages", key=b"sk-nobody"))
        assert (denied.status, anthropic_error(denied)["type"]) == (401, "authentication_error")
        absent = await plane.ask(post(ASK | {"model": "nope"}, "/v1/messages/count_tokens"))
        assert (absent.status, anthropic_error(absent)["type"]) == (404, "not_found_error")
        method = await plane.ask(get("/v1/messages"))
        assert (method.status, method.headers["allow"]) == (405, "POST")
        anthropic_error(method)
        plane.state.apply(routing_of([], Timeouts()))
        none = await plane.ask(asking(Route.MESSAGES))
        assert (none.status, anthropic_error(none)["type"]) == (503, "overloaded_error")
    busy = json_answer({"error": {"message": "full"}}, b"429 Busy", b"Retry-After: 7\r\n")
    async with running(answering(busy)) as plane:
        answer = await plane.ask(asking(Route.MESSAGES))
        assert (answer.status, answer.headers["retry-after"]) == (429, "7")
        assert anthropic_error(answer) == {"type": "rate_limit_error", "message": "full"}
    async with running(answering(json_answer(own, b"400 Bad Request"))) as plane:
        answer = await plane.ask(asking(Route.MESSAGES))
        assert json.loads(answer.body) == own


@pytest.mark.trio
async def test_a_version_goes_with_messages_and_models_answer_anthropics_clients() -> None:
    async with running(answering(json_answer({"usage": {"input_tokens": 1, "output_tokens": 1}}))) as plane:
        head = b"anthropic-version: 2024-01-01\r\nAnthropic-Beta: a,b\r\nx-own: no\r\n"
        await plane.ask(post(ASK, "/v1/messages", headers=head))
        await plane.ask(asking(Route.MESSAGES))
        await plane.ask(post(chat(), headers=head))
        first, second, third = plane.engines[0].received
        assert [first.header(b"anthropic-version"), first.header(b"anthropic-beta")] == [b"2024-01-01", b"a,b"]
        assert first.header(b"x-own") is None
        assert second.header(b"anthropic-version") == b"2023-06-01"
        assert third.header(b"anthropic-version") is None
        twice = await plane.ask(post(ASK, "/v1/messages", headers=b"anthropic-version: a\r\nanthropic-version: b\r\n"))
        assert twice.status == 400
        asked = b"GET /v1/models HTTP/1.1\r\nHost: gw\r\nx-api-key: %b\r\nanthropic-version: 2023-06-01\r\n\r\n"
        listed = json.loads((await plane.ask(asked % KEY)).body)
        assert [(model["id"], model["aliases"]) for model in listed["data"]] == [("m", ["alias-of-m"]), ("other", [])]
        assert anthropic_error(await plane.ask(asked % b"sk-nobody"))["type"] == "authentication_error"


@pytest.mark.trio
async def test_a_provider_of_messages_is_shown_the_key_its_way(tmp_path: Path) -> None:
    async with running() as plane:
        provider = Provider(
            answering(json_answer({"usage": {"input_tokens": 1, "output_tokens": 1}})), host="127.0.0.1"
        )
        await plane.nursery.start(provider.run)
        plane.state.apply(routing_to(provider, keys=write_keys(tmp_path / "keys", KEYS[0])))
        assert (await plane.ask(asking(Route.MESSAGES))).status == 200
        assert (await plane.ask(asking(Route.RERANK))).status == 200
        messages, rerank = provider.received
        assert messages.head.startswith(b"POST /api/v1/messages ")
        assert messages.header(b"x-api-key") == KEYS[0].encode()
        assert messages.json["model"] == "upstream-m"
        assert rerank.header(b"x-api-key") is None


@pytest.mark.trio
@pytest.mark.parametrize(
    ("route", "fields", "param"),
    [
        (Route.RESPONSES, {"max_output_tokens": 1025}, "max_output_tokens"),
        (Route.RESPONSES, {"max_output_tokens": -1}, "max_output_tokens"),
        (Route.RESPONSES, {"max_tokens": 1025}, "max_tokens"),
        (Route.MESSAGES, {"max_tokens": 1025}, "max_tokens"),
        (Route.RERANK, {"query": None}, "query"),
        (Route.SPEECH, {"input": None}, "input"),
        (Route.IMAGES, {"n": 1000}, "n"),
    ],
)
async def test_what_a_model_cannot_do_is_refused_before_its_engine_hears(
    route: Route, fields: dict[str, object], param: str
) -> None:
    async with running(streaming(["no"])) as plane:
        answer = await plane.ask(asking(route, **fields))
        assert answer.status == 400
        if route.shape.translates:
            assert param in anthropic_error(answer)["message"]
        else:
            assert answer.error["param"] == param
        assert not plane.engines[0].received


@pytest.mark.trio
async def test_a_field_of_a_route_that_comes_twice_is_refused() -> None:
    async with running(streaming(["no"])) as plane:
        raw = b'{"model":"m","input":"x","max_output_tokens":5,"max_output_tokens":6}'
        answer = await plane.ask(post(raw, "/v1/responses"))
        assert (answer.status, answer.error["message"]) == (400, "The field 'max_output_tokens' comes twice.")
    assert read_fields(raw.replace(b'output_tokens":6', b'x":1'), Route.RESPONSES).max_completion_tokens == 5


@pytest.mark.trio
@pytest.mark.parametrize(("route", "param"), [(Route.RESPONSES, "max_output_tokens"), (Route.MESSAGES, "max_tokens")])
async def test_limits_hold_and_what_was_used_is_charged(tmp_path: Path, route: Route, param: str) -> None:
    events = RESPONSE if route is Route.RESPONSES else MESSAGE
    async with limited(tmp_path, key("k1", limits=Limits(tpm=200)), typed_events(events)) as s:
        assert (await s.plane.ask(asking(route, stream=True, **{param: 50}))).status == 200
        await settled(s.plane)
        assert (s.counted.requests, s.counted.tokens, s.counted.open) == (1, 23, 0)
        answer = await s.plane.ask(asking(route, **{param: 180}))
        assert answer.status == 429
        if route is Route.MESSAGES:
            assert anthropic_error(answer)["type"] == "rate_limit_error"
        assert s.counted.tokens == 23


@pytest.mark.trio
async def test_what_is_counted_by_its_engine_alone_is_charged_so(tmp_path: Path) -> None:
    said = json_answer({"usage": {"input_tokens": 5, "output_tokens": 70}})
    async with limited(tmp_path, key("k1", limits=ROOMY), answering(said)) as s:
        for route in (Route.IMAGES, Route.IMAGE_EDITS, Route.RERANK):
            assert (await s.plane.ask(asking(route))).status == 200
        assert (await s.plane.ask(form(Route.TRANSCRIPTIONS, ("file", b"x" * 9000), ("model", b"m")))).status == 200
        await settled(s.plane)
        assert (s.counted.requests, s.counted.tokens) == (4, 4 * 75)
        assert (await s.plane.ask(asking(Route.COUNT_TOKENS))).status == 200
        await settled(s.plane)
        assert (s.counted.requests, s.counted.tokens, s.counted.open) == (5, 4 * 75, 0)


@pytest.mark.trio
async def test_a_spent_budget_lets_no_picture_in(tmp_path: Path) -> None:
    record = key("k1", budgets=month(1000))
    async with limited(tmp_path, record, answering(json_answer({"data": []}))) as s:
        for request in (asking(Route.IMAGES), form(Route.IMAGE_EDITS, ("model", b"m"), ("file", b"x"))):
            answer = await s.plane.ask(request)
            assert (answer.status, answer.error["code"]) == (429, "insufficient_quota")
        assert (await s.plane.ask(asking(Route.COUNT_TOKENS))).status == 200  # which costs nothing
        assert (await s.plane.ask(asking(Route.RERANK))).status == 200


@pytest.mark.trio
@pytest.mark.parametrize("route", FORM_ROUTES)
@pytest.mark.parametrize("size", [100, FORM_HELD_BYTES - 10, 3 * FORM_HELD_BYTES])
@pytest.mark.parametrize("named", ["m", "alias-of-m"])
async def test_a_form_reaches_the_engine_as_it_came(route: Route, size: int, named: str) -> None:
    file = bytes(range(256)) * (size // 256 + 1)
    async with running(answering(json_answer({"text": "hello", "usage": {"type": "duration", "seconds": 3}}))) as plane:
        for parts in ((("file", file), ("model", named.encode())), (("model", named.encode()), ("file", file))):
            request = form(route, *parts)
            answer = await plane.ask(request)
            assert (answer.status, json.loads(answer.body)["text"]) == (200, "hello")
            received = plane.engines[0].received[-1]
            sent = request.partition(b"\r\n\r\n")[2]
            assert received.body == sent.replace(b"\r\n\r\n" + named.encode() + b"\r\n", b"\r\n\r\nm\r\n")
            assert received.header(b"content-type") == b"multipart/form-data; boundary=b0"
            assert received.header(b"authorization") == b"Bearer ek-r0"
        await settled(plane)
        assert used(plane) == [(0, 0, 0, False)] * 2
        assert plane.engines[0].connections == 1


@pytest.mark.trio
async def test_a_long_form_is_sent_again_to_another_replica() -> None:
    async def gone(exchange: Exchange) -> None:
        await exchange.close()

    request = form(Route.TRANSCRIPTIONS, ("file", b"\x00\xff" * FORM_HELD_BYTES), ("model", b"m"))
    async with running(gone, answering(json_answer({"text": "hello"}))) as plane:
        for _ in range(2):
            assert (await plane.ask(request)).status == 200
        assert plane.engines[0].received
        for received in (*plane.engines[0].received, *plane.engines[1].received):
            assert received.body == request.partition(b"\r\n\r\n")[2]


@pytest.mark.trio
async def test_forms_are_refused_like_other_bodies() -> None:
    async with running(streaming(["no"])) as plane:
        route = Route.TRANSCRIPTIONS
        cases = [
            (form(route, ("file", b"x")), 400, "model"),
            (form(route, ("model", b"other"), ("model", b"m")), 400, "comes twice"),
            (form(route, ("model", b"m"), key=LIMITED_KEY), 404, "does not exist"),
            (form(route, ("model", b"m"), key=b"sk-nobody"), 401, "Incorrect"),
            (post({"model": "m"}, route.path), 400, "multipart/form-data"),
            (form(route, ("model", b"m"), more=b"Content-Type: multipart/form-data; boundary=c\r\n"), 400, "twice"),
        ]
        for request, status, shown in cases:
            answer = await plane.ask(request)
            assert (answer.status, shown in str(answer.error["message"])) == (status, True), answer.body
        client = await plane.connect()
        head = form(route).partition(b"Content-Length")[0]
        await client.send(head + b"Content-Length: %d\r\n\r\n" % (MAX_FORM_BYTES + 1))
        answer = await client.answer()
        assert (answer.status, str(MAX_FORM_BYTES) in str(answer.error["message"])) == (413, True)
        assert not plane.engines[0].received


@pytest.mark.trio
async def test_a_sound_is_passed_on_as_it_is() -> None:
    sound = bytes(range(256)) * 1000
    head = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nTransfer-Encoding: chunked\r\n\r\n"
    raw = head + b"".join(chunk(sound[i : i + 5000]) for i in range(0, len(sound), 5000)) + LAST_CHUNK
    async with running(answering(raw)) as plane:
        answer = await plane.ask(asking(Route.SPEECH))
        assert (answer.status, answer.headers["content-type"], answer.body) == (200, "audio/mpeg", sound)
        assert plane.engines[0].received[0].header(b"accept") == b"*/*"
        await settled(plane)
        assert used(plane) == [(0, 0, 0, False)]
