"""Models that answer in the place of others: when, in which order, for whom, and that it is never done silently."""

import json
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import msgspec
import pytest
import trio

from llmgw.core.admission import Admission
from llmgw.core.limits import Budget, Limits, Period
from llmgw.core.prices import Prices
from llmgw.core.routing import KeyRecord, ReplicaLoad, RoutedExternal, RoutedModel, RoutedReplica, Routing, Timeouts
from llmgw.router import comments as comments_module
from llmgw.router import slots, standins, succession
from llmgw.router.charge import demand_of
from llmgw.router.counters import Counters
from llmgw.router.fields import Fields
from llmgw.router.limiter import Limiter
from llmgw.router.limits import MAX_CHAIN_ATTEMPTS
from llmgw.router.routes import Route
from llmgw.router.scopes import Demand
from tests.support.certificates import TestAuthority
from tests.support.limits import Clock, chain_of, figures
from tests.support.provider import KEYS, Provider, write_keys
from tests.support.router_plane import Answer, Plane, chat, post, running, settled
from tests.support.scripted_engine import (
    DONE,
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    json_answer,
    never,
    streaming,
    token,
)

ANSWER = {
    "id": "c",
    "choices": [{"message": {"content": "hello"}}],
    "usage": {"prompt_tokens": 9, "completion_tokens": 4},
}
WELL = answering(json_answer(ANSWER))
BROKEN = answering(json_answer({"error": {"message": "no"}}, b"500 Internal Server Error"))
HANGS_UP = Exchange.close
BUSY = answering(json_answer({"error": {"message": "busy"}}, b"429 Too Many Requests"))
A = RoutedModel(name="a", aliases=("alias-of-a",), context_length=4096, max_output=1024, fallbacks=("b", "c"))
B = RoutedModel(name="b", context_length=4096, max_output=1024)
C = RoutedModel(name="c", context_length=4096, max_output=1024)
MODELS = (A, B, C)


def routing(
    plane: Plane, served: Sequence[str], models: Sequence[RoutedModel] = MODELS, timeouts: Timeouts | None = None
) -> Routing:
    """The plane's engines, in turn, as replicas of the models in `served`."""
    replicas = tuple(
        RoutedReplica(id=f"{name}-{i}", model=name, endpoint=engine.endpoint)
        for i, (name, engine) in enumerate(zip(served, plane.engines, strict=True))
    )
    return Routing(revision="1/1", models=tuple(models), replicas=replicas, timeouts=timeouts or Timeouts())


@asynccontextmanager
async def serving(
    *engines: tuple[str, Behaviour], models: Sequence[RoutedModel] = MODELS, timeouts: Timeouts | None = None
) -> AsyncIterator[Plane]:
    """A data plane with one engine a pair, the replica of the model that is named."""
    async with running(*(behaviour for _, behaviour in engines)) as plane:
        plane.state.apply(routing(plane, [name for name, _ in engines], models, timeouts))
        yield plane


def signs(answer: Answer) -> tuple[str | None, str | None]:
    """Who answered, and instead of whom, as the answer's head says."""
    return answer.headers.get("x-llmgw-model"), answer.headers.get("x-llmgw-fallback-from")


@pytest.mark.trio
async def test_a_model_that_can_answers_for_itself_and_nothing_is_said() -> None:
    async with serving(("a", WELL), ("b", WELL)) as plane:
        answer = await plane.ask(post(chat(model="a")))
        assert (answer.status, signs(answer)) == (200, (None, None))
        await settled(plane)
        assert [(row.model, row.asked) for row in plane.state.rows] == [("a", "")]
        assert plane.engines[1].received == []
        assert plane.state.meters.of("a").fallbacks == {}


@pytest.mark.trio
@pytest.mark.parametrize("failing", [None, BROKEN, BUSY, HANGS_UP], ids=["no replica", "500", "busy", "lost"])
@pytest.mark.parametrize("stream", [False, True])
async def test_another_model_answers_while_the_one_asked_cannot_and_every_sign_says_so(
    failing: Behaviour | None, stream: bool, caplog: pytest.LogCaptureFixture
) -> None:
    engines: list[tuple[str, Behaviour]] = [("b", streaming(["hi"], usage=(9, 4)) if stream else WELL)]
    if failing is not None:
        engines.insert(0, ("a", failing))
    async with serving(*engines) as plane:
        with caplog.at_level(logging.INFO):
            answer = await plane.ask(post(chat(stream, model="alias-of-a")))
            await settled(plane)
        assert (answer.status, signs(answer)) == (200, ("b", "a"))
        if stream:
            assert token("hi") in answer.body
        else:
            assert json.loads(answer.body) == ANSWER
        assert plane.engines[-1].received[0].json["model"] == "b"
        (row,) = plane.state.rows
        assert (row.model, row.asked, row.status, row.failed) == ("b", "a", 200, False)
        assert (row.input_tokens, row.output_tokens) == (9, 4)
        assert plane.state.meters.of("a").fallbacks == {"b": 1}
        assert plane.state.meters.report(usage_dropped=0, usage_waiting=0).models["a"].fallbacks == {"b": 1}
        assert "model b answers for a, which cannot" in caplog.text


@pytest.mark.trio
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/embeddings", {"input": "x"}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"messages": [], "max_tokens": 5}),
        ("/v1/messages/count_tokens", {"messages": []}),
        ("/v1/rerank", {"query": "x", "documents": []}),
        ("/v1/audio/speech", {"input": "x", "voice": "v"}),
        ("/v1/images/generations", {"prompt": "x"}),
    ],
)
async def test_it_is_so_on_every_route(path: str, body: dict[str, object]) -> None:
    async with serving(("a", BROKEN), ("b", WELL)) as plane:
        answer = await plane.ask(post({"model": "a", **body}, path))
        assert (answer.status, signs(answer)) == (200, ("b", "a"))
        assert plane.engines[1].received[0].json["model"] == "b"


@pytest.mark.trio
async def test_a_form_reaches_the_other_model_under_that_ones_name() -> None:
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\nsound\r\n'
        b'--x\r\nContent-Disposition: form-data; name="model"\r\n\r\na\r\n--x--\r\n'
    )
    async with serving(("a", BROKEN), ("b", WELL)) as plane:
        request = post(body, "/v1/audio/transcriptions").replace(
            b"application/json", b"multipart/form-data; boundary=x"
        )
        answer = await plane.ask(request)
        assert (answer.status, signs(answer)) == (200, ("b", "a"))
        assert b'name="model"\r\n\r\nb\r\n' in plane.engines[1].received[0].body
        assert b"sound" in plane.engines[1].received[0].body


@pytest.mark.trio
async def test_the_chain_is_gone_down_in_its_order_and_tries_stay_bounded() -> None:
    async with serving(("a", BROKEN), ("b", BROKEN), ("c", WELL)) as plane:
        answer = await plane.ask(post(chat(model="a")))
        assert signs(answer) == ("c", "a")
        await settled(plane)
        assert plane.state.meters.of("a").fallbacks == {"c": 1}
    models = (*MODELS[1:], msgspec.structs.replace(A, fallbacks=("b", "c", "d", "e")), *map(named, "de"))
    async with serving(*((name, BROKEN) for name in "abcde"), models=models) as plane:
        answer = await plane.ask(post(chat(model="a")))
        assert answer.status == 502
        assert sum(len(engine.received) for engine in plane.engines) <= MAX_CHAIN_ATTEMPTS
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.model, row.asked, row.replica, row.failed) == ("a", "", "a-0", True)
        assert signs(answer) == (None, None)
        assert "The models that would answer in its place cannot either" in str(answer.error["message"])


def named(name: str) -> RoutedModel:
    return RoutedModel(name=name, context_length=4096)


@pytest.mark.trio
async def test_every_breaker_open_is_a_reason_and_costs_no_try() -> None:
    async with serving(("b", WELL)) as plane:
        dead = RoutedReplica(id="a-0", model="a", endpoint="http://127.0.0.1:1")
        routed = plane.state.routes.routing
        assert routed is not None
        plane.state.apply(msgspec.structs.replace(routed, replicas=(*routed.replicas, dead)))
        for _ in range(3):
            assert signs(await plane.ask(post(chat(model="a")))) == ("b", "a")
        assert plane.state.breakers == {"a-0": "open"}


@pytest.mark.trio
@pytest.mark.parametrize(
    ("rules", "code"), [(Admission(), "queue_timeout"), (Admission(max_waiting=0), "queue_full")], ids=["late", "full"]
)
async def test_a_queue_that_lets_nobody_in_is_a_reason(
    rules: Admission, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(("a", never), ("b", WELL), timeouts=Timeouts(queue=0.2)) as plane:
        routed = plane.state.routes.routing
        assert routed is not None
        plane.state.apply(msgspec.structs.replace(routed, admission=rules))
        plane.state.loads["a-0"] = ReplicaLoad(running=1, waiting=9, slots=1, at=time.time())
        plane.state.on_loads()
        with caplog.at_level(logging.INFO):
            answer = await plane.ask(post(chat(model="a")))
        assert (answer.status, signs(answer)) == (200, ("b", "a"))
        assert plane.engines[0].received == []
        assert f"model b answers for a, which cannot ({code})" in caplog.text
        # Nobody waits for a model that has no replica at all.
        plane.state.apply(msgspec.structs.replace(routed, replicas=routed.replicas[1:], timeouts=Timeouts(queue=600)))
        assert signs(await plane.ask(post(chat(model="a")))) == ("b", "a")


@pytest.mark.trio
async def test_once_a_byte_reached_the_client_nobody_else_is_asked() -> None:
    async def breaks(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + chunk(token("one")))
        await exchange.close()

    async with serving(("a", breaks), ("b", WELL)) as plane:
        answer = await plane.ask(post(chat(stream=True, model="a")))
        assert b"engine_lost" in answer.body
        assert signs(answer) == (None, None)
        assert plane.engines[1].received == []
        await settled(plane)
        assert [(row.model, row.asked) for row in plane.state.rows] == [("a", "")]


@pytest.mark.trio
@pytest.mark.parametrize("status", [b"400 Bad Request", b"404 Not Found", b"413 Big", b"422 Unprocessable", b"501 No"])
async def test_what_the_client_did_wrong_is_for_no_other_model_to_judge(status: bytes) -> None:
    refusing = answering(json_answer({"error": {"message": "bad", "type": "t", "code": "c"}}, status))
    async with serving(("a", refusing), ("b", WELL)) as plane:
        answer = await plane.ask(post(chat(model="a")))
        assert 400 <= answer.status < 500
        assert plane.engines[1].received == []


@pytest.mark.trio
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
async def test_what_the_other_model_says_of_the_request_is_signed_too(path: str) -> None:
    refusing = answering(json_answer({"error": {"message": "bad", "type": "t", "code": "c"}}, b"400 Bad Request"))
    async with serving(("b", refusing)) as plane:
        answer = await plane.ask(post(chat(model="a", max_tokens=5), path))
        assert (answer.status, signs(answer)) == (400, ("b", "a"))
        await settled(plane)
        assert [(row.model, row.asked, row.status) for row in plane.state.rows] == [("b", "a", 400)]


@pytest.mark.trio
async def test_a_key_gets_no_model_that_it_may_not_use_and_hears_no_name() -> None:
    async with serving(("b", WELL), ("c", WELL)) as plane:
        plane.state.key = KeyRecord(id="k", name="k", models=("a", "c"))
        assert signs(await plane.ask(post(chat(model="a")))) == ("c", "a")
        plane.state.key = KeyRecord(id="k", name="k", models=("alias-of-a",))
        answer = await plane.ask(post(chat(model="a")))
        assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
        message = str(answer.error["message"])
        assert message.endswith("None of the models that would answer in its place may be used with this key.")
        assert "'b'" not in message
        assert "'c'" not in message
        assert plane.engines[0].received == []


@pytest.mark.trio
async def test_a_model_that_is_too_small_for_the_request_is_passed_over() -> None:
    small = msgspec.structs.replace(B, context_length=1000, max_output=100)
    async with serving(("b", WELL), ("c", WELL), models=(A, small, C)) as plane:
        assert signs(await plane.ask(post(chat(model="a", max_tokens=50)))) == ("b", "a")
        assert signs(await plane.ask(post(chat(model="a", max_tokens=101)))) == ("c", "a")
        long = [{"role": "user", "content": "x" * 4000}]
        assert signs(await plane.ask(post(chat(model="a", messages=long)))) == ("c", "a")
        plane.state.key = KeyRecord(id="k", name="k", models=("a", "b"))
        answer = await plane.ask(post(chat(model="a", messages=long)))
        assert answer.status == 503
        assert "takes a request of this size" in str(answer.error["message"])


@pytest.mark.trio
async def test_the_answer_costs_what_its_own_model_costs_and_no_budget_is_overdrawn(tmp_path: Path) -> None:
    cheap = msgspec.structs.replace(A, prices=Prices(input=1.0, output=1.0))
    dear = msgspec.structs.replace(B, prices=Prices(input=100.0, output=1000.0))
    clock = Clock()
    budget = (Budget(amount_micros=200_000, period=Period.DAY),)
    record = KeyRecord(id="k", name="k", limits=Limits(rpm=100, parallel=5), budgets=budget)
    async with serving(("b", WELL), models=(cheap, dear, C)) as plane:
        with closing(Counters.open(tmp_path / "counters")) as counters:
            assert slots.claim(counters)
            plane.state.limiter = Limiter(counters, clock=clock)
            plane.state.key = record
            answer = await plane.ask(post(chat(model="a", max_tokens=10)))
            assert (answer.status, signs(answer)) == (200, ("b", "a"))
            await settled(plane)
            assert plane.state.rows[0].cost_micros == 9 * 100 + 4 * 1000
            counted = figures(counters, chain_of(record), 0, clock.at)
            assert (counted.requests, counted.open, counted.reserved, counted.day_micros) == (1, 0, 0, 4900)
            # 1,000 tokens would cost a million micros there, and a thousand here.
            answer = await plane.ask(post(chat(model="a", max_tokens=1000)))
            assert (answer.status, answer.error["code"]) == (503, "model_not_ready")
            await settled(plane)
            counted = figures(counters, chain_of(record), 0, clock.at)
            assert (counted.requests, counted.open, counted.reserved, counted.day_micros) == (1, 0, 0, 4900)
            assert len(plane.engines[0].received) == 1


@pytest.mark.trio
async def test_many_at_once_who_ask_for_a_cheap_model_that_is_down_overdraw_no_budget(tmp_path: Path) -> None:
    cheap = msgspec.structs.replace(A, prices=Prices(input=0.1, output=0.1))
    dear = msgspec.structs.replace(B, prices=Prices(output=1000.0))
    budget = 5 * 4 * 1000 + 3999
    record = KeyRecord(id="k", name="k", budgets=(Budget(amount_micros=budget, period=Period.MONTH),))
    go = trio.Event()

    async def together(exchange: Exchange) -> None:
        await go.wait()
        await exchange.send(json_answer(ANSWER))

    async with serving(("b", together), models=(cheap, dear, C)) as plane:
        with closing(Counters.open(tmp_path / "counters")) as counters:
            assert slots.claim(counters)
            clock = Clock()
            plane.state.limiter = Limiter(counters, clock=clock)
            plane.state.key = record
            statuses: list[int] = []

            async def ask() -> None:
                statuses.append((await plane.ask(post(chat(model="a", max_tokens=4)))).status)

            with trio.fail_after(30):
                async with trio.open_nursery() as nursery:
                    for _ in range(20):
                        nursery.start_soon(ask)
                    while len(statuses) < 15:  # noqa: ASYNC110 - a plain list
                        await trio.sleep(0.005)
                    go.set()
            await settled(plane)
            assert sorted(statuses) == [200] * 5 + [503] * 15
            assert sum(row.cost_micros for row in plane.state.rows) == 5 * 4000
            counted = figures(counters, chain_of(record), 0, clock.at)
            assert (counted.open, counted.reserved, counted.month_micros) == (0, 0, 20_000)


@pytest.mark.trio
async def test_nobody_else_gets_its_place_while_it_turns_to_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = KeyRecord(id="k", name="k", limits=Limits(parallel=1))
    clock, held = Clock(), []
    async with serving(("b", WELL)) as plane:
        with closing(Counters.open(tmp_path / "counters")) as counters:
            assert slots.claim(counters)
            plane.state.limiter = Limiter(counters, clock=clock)
            plane.state.key = record

            def weighing(fields: Fields, body: bytes, model: RoutedModel, route: Route, *, budgeted: bool) -> Demand:
                # Of a long body this takes a while, in which others are served.
                held.append(figures(counters, chain_of(record), 0, clock.at).open)
                return demand_of(fields, body, model, route, budgeted=budgeted)

            monkeypatch.setattr(succession, "demand_of", weighing)
            assert signs(await plane.ask(post(chat(model="a")))) == ("b", "a")
            await settled(plane)
            assert held == [1]
            assert figures(counters, chain_of(record), 0, clock.at).open == 0


SIGN = b": x-llmgw-model: b\n: x-llmgw-fallback-from: a\n\n"


class Silence:
    """An engine that says nothing until its client was told that it is still served, and then hangs up."""

    def __init__(self) -> None:
        self.told = trio.Event()

    async def behave(self, exchange: Exchange) -> None:
        await self.told.wait()
        await exchange.close()

    async def ask(self, plane: Plane, request: bytes) -> Answer:
        """The answer of such a client."""
        client = await plane.connect()
        await client.send(request)
        await client.until(b": keep-alive")
        self.told.set()
        return await client.answer()


@pytest.mark.trio
async def test_a_head_that_went_out_before_is_made_up_for_by_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", 0.2)
    silence = Silence()
    async with serving(("a", silence.behave), ("b", streaming(["hi"]))) as plane:
        answer = await silence.ask(plane, post(chat(stream=True, model="a")))
        assert (answer.status, signs(answer)) == (200, (None, None))
        comments, said, rest = answer.body.partition(SIGN)
        assert said
        assert set(comments.split(b"\n\n")) <= {b": keep-alive", b""}
        assert rest == token("hi") + token("", finish="stop") + DONE
        await settled(plane)
        assert plane.state.rows[0].asked == "a"


@pytest.mark.trio
async def test_an_error_after_such_a_head_is_signed_if_another_model_gave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comments_module, "KEEP_ALIVE_S", 0.2)
    refusing = answering(json_answer({"error": {"message": "bad", "type": "t", "code": "c"}}, b"400 Bad Request"))
    for path in ("/v1/chat/completions", "/v1/messages"):
        silence = Silence()
        async with serving(("a", silence.behave), ("b", refusing)) as plane:
            answer = await silence.ask(plane, post(chat(stream=True, model="a", max_tokens=5), path))
            assert SIGN in answer.body
            assert b"bad" in answer.body.partition(SIGN)[2]
    silence = Silence()
    async with serving(("a", silence.behave), ("b", BROKEN)) as plane:
        answer = await silence.ask(plane, post(chat(stream=True, model="a")))
        assert b"x-llmgw-model" not in answer.body, "nobody answered"
        assert b"The models that would answer in its place cannot either" in answer.body


@pytest.mark.trio
async def test_a_provider_over_its_limits_sends_its_requests_on(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path)
    limited = answering(json_answer({"error": {"message": "slow"}}, b"429 Too Many", b"Retry-After: 9\r\n"))
    keys = write_keys(tmp_path / "keys", *KEYS)
    async with running() as plane:
        outside = Provider(limited, context=authority.leaf("localhost").server_context())
        here = Provider(WELL)
        for provider in (outside, here):
            await plane.nursery.start(provider.run)
        external = RoutedExternal(keys_file=str(keys), ca_file=str(authority.ca))
        replicas = (
            RoutedReplica(id="external:a:0", model="a", endpoint=outside.base_url, external=external),
            RoutedReplica(id="b-0", model="b", endpoint=here.endpoint),
        )
        plane.state.apply(Routing(revision="1/1", models=MODELS, replicas=replicas))
        for _ in range(4):
            answer = await plane.ask(post(chat(model="a")))
            assert (answer.status, signs(answer)) == (200, ("b", "a"))
        assert len(outside.received) == len(KEYS)
        assert plane.state.breakers == {"external:a:0": "open"}


@pytest.mark.trio
async def test_the_log_says_it_once_a_change_and_not_once_a_request(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standins, "RECOVERED_S", 0.0)
    async with serving(("b", WELL)) as plane:
        with caplog.at_level(logging.INFO, logger="llmgw.router.standins"):
            for _ in range(5):
                await plane.ask(post(chat(model="a")))
            routed = plane.state.routes.routing
            assert routed is not None
            own = RoutedReplica(id="a-0", model="a", endpoint=plane.engines[0].endpoint)
            plane.state.apply(msgspec.structs.replace(routed, replicas=(*routed.replicas, own)))
            for _ in range(5):
                assert signs(await plane.ask(post(chat(model="a")))) == (None, None)
            await settled(plane)
        assert [record.getMessage() for record in caplog.records] == [
            "model b answers for a, which cannot (model_not_ready)",
            "model a answers for itself again",
        ]


@pytest.mark.trio
async def test_a_client_that_leaves_while_the_other_model_thinks_is_counted_there() -> None:
    async with serving(("b", Exchange.until_closed)) as plane:
        client = await plane.connect()
        await client.send(post(chat(model="a")))
        with trio.fail_after(30):
            while not plane.engines[0].received:  # noqa: ASYNC110 - a plain list
                await trio.sleep(0.01)
        await client.stream.aclose()
        await settled(plane)
        assert [(row.model, row.asked, row.status) for row in plane.state.rows] == [("b", "a", 499)]


@pytest.mark.trio
async def test_a_client_that_leaves_proves_nothing_of_the_model_it_asked_for(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standins, "RECOVERED_S", 0.0)
    async with serving(("b", WELL), ("c", Exchange.until_closed)) as plane:
        routed = plane.state.routes.routing
        assert routed is not None
        hung = RoutedReplica(id="a-0", model="a", endpoint=plane.engines[1].endpoint)
        with caplog.at_level(logging.INFO, logger="llmgw.router.standins"):
            assert signs(await plane.ask(post(chat(model="a")))) == ("b", "a")
            plane.state.apply(msgspec.structs.replace(routed, replicas=(*routed.replicas, hung)))
            client = await plane.connect()
            await client.send(post(chat(model="a")))
            with trio.fail_after(30):
                while not plane.engines[1].received:  # noqa: ASYNC110 - a plain list
                    await trio.sleep(0.01)
            await client.stream.aclose()
            await settled(plane)
        assert [(row.model, row.status) for row in plane.state.rows] == [("b", 200), ("a", 499)]
        assert [record.getMessage() for record in caplog.records] == [
            "model b answers for a, which cannot (model_not_ready)"
        ]
