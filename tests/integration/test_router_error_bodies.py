"""Errors of engines that break off: their status is the client's to read, and no replica is blamed for them."""

import json

import pytest

from llmgw.core.routing import Timeouts
from tests.support.router_plane import chat, post, running, settled
from tests.support.scripted_engine import Behaviour, Exchange, chunk, json_answer

BODY = json.dumps({"error": {"message": "too long", "type": "x", "param": None, "code": "c"}}).encode()
LONG = json.dumps({"error": {"message": "x" * 20_000}}).encode()
CHUNKED = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
LENGTH = b"HTTP/1.1 %d No\r\nContent-Type: application/json\r\nContent-Length: 999\r\n\r\n"
ASKED: dict[str, object] = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


def saying(raw: bytes, *, stalls: bool = False) -> Behaviour:
    """Say this, and end the connection or say nothing more."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(raw)
        await (exchange.until_closed() if stalls else exchange.close())

    return behave


@pytest.mark.trio
@pytest.mark.case("C5")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/completions"])
@pytest.mark.parametrize("status", [400, 404, 413, 422, 429])
@pytest.mark.parametrize("stalls", [False, True])
async def test_an_error_whose_body_is_short_keeps_its_status_and_opens_no_breaker(
    path: str, status: int, stalls: bool
) -> None:
    raws = (LENGTH % status + BODY, CHUNKED % status + chunk(BODY), CHUNKED % status + chunk(BODY[:20]))
    async with running(saying(b""), timeouts=Timeouts(first_byte=0.3)) as plane:
        for raw in raws:
            plane.engines[0].behaviour = saying(raw, stalls=stalls)
            answer = await plane.ask(post(ASKED | {"prompt": "hi"}, path))
            assert (answer.status, answer.whole) == (status, True)
            said = str(json.loads(answer.body)["error"]["message"])
            assert said == "too long" or f"{status}" in said or "no route" in said
            assert ("retry-after" in answer.headers) == (status == 429)
        await settled(plane)
        assert [(row.status, row.attempts, row.failed) for row in plane.state.rows] == [(status, 1, False)] * 3
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.case("C5")
@pytest.mark.parametrize("cut", [False, True])
async def test_an_error_too_long_to_be_held_passes_as_it_comes(cut: bool) -> None:
    """It ends short, and that says nothing of its replica."""
    raw = CHUNKED % 400 + chunk(LONG) + b"0\r\n\r\n"
    async with running(saying(raw[: -5 if cut else None])) as plane:
        for _ in range(4):
            answer = await plane.ask(post(chat()))
            assert (answer.status, answer.body, answer.whole) == (400, LONG, not cut)
        await settled(plane)
        assert {row.attempts for row in plane.state.rows} == {1}
        assert plane.state.breakers == {}


@pytest.mark.trio
@pytest.mark.parametrize("step", [1, 100, 1 << 20])
async def test_an_error_in_pieces_is_the_clients_byte_for_byte(step: int) -> None:
    raw = json_answer({"error": {"message": "too long: é"}}, b"400 No")

    async def behave(exchange: Exchange) -> None:
        for at in range(0, len(raw), step):
            await exchange.send(raw[at : at + step])

    async with running(behave) as plane:
        answer = await plane.ask(post(chat()))
        assert (answer.status, answer.body) == (400, raw.partition(b"\r\n\r\n")[2])
