"""What the client port takes, refuses and survives, byte by byte on real sockets."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from llmgw.core.sockets import listen_unix
from llmgw.router import front, limits, service
from llmgw.router.limits import MAX_BODY_BYTES
from llmgw.router.state import IndexedRoutes
from llmgw.web.public import public_app as real_public_app
from tests.support.admin_server import running as apps_running
from tests.support.fake_control import FakeControl
from tests.support.router_plane import DEADLINE_S, KEY, RawClient, chat, get, post, running, settled
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Exchange,
    answering,
    chunk,
    json_answer,
    streaming,
    token,
)

ANSWER = {"usage": {"prompt_tokens": 1, "completion_tokens": 1}}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer " + KEY + b"\r\n"


@pytest.mark.trio
async def test_one_connection_carries_many_requests() -> None:
    async with running(streaming(["a"])) as plane:
        client = await plane.connect()
        async with client.stream:
            for _ in range(5):
                await client.send(post(chat(True)))
                answer = await client.answer()
                assert answer.body == token("a") + token("", finish="stop") + DONE
                await client.send(get("/v1/models"))
                assert (await client.answer()).status == 200


@pytest.mark.trio
async def test_pipelined_requests_are_answered_in_order() -> None:
    async with running(streaming(["a", "b"])) as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(post(chat(True)) + get("/live") + post(chat(True)) + get("/v1/models/m"))
            bodies = [(await client.answer()).body for _ in range(4)]
            assert bodies[0] == bodies[2] == token("a") + token("b") + token("", finish="stop") + DONE
            assert b"live" in bodies[1]
            assert json.loads(bodies[3])["id"] == "m"


@pytest.mark.trio
@pytest.mark.parametrize("end", [b"\n", b"\r"])
async def test_a_head_in_other_lines_is_refused_at_once(end: bytes) -> None:
    async with running() as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(get("/live").replace(b"\r\n", end))
            answer = await client.answer()
            assert (answer.status, answer.error["code"]) == (400, "bad_request")
            assert "CR LF" in str(answer.error["message"])


@pytest.mark.trio
async def test_bytes_sent_during_a_stream_are_the_next_request() -> None:
    release = trio.Event()

    async def slow(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("a")))
        await release.wait()
        await exchange.send(chunk(DONE) + LAST_CHUNK)

    async with running(slow) as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(post(chat(True)))
            await client.until(token("a"))
            await client.send(get("/live"))
            release.set()
            assert (await client.answer()).body == token("a") + DONE
            assert b"live" in (await client.answer()).body


@pytest.mark.trio
@pytest.mark.parametrize("size", [1, 7, 40])
async def test_a_request_in_small_pieces(size: int) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        client = await plane.connect()
        async with client.stream:
            raw = post(chat(content="é" * 20))
            for at in range(0, len(raw), size):
                await client.send(raw[at : at + size])
            assert (await client.answer()).status == 200


@pytest.mark.trio
async def test_a_chunked_body_and_100_continue() -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        body = json.dumps(chat()).encode()
        client = await plane.connect()
        async with client.stream:
            await client.send(HEAD + b"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
            assert (await client.answer()).status == 100
            await client.send(chunk(body[:9]) + chunk(body[9:]) + LAST_CHUNK + get("/live"))
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 200
        assert plane.engines[0].received[0].body == body


@pytest.mark.trio
async def test_a_refused_key_is_told_before_the_body_is_asked_for() -> None:
    async with running() as plane:
        client = await plane.connect()
        async with client.stream:
            head = HEAD.replace(KEY, b"sk-wrong") + b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
            await client.send(head)
            answer = await client.answer()
            assert answer.status == 401
            assert answer.headers["connection"] == "close"
            assert await client.ended()


@pytest.mark.trio
async def test_http_1_0_is_answered_and_closed() -> None:
    async with running(streaming(["a"])) as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(post(chat(True)).replace(b"HTTP/1.1", b"HTTP/1.0"))
            answer = await client.answer()
            assert answer.body == token("a") + token("", finish="stop") + DONE
            assert "transfer-encoding" not in answer.headers


@pytest.mark.trio
@pytest.mark.promise("A18")
@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (HEAD + b"X: " + b"y" * 65_536 + b"\r\n\r\n", 431),
        (HEAD + b"X: " + b"y" * 65_536, 431),
        (HEAD + b"X: y\r\n" * 1000 + b"\r\n", 431),
        (HEAD + b"Content-Length: %d\r\n\r\n" % (33 * limits.MIB), 413),
        (post(b'{"model":"m","messages":' + b"[" * 5_000_000), 400),
        (post(chat(n=16384)), 400),
        (post(chat(max_tokens=10**12)), 400),
        (post(chat(max_tokens=1025)), 400),
        (post({"model": "m"}), 400),
    ],
)
async def test_what_is_too_much_is_refused(raw: bytes, status: int) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        answer = await plane.ask(raw)
        assert answer.status == status
        assert answer.error["type"] == "invalid_request_error"
        assert plane.engines[0].received == []


@pytest.mark.trio
@pytest.mark.promise("A18")
async def test_a_chunked_body_without_end_is_refused() -> None:
    async with running() as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            piece = chunk(b" " * limits.MIB)

            async def flood() -> None:
                try:
                    for _ in range(MAX_BODY_BYTES // limits.MIB + 8):
                        await client.send(piece)
                except trio.BrokenResourceError:
                    pass

            async with trio.open_nursery() as nursery:
                nursery.start_soon(flood)
                assert (await client.answer()).status == 413


@pytest.mark.trio
@pytest.mark.promise("A19")
@pytest.mark.parametrize(
    "headers",
    [
        b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: 4\r\nContent-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        b"Transfer-Encoding : chunked\r\n",
        b"Transfer-Encoding:\x0bchunked\r\n",
        b"Content-Length: +4\r\n",
        b"X: a\r\n folded\r\nContent-Length: 4\r\n",
        b"X: a\nContent-Length: 4\r\n",
        b"Host: second\r\n",
    ],
)
async def test_an_ambiguous_request_ends_its_connection(headers: bytes) -> None:
    async with running(answering(json_answer(ANSWER))) as plane:
        client = await plane.connect()
        async with client.stream:
            await client.send(HEAD + headers + b"\r\n0\r\n\r\n" + get("/v1/models"))
            answer = await client.answer()
            assert answer.status in (400, 501)
            assert answer.headers["connection"] == "close"
            assert await client.ended()
        assert plane.engines[0].received == []


@pytest.mark.trio
async def test_an_upgrade_is_ignored() -> None:
    async with running() as plane:
        client = await plane.connect()
        async with client.stream:
            upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"
            await client.send(b"GET /live HTTP/1.1\r\nHost: gw\r\n" + upgrade + b"\r\n")
            answer = await client.answer()
            assert answer.status == 200
            assert "upgrade" not in answer.headers


@asynccontextmanager
async def public_app(path: Path, answer: bytes, heads: list[bytes]) -> AsyncIterator[None]:
    """A public app that keeps what it is asked and gives one answer."""

    async def handle(stream: trio.SocketStream) -> None:
        async with stream:
            got = b""
            while b"\r\n\r\n" not in got:
                got += await stream.receive_some(65536)
            if b"transfer-encoding: chunked" in got:
                while not got.endswith(b"0\r\n\r\n"):
                    got += await stream.receive_some(65536)
            elif b"content-length: " in got:
                head, _, body = got.partition(b"\r\n\r\n")
                length = int(head.split(b"content-length: ")[1].split(b"\r\n")[0])
                while len(body) < length:
                    body += await stream.receive_some(65536)
                got = head + b"\r\n\r\n" + body
            heads.append(got)
            await stream.send_all(answer)

    sock = trio.socket.from_stdlib_socket(listen_unix(path))
    listener = trio.SocketListener(sock)
    async with trio.open_nursery() as nursery:
        await nursery.start(trio.serve_listeners, handle, [listener])
        yield
        nursery.cancel_scope.cancel()


PAGE = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\nServer: x\r\nX-Kept: y\r\n"
    b"Content-Length: 5\r\n\r\nhello"
)


@pytest.mark.trio
@pytest.mark.parametrize("body", [b"", b"Content-Length: 9\r\n\r\nsome body", b"chunked"])
async def test_the_public_app_is_relayed_to(tmp_path: Path, body: bytes) -> None:
    heads: list[bytes] = []
    path = tmp_path / "public.sock"
    headers = (
        b"X-LLMGW-Actor: root\r\nX-Forwarded-For: 6.6.6.6\r\nX-Forwarded-Proto: https\r\nForwarded: for=6.6.6.6\r\n"
        b"X-Mine: yes\r\nX-HTTP-Method-Override: DELETE\r\nX_Odd: 6.6.6.6\r\nX-Hop: 6.6.6.6\r\nConnection: X-Hop\r\n"
    )
    async with public_app(path, PAGE, heads), running(public_socket=path) as plane:
        raw = b"POST /portal/x?q=1 HTTP/1.1\r\nHost: gw\r\n" + headers
        if body == b"chunked":
            raw += b"Transfer-Encoding: chunked\r\n\r\n" + chunk(b"some ") + chunk(b"body") + LAST_CHUNK
        else:
            raw += body or b"\r\n"
        answer = await plane.ask(raw)
        assert (answer.status, answer.body) == (200, b"hello")
        assert answer.headers["x-kept"] == "y"
        assert "server" not in answer.headers
        (head,) = heads
        assert head.startswith(b"POST /portal/x?q=1 HTTP/1.1\r\n")
        assert b"x-mine: yes" in head
        assert b"6.6.6.6" not in head
        assert b"llmgw" not in head.lower()
        assert b"forwarded-proto" not in head
        assert b"override" not in head
        assert head.count(b"x-forwarded-for: 127.0.0.1\r\n") == 1
        if body:
            assert b"some" in head
            assert head.rstrip(b"\r\n0").endswith(b"body")


@pytest.mark.trio
@pytest.mark.parametrize(
    "path",
    [
        "/admin",
        "/api/v1/status",
        "/",
        "/portalx",
        "/v1/filesystem",
        "/v1/../admin",
        "/v1/%2e%2e/api",
        "/portal/../api/v1/status",
        "/portal/%2e%2e/api",
        "/portal/..%2fapi",
        "/portal/%2fapi",
        "/portal%2f..%2fapi",
        "//v1/files",
        "/portal//api",
        "/portal\\..\\api",
        "/portal/%5c..",
        "/portal/%00",
        "http://gw/portal/../api",
        "*",
    ],
)
async def test_path_tricks_never_reach_the_public_app(tmp_path: Path, path: str) -> None:
    heads: list[bytes] = []
    where = tmp_path / "public.sock"
    async with public_app(where, PAGE, heads), running(public_socket=where) as plane:
        answer = await plane.ask(get(path))
        assert answer.status in (400, 404)
        assert answer.error["type"] == "invalid_request_error"
        assert heads == []


@pytest.mark.trio
@pytest.mark.parametrize("answer", [b"", b"garbage\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000])
async def test_a_public_app_that_fails_is_a_503(tmp_path: Path, answer: bytes) -> None:
    where = tmp_path / "public.sock"
    async with public_app(where, answer, []), running(public_socket=where) as plane:
        got = await plane.ask(get("/leader"))
        assert (got.status, got.error["code"]) == (503, "control_plane_away")
    async with running(public_socket=where) as plane:
        assert (await plane.ask(get("/leader"))).status == 503


@pytest.mark.trio
@pytest.mark.parametrize(("leads", "is_self", "status"), [("a", True, 200), ("b", False, 503), (None, False, 503)])
async def test_a_load_balancer_learns_where_the_leader_is(
    tmp_path: Path, leads: str | None, is_self: bool, status: int
) -> None:
    control = FakeControl(leads=leads, is_self=is_self)
    with apps_running(tmp_path, control, app=real_public_app(control)) as app:
        async with running(public_socket=app.socket) as plane:
            answer = await plane.ask(get("/leader"))
            assert answer.status == status
            if leads is not None:
                assert json.loads(answer.body) == {"leader": leads, "epoch": 3, "is_self": is_self}
            client = await plane.connect()
            async with client.stream:
                await client.send(get("/leader").replace(b"GET", b"HEAD"))
                await client.until(b"\r\n\r\n")
                assert client.buffer.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.trio
async def test_readiness_is_knowing_where_to_route_and_not_ending() -> None:
    async with running() as plane:
        routing = plane.state.routing
        client = await plane.connect()
        await client.send(get("/live"))
        assert (await client.answer()).status == 200
        plane.state._routes = IndexedRoutes(None)
        assert (await plane.ask(get("/ready"))).status == 503
        assert (await plane.ask(get("/live"))).status == 200
        plane.state.apply(routing)
        assert (await plane.ask(get("/ready"))).status == 200
        await client.send(b"GET /ready HTTP/1.1\r\n")
        await client.send(b"Host: gw\r\n")
        plane.drain.set()
        await client.send(b"\r\n")
        answer = await client.answer()
        assert (answer.status, json.loads(answer.body)) == (503, {"status": "draining"})


@pytest.mark.trio
async def test_readiness_and_unknown_urls() -> None:
    async with running() as plane:
        assert (await plane.ask(get("/ready"))).status == 200
        answer = await plane.ask(get("/v2/x"))
        assert (answer.status, answer.error["code"]) == (404, "unknown_url")
        answer = await plane.ask(get("/v1/chat/completions"))
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
        client = await plane.connect()
        async with client.stream:
            await client.send(b"HEAD /live HTTP/1.1\r\nHost: gw\r\n\r\n" + get("/live"))
            await client.until(b"\r\n\r\n")
            client.buffer = client.buffer.partition(b"\r\n\r\n")[2]
            assert b"live" in (await client.answer()).body


@pytest.mark.trio
@pytest.mark.promise("A15")
async def test_one_address_has_its_share_of_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "MAX_CONNECTIONS_PER_ADDRESS", 3)
    async with running() as plane:
        clients = [await plane.connect("127.0.0.2") for _ in range(3)]
        for client in clients:
            await client.send(get("/live"))
            assert (await client.answer()).status == 200
        extra = await plane.connect("127.0.0.2")
        answer = await extra.answer()
        assert (answer.status, answer.error["code"]) == (429, "too_many_connections")
        assert (await plane.ask(get("/live"))).status == 200
        await clients[0].stream.aclose()
        with trio.fail_after(DEADLINE_S):
            while True:
                again = await plane.connect("127.0.0.2")
                await again.send(get("/live"))
                if (await again.answer()).status == 200:
                    break


@pytest.mark.trio
@pytest.mark.promise("A16")
async def test_slow_clients_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "HEAD_DEADLINE_S", 0.3)
    monkeypatch.setattr(front, "BODY_STALL_S", 0.3)
    monkeypatch.setattr(front, "KEEP_ALIVE_IDLE_S", 0.3)
    async with running() as plane:
        silent, dripping, stalling, idle = [await plane.connect() for _ in range(4)]
        await dripping.send(b"GET /live HT")
        await stalling.send(HEAD + b"Content-Length: 100\r\n\r\n{")
        await idle.send(get("/live"))
        assert (await idle.answer()).status == 200
        assert await silent.ended()
        assert await idle.ended()
        assert (await dripping.answer()).status == 408
        assert (await stalling.answer()).status == 408
        await settled(plane)


@pytest.mark.trio
@pytest.mark.promise("A16")
@pytest.mark.parametrize("before", [0, 2])
async def test_a_dripped_head_gains_no_time(monkeypatch: pytest.MonkeyPatch, before: int) -> None:
    monkeypatch.setattr(front, "HEAD_DEADLINE_S", 0.3)
    async with running() as plane:
        client = await plane.connect()
        for _ in range(before):
            await client.send(get("/live"))
            assert (await client.answer()).status == 200
        await _drip(client, b"GET / HTTP/1.1\r\n" + b"X-A: y\r\n" * 100)
        await settled(plane)


@pytest.mark.trio
@pytest.mark.promise("A16")
@pytest.mark.parametrize("framing", [b"Content-Length: 1000000", b"Transfer-Encoding: chunked"])
async def test_a_dripped_body_ends_in_the_end(monkeypatch: pytest.MonkeyPatch, framing: bytes) -> None:
    """Each byte is a sign of life, and yet no body may take for ever."""
    monkeypatch.setattr(front, "BODY_TOTAL_S", 0.3)
    async with running() as plane:
        client = await plane.connect()
        await client.send(HEAD + framing + b"\r\n\r\n")
        await _drip(client, b" " if b"Length" in framing else b"1\r\n \r\n")
        await settled(plane)


async def _drip(client: RawClient, data: bytes) -> None:
    """Send a byte every 50 ms, until the answer is there: 408, and the end."""
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            for at in range(400):
                try:
                    await client.send(data[at % len(data) : at % len(data) + 1])
                except trio.BrokenResourceError:
                    return
                await trio.sleep(0.05)  # the drip itself

        nursery.start_soon(send)
        answer = await client.answer()
        assert (answer.status, answer.headers["connection"]) == (408, "close")
        assert await client.ended()
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("cut", [lambda raw: raw[:10], lambda raw: raw[:-5]])
async def test_a_client_that_leaves_midway_is_forgotten(cut: Callable[[bytes], bytes]) -> None:
    async with running() as plane:
        client = await plane.connect()
        await client.send(cut(post(chat())))
        await client.stream.aclose()
        await settled(plane)
        assert (await plane.ask(get("/live"))).status == 200
        assert plane.state.rows == []
