"""Where a stream ends when its engine ends it oddly: after its last event, before it, without any, under no name."""

import json

import pytest

from llmgw.core.routing import RoutedModel, Timeouts
from llmgw.router.charge import usage_of
from llmgw.router.comments import Comments
from llmgw.router.ends import End
from llmgw.router.fields import Fields
from llmgw.router.limits import AFTER_LAST_S, LEADING_BYTES, USAGE_TAIL_BYTES
from llmgw.router.routes import Route
from llmgw.router.token_usage import Usage
from tests.integration.test_router_routes import MESSAGE, RESPONSE, asking, typed_events
from tests.support.relay_rig import Rig, body_of, rig
from tests.support.router_plane import chat, post, running, settled
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    json_answer,
    streaming,
    token,
    usage_event,
)
from tests.support.typed_streams import typed

TYPED = [(Route.RESPONSES, RESPONSE), (Route.MESSAGES, MESSAGE)]
NO_BODY = [
    SSE_HEAD + LAST_CHUNK,
    SSE_HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: 0"),
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n" + LAST_CHUNK,
    b"HTTP/1.1 204 No Content\r\n\r\n",
]
HEADS = [
    b"",
    b"Content-Type: text/plain\r\n",
    b"Content-Type: application/json\r\n",
    b"Content-Type: application/octet-stream\r\n",
]


def broken_after(raw: bytes, *, reset: bool = False) -> Behaviour:
    """Send these bytes and end the connection."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(raw)
        await (exchange.reset() if reset else exchange.close())

    return behave


def end_of(r: Rig) -> End | None:
    """How its stream ended so far."""
    return r.ended


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize(
    "head",
    [SSE_HEAD, SSE_HEAD.replace(b"Transfer-Encoding: chunked", b"Content-Length: 9999")],
    ids=["chunked", "with a length"],
)
async def test_a_connection_lost_after_done_is_the_end_of_a_whole_answer(head: bytes) -> None:
    events = [token("a"), usage_event(9, 4), DONE]
    body = b"".join(map(chunk, events) if head is SSE_HEAD else events)
    async with running(broken_after(head + body)) as plane:
        for _ in range(4):
            answer = await plane.ask(post(chat(True)))
            assert (answer.whole, answer.body) == (True, token("a") + DONE)
        await settled(plane)
        assert {(row.failed, row.input_tokens, row.output_tokens) for row in plane.state.rows} == {(False, 9, 4)}
        assert not plane.state.breakers


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize(("route", "events"), TYPED)
async def test_a_connection_lost_after_a_typed_streams_last_event_is_no_failure(
    route: Route, events: list[bytes]
) -> None:
    async with running(typed_events(events, whole=False)) as plane:
        answer = await plane.ask(asking(route, stream=True))
        assert (answer.whole, answer.body) == (True, b"".join(events))
        await settled(plane)
        assert [(row.failed, row.input_tokens, row.output_tokens) for row in plane.state.rows] == [(False, 20, 3)]


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize(("route", "events"), TYPED)
@pytest.mark.parametrize("kept", [2, 4, -1])
async def test_a_typed_stream_ended_before_its_last_event_ends_with_an_error(
    route: Route, events: list[bytes], kept: int
) -> None:
    async with running(typed_events(events[:kept])) as plane:
        answer = await plane.ask(asking(route, stream=True))
        assert answer.whole
        name, _, data = answer.body.removeprefix(b"".join(events[:kept])).partition(b"\n")
        assert name == b"event: error"
        assert json.loads(data.removeprefix(b"data: "))["type"] == "error"
        assert answer.body.count(b"event: error") == 1
        await settled(plane)
        assert [(row.failed, row.attempts) for row in plane.state.rows] == [(True, 1)]


@pytest.mark.parametrize("route", [Route.CHAT, Route.COMPLETIONS, Route.RESPONSES, Route.MESSAGES])
def test_a_body_without_end_after_the_last_event_holds_nobody(route: Route) -> None:
    """Before the last event the same silence is nothing, and after it there is a while for the usage."""
    events = {Route.RESPONSES: RESPONSE, Route.MESSAGES: MESSAGE}.get(route, [token("a"), DONE])
    with rig(route=route, timeouts=Timeouts(inter_token=600.0)) as r:
        r.say(SSE_HEAD + b"".join(map(chunk, events[:-1])))
        r.stream.tick(r.reactor.now + 2 * AFTER_LAST_S)
        assert end_of(r) is None
        r.say(chunk(events[-1]))
        r.stream.tick(r.reactor.now + AFTER_LAST_S / 2)
        assert end_of(r) is None
        r.stream.tick(r.reactor.now + 2 * AFTER_LAST_S)
        assert end_of(r) is End.COMPLETE
        assert body_of(r.client.received()) == b"".join(events)
        assert r.upstream.closed


def test_each_of_several_pictures_has_its_own_last_event() -> None:
    done = b'event: image_generation.completed\ndata: {"type":"image_generation.completed"}\n\n'
    with rig(route=Route.IMAGES, timeouts=Timeouts(inter_token=600.0)) as r:
        r.say(SSE_HEAD + chunk(done))
        r.stream.tick(r.reactor.now + 2 * AFTER_LAST_S)
        assert end_of(r) is None
        r.say(chunk(done) + LAST_CHUNK)
        assert end_of(r) is End.COMPLETE
        assert body_of(r.client.received()) == 2 * done


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize("raw", NO_BODY)
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_without_a_byte_is_none_and_another_replica_is_asked(raw: bytes, streamed: bool) -> None:
    well = streaming(["ok"]) if streamed else answering(json_answer({"choices": []}))
    async with running(answering(raw), well) as plane:
        for _ in range(8):
            answer = await plane.ask(post(chat(streamed)))
            assert (answer.status, len(answer.body) > 0) == (200, True)
        await settled(plane)
        assert plane.engines[0].received
        assert not any(row.failed for row in plane.state.rows)
        assert plane.state.breaker_failures["r0"] == "what it answers is empty"


@pytest.mark.trio
async def test_when_nobody_says_a_word_that_is_an_error() -> None:
    async with running(answering(NO_BODY[0])) as plane:
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, answer.error["code"]) == (502, "engine_lost")
        assert "empty" in str(answer.error["message"])


@pytest.mark.trio
async def test_an_error_without_a_body_keeps_its_status() -> None:
    async with running(answering(b"HTTP/1.1 413 No\r\nContent-Length: 0\r\n\r\n")) as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.body) == (413, b"")
        await settled(plane)
        assert plane.state.rows[0].attempts == 1


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize("named", HEADS, ids=["none", "text", "json", "bytes"])
@pytest.mark.parametrize("step", [1, 4096])
async def test_events_are_known_by_their_first_bytes_whatever_the_head_says(named: bytes, step: int) -> None:
    head = b"HTTP/1.1 200 OK\r\n" + named + b"Transfer-Encoding: chunked\r\n\r\n"
    whole = [token("a"), token("b"), usage_event(9, 4), DONE]

    async def behave(exchange: Exchange) -> None:
        raw = head + b"".join(map(chunk, whole)) + LAST_CHUNK
        for at in range(0, len(raw), step):
            await exchange.send(raw[at : at + step])

    async with running(behave) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.headers["content-type"] == "text/event-stream"
        assert (answer.whole, answer.body) == (True, token("a") + token("b") + DONE)
        plane.engines[0].behaviour = broken_after(head + chunk(token("a")) + chunk(token("b")))
        answer = await plane.ask(post(chat(True)))
        assert answer.whole
        assert answer.body.startswith(token("a") + token("b") + b'data: {"error"')
        assert answer.body.endswith(DONE)
        await settled(plane)
        assert [(row.failed, row.output_tokens) for row in plane.state.rows] == [(False, 4), (True, 2)]


@pytest.mark.trio
@pytest.mark.parametrize("named", HEADS)
async def test_a_document_for_who_wanted_events_stays_one(named: bytes) -> None:
    body = json.dumps({"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}).encode()
    raw = b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (named, len(body), body)
    async with running(answering(raw)) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.body == body
        await settled(plane)
        assert [(row.input_tokens, row.output_tokens, row.failed) for row in plane.state.rows] == [(9, 4, False)]


@pytest.mark.trio
async def test_a_created_stream_is_a_stream() -> None:
    body = b"".join(map(chunk, [token("a"), usage_event(9, 4), DONE])) + LAST_CHUNK
    async with running(answering(SSE_HEAD.replace(b"200 OK", b"201 Created") + body)) as plane:
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, answer.body) == (201, token("a") + DONE)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_line_ends_without_end_are_no_reason_to_wait(line_end: bytes) -> None:
    part = line_end * 500
    with rig(comments=Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)) as r:
        r.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(LEADING_BYTES // len(part)):
            r.say(chunk(part))
            assert not r.client.received()
        r.say(chunk(part))
        assert r.client.received()
        assert not r.upstream.parts


@pytest.mark.parametrize("reads", [1, 2])
def test_comments_and_nothing_else_are_no_answer_however_they_are_read(reads: int) -> None:
    parts = [SSE_HEAD, chunk(b": ping\n\n"), LAST_CHUNK]
    with rig() as r:
        r.say(*(parts if reads > 1 else [b"".join(parts)]))
        assert end_of(r) is End.EMPTY
        assert not r.client.received()


@pytest.mark.parametrize("first", [USAGE_TAIL_BYTES - 1, USAGE_TAIL_BYTES, USAGE_TAIL_BYTES + 1])
def test_usage_at_the_beginning_is_kept_wherever_a_read_ends(first: int) -> None:
    body = json.dumps({"usage": {"prompt_tokens": 9, "completion_tokens": 4}, "x": "x" * 3 * USAGE_TAIL_BYTES}).encode()
    with rig() as r:
        r.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body), body[:first], body[first:])
        assert end_of(r) is End.COMPLETE
        assert r.stream.usage() == Usage(9, 0, 4)


@pytest.mark.parametrize(
    ("body", "whole"),
    [
        (b'{"score": NaN}\n', True),
        (b'{"text": "\\ud83d"}', True),
        (b'{"a": 1}\n{"a": 2}\n', True),
        (b'{"score": NaN, "b": {}', False),
        (b'{"a": 1}\n{"a": ', False),
        (b'{"a": 1}\n{"a": {}', False),
    ],
)
def test_loose_json_that_only_the_connection_ends_is_whole_when_its_last_brace_is_there(
    body: bytes, whole: bool
) -> None:
    with rig() as r:
        r.say(b"HTTP/1.1 200 OK\r\n\r\n", body)
        r.engine.close()
        r.turn()
        assert end_of(r) is (End.COMPLETE if whole else End.LOST)


@pytest.mark.parametrize(("kept", "told"), [(6, (20, 8, 3)), (5, (20, 8, 2)), (4, (20, 8, 1)), (8, (20, 8, 3))])
def test_a_message_that_its_client_left_is_charged_for_what_went_by(kept: int, told: tuple[int, int, int]) -> None:
    with rig(route=Route.MESSAGES) as r:
        r.say(SSE_HEAD + b"".join(map(chunk, MESSAGE[:kept])))
        r.stream.client_left()
        model = RoutedModel(name="m", context_length=4096)
        assert usage_of(r.stream, 80, model, Route.MESSAGES, Fields())[0] == Usage(*told)


@pytest.mark.parametrize("told", [0, 1])
def test_a_last_event_that_did_not_reach_the_client_leaves_its_answer_unfinished(told: int) -> None:
    """And one that did makes it whole, though what comes after it reaches nobody."""
    parts = [chunk(token("b")) + chunk(DONE), LAST_CHUNK]
    with rig() as r:
        r.say(SSE_HEAD + chunk(token("a")), *parts[:told])
        r.client.far.close()
        r.say(parts[told])
        assert end_of(r) is (End.COMPLETE if told else End.LEFT)
        assert not r.stream.pending


def test_the_last_event_of_one_picture_is_not_the_end_of_all() -> None:
    first = typed("image_generation.completed", {"b64_json": "eA=="})
    for leaves in (True, False):
        with rig(route=Route.IMAGES) as r:
            r.say(SSE_HEAD + chunk(first))
            if leaves:
                r.stream.client_left()
            else:
                r.engine.close()
                r.turn()
            assert end_of(r) is (End.LEFT if leaves else End.LOST)


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
@pytest.mark.parametrize("length", [5, 40_000])
async def test_a_document_cut_where_only_the_connection_ends_it_is_no_whole_one(version: bytes, length: int) -> None:
    body = json.dumps({"choices": [{"message": {"content": "x" * length}}]}).encode()
    head = b"HTTP/%b 200 OK\r\nContent-Type: application/json\r\n\r\n" % version
    async with running(broken_after(head + body)) as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.whole, answer.body) == (200, True, body)
        plane.engines[0].behaviour = broken_after(head + body[: -3 if length < 100 else -9])
        answer = await plane.ask(post(chat()))
        assert not answer.whole
        await settled(plane)
        assert [row.failed for row in plane.state.rows] == [False, True]


def commenting(comments: bytes, then: bytes | None = None, *, closes: bool = False) -> Behaviour:
    """A stream that begins with comments; then the rest of it at once, or nothing, or the end of the connection."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        for at in range(0, len(comments), 5):
            await exchange.send(chunk(comments[at : at + 5]))
        if then is not None:
            await exchange.send(then)
        elif closes:
            await exchange.close()
        else:
            await exchange.until_closed()

    return behave


@pytest.mark.trio
@pytest.mark.case("C7")
@pytest.mark.parametrize("comments", [b": ping\n\n", b":\n\n: ping\n\n", b": ping\r\n\r\n", b": half a line"])
@pytest.mark.parametrize("closes", [True, False])
async def test_comments_are_no_answer_and_another_replica_is_asked(comments: bytes, closes: bool) -> None:
    silent = commenting(comments, closes=closes)
    async with running(silent, streaming(["ok"]), timeouts=Timeouts(first_byte=0.3)) as plane:
        for _ in range(4):
            answer = await plane.ask(post(chat(True)))
            assert answer.body == token("ok") + token("", finish="stop") + DONE
        await settled(plane)
        assert plane.engines[0].received
        assert not any(row.failed for row in plane.state.rows)


@pytest.mark.trio
@pytest.mark.case("C1")
@pytest.mark.parametrize(
    "comments", [b": ping\n\n", b":\n: a\n\n", b"\xef\xbb\xbf: ping\r\n\r\n", b": long\n\n" * 2_000]
)
async def test_comments_before_an_answer_arrive_with_it(comments: bytes) -> None:
    rest = chunk(token("a")) + chunk(DONE) + LAST_CHUNK
    async with running(commenting(comments, rest)) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.body == comments + token("a") + DONE


def test_an_engine_that_comments_is_waited_for_from_its_last_comment() -> None:
    with rig(timeouts=Timeouts(first_byte=10.0, inter_token=10.0)) as r:
        begun = r.stream.begun_at
        r.say(SSE_HEAD + chunk(b": ping\n\n"))
        r.stream.heard_at = begun + 8
        r.stream.tick(begun + 15)
        assert end_of(r) is None
        r.stream.tick(begun + 19)
        assert end_of(r) is End.SLOW


@pytest.mark.trio
@pytest.mark.case("C9")
@pytest.mark.parametrize("seen", [DONE, token("a")])
async def test_who_leaves_with_the_last_event_read_has_the_whole_answer(seen: bytes) -> None:
    sent = [chunk(token("a")), chunk(usage_event(9, 4)), chunk(DONE)]

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(sent if seen == DONE else sent[:1]))
        await exchange.until_closed()

    async with running(behave) as plane:
        client = await plane.connect()
        await client.send(post(chat(True)))
        await client.until(seen)
        client.stream.socket.close()
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.status, row.output_tokens) == ((200, 4) if seen == DONE else (499, 1))
        assert not row.failed
