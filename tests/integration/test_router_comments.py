"""Clients of a silent stream hear comments, and nothing else of them shows: not in events, errors, usage or framing."""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
import trio

from llmgw.core.limits import Limits
from llmgw.core.routing import KeyRecord, Timeouts
from llmgw.router import comments as comments_module
from llmgw.router.comments import COMMENT, Comments
from llmgw.router.ends import End
from llmgw.router.limiter import Limiter
from llmgw.router.limits import KEEP_ALIVE_S
from llmgw.router.scopes import Demand, ScopeBook
from tests.support.relay_rig import body_of, rig
from tests.support.router_plane import DEADLINE_S, KEY, Plane, RawClient, chat, get, post, running, settled
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Exchange,
    chunk,
    json_answer,
    streaming,
    token,
)

SHORT_S = 0.3
"""In place of KEEP_ALIVE_S where real time must pass; the reactor looks four times a second."""
OK = token("ok") + token("", finish="stop") + DONE


@pytest.fixture
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", SHORT_S)


@pytest.mark.promise("A17")
def test_after_fifteen_silent_seconds_comes_a_head_and_a_comment_and_so_on() -> None:
    assert KEEP_ALIVE_S == 15.0
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(comments=comments) as r:
        comments.said_at = began = r.stream.begun_at
        r.stream.tick(began + 14.9)
        assert r.client.received() == b""
        for second in (15.0, 20.0, 29.9, 30.0, 45.0):
            r.stream.tick(began + second)
        raw = r.client.received()
        head, _, rest = raw.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream")
        assert b"x-request-id: req-1" in head
        assert rest == chunk(COMMENT) * 3
        assert not r.stream.started, "the request is still free to be tried elsewhere"
        r.say(SSE_HEAD + chunk(token("a")), chunk(DONE) + LAST_CHUNK)
        assert r.ended is End.COMPLETE
        whole = raw + r.client.received()
        assert whole.count(b"HTTP/1.1") == 1
        assert body_of(whole) == COMMENT * 3 + token("a") + DONE


def test_that_head_carries_our_own_headers_as_they_are_by_then() -> None:
    chain = ScopeBook().chain(KeyRecord(id="k", name="k", limits=Limits(rpm=7)))
    assert chain is not None
    limiter, demand = Limiter(), Demand(1, 1, True, 1, 0)
    comments = Comments(
        request_id=b"r", http11=True, keep_alive=True, began_at=0.0, reservation=limiter.admit(chain, demand)
    )
    comments.reservation = limiter.admit(chain, demand)  # another model's, in whose favour the first was given up
    assert b"\r\nx-ratelimit-remaining-requests: 5\r\n" in comments.say(15.0, headless=True)
    assert comments.say(30.0, headless=True) == chunk(COMMENT)


@pytest.mark.promise("A17")
def test_a_silence_between_events_is_broken_and_one_within_an_event_too_but_not_the_event() -> None:
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(comments=comments) as r:
        half = len(token("b")) // 2
        r.say(SSE_HEAD + chunk(token("a")), chunk(token("b")[:half]))
        heard = r.reactor.now
        for second in (14.0, 16.0, 17.0, 32.0):
            r.stream.tick(heard + second)
        r.say(chunk(token("b")[half:]), chunk(token("c")), chunk(DONE))
        r.stream.tick(r.reactor.now + 60.0)
        r.say(LAST_CHUNK)
        body = body_of(r.client.received())
        assert body == token("a") + COMMENT * 2 + token("b") + token("c") + DONE, "none after the end, either"
        assert r.stream.events is not None
        assert r.stream.events.events == 3


def test_an_event_passed_on_in_pieces_is_not_broken_by_a_comment() -> None:
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(comments=comments) as r:
        r.say(SSE_HEAD, *(chunk(b"data: " + b"x" * 50_000 if i == 0 else b"x" * 50_000) for i in range(4)))
        r.stream.tick(r.reactor.now + 20.0)
        assert COMMENT not in r.client.received()


def test_what_is_not_streamed_hears_nothing() -> None:
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(comments=comments) as r:
        r.say(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n[1,")
        r.client.received()
        r.stream.tick(r.reactor.now + 60.0)
        assert r.client.received() == b""


def test_a_client_of_http_1_0_gets_them_bare() -> None:
    comments = Comments(request_id=b"req-1", http11=False, keep_alive=False, began_at=0.0)
    with rig(http11=False, comments=comments) as r:
        comments.said_at = r.stream.begun_at
        r.stream.tick(r.stream.begun_at + 15.0)
        r.say(SSE_HEAD + chunk(token("a")) + chunk(DONE) + LAST_CHUNK)
        head, _, body = r.client.received().partition(b"\r\n\r\n")
        assert b"transfer-encoding" not in head
        assert b"connection: close" in head
        assert body == COMMENT + token("a") + DONE
        assert r.stream.must_close


@pytest.mark.promise("A16")
def test_a_reader_that_stops_is_cut_although_only_comments_come() -> None:
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(timeouts=Timeouts(client_stall=5.0, first_byte=1e9), comments=comments) as r:
        r.client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)
        now = comments.said_at = r.stream.begun_at
        for _ in range(2000):
            now += KEEP_ALIVE_S
            r.stream.tick(now)
            if r.stream.pending:
                break
        assert r.stream.pending
        stopped = r.reactor.now
        r.stream.tick(stopped + 4.0)
        assert r.client.stream is r.stream
        r.stream.tick(stopped + 5.5)
        assert r.ended is End.STALLED
        assert r.client.aborted


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        (
            json_answer({"error": {"message": "too\nlong", "code": "context"}}, b"400 Bad Request"),
            b'data: {"error":{"message":"too\\nlong","code":"context"}}\n\n' + DONE,
        ),
        (json_answer({"choices": []}), b"The model's engine did not stream."),
        (json_answer({"detail": "x"}, b"422 No"), b"The model's engine answered 422."),
        (json_answer({"error": {"message": "x" * 9000}}, b"400 Bad Request"), b"The model's engine answered 400."),
        (b"HTTP/1.1 410 No\r\nContent-Length: 0\r\n\r\n", b"The model's engine answered 410."),
    ],
)
def test_an_answer_that_is_no_stream_becomes_an_event_once_a_head_is_out(raw: bytes, shown: bytes) -> None:
    comments = Comments(request_id=b"req-1", http11=True, keep_alive=True, began_at=0.0)
    with rig(comments=comments) as r:
        comments.said_at = r.stream.begun_at
        r.stream.tick(r.stream.begun_at + 15.0)
        r.say(raw[:-3], raw[-3:])
        assert r.ended is End.COMPLETE
        body = body_of(r.client.received())
        assert body.startswith(COMMENT + b'data: {"error":')
        assert shown in body
        assert body.endswith(b"\n\n" + DONE)
        assert not r.stream.must_close


class Held:
    """An engine that says nothing until it is told to."""

    def __init__(self, answer: bytes = SSE_HEAD + chunk(OK) + LAST_CHUNK) -> None:
        self.answer = answer
        self.release = trio.Event()

    async def __call__(self, exchange: Exchange) -> None:
        """Answer once released."""
        await self.release.wait()
        await exchange.send(self.answer)


@asynccontextmanager
async def waiting(plane: Plane, request: bytes) -> AsyncIterator[RawClient]:
    """A client that has heard two comments."""
    client = await plane.connect()
    async with client.stream:
        await client.send(request)
        await client.until(chunk(COMMENT) * 2)
        yield client


@pytest.mark.trio
@pytest.mark.promise("A17")
@pytest.mark.usefixtures("_soon")
async def test_a_silent_prefill_is_kept_alive_and_its_connection_stays_usable() -> None:
    engine = Held()
    async with running(engine) as plane, waiting(plane, post(chat(True))) as client:
        engine.release.set()
        answer = await client.answer()
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body.replace(COMMENT, b"") == OK
        await client.send(get("/live"))
        assert (await client.answer()).status == 200
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.status, row.failed, row.attempts, row.output_tokens) == (200, False, 1, 1)


@pytest.mark.trio
@pytest.mark.promise("A17")
@pytest.mark.usefixtures("_soon")
async def test_after_that_head_a_request_is_still_tried_elsewhere() -> None:
    async def hung(exchange: Exchange) -> None:
        await exchange.until_closed()

    async with running(hung, hung, timeouts=Timeouts(first_byte=1.2)) as plane:
        plane.engines[1].behaviour = streaming(["ok"])
        plane.state.in_flight["r1"] = 5  # so that the hung one is asked first
        answer = await plane.ask(post(chat(True)))
        del plane.state.in_flight["r1"]
        assert answer.whole
        assert answer.body.startswith(COMMENT)
        assert answer.body.replace(COMMENT, b"") == OK
        (row,) = plane.state.rows
        assert (row.status, row.attempts, row.replica) == (200, 2, "r1")


@pytest.mark.trio
@pytest.mark.promise("A17")
@pytest.mark.usefixtures("_soon")
async def test_when_nobody_answers_after_all_the_stream_ends_with_an_error_event() -> None:
    async def hung(exchange: Exchange) -> None:
        await exchange.until_closed()

    async with running(hung, timeouts=Timeouts(first_byte=1.2)) as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(post(chat(True)))
            answer = await client.answer()
            assert (answer.status, answer.whole) == (200, True)
            body = answer.body.replace(COMMENT, b"")
            assert json.loads(body.removeprefix(b"data: ").partition(b"\n\n")[0])["error"]["code"] == "engine_timeout"
            assert body.endswith(b"\n\n" + DONE)
            await client.send(get("/live"))
            assert (await client.answer()).status == 200
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.status, row.failed, row.output_tokens) == (504, True, 0)


@pytest.mark.trio
@pytest.mark.usefixtures("_soon")
async def test_a_request_that_is_not_streamed_gets_its_own_status() -> None:
    engine = Held(json_answer({"error": {"message": "no"}}, b"400 Bad Request"))
    async with running(engine) as plane, waiting(plane, post(chat(True))):
        plain = await plane.connect()
        async with plain.stream:
            await plain.send(post(chat()))
            with trio.move_on_after(4 * SHORT_S):
                await plain.more()
            assert plain.reads == []
            engine.release.set()
            assert (await plain.answer()).status == 400


@asynccontextmanager
async def full_port() -> AsyncIterator[int]:
    """A port whose queue is full: connecting to it neither succeeds nor fails."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as door:
        port = door.getsockname()[1]
        fillers = []
        for _ in range(4):
            sock = socket.socket()
            sock.setblocking(False)
            sock.connect_ex(("127.0.0.1", port))
            fillers.append(sock)
        try:
            yield port
        finally:
            for sock in fillers:
                sock.close()


@pytest.mark.trio
@pytest.mark.promise("A17")
@pytest.mark.usefixtures("_soon")
async def test_comments_come_while_the_engine_cannot_even_be_connected_to() -> None:
    async with full_port() as port, running(streaming(["ok"]), timeouts=Timeouts(connect=1.5)) as plane:
        plane.move_engine(0, port)
        answer = await plane.ask(post(chat(True)))
        assert answer.whole
        assert answer.body.startswith(COMMENT)
        assert b"engine_unreachable" in answer.body
        assert answer.body.endswith(DONE)


@pytest.mark.trio
@pytest.mark.case("C9")
@pytest.mark.promise("A9")
@pytest.mark.usefixtures("_soon")
@pytest.mark.parametrize("streamed", [False, True])
async def test_a_client_that_leaves_while_we_connect_frees_the_slot(streamed: bool) -> None:
    async with full_port() as port, running(streaming(["ok"]), timeouts=Timeouts(connect=600.0)) as plane:
        plane.move_engine(0, port)
        client = await plane.connect()
        await client.send(post(chat(streamed)))
        with trio.fail_after(DEADLINE_S):
            while plane.state.in_flight != {"r0": 1}:  # noqa: ASYNC110 - plain counters
                await trio.sleep(0.005)
        await client.stream.aclose()
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.status, row.failed) == (499, False)
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.promise("A17")
@pytest.mark.usefixtures("_soon")
async def test_the_official_client_reads_past_comments_and_reports_errors() -> None:
    good = Held()
    bad = Held(json_answer({"error": {"message": "too long", "code": "context"}}, b"400 Bad Request"))

    def read(base: str) -> tuple[list[str], str]:
        texts: list[str] = []
        with openai.OpenAI(base_url=f"{base}/v1", api_key=KEY.decode(), max_retries=0, timeout=DEADLINE_S) as client:
            try:
                for part in client.chat.completions.create(
                    model="m", messages=[{"role": "user", "content": "hi"}], stream=True
                ):
                    texts.append(part.choices[0].delta.content or "")
            except openai.APIError as error:
                return texts, error.message
        return texts, ""

    for engine, wanted in ((good, (["ok", ""], "")), (bad, ([], "too long"))):
        async with running(engine) as plane:
            base = f"http://{plane.address[0]}:{plane.address[1]}"
            found: list[tuple[list[str], str]] = []

            async def ask(base: str = base, found: list[tuple[list[str], str]] = found) -> None:
                found.append(await trio.to_thread.run_sync(read, base))

            async with trio.open_nursery() as nursery, waiting(plane, post(chat(True))):
                nursery.start_soon(ask)
                with trio.fail_after(DEADLINE_S):
                    while len(plane.engines[0].received) < 2:  # noqa: ASYNC110 - a plain list
                        await trio.sleep(0.005)
                async with waiting(plane, post(chat(True))):
                    engine.release.set()
            assert found == [wanted]
