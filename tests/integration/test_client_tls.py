"""The client port over TLS: the same answers, certificates that change under way, and handshakes that hold nothing."""

import json
import signal
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec
import openai
import pytest
import trio
from openai.types.chat import ChatCompletionMessageParam

from llmgw.router import front, front_tls
from llmgw.router.front_tls import ClientTlsFiles
from llmgw.router.tls import provider_context, server_context
from tests.support.certificates import Leaf, TestAuthority
from tests.support.provider import Provider, routing_to
from tests.support.router_plane import (
    DEADLINE_S,
    KEY,
    Answer,
    Plane,
    RawClient,
    chat,
    get,
    post,
    running,
    settled,
)
from tests.support.scripted_engine import (
    DONE,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    json_answer,
    streaming,
    token,
)

COMPLETION = {
    "id": "c",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}],
}


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    """Who signs the port's certificate."""
    return TestAuthority(tmp_path)


def told(directory: Path, leaf: Leaf) -> Path:
    """`run/client-tls.json` as a server writes it."""
    path = directory / "client-tls.json"
    files = ClientTlsFiles(certificate=str(leaf.certificate), key=str(leaf.key))
    path.write_bytes(msgspec.json.encode(files))
    return path


@asynccontextmanager
async def secured(
    directory: Path, authority: TestAuthority, *behaviours: Behaviour
) -> AsyncIterator[tuple[Plane, Path]]:
    """A data plane that speaks TLS, and the file that says so."""
    path = told(directory, authority.leaf("127.0.0.1", "localhost"))
    async with running(*behaviours, client_tls=path) as plane:
        yield plane, path


async def connect(plane: Plane, context: ssl.SSLContext) -> tuple[RawClient, "trio.SSLStream[trio.SocketStream]"]:
    """A client whose handshake is done."""
    plain = await plane.connect()
    stream = trio.SSLStream(plain.stream, context, server_hostname="127.0.0.1")
    with trio.fail_after(DEADLINE_S):
        await stream.do_handshake()
    return RawClient(cast("trio.SocketStream", stream)), stream


async def ask(plane: Plane, authority: TestAuthority, request: bytes) -> Answer:
    """One request on a connection of its own."""
    client, _ = await connect(plane, authority.client_context())
    await client.send(request)
    return await client.answer()


def serial_of(stream: "trio.SSLStream[trio.SocketStream]") -> int:
    """Which certificate the port showed."""
    shown = stream.getpeercert()
    assert shown is not None
    return int(str(shown["serialNumber"]), 16)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition inside this process."""
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - plain counters
            await trio.sleep(0.005)


@pytest.mark.trio
async def test_requests_and_streams_are_answered_as_without_tls(tmp_path: Path, authority: TestAuthority) -> None:
    words = [f"word-{i}" for i in range(50)]
    async with secured(tmp_path, authority, streaming(words)) as (plane, _):
        client, stream = await connect(plane, authority.client_context())
        assert stream.selected_alpn_protocol() is None
        for _ in range(3):
            await client.send(post(chat(stream=True)))
            answer = await client.answer()
            assert answer.body == b"".join([*map(token, words), token("", finish="stop"), DONE])
            await client.send(get("/v1/models"))
            assert (await client.answer()).status == 200
        assert plane.engines[0].connections == 1


@pytest.mark.trio
async def test_http_1_1_is_the_only_protocol_offered(tmp_path: Path, authority: TestAuthority) -> None:
    async with secured(tmp_path, authority) as (plane, _):
        context = authority.client_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        _, stream = await connect(plane, context)
        assert stream.selected_alpn_protocol() == "http/1.1"


@pytest.mark.trio
@pytest.mark.parametrize("streamed", [False, True])
async def test_the_official_package_talks_to_it(tmp_path: Path, authority: TestAuthority, streamed: bool) -> None:
    behaviour = streaming(["hel", "lo"]) if streamed else answering(json_answer(COMPLETION))
    async with secured(tmp_path, authority, behaviour) as (plane, _):

        def talk() -> str:
            http = openai.DefaultHttpxClient(verify=authority.client_context())
            url = f"https://127.0.0.1:{plane.address[1]}/v1"
            with openai.OpenAI(base_url=url, api_key=KEY.decode(), http_client=http, max_retries=0) as client:
                messages: list[ChatCompletionMessageParam] = [{"role": "user", "content": "hi"}]
                if not streamed:
                    whole = client.chat.completions.create(model="m", messages=messages)
                    return str(whole.choices[0].message.content)
                parts = client.chat.completions.create(model="m", messages=messages, stream=True)
                return "".join(part.choices[0].delta.content or "" for part in parts)

        assert await trio.to_thread.run_sync(talk) == "hello"


@pytest.mark.trio
async def test_big_bodies_pass_both_ways_while_the_client_reads_slowly(
    tmp_path: Path, authority: TestAuthority
) -> None:
    text = "z" * (6 << 20)
    big = {"id": "c", "choices": [{"message": {"content": text}}]}
    async with secured(tmp_path, authority, answering(json_answer(big))) as (plane, _):
        client, _ = await connect(plane, authority.client_context())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post(chat(messages=[{"role": "user", "content": text}])))
            await until(lambda: bool(plane.engines[0].received))
            # The answer is far more than sockets hold: it has to wait for this client, half a record at a time.
            await trio.testing.wait_all_tasks_blocked()
            answer = await client.answer()
        assert json.loads(answer.body) == big
        assert plane.engines[0].received[0].json["messages"] == [{"role": "user", "content": text}]


@pytest.mark.trio
async def test_a_slow_reader_of_a_stream_misses_nothing(tmp_path: Path, authority: TestAuthority) -> None:
    part = token("w" * 40_000)

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        for _ in range(200):
            await exchange.send(chunk(part))
        await exchange.send(chunk(DONE) + b"0\r\n\r\n")

    async with secured(tmp_path, authority, behave) as (plane, _):
        client, _ = await connect(plane, authority.client_context())
        await client.send(post(chat(stream=True)))
        await client.until(b"\r\n\r\n")
        await until(lambda: plane.engines[0].open_connections == 1)
        answer = await client.answer()
        assert answer.whole
        assert answer.body == part * 200 + DONE


@pytest.mark.trio
async def test_many_streams_under_tls_on_both_sides_stay_apart(tmp_path: Path, authority: TestAuthority) -> None:
    async def behave(exchange: Exchange) -> None:
        said = str(exchange.request.json["user"])
        await exchange.send(SSE_HEAD)
        for i in range(60):
            await exchange.send(chunk(token(f"{said}-{i} " * (1 + i % 7))))
        await exchange.send(chunk(DONE) + b"0\r\n\r\n")

    async with secured(tmp_path, authority) as (plane, _):
        context = authority.leaf("localhost", file="provider").server_context()
        provider = Provider(behave, context=context, segment_bytes=777)
        await plane.nursery.start(provider.run)
        plane.state.apply(routing_to(provider, ca=authority.ca))
        whole: list[str] = []

        async def one(name: str) -> None:
            client, _ = await connect(plane, authority.client_context())
            for turn in ("a", "b"):
                await client.send(post(chat(stream=True, user=name + turn)))
                answer = await client.answer()
                parts = [token(f"{name}{turn}-{i} " * (1 + i % 7)) for i in range(60)]
                assert answer.body == b"".join([*parts, DONE])
            whole.append(name)

        async with trio.open_nursery() as nursery:
            for number in range(40):
                nursery.start_soon(one, f"client-{number}")
        assert len(whole) == 40
        await settled(plane)


@pytest.mark.trio
async def test_a_new_certificate_is_shown_to_who_connects_next_and_ends_no_stream(
    tmp_path: Path, authority: TestAuthority
) -> None:
    go_on = trio.Event()

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("one")))
        await go_on.wait()
        await exchange.send(chunk(token("two")) + chunk(DONE) + b"0\r\n\r\n")

    async with secured(tmp_path, authority, behave) as (plane, _):
        client, first = await connect(plane, authority.client_context())
        await client.send(post(chat(stream=True)))
        await client.until(token("one"))
        renewed = authority.leaf("127.0.0.1", "localhost")
        signal.raise_signal(signal.SIGHUP)
        with trio.fail_after(DEADLINE_S):
            while True:
                _, second = await connect(plane, authority.client_context())
                if serial_of(second) == renewed.serial:
                    break
        assert serial_of(first) != renewed.serial
        go_on.set()
        answer = await client.answer()
        assert answer.whole
        assert answer.body == token("one") + token("two") + DONE


@pytest.mark.trio
async def test_changed_files_are_noticed_without_a_signal(
    tmp_path: Path, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front_tls, "LOOK_S", 0.05)
    async with secured(tmp_path, authority) as (plane, _):
        renewed = authority.leaf("127.0.0.1", "localhost")
        with trio.fail_after(DEADLINE_S):
            while True:
                _, stream = await connect(plane, authority.client_context())
                if serial_of(stream) == renewed.serial:
                    break


def test_a_certificate_that_cannot_be_used_leaves_the_one_before(
    tmp_path: Path, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    leaf = authority.leaf("localhost")
    tls = front_tls.FrontTls(told(tmp_path, leaf))
    before = tls.context
    assert before is not None
    leaf.certificate.write_text("not a certificate")
    tls.look()
    assert tls.on
    assert tls.context is before
    assert "the one read before stays" in caplog.text
    authority.leaf("localhost")
    tls.look()
    assert tls.context is not before


def test_a_port_whose_certificate_was_never_usable_is_not_served_in_the_clear(
    tmp_path: Path, authority: TestAuthority
) -> None:
    leaf = authority.leaf("localhost")
    leaf.key.write_text("nothing")
    tls = front_tls.FrontTls(told(tmp_path, leaf))
    assert tls.on
    assert tls.context is None


@pytest.mark.trio
async def test_without_a_usable_certificate_clients_are_turned_away(tmp_path: Path, authority: TestAuthority) -> None:
    leaf = authority.leaf("localhost")
    leaf.key.write_text("nothing")
    async with running(client_tls=told(tmp_path, leaf)) as plane:
        client = await plane.connect()
        await client.send(get("/live"))
        assert await client.ended()


@pytest.mark.trio
async def test_plain_http_on_the_port_is_told_so(tmp_path: Path, authority: TestAuthority) -> None:
    async with secured(tmp_path, authority) as (plane, _):
        answer = await plane.ask(post(chat()))
        assert answer.status == 400
        assert answer.headers["content-type"] == "text/plain"
        assert b"https://" in answer.body
        assert (await ask(plane, authority, get("/live"))).status == 200


@pytest.mark.trio
@pytest.mark.parametrize("sent", [b"", b"\x16\x03\x01", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
async def test_half_a_handshake_holds_its_connection_no_longer_than_a_head_may_take(
    tmp_path: Path, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(front, "HEAD_DEADLINE_S", 0.3)
    async with secured(tmp_path, authority) as (plane, _):
        client = await plane.connect()
        if sent:
            await client.send(sent)
        assert await client.ended()


@pytest.mark.trio
async def test_half_a_record_after_the_handshake_is_half_a_head(
    tmp_path: Path, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "HEAD_DEADLINE_S", 0.3)
    async with secured(tmp_path, authority) as (plane, _):
        _, stream = await connect(plane, authority.client_context())
        await stream.transport_stream.send_all(b"\x17\x03\x03\x02\x00abc")
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(DEADLINE_S):
            await stream.receive_some(10)


@pytest.mark.trio
async def test_a_dripped_handshake_has_the_same_deadline(
    tmp_path: Path, authority: TestAuthority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(front, "HEAD_DEADLINE_S", 0.5)
    outgoing = ssl.MemoryBIO()
    client_side = authority.client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client_side.do_handshake()
    hello = outgoing.read()
    async with secured(tmp_path, authority) as (plane, _):
        client = await plane.connect()

        async def drip() -> None:
            for at in range(len(hello) - 1):  # never whole
                try:
                    await client.send(hello[at : at + 1])
                except trio.BrokenResourceError:
                    return
                await trio.sleep(0.02)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            assert await client.ended()
            nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize("sent", [b"\x16\x03\x01\x00\x05hello", b"\x00" * 50, b"SSH-2.0-x\r\n"])
async def test_what_is_no_handshake_ends_the_connection(tmp_path: Path, authority: TestAuthority, sent: bytes) -> None:
    async with secured(tmp_path, authority) as (plane, _):
        client = await plane.connect()
        await client.send(sent)
        with trio.fail_after(DEADLINE_S):
            while await client.more():
                pass
        assert not client.buffer.startswith(b"HTTP")
        assert (await ask(plane, authority, get("/live"))).status == 200


def test_nothing_older_than_tls_1_2_is_spoken_and_nothing_is_negotiated_anew(
    tmp_path: Path, authority: TestAuthority
) -> None:
    leaf = authority.leaf("localhost")
    for context in (server_context(leaf.certificate, leaf.key), provider_context(str(authority.ca))):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.trio
async def test_tls_1_2_is_spoken(tmp_path: Path, authority: TestAuthority) -> None:
    context = authority.client_context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    async with secured(tmp_path, authority, streaming(["a", "b"])) as (plane, _):
        client, _ = await connect(plane, context)
        await client.send(post(chat(stream=True)))
        assert (await client.answer()).body.endswith(DONE)


@pytest.mark.trio
@pytest.mark.promise("A9")
@pytest.mark.parametrize("after_a_token", [False, True])
async def test_a_clients_goodbye_frees_the_engine_though_its_connection_stays_open(
    tmp_path: Path, authority: TestAuthority, after_a_token: bool
) -> None:
    async def behave(exchange: Exchange) -> None:
        if after_a_token:
            await exchange.send(SSE_HEAD + chunk(token("one")))
        await exchange.until_closed()

    async with secured(tmp_path, authority, behave) as (plane, _):
        client, stream = await connect(plane, authority.client_context())
        await client.send(post(chat(stream=True)))
        await until(lambda: bool(plane.engines[0].received))
        if after_a_token:
            await client.until(token("one"))
        with trio.move_on_after(0.01):  # the goodbye is sent, the router's is not waited for
            await stream.unwrap()
        await until(lambda: plane.engines[0].closed_by_peer == 1)
        await settled(plane)


@pytest.mark.trio
async def test_requests_sent_ahead_while_an_answer_streams_are_answered_in_turn(
    tmp_path: Path, authority: TestAuthority
) -> None:
    go_on = trio.Event()

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("one")))
        await go_on.wait()
        await exchange.send(chunk(DONE) + b"0\r\n\r\n")

    async with secured(tmp_path, authority, behave) as (plane, _):
        client, _ = await connect(plane, authority.client_context())
        await client.send(post(chat(stream=True)))
        await client.until(token("one"))
        await client.send(get("/live") + get("/v1/models"))
        go_on.set()
        assert (await client.answer()).body == token("one") + DONE
        assert json.loads((await client.answer()).body) == {"status": "live"}
        assert (await client.answer()).status == 200


@pytest.mark.trio
async def test_an_answer_that_ends_with_the_connection_ends_with_a_goodbye(
    tmp_path: Path, authority: TestAuthority
) -> None:
    async with secured(tmp_path, authority, streaming(["a"])) as (plane, _):
        client, stream = await connect(plane, authority.client_context())
        await client.send(post(chat(stream=True)).replace(b"HTTP/1.1", b"HTTP/1.0"))
        answer = await client.answer()
        assert answer.body.endswith(DONE)
        # An end without a goodbye would have raised, and `more` would have said that the connection broke.
        assert await stream.receive_some(10) == b""


@pytest.mark.trio
async def test_a_lost_answer_ends_without_a_goodbye(tmp_path: Path, authority: TestAuthority) -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
        await exchange.close()

    async with secured(tmp_path, authority, behave) as (plane, _):
        client, stream = await connect(plane, authority.client_context())
        await client.send(post(chat()))
        await client.until(b"{")
        with pytest.raises(trio.BrokenResourceError), trio.fail_after(DEADLINE_S):
            await stream.receive_some(10)


@pytest.mark.trio
async def test_a_client_that_is_gone_before_it_is_served_is_no_fault(
    tmp_path: Path, authority: TestAuthority, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, authority) as (plane, _):
        for _ in range(20):
            sock = socket.create_connection(plane.address)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            sock.close()
        assert (await ask(plane, authority, get("/live"))).status == 200
    assert "failed" not in caplog.text
