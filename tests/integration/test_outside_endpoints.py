"""Models served by providers outside the cluster: over real TLS, with keys that take turns and are never told."""

import json
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.routing import Routing, Timeouts
from llmgw.router import provider_keys
from llmgw.router.limits import MAX_EVENT_BYTES, RECV_BYTES
from tests.support.certificates import TestAuthority
from tests.support.provider import KEYS, Provider, break_off, by_key, routing_to, write_keys
from tests.support.router_plane import Plane, chat, post, running
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

COMPLETION = {"id": "c", "choices": [{"message": {"content": "hello"}}], "usage": {"prompt_tokens": 9}}
FIRST, SECOND, THIRD = KEYS


@pytest.fixture
def authority(tmp_path: Path) -> TestAuthority:
    """Who signs the provider's certificate."""
    return TestAuthority(tmp_path)


@pytest.fixture
def context(authority: TestAuthority) -> ssl.SSLContext:
    """The provider's TLS."""
    return authority.leaf("localhost").server_context()


@asynccontextmanager
async def outside(
    *behaviours: Behaviour, context: ssl.SSLContext | None = None, segment_bytes: int = 1 << 20
) -> AsyncIterator[tuple[Plane, list[Provider]]]:
    """A data plane and a provider a behaviour, not yet routed."""
    async with running() as plane:
        providers = [Provider(b, context=context, segment_bytes=segment_bytes) for b in behaviours]
        for provider in providers:
            await plane.nursery.start(provider.run)
        yield plane, providers


def refuse(status: bytes, *, headers: bytes = b"", message: str = "no") -> Behaviour:
    """Answer with an error in OpenAI's shape."""
    return answering(json_answer({"error": {"message": message, "type": "t", "code": "c"}}, status, headers))


@pytest.mark.trio
async def test_a_request_reaches_the_provider_as_its_own_api_has_it(
    tmp_path: Path, authority: TestAuthority, context: ssl.SSLContext
) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    async with outside(answering(json_answer(COMPLETION)), context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys, ca=authority.ca))
        answer = await plane.ask(post(chat(temperature=0.5)))
        assert answer.status == 200
        assert json.loads(answer.body) == COMPLETION
        asked = provider.received[0]
        assert asked.head.split(b"\r\n")[0] == b"POST /api/v1/chat/completions HTTP/1.1"
        assert asked.header(b"host") == f"localhost:{provider.port}".encode()
        assert asked.header(b"authorization") == f"Bearer {FIRST}".encode()
        assert asked.header(b"accept-encoding") == b"identity"
        assert asked.json["model"] == "upstream-m"
        assert asked.json["temperature"] == 0.5
        assert plane.state.rows[0].replica == "external:m:0"


@pytest.mark.trio
async def test_an_endpoint_without_tls_and_without_keys_is_asked_as_it_is() -> None:
    async with outside(answering(json_answer(COMPLETION))) as (plane, (provider,)):
        plane.state.apply(routing_to(provider))
        assert (await plane.ask(post(chat()))).status == 200
        assert provider.received[0].header(b"authorization") is None


@pytest.mark.trio
@pytest.mark.parametrize("segment_bytes", [1, 3, 7, 1400, 1 << 20])
async def test_a_stream_over_tls_arrives_whole_however_its_records_are_cut(
    segment_bytes: int, authority: TestAuthority, context: ssl.SSLContext
) -> None:
    words = [f"word-{i} " for i in range(20)]
    behaviour = streaming(words, usage=(5, 20), pieces=lambda raw: [raw[i : i + 61] for i in range(0, len(raw), 61)])
    async with outside(behaviour, context=context, segment_bytes=segment_bytes) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=authority.ca))
        answer = await plane.ask(post(chat(stream=True)))
        assert answer.whole
        assert answer.body == b"".join([*map(token, words), token("", finish="stop"), DONE])
        assert (plane.state.rows[0].input_tokens, plane.state.rows[0].output_tokens) == (5, 20)


@pytest.mark.trio
async def test_records_that_arrive_together_are_all_passed_on_without_another_word_from_the_provider(
    authority: TestAuthority, context: ssl.SSLContext
) -> None:
    # More than one read takes, in records as long as they get, and then silence: nothing may be left inside TLS.
    big = token("x" * (3 * RECV_BYTES))

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(big))
        await exchange.until_closed()

    async with outside(behave, context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=authority.ca))
        client = await plane.connect()
        await client.send(post(chat(stream=True)))
        await client.until(b'x"},"finish_reason":null}]}\n\n')


@pytest.mark.trio
async def test_one_connection_carries_requests_with_different_keys(
    tmp_path: Path, authority: TestAuthority, context: ssl.SSLContext
) -> None:
    keys = write_keys(tmp_path / "keys", *KEYS)
    async with outside(answering(json_answer(COMPLETION)), context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys, ca=authority.ca))
        for _ in range(6):
            assert (await plane.ask(post(chat()))).status == 200
        shown = [(r.header(b"authorization") or b"").decode().removeprefix("Bearer ") for r in provider.received]
        assert sorted(shown) == sorted(KEYS * 2)
        assert shown[:3] == shown[3:]
        assert provider.connections == 1


@pytest.mark.trio
@pytest.mark.parametrize("status", [b"401 Unauthorized", b"402 Pay", b"403 Forbidden", b"429 Too Many Requests"])
async def test_a_refused_key_rests_and_the_request_goes_on_with_another(tmp_path: Path, status: bytes) -> None:
    keys = write_keys(tmp_path / "keys", FIRST, SECOND)
    behaviour = by_key({FIRST: refuse(status), SECOND: answering(json_answer(COMPLETION))})
    async with outside(behaviour) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        for _ in range(5):
            assert (await plane.ask(post(chat()))).status == 200
        shown = [(r.header(b"authorization") or b"").decode().removeprefix("Bearer ") for r in provider.received]
        assert shown.count(FIRST) == 1
        assert shown.count(SECOND) == 5
        assert plane.state.breakers == {}


@pytest.mark.trio
async def test_a_providers_429_is_the_clients_when_nobody_else_can_serve(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    limited = refuse(b"429 Too Many Requests", headers=b"Retry-After: 17\r\n", message="slow down")
    async with outside(limited) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        answer = await plane.ask(post(chat()))
        assert answer.status == 429
        assert answer.headers["retry-after"] == "17"
        assert json.loads(answer.body)["error"]["message"] == "slow down"
        again = await plane.ask(post(chat()))
        assert again.status in (429, 503)
        assert 1 <= int(again.headers["retry-after"]) <= 17
        assert len(provider.received) == 1
        assert plane.state.breakers == {"external:m:0": "open"}


@pytest.mark.trio
async def test_a_429_without_keys_goes_to_the_other_endpoint() -> None:
    async with outside(refuse(b"429 Too Many"), answering(json_answer(COMPLETION))) as (plane, providers):
        plane.state.apply(routing_to(*providers))
        for _ in range(4):
            assert (await plane.ask(post(chat()))).status == 200
        assert len(providers[0].received) <= 1


@pytest.mark.trio
@pytest.mark.parametrize("status", [b"401 Unauthorized", b"402 Payment Required", b"403 Forbidden"])
async def test_a_refusal_of_the_gateways_key_is_not_the_clients(
    tmp_path: Path, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    async with outside(refuse(status, message=f"bad key {FIRST}")) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        with caplog.at_level(logging.INFO):
            answer = await plane.ask(post(chat()))
        assert answer.status == 502
        assert "refused the gateway's key" in str(answer.error["message"])
        assert FIRST.encode() not in answer.raw + answer.body
        assert FIRST not in caplog.text
        assert "key 1 of" in caplog.text


@pytest.mark.trio
@pytest.mark.parametrize("keyed", [True, False])
async def test_a_403_about_one_clients_request_keeps_nobody_else_from_the_model(tmp_path: Path, keyed: bool) -> None:
    """Providers that moderate answer 403 to a text, with a key that is in order."""

    async def moderate(exchange: Exchange) -> None:
        status = b"403 Forbidden" if exchange.request.json.get("user") == "rude" else b"200 OK"
        await exchange.send(json_answer(COMPLETION, status=status))

    keys = write_keys(tmp_path / "keys", FIRST) if keyed else None
    async with outside(moderate) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        assert (await plane.ask(post(chat()))).status == 200
        for _ in range(5):
            assert (await plane.ask(post(chat(user="rude")))).status == 502
            assert (await plane.ask(post(chat()))).status == 200
        assert len(provider.received) == 11
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.parametrize("status", [b"400 Bad", b"404 Not Found", b"409 Conflict", b"413 Big", b"422 Unprocessable"])
async def test_a_providers_own_refusal_of_a_request_is_passed_on(tmp_path: Path, status: bytes) -> None:
    async with outside(refuse(status, message="bad temperature")) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=write_keys(tmp_path / "keys", FIRST)))
        answer = await plane.ask(post(chat()))
        assert answer.status == int(status[:3])
        assert json.loads(answer.body) == {"error": {"message": "bad temperature", "type": "t", "code": "c"}}
        assert plane.state.breakers == {}


@pytest.mark.trio
async def test_what_a_provider_says_of_the_gateways_account_stays_here() -> None:
    told = b"x-ratelimit-remaining-requests: 5\r\nOpenAI-Organization: ours\r\nSet-Cookie: a=b\r\nx-their-id: 7\r\n"
    async with outside(answering(json_answer(COMPLETION, headers=told))) as (plane, (provider,)):
        plane.state.apply(routing_to(provider))
        answer = await plane.ask(post(chat()))
        assert answer.headers["x-their-id"] == "7"
        assert answer.headers.keys().isdisjoint({"x-ratelimit-remaining-requests", "openai-organization", "set-cookie"})


@pytest.mark.trio
async def test_a_redirect_is_refused(tmp_path: Path) -> None:
    elsewhere = b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    async with outside(answering(elsewhere)) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=write_keys(tmp_path / "keys", FIRST)))
        answer = await plane.ask(post(chat()))
        assert answer.status == 502
        assert "location" not in answer.headers


@pytest.mark.trio
@pytest.mark.parametrize("why", ["refused", "limited", "missing"])
async def test_a_mended_keys_file_ends_the_rest_of_its_endpoint(tmp_path: Path, why: str) -> None:
    keys = tmp_path / "keys"
    status = b"401 Unauthorized" if why == "refused" else b"429 Too Many Requests"
    refusing = refuse(status, headers=b"Retry-After: 3600\r\n")
    behaviour = by_key({FIRST: refusing, SECOND: answering(json_answer(COMPLETION))})
    async with outside(behaviour) as (plane, (provider,)):
        if why != "missing":
            write_keys(keys, FIRST)
        plane.state.apply(routing_to(provider, keys=keys))
        assert (await plane.ask(post(chat()))).status in (429, 502)
        assert plane.state.breakers == {"external:m:0": "open"}
        write_keys(keys, SECOND)
        with trio.fail_after(30):
            while plane.state.breakers != {"external:m:0": "half-open"}:  # noqa: ASYNC110 - a plain dict
                await trio.sleep(0.02)
        assert (await plane.ask(post(chat()))).status == 200
        assert plane.state.breakers == {}


@pytest.mark.trio
async def test_a_changed_keys_file_is_read_again_and_a_broken_one_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(provider_keys, "LOOK_S", 0.0)
    keys = write_keys(tmp_path / "keys", FIRST)
    async with outside(answering(json_answer(COMPLETION))) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        await plane.ask(post(chat()))
        write_keys(keys, SECOND)
        await plane.ask(post(chat()))
        keys.write_text(f"{SECOND}\nthis is no key: {THIRD}\n")
        await plane.ask(post(chat()))
        keys.unlink()
        assert (await plane.ask(post(chat()))).status == 200
        shown = [(r.header(b"authorization") or b"").decode().removeprefix("Bearer ") for r in provider.received]
        assert shown == [FIRST, SECOND, SECOND, SECOND]
        assert "line 2 is no key" in caplog.text
        assert THIRD not in caplog.text


@pytest.mark.trio
async def test_a_file_that_is_the_servers_own_is_not_sent_away(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    secret = write_keys(data / "admin.token", "at-0123456789abcdef")
    link = tmp_path / "keys"
    link.symlink_to(secret)
    async with running(private=(data,)) as plane:
        provider = Provider(answering(json_answer(COMPLETION)))
        await plane.nursery.start(provider.run)
        plane.state.apply(routing_to(provider, keys=link))
        answer = await plane.ask(post(chat()))
        assert answer.status == 502
        assert answer.error["code"] == "provider_key_missing"
        assert provider.received == []


@pytest.mark.trio
@pytest.mark.parametrize(
    ("names", "trusted", "words"),
    [
        (("elsewhere.test",), True, "Hostname mismatch"),
        (("localhost",), False, "unable to get local issuer certificate"),
    ],
)
async def test_a_certificate_that_is_not_the_providers_is_refused_with_a_sentence(
    tmp_path: Path, authority: TestAuthority, names: tuple[str, ...], trusted: bool, words: str
) -> None:
    ca = authority.ca if trusted else TestAuthority(tmp_path, "Other CA").ca
    keys = write_keys(tmp_path / "keys", FIRST)
    behaviour = answering(json_answer(COMPLETION))
    async with outside(behaviour, context=authority.leaf(*names).server_context()) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys, ca=ca))
        answer = await plane.ask(post(chat()))
        assert answer.status == 502
        assert words in str(answer.error["message"])
        assert "localhost" in str(answer.error["message"])
        assert provider.received == []


@pytest.mark.trio
@pytest.mark.parametrize("name", ["absent.pem", "pipe"])
async def test_authorities_that_cannot_be_read_are_the_operators_business_and_no_clients(
    tmp_path: Path, context: ssl.SSLContext, name: str
) -> None:
    ca = tmp_path / name
    if name == "pipe":
        os.mkfifo(ca)
    async with outside(answering(json_answer(COMPLETION)), context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=ca))
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")
        assert str(tmp_path) not in str(answer.error)
        assert str(ca) in plane.state.breaker_failures["external:m:0"]


@pytest.mark.trio
async def test_a_name_that_no_resolver_can_be_asked_for_is_an_endpoint_that_cannot_be_reached() -> None:
    async with outside(answering(json_answer(COMPLETION))) as (plane, (provider,)):
        provider.host = "a..b"
        plane.state.apply(routing_to(provider))
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.error["code"]) == (502, "engine_unreachable")


@pytest.mark.trio
@pytest.mark.case("C5")
async def test_a_provider_that_stalls_in_the_handshake_costs_the_connect_timeout_and_no_more(
    authority: TestAuthority, context: ssl.SSLContext
) -> None:
    async with outside(answering(json_answer(COMPLETION)), context=context) as (plane, (well,)):
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        held: list[trio.SocketStream] = []

        async def hold(stream: trio.SocketStream) -> None:
            held.append(stream)
            await trio.sleep_forever()

        plane.nursery.start_soon(trio.serve_listeners, hold, listeners)
        stalled = Provider(hold, context=context)  # type: ignore[arg-type]  # only its address is used
        stalled.port = listeners[0].socket.getsockname()[1]
        plane.state.apply(routing_to(stalled, well, ca=authority.ca, timeouts=Timeouts(connect=0.3)))
        answers: list[int] = []

        async def ask() -> None:
            answers.append((await plane.ask(post(chat()))).status)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(ask)
        assert answers == [200] * 8
        met = len(held)
        assert met
        assert (await plane.ask(post(chat()))).status == 200
        assert len(held) == met
        for stream in held:
            await stream.aclose()


@pytest.mark.trio
async def test_a_stream_cut_without_a_goodbye_is_lost(authority: TestAuthority, context: ssl.SSLContext) -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("one")))
        await break_off(exchange)

    async with outside(behave, context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=authority.ca))
        answer = await plane.ask(post(chat(stream=True)))
        assert token("one") in answer.body
        assert b"engine_lost" in answer.body
        assert plane.state.rows[0].failed


@pytest.mark.trio
@pytest.mark.parametrize("goodbye", [True, False])
async def test_a_body_that_only_the_connections_end_ends_needs_a_goodbye(
    authority: TestAuthority, context: ssl.SSLContext, goodbye: bool
) -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + b'{"id":"c"}')
        await (exchange.close() if goodbye else break_off(exchange))

    async with outside(behave, context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=authority.ca))
        answer = await plane.ask(post(chat()))
        assert answer.whole is goodbye
        assert plane.state.rows[0].failed is not goodbye


@pytest.mark.trio
async def test_silence_in_the_middle_of_a_record_ends_with_the_token_timeout(
    authority: TestAuthority, context: ssl.SSLContext
) -> None:
    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("one")))
        # A record's header that promises 512 bytes, and three of them.
        below = exchange.stream.transport_stream  # type: ignore[attr-defined]
        await below.send_all(b"\x17\x03\x03\x02\x00abc")
        await exchange.until_closed()

    async with outside(behave, context=context) as (plane, (provider,)):
        timeouts = Timeouts(inter_token=0.4)
        plane.state.apply(routing_to(provider, ca=authority.ca, timeouts=timeouts))
        answer = await plane.ask(post(chat(stream=True)))
        assert token("one") in answer.body
        assert b"engine_timeout" in answer.body


@pytest.mark.trio
async def test_a_big_request_and_a_big_answer_pass_over_tls(authority: TestAuthority, context: ssl.SSLContext) -> None:
    text = "y" * (5 << 20)
    big = {"id": "c", "choices": [{"message": {"content": text}}]}
    async with outside(answering(json_answer(big)), context=context) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, ca=authority.ca))
        answer = await plane.ask(post(chat(messages=[{"role": "user", "content": text}])))
        assert json.loads(answer.body) == big
        assert provider.received[0].json["messages"] == [{"role": "user", "content": text}]


@pytest.mark.trio
async def test_what_a_router_saves_and_says_holds_no_providers_key(tmp_path: Path) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    provider = Provider(answering(b""))
    routing = routing_to(provider, keys=keys)
    assert FIRST.encode() not in msgspec.msgpack.encode(routing)
    ring = provider_keys.KeyRing(str(keys))
    assert ring.take(0.0) == FIRST
    assert FIRST not in repr(vars(ring))
    os.unlink(keys)
    with pytest.raises(provider_keys.NoKeys) as refused:
        provider_keys.KeyRing(str(keys)).take(0.0)
    assert str(keys) in str(refused.value)


def test_the_routing_type_is_what_the_feed_carries() -> None:
    routing = routing_to(Provider(answering(b"")))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(routing), type=Routing) == routing


@pytest.mark.trio
@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"422 No", b"429 Too Many Requests"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
@pytest.mark.parametrize("padding", [0, 20_000], ids=["short", "long"])
async def test_a_provider_that_repeats_the_gateways_key_does_not_tell_it_to_clients(
    tmp_path: Path, status: bytes, path: str, padding: int, caplog: pytest.LogCaptureFixture
) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    document = {"error": {"message": f"no account for {FIRST}{'.' * padding}, {FIRST}", "type": "t", "code": "c"}}
    raw = json_answer(document, status, b"x-their-key: " + FIRST.encode() + b"\r\nx-their-id: 7\r\n")

    async def in_pieces(exchange: Exchange) -> None:
        for at in range(0, len(raw), max(7, len(raw) // 50)):
            await exchange.send(raw[at : at + max(7, len(raw) // 50)])
            await trio.lowlevel.checkpoint()

    async with outside(in_pieces) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        with caplog.at_level(logging.DEBUG):
            answer = await plane.ask(post(chat(max_tokens=5), path))
        assert answer.status == int(status[:3])
        assert answer.whole
        assert FIRST.encode() not in answer.raw + answer.body
        assert FIRST not in caplog.text
        assert len(provider.received) == 1
        # A long 404 is no error of an API: it is told as a route that is not there.
        if path == "/v1/chat/completions" and not (padding and status.startswith(b"404")):
            assert b"no account for " + b"*" * len(FIRST) in answer.body
            assert answer.headers["x-their-id"] == "7"
            assert "x-their-key" not in answer.headers


@pytest.mark.trio
@pytest.mark.parametrize("stream", [False, True])
async def test_nor_does_an_error_that_comes_under_status_200(tmp_path: Path, stream: bool) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    document = {"error": {"message": f"no account for {FIRST}", "type": "t", "code": "c"}}
    event = b"data: " + json.dumps(document).encode() + b"\n\n"

    async def in_pieces(exchange: Exchange) -> None:
        raw = SSE_HEAD + chunk(event) + chunk(DONE) + b"0\r\n\r\n" if stream else json_answer(document)
        for at in range(0, len(raw), 7):
            await exchange.send(raw[at : at + 7])
            await trio.lowlevel.checkpoint()

    async with outside(in_pieces) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        answer = await plane.ask(post(chat(stream)))
        assert (answer.status, answer.whole) == (200, True)
        assert b"no account for " + b"*" * len(FIRST) in answer.body
        assert FIRST.encode() not in answer.raw + answer.body


_TOLD = json.dumps({"error": {"message": f"no account for {FIRST}", "code": 401}}).encode()


@pytest.mark.trio
@pytest.mark.parametrize(
    "event",
    [
        b"data: " + _TOLD + b"\n\n",
        b"event: error\ndata: " + _TOLD.replace(b'"error"', b'"detail"') + b"\n\n",
        b"data: " + _TOLD + b"\r\n\r\n",
        b"data: " + _TOLD.replace(b'"message"', b'"padding": "%b", "message"' % (b"." * MAX_EVENT_BYTES)) + b"\n\n",
    ],
    ids=["plain", "without the word", "with CR", "too long to hold"],
)
@pytest.mark.parametrize("cut", [7, 4096], ids=["in pieces", "whole"])
async def test_nor_does_an_error_in_a_running_stream(tmp_path: Path, event: bytes, cut: int) -> None:
    keys = write_keys(tmp_path / "keys", FIRST)
    tokens = [token(word) for word in ("one", "two", "three")]

    async def breaks_off(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        for said in tokens:  # from the second on tokens may take the quick way
            await exchange.send(chunk(said))
            await trio.sleep(0.01)
        raw = chunk(event)
        step = cut if len(raw) < MAX_EVENT_BYTES else MAX_EVENT_BYTES + 85  # amid the key
        for at in range(0, len(raw), step):
            await exchange.send(raw[at : at + step])
            await trio.sleep(0.01 if step > cut else 0)
        await exchange.send(chunk(DONE) + b"0\r\n\r\n")

    async with outside(breaks_off) as (plane, (provider,)):
        plane.state.apply(routing_to(provider, keys=keys))
        answer = await plane.ask(post(chat(stream=True)))
        assert (answer.status, answer.whole) == (200, True)
        assert answer.body == b"".join(tokens) + event.replace(FIRST.encode(), b"*" * len(FIRST)) + DONE
        assert FIRST.encode() not in answer.raw
