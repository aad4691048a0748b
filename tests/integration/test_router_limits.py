"""Limits and budgets as clients meet them: what is refused, how, and that nothing stays counted that is not open."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.limits import Budget, Limits, Period
from llmgw.core.prices import Prices
from llmgw.core.routing import KeyRecord, Routing, Timeouts
from llmgw.router import slots
from llmgw.router.counters import Counters
from llmgw.router.limiter import Limiter
from tests.support.limits import ROOMY, Clock, Figures, chain_of, demand, figures, key, month
from tests.support.router_plane import MODEL, OTHER, Plane, chat, post, routing_of, running, settled
from tests.support.scripted_engine import (
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
)

ANSWER = {"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": 9, "completion_tokens": 4}}
PRICED = msgspec.structs.replace(MODEL, prices=Prices(input=2.0, output=10.0))
"""A million tokens cost 2 to read and 10 to write: an answer of `ANSWER` costs 58 micros."""


@dataclass
class Limited:
    """A data plane whose key has limits, counted in a real file."""

    plane: Plane
    counters: Counters
    clock: Clock
    key: KeyRecord

    @property
    def counted(self) -> Figures:
        """The key's row."""
        return figures(self.counters, chain_of(self.key), 0, self.clock.at)

    def quiet(self) -> bool:
        """Whether nothing is open by anybody's count."""
        return not self.plane.state.open_requests and not self.counted.open and not self.counted.reserved


@asynccontextmanager
async def limited(
    path: Path, record: KeyRecord, *behaviours: Behaviour, timeouts: Timeouts | None = None
) -> AsyncIterator[Limited]:
    """Engines behind a data plane with a key."""
    counters, clock = Counters.open(path / "counters"), Clock()
    assert slots.claim(counters)
    async with running(*behaviours, timeouts=timeouts) as plane:
        routing = routing_of(plane.engines, timeouts or Timeouts())
        plane.state.apply(msgspec.structs.replace(routing, models=(PRICED, OTHER)))
        plane.state.limiter = Limiter(counters, clock=clock)
        plane.state.key = record
        yield Limited(plane, counters, clock, record)
    counters.close()


def hang_then_answer() -> Behaviour:
    """What the user field says: hang, begin a stream without end, or answer."""

    async def behave(exchange: Exchange) -> None:
        match exchange.request.json.get("user"):
            case "hang":
                await exchange.until_closed()
            case "stream":
                await exchange.send(SSE_HEAD + chunk(token("a")))
                await exchange.until_closed()
            case _:
                await exchange.send(json_answer(ANSWER))

    return behave


@pytest.mark.trio
@pytest.mark.case("C11")
async def test_whatever_ends_a_request_frees_its_place(tmp_path: Path) -> None:
    """Two at once: a timeout, a cancelled stream, an unknown model and malformed JSON; then a normal one is served."""
    record = key(limits=Limits(parallel=2, rpm=1000))
    timeouts = Timeouts(first_byte=0.3)
    async with limited(tmp_path, record, hang_then_answer(), timeouts=timeouts) as it:
        plane = it.plane
        assert (await plane.ask(post(chat(user="hang")))).status == 504
        await settled(plane)
        assert it.counted == Figures(0, 0, 0, 0, 0, 0, 0, 0), "a refusal leaves nothing"
        client = await plane.connect()
        await client.send(post(chat(True, user="stream")))
        await client.until(token("a"))
        assert it.counted.open == 1
        client.stream.socket.close()
        await settled(plane)
        assert it.counted.open == 0
        assert (await plane.ask(post(chat(model="nobody")))).status == 404
        assert (await plane.ask(post(b"{"))).status == 400
        assert (await plane.ask(post(chat()))).status == 200
        await settled(plane)
        assert it.quiet()
        assert it.counted.requests == 2, "the cancelled stream and the answer"


@pytest.mark.trio
async def test_one_more_at_once_is_refused_and_one_less_is_not(tmp_path: Path) -> None:
    async with limited(tmp_path, key(limits=Limits(parallel=2)), hang_then_answer()) as it:
        clients = [await it.plane.connect() for _ in range(2)]
        for client in clients:
            await client.send(post(chat(True, user="stream")))
            await client.until(token("a"))
        answer = await it.plane.ask(post(chat()))
        assert (answer.status, answer.headers["retry-after"]) == (429, "1")
        assert (answer.error["type"], answer.error["code"]) == ("requests", "rate_limit_exceeded")
        assert "2 requests at once" in str(answer.error["message"])
        clients[0].stream.socket.close()
        with trio.fail_after(60):
            while it.counted.open == 2:  # noqa: ASYNC110 - a count in a file
                await trio.sleep(0.005)
        assert (await it.plane.ask(post(chat()))).status == 200


@pytest.mark.trio
async def test_requests_a_minute_and_their_headers(tmp_path: Path) -> None:
    async with limited(tmp_path, key(limits=Limits(rpm=2, tpm=10_000)), answering(json_answer(ANSWER))) as it:
        first = await it.plane.ask(post(chat(max_tokens=10)))
        assert first.headers["x-ratelimit-limit-requests"] == "2"
        assert first.headers["x-ratelimit-remaining-requests"] == "1"
        assert first.headers["x-ratelimit-limit-tokens"] == "10000"
        second = await it.plane.ask(post(chat(max_tokens=10)))
        assert second.headers["x-ratelimit-remaining-requests"] == "0"
        assert it.counted.tokens == 26, "what the engine said, not what was estimated"
        third = await it.plane.ask(post(chat(max_tokens=10)))
        assert third.status == 429
        assert third.headers["retry-after"] == "90"
        assert third.headers["x-ratelimit-remaining-requests"] == "0"
        assert "k1" in str(third.error["message"])
        assert "sk-test" not in json.dumps(third.error) + str(third.headers)
        it.clock.at += 90
        assert (await it.plane.ask(post(chat(max_tokens=10)))).status == 200
        assert len(it.plane.state.rows) == 3, "a request refused for a limit leaves no usage"


@pytest.mark.trio
async def test_a_key_without_limits_gets_no_headers(tmp_path: Path) -> None:
    async with limited(tmp_path, KeyRecord(id="free", name="free"), answering(json_answer(ANSWER))) as it:
        answer = await it.plane.ask(post(chat()))
        assert answer.status == 200
        assert not [name for name in answer.headers if name.startswith("x-ratelimit")]


@pytest.mark.trio
async def test_spending_is_counted_at_the_models_prices(tmp_path: Path) -> None:
    record = key(budgets=month(100_000))
    async with limited(tmp_path, record, answering(json_answer(ANSWER))) as it:
        assert (await it.plane.ask(post(chat(max_tokens=10)))).status == 200
        assert it.counted.month_micros == 9 * 2 + 4 * 10
        assert it.plane.state.rows[0].cost_micros == 58
        assert it.quiet()


@pytest.mark.trio
@pytest.mark.promise("A22")
async def test_a_budget_at_99_percent_lets_in_what_fits_and_never_goes_over(tmp_path: Path) -> None:
    """A hundred at once, each of which might cost 1000 micros to write and twice that to read."""
    record = key(budgets=month(100_000))
    async with limited(tmp_path, record, streaming(["a"] * 50, usage=(20, 100))) as it:
        chain = chain_of(record)
        limiter = it.plane.state.limiter
        assert limiter is not None
        limiter.admit(chain, demand()).settle(0, 95_000)
        statuses: list[int] = []

        async def ask() -> None:
            answer = await it.plane.ask(post(chat(True, max_tokens=100)))
            statuses.append(answer.status)
            if answer.status == 429:
                assert answer.error["code"] == answer.error["type"] == "insufficient_quota"

        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(ask)
        await settled(it.plane)
        assert 0 < statuses.count(200) < 4
        assert statuses.count(200) + statuses.count(429) == 100
        assert it.counted.month_micros == 95_000 + statuses.count(200) * (20 * 2 + 100 * 10)
        assert it.counted.month_micros <= 100_000
        assert it.quiet()


@pytest.mark.trio
async def test_an_engines_own_refusal_counts_as_a_request_without_tokens(tmp_path: Path) -> None:
    refusal = json_answer({"error": {"message": "too long"}}, status=b"400 Bad Request")
    async with limited(tmp_path, key(limits=ROOMY), answering(refusal)) as it:
        assert (await it.plane.ask(post(chat()))).status == 400
        assert it.counted == Figures(1, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.trio
async def test_a_stream_lost_midway_is_charged_for_what_was_delivered(tmp_path: Path) -> None:
    async with limited(tmp_path, key(limits=ROOMY, budgets=month(10**9)), dropping(["a", "b"])) as it:
        assert (await it.plane.ask(post(chat(True)))).status == 200
        await settled(it.plane)
        row = it.plane.state.rows[0]
        assert (row.output_tokens, row.failed) == (2, True)
        assert it.counted.tokens == row.input_tokens + 2
        assert it.counted.month_micros == row.cost_micros == row.input_tokens * 2 + 20
        assert it.quiet()


@pytest.mark.trio
async def test_no_replica_and_no_answer_leave_every_count(tmp_path: Path) -> None:
    async with limited(tmp_path, key(limits=ROOMY, budgets=month(10**9)), never) as it:
        it.plane.state.apply(Routing(revision="1/2", models=(PRICED, OTHER)))
        assert (await it.plane.ask(post(chat()))).status == 503
        assert it.counted == Figures(0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.trio
async def test_a_drain_that_ends_a_request_settles_it(tmp_path: Path) -> None:
    async with limited(tmp_path, key(limits=ROOMY), hang_then_answer()) as it:
        client = await it.plane.connect()
        await client.send(post(chat(True, user="stream")))
        await client.until(token("a"))
        assert it.counted.open == 1
        it.plane.nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True), trio.fail_after(60):
            while it.plane.state.open_requests:  # noqa: ASYNC110 - a plain counter
                await trio.sleep(0.005)
        assert it.quiet()
        assert it.counted.requests == 1


@pytest.mark.trio
async def test_the_worst_case_of_several_choices_and_prompts_is_reserved(tmp_path: Path) -> None:
    budgets = (Budget(amount_micros=10_000, period=Period.DAY),)
    async with limited(tmp_path, key(budgets=budgets), answering(json_answer(ANSWER))) as it:
        fits = {"model": "m", "prompt": "hi", "max_tokens": 100}
        assert (await it.plane.ask(post(fits, "/v1/completions"))).status == 200
        for more in ({"n": 10}, {"prompt": ["hi"] * 10}, {"max_tokens": 1000}, {"n": 4, "prompt": [[1, 2]] * 3}):
            answer = await it.plane.ask(post(fits | more, "/v1/completions"))
            assert answer.status == 429
            assert "a day" in str(answer.error["message"])
        assert (await it.plane.ask(post(fits | {"prompt": list(range(10))}, "/v1/completions"))).status == 200
        assert it.quiet()
