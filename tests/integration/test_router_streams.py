"""What clients and engines see of the data plane when engines fail, hang or lie and clients leave."""

import json
import random
import socket
import struct
from collections.abc import Callable

import pytest
import trio

from llmgw.core.routing import Timeouts
from tests.support.router_plane import (
    DEADLINE_S,
    KEY,
    LIMITED_KEY,
    MODEL,
    OTHER,
    RawClient,
    chat,
    get,
    post,
    routing_of,
    running,
    settled,
)
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    dropping,
    json_answer,
    never,
    streaming,
    token,
    usage_event,
)

COMPLETION = {
    "id": "c",
    "choices": [{"message": {"content": "hello"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 3}},
}


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition inside this process."""
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - plain counters
            await trio.sleep(0.005)


@pytest.mark.trio
async def test_a_plain_answer_is_passed_on_and_counted() -> None:
    async with running(answering(json_answer(COMPLETION))) as plane:
        body = json.dumps(chat()).encode()
        answer = await plane.ask(post(body))
        assert (answer.status, json.loads(answer.body)) == (200, COMPLETION)
        assert answer.headers["content-length"] == str(len(answer.body))
        sent = plane.engines[0].received[0]
        assert sent.body == body
        assert sent.header(b"authorization") == b"Bearer ek-r0"
        assert sent.header(b"x-request-id") == answer.headers["x-request-id"].encode()
        assert KEY not in sent.head
        await settled(plane)
        (row,) = plane.state.rows
        assert row.id == answer.headers["x-request-id"]
        assert (row.key_id, row.model, row.replica, row.status, row.failed) == ("k-test", "m", "r0", 200, False)
        assert (row.input_tokens, row.cached_tokens, row.output_tokens, row.estimated) == (9, 3, 4, False)
        assert not row.stream
        assert plane.state.requests == 1


@pytest.mark.trio
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"model": "alias-of-m", "prompt": "x"}),
        ("/v1/embeddings", {"model": "alias-of-m", "input": ["x"], "stream": True}),
    ],
)
async def test_an_alias_is_the_engines_name_to_the_engine(path: str, body: dict[str, object]) -> None:
    async with running(answering(json_answer({"usage": {"prompt_tokens": 2}}))) as plane:
        answer = await plane.ask(post(body, path))
        assert answer.status == 200
        sent = plane.engines[0].received[0]
        assert sent.head.startswith(f"POST {path} HTTP/1.1\r\n".encode())
        assert sent.json == body | {"model": "m"}


@pytest.mark.trio
@pytest.mark.case("C1")
@pytest.mark.parametrize("asked", [False, True])
async def test_only_who_asked_for_usage_sees_it(asked: bool) -> None:
    async with running(streaming(["読写", "é🙂"], usage=(5, 2), pieces=lambda raw: [bytes([b]) for b in raw])) as plane:
        options: dict[str, object] = {"stream_options": {"include_usage": True}} if asked else {}
        answer = await plane.ask(post(chat(True, **options)))
        body = token("読写") + token("é🙂") + token("", finish="stop")
        assert answer.body == body + (usage_event(5, 2) if asked else b"") + DONE
        assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.input_tokens, row.output_tokens, row.stream, row.estimated) == (5, 2, True, False)
        assert row.first_token_ms is not None
        assert row.first_token_ms <= row.duration_ms


@pytest.mark.trio
async def test_without_usage_the_tokens_are_counted() -> None:
    async with running(streaming(list("abcde"))) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.body.endswith(DONE)
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.output_tokens, row.estimated) == (5, True)
        assert row.input_tokens > 0


@pytest.mark.trio
@pytest.mark.case("C3")
@pytest.mark.promise("A7")
@pytest.mark.parametrize("reset", [False, True])
async def test_an_engine_lost_midway_is_told_and_never_repeated(reset: bool) -> None:
    async with running(dropping(["a", "b"], reset=reset), streaming(["never"])) as plane:
        plane.state.apply(routing_of(plane.engines[:1], Timeouts()))
        client = await plane.connect()
        async with client.stream:
            await client.send(post(chat(True)))
            answer = await client.answer()
            assert answer.whole
            assert answer.status == 200
            shown, _, rest = answer.body.partition(b'data: {"error"')
            assert shown == token("a") + token("b")
            error = json.loads(b'{"error"' + rest.partition(b"\n\n")[0])["error"]
            assert error["code"] == "engine_lost"
            assert answer.body.endswith(b"\n\n" + DONE)
            await client.send(get("/live"))
            assert (await client.answer()).status == 200
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.failed, row.output_tokens, row.attempts) == (True, 2, 1)
        assert len(plane.engines[0].received) == 1


@pytest.mark.trio
@pytest.mark.promise("A7")
@pytest.mark.parametrize("after", [1, 2, 5])
async def test_at_every_event_the_loss_shows_once(after: int) -> None:
    async with running(dropping([str(i) for i in range(after)])) as plane:
        answer = await plane.ask(post(chat(True)))
        assert answer.whole
        assert answer.body.startswith(b"".join(token(str(i)) for i in range(after)) + b'data: {"error"')
        assert answer.body.count(b'"error"') == 1


@pytest.mark.trio
@pytest.mark.case("C5")
@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"413 Too Large", b"422 Unprocessable"])
async def test_an_engines_4xx_is_the_clients(status: bytes) -> None:
    refusal = {"error": {"message": "too long: é", "type": "x", "param": None, "code": "context"}}
    refused = [True]

    async def behave(exchange: Exchange) -> None:
        await exchange.send(json_answer(refusal, status) if refused[0] else json_answer(COMPLETION))

    async with running(behave, behave) as plane:
        for _ in range(20):
            answer = await plane.ask(post(chat(True)))
            assert (answer.status, json.loads(answer.body)) == (int(status[:3]), refusal)
        refused[0] = False
        assert (await plane.ask(post(chat()))).status == 200
        await settled(plane)
        assert [row.attempts for row in plane.state.rows] == [1] * 21
        assert not any(row.failed for row in plane.state.rows)
        assert {row.output_tokens for row in plane.state.rows[:20]} == {0}
        served = [len(engine.received) for engine in plane.engines]
        assert sum(served) == 21
        assert min(served) >= 8, "both stay in use"


async def _headers_then_nothing(exchange: Exchange) -> None:
    await exchange.send(SSE_HEAD)
    await exchange.until_closed()


@pytest.mark.trio
@pytest.mark.case("C7")
@pytest.mark.promise("A8")
@pytest.mark.parametrize("hung", [never, _headers_then_nothing])
async def test_a_hung_replica_holds_up_only_its_own(hung: Behaviour) -> None:
    async with running(hung, streaming(["ok"]), timeouts=Timeouts(first_byte=1.0)) as plane:
        waits: list[float] = []

        async def ask() -> None:
            began = trio.current_time()
            answer = await plane.ask(post(chat(True)))
            assert answer.body == token("ok") + token("", finish="stop") + DONE
            waits.append(trio.current_time() - began)

        async with trio.open_nursery() as nursery:
            for _ in range(64):
                nursery.start_soon(ask)
        await settled(plane)
        assert len(waits) == 64
        tried = len(plane.engines[0].received)
        assert 0 < tried < 64
        assert sorted(row.attempts for row in plane.state.rows) == [1] * (64 - tried) + [2] * tried
        assert {row.replica for row in plane.state.rows} == {"r1"}
        assert sum(wait < 0.9 for wait in waits) >= 64 - tried
        before = len(plane.engines[0].received)
        for _ in range(10):
            await plane.ask(post(chat(True)))
        assert len(plane.engines[0].received) == before, "it is passed over while it is penalised"
        await until(lambda: plane.engines[0].open_connections == 0)


@pytest.mark.trio
@pytest.mark.promise("A6")
@pytest.mark.parametrize(
    "dying",
    [
        answering(b"", close=True),
        answering(b"HTTP/1.1 200 OK\r\nContent-Ty", close=True),
        answering(SSE_HEAD, close=True),
        answering(json_answer({"error": "x"}, b"500 Internal Server Error")),
        answering(json_answer({"status": "loading"}, b"503 Service Unavailable")),
        answering(json_answer({"error": "another engine took the port"}, b"401 Unauthorized")),
        answering(b"garbage that is no HTTP\r\n\r\n", close=True),
        answering(b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"),
    ],
)
async def test_an_engine_that_dies_before_the_first_token_is_replaced(dying: Behaviour) -> None:
    async with running(dying, streaming(["ok"], usage=(1, 1))) as plane:
        for _ in range(4):
            answer = await plane.ask(post(chat(True)))
            assert (answer.status, answer.body) == (200, token("ok") + token("", finish="stop") + DONE)
        await settled(plane)
        assert {row.status for row in plane.state.rows} == {200}
        assert len(plane.state.rows) == 4
        assert max(row.attempts for row in plane.state.rows) == 2


@pytest.mark.trio
async def test_an_engine_that_refuses_the_router_is_no_word_about_the_clients_key() -> None:
    stranger = answering(json_answer({"error": {"code": "invalid_api_key"}}, b"401 Unauthorized"))
    async with running(stranger, streaming(["ok"])) as plane:
        assert [(await plane.ask(post(chat(True)))).status for _ in range(6)] == [200] * 6
        assert len(plane.engines[0].received) == 1, "it is passed over while it is penalised"
        plane.state.apply(routing_of(plane.engines[:1], Timeouts()))
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, answer.error["code"]) == (502, "engine_error")


@pytest.mark.trio
@pytest.mark.parametrize("claim", [(-5, 10**18), (10**9, 1), (1, 4096 * 128 + 1)])
async def test_what_no_model_could_have_used_is_not_charged(claim: tuple[int, int]) -> None:
    async with running(streaming(["a", "b"], usage=claim)) as plane:
        assert (await plane.ask(post(chat(True)))).status == 200
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.estimated, row.output_tokens) == (True, 2)
        assert row.input_tokens < 100


@pytest.mark.trio
@pytest.mark.case("C5")
async def test_what_an_engine_does_not_have_is_the_requests_fault() -> None:
    lacking = answering(json_answer({"error": {"code": 501}}, b"501 Not Implemented"))
    async with running(lacking) as plane:
        for streamed in (True, False):
            answer = await plane.ask(post(chat(streamed)))
            assert (answer.status, answer.error["code"]) == (400, "unsupported_by_engine")
        await settled(plane)
        assert [(row.status, row.failed, row.attempts) for row in plane.state.rows] == [(400, False, 1)] * 2


@pytest.mark.trio
@pytest.mark.promise("A6")
async def test_an_engine_that_is_gone_is_replaced_and_alone_is_a_502() -> None:
    async with running(streaming(["ok"]), streaming(["ok"])) as plane:
        probe = socket.create_server(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        plane.engines[0].port = free
        plane.state.apply(routing_of(plane.engines, Timeouts()))
        for _ in range(4):
            assert (await plane.ask(post(chat(True)))).status == 200
        plane.state.apply(routing_of(plane.engines[:1], Timeouts()))
        answer = await plane.ask(post(chat(True)))
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
        assert str(free) not in answer.body.decode()
        await settled(plane)
        assert plane.state.rows[-1].failed
        assert plane.state.rows[-1].attempts == 3


@pytest.mark.trio
async def test_an_engine_too_slow_for_its_first_byte_is_a_504() -> None:
    async with running(never, timeouts=Timeouts(first_byte=0.3)) as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.error["code"]) == (504, "engine_timeout")
        await settled(plane)
        assert (plane.state.rows[0].status, plane.state.rows[0].attempts) == (504, 1)


@pytest.mark.trio
async def test_an_idle_connection_the_engine_closed_costs_no_attempt() -> None:
    turns = [0]

    async def behave(exchange: Exchange) -> None:
        turns[0] += 1
        if turns[0] == 2:  # as if it had timed out while the request was on its way
            await exchange.close()
        else:
            await exchange.send(json_answer(COMPLETION))

    async with running(behave) as plane:
        for _ in range(2):
            assert (await plane.ask(post(chat()))).status == 200
        await settled(plane)
        assert [row.attempts for row in plane.state.rows] == [1, 1]
        assert (turns[0], plane.engines[0].connections) == (3, 2)


@pytest.mark.trio
async def test_a_408_about_an_idle_connection_costs_no_attempt_and_one_about_a_request_is_the_clients() -> None:
    ending = b"HTTP/1.1 408 Request Timeout\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
    turns = [0]

    async def behave(exchange: Exchange) -> None:
        turns[0] += 1
        if turns[0] == 2:  # said of the connection while the request was on its way
            await exchange.send(ending)
            await exchange.close()
        else:
            await exchange.send(json_answer(COMPLETION))

    async with running(behave) as plane:
        for _ in range(2):
            assert (await plane.ask(post(chat()))).status == 200
        plane.engines[0].behaviour = answering(json_answer({"error": {"message": "slow"}}, b"408 Timeout"))
        for _ in range(2):
            answer = await plane.ask(post(chat()))
            assert (answer.status, json.loads(answer.body)["error"]) == (408, {"message": "slow"})
        await settled(plane)
        assert [row.attempts for row in plane.state.rows] == [1] * 4
        assert (len(plane.engines[0].received), plane.engines[0].connections) == (5, 2)
        assert not plane.state.breakers


@pytest.mark.trio
async def test_engine_connections_are_kept() -> None:
    async with running(streaming(["ok"])) as plane:
        for _ in range(5):
            await plane.ask(post(chat(True)))
        assert plane.engines[0].connections == 1


def _reset(client: RawClient) -> None:
    client.stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


@pytest.mark.trio
@pytest.mark.case("C9")
@pytest.mark.promise("A9")
@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("tokens", [0, 2])
async def test_a_client_that_leaves_frees_the_engine(reset: bool, tokens: int) -> None:
    async def slow(exchange: Exchange) -> None:
        if tokens:
            await exchange.send(SSE_HEAD + b"".join(chunk(token(str(i))) for i in range(tokens)))
        await exchange.until_closed()

    async with running(slow) as plane:
        client = await plane.connect()
        await client.send(post(chat(True)))
        await until(lambda: len(plane.engines[0].received) == 1)
        if tokens:
            await client.until(token(str(tokens - 1)))
        if reset:
            _reset(client)
        await client.stream.aclose()
        with trio.fail_after(1.0):
            while not plane.engines[0].closed_by_peer:  # noqa: ASYNC110 - a plain counter
                await trio.sleep(0.005)
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.status, row.output_tokens, row.failed) == (499, tokens, False)


@pytest.mark.trio
@pytest.mark.case("C11")
async def test_counts_are_what_is_open() -> None:
    async with running(never, timeouts=Timeouts(first_byte=30.0)) as plane:
        clients = [await plane.connect() for _ in range(12)]
        for client in clients:
            await client.send(post(chat(True)))
        await until(lambda: plane.state.in_flight == {"r0": 12} and plane.state.open_requests == 12)
        for client in clients[:5]:
            await client.stream.aclose()
        await until(lambda: plane.state.in_flight == {"r0": 7} and plane.state.open_requests == 7)
        assert (await plane.ask(post(chat(model="nope")))).status == 404
        assert (await plane.ask(post(b"{"))).status == 400
        for client in clients[5:]:
            await client.stream.aclose()
        await until(lambda: plane.state.in_flight == {} and plane.state.open_requests == 0)
        assert plane.state.requests == 14


@pytest.mark.trio
@pytest.mark.case("C11")
@pytest.mark.promise("A9")
async def test_whatever_ends_first_nothing_leaks() -> None:
    picks = random.Random(7)

    async def erratic(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        for i in range(picks.randrange(6)):
            await exchange.send(chunk(token(str(i))))
            await trio.sleep(picks.random() * 0.004)
        if picks.random() < 0.3:
            await (exchange.reset() if picks.random() < 0.5 else exchange.close())
        else:
            await exchange.send(chunk(DONE) + LAST_CHUNK)

    async with running(erratic, erratic) as plane:

        async def visit() -> None:
            client = await plane.connect()
            with trio.move_on_after(picks.random() * 0.02):
                await client.send(post(chat(True)))
                await client.answer()
            if picks.random() < 0.5:
                _reset(client)
            await client.stream.aclose()

        async with trio.open_nursery() as nursery:
            for _ in range(300):
                nursery.start_soon(visit)
        await settled(plane)
        assert plane.state.open_requests == 0
        assert plane.state.in_flight == {}
        assert len({row.id for row in plane.state.rows}) == len(plane.state.rows) <= plane.state.requests


@pytest.mark.trio
async def test_a_client_that_floods_does_not_keep_others_from_their_turn() -> None:
    async with running(streaming(["a"])) as plane:
        flooding = await plane.connect()

        async def flood() -> None:
            while True:
                await flooding.send(get("/live") * 200)

        async def swallow() -> None:
            while await flooding.more():
                flooding.buffer = b""
                flooding.reads.clear()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(flood)
            nursery.start_soon(swallow)
            for _ in range(20):
                assert (await plane.ask(post(chat(True)))).status == 200
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_no_ready_replica_is_a_503_and_a_wish() -> None:
    async with running() as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
        assert int(answer.headers["retry-after"]) >= 1
        await settled(plane)
        assert plane.state.wanted == ["m"]
        assert (plane.state.rows[0].status, plane.state.rows[0].failed) == (503, True)


@pytest.mark.trio
async def test_keys_and_models() -> None:
    async with running(answering(json_answer(COMPLETION))) as plane:
        answer = await plane.ask(post(chat(), key=b"sk-wrong"))
        assert (answer.status, answer.error["code"]) == (401, "invalid_api_key")
        answer = await plane.ask(b"GET /v1/models HTTP/1.1\r\nHost: gw\r\n\r\n")
        assert answer.status == 401
        denied = await plane.ask(post(chat(), key=LIMITED_KEY))
        absent = await plane.ask(post(chat(model="nope"), key=LIMITED_KEY))
        assert denied.status == absent.status == 404
        assert denied.error["code"] == "model_not_found"
        assert denied.body.replace(b"'m'", b"'nope'") == absent.body
        listed = json.loads((await plane.ask(get("/v1/models", key=LIMITED_KEY))).body)
        assert [model["id"] for model in listed["data"]] == ["other"]
        listed = json.loads((await plane.ask(get("/v1/models"))).body)
        assert [model["id"] for model in listed["data"]] == [MODEL.name, OTHER.name]
        shown = json.loads((await plane.ask(get("/v1/models/alias-of-m"))).body)
        assert (shown["id"], shown["context_length"], shown["max_output_tokens"]) == ("m", 4096, 1024)
        assert (await plane.ask(get("/v1/models/m", key=LIMITED_KEY))).status == 404
        assert (await plane.ask(get("/v1/models/a%2Fb"))).status == 404
        await settled(plane)
        assert plane.state.rows == []
        assert plane.engines[0].received == []


@pytest.mark.trio
@pytest.mark.parametrize("claim", [{"completion_tokens": -4}, {"completion_tokens": 10**18}, {"x": 1}])
async def test_what_an_engine_claims_is_bounded(claim: dict[str, int]) -> None:
    document = {"choices": [], "usage": claim}
    async with running(answering(json_answer(document))) as plane:
        await plane.ask(post(chat()))
        await settled(plane)
        row = plane.state.rows[0]
        assert row.estimated
        assert 0 < row.output_tokens <= len(json.dumps(document)) // 4


@pytest.mark.trio
async def test_draining_ends_idle_connections_and_lets_streams_finish() -> None:
    release = trio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("a")))
        await release.wait()
        await exchange.send(chunk(DONE) + LAST_CHUNK)

    async with running(slow) as plane:
        idle, busy = await plane.connect(), await plane.connect()
        await idle.send(get("/live"))
        await idle.answer()
        await busy.send(post(chat(True)))
        await busy.until(token("a"))
        plane.drain.set()
        assert await idle.ended()
        await until(lambda: _refuses(plane.address))
        assert not plane.returned.is_set()
        release.set()
        answer = await busy.answer()
        assert answer.whole
        assert answer.body == token("a") + DONE
        assert await busy.ended()
        with trio.fail_after(DEADLINE_S):
            await plane.returned.wait()


def _refuses(address: tuple[str, int]) -> bool:
    try:
        socket.create_connection(address, timeout=1.0).close()
    except OSError:
        return True
    return False
