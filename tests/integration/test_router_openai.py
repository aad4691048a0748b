"""The official client against our router before the sim engine: what its users call, sync and async."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import anyio
import openai
import pytest
import trio
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam

from llmgw.core.limits import Limits
from llmgw.core.routing import KeyRecord, RoutedReplica, Routing, Timeouts
from llmgw.router.counters import Counters
from llmgw.router.limiter import Limiter
from tests.support.corpora import corpus
from tests.support.router_plane import DEADLINE_S, KEY, MODEL, OTHER, Plane, running, settled
from tests.support.scripted_engine import LAST_CHUNK, SSE_HEAD, Behaviour, Exchange, answering, chunk, json_answer
from tests.support.sim_engine import RunningEngine, running_engine, until

pytestmark = pytest.mark.trio
T = TypeVar("T")
NO_ANSWERS = ("half-an-event", "empty")
"""Streams whose engine gave no whole answer, of which clients are told through the router alone."""
QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Why is the sky blue?"}]
TOOLS: list[openai.types.chat.ChatCompletionToolUnionParam] = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
        },
    }
]


def routing(*endpoints: str, timeouts: Timeouts | None = None) -> Routing:
    """Both models, the first of them with a replica an endpoint."""
    replicas = tuple(RoutedReplica(id=f"r{i}", model="m", endpoint=endpoint) for i, endpoint in enumerate(endpoints))
    return Routing(revision="2/1", models=(MODEL, OTHER), replicas=replicas, timeouts=timeouts or Timeouts())


@asynccontextmanager
async def simulated(**options: object) -> AsyncIterator[tuple[Plane, RunningEngine]]:
    """The data plane before one sim engine."""
    async with running_engine(keys=(b"ek-r0",), **options) as engine, running() as plane:
        plane.state.apply(routing(engine.url))
        yield plane, engine
        await settled(plane)


async def using(plane: Plane, use: Callable[[openai.OpenAI], T], *, base_url: str = "") -> T:
    """What `use` makes of a client of the router, or of another URL, beside this run."""
    url = base_url or f"http://127.0.0.1:{plane.address[1]}/v1"

    def call() -> T:
        with openai.OpenAI(base_url=url, api_key=KEY.decode(), max_retries=0, timeout=DEADLINE_S) as client:
            return use(client)

    return await trio.to_thread.run_sync(call)


async def using_async(plane: Plane, use: Callable[[openai.AsyncOpenAI], Awaitable[T]]) -> T:
    """What `use` makes of an async client in an asyncio loop of its own, as its users have one."""

    async def call() -> T:
        url = f"http://127.0.0.1:{plane.address[1]}/v1"
        async with openai.AsyncOpenAI(base_url=url, api_key=KEY.decode(), max_retries=0, timeout=DEADLINE_S) as client:
            return await use(client)

    return await trio.to_thread.run_sync(partial(anyio.run, call))


def text_of(chunks: Iterable[ChatCompletionChunk]) -> str:
    """What the parts of a stream say."""
    return "".join(choice.delta.content or "" for part in chunks for choice in part.choices)


def stream_of(name: str) -> Behaviour:
    """An engine that streams a file of the corpus, three bytes a chunk."""
    raw = corpus("sse")[name]

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(chunk(raw[i : i + 3]) for i in range(0, len(raw), 3)) + LAST_CHUNK)

    return behave


async def test_a_stream_says_what_the_whole_answer_says_and_usage_comes_to_who_asks() -> None:
    def use(client: openai.OpenAI) -> tuple[str, str, str]:
        whole = client.chat.completions.create(model="m", messages=QUESTION, max_tokens=12)
        assert whole.usage is not None
        assert whole.usage.completion_tokens == 12
        silent = list(client.chat.completions.create(model="m", messages=QUESTION, max_tokens=12, stream=True))
        assert all(part.usage is None and part.choices for part in silent)
        asked = list(
            client.chat.completions.create(
                model="m", messages=QUESTION, max_tokens=12, stream=True, stream_options={"include_usage": True}
            )
        )
        assert asked[-1].usage == whole.usage
        assert [choice.finish_reason for choice in asked[-2].choices] == ["length"]
        return whole.choices[0].message.content or "", text_of(silent), text_of(asked)

    async with simulated() as (plane, _):
        said = await using(plane, use)
    assert len(set(said)) == 1
    assert len(said[0].split()) == 12
    assert [(row.status, row.output_tokens, row.estimated) for row in plane.state.rows] == 3 * [(200, 12, False)]


async def test_the_old_completions_and_embeddings_work_in_both_encodings() -> None:
    def use(client: openai.OpenAI) -> None:
        old = client.completions.create(model="m", prompt="a b c", max_tokens=5)
        assert old.usage is not None
        assert (old.usage.prompt_tokens, old.usage.completion_tokens) == (3, 5)
        parts = list(client.completions.create(model="m", prompt="a b c", max_tokens=5, stream=True))
        assert "".join(choice.text for part in parts for choice in part.choices) == old.choices[0].text
        packed = client.embeddings.create(model="m", input=["a", "b"])
        floats = client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
        assert [len(item.embedding) for item in packed.data] == [len(item.embedding) for item in floats.data]
        for ours, theirs in zip(packed.data, floats.data, strict=True):
            assert ours.embedding == pytest.approx(theirs.embedding, abs=1e-6)

    async with simulated() as (plane, _):
        await using(plane, use)
    assert all(row.input_tokens > 0 for row in plane.state.rows)


async def test_models_are_listed_found_by_alias_and_404_else() -> None:
    def use(client: openai.OpenAI) -> None:
        assert sorted(model.id for model in client.models.list()) == ["m", "other"]
        assert client.models.retrieve("m").created == 1_700_000_000
        assert client.models.retrieve("alias-of-m").id == "m"
        with pytest.raises(openai.NotFoundError) as refused:
            client.models.retrieve("nobody/knows it")
        assert refused.value.code == "model_not_found"
        named = client.chat.completions.create(model="alias-of-m", messages=QUESTION, max_tokens=1)
        assert named.choices[0].finish_reason == "length"

    async with simulated() as (plane, _):
        await using(plane, use)


async def test_many_async_streams_at_once_are_each_whole() -> None:
    async def use(client: openai.AsyncOpenAI) -> list[str]:
        found = [""] * 24

        async def one(number: int) -> None:
            stream = await client.chat.completions.create(
                model="m",
                messages=QUESTION,
                max_tokens=20,
                stream=True,
                extra_body={"sim": {"text": f"stream {number} has words of its own"}},
            )
            found[number] = text_of([part async for part in stream])

        async with anyio.create_task_group() as group:
            for number in range(len(found)):
                group.start_soon(one, number)
        return found

    async with simulated(rate=2000.0) as (plane, _):
        found = await using_async(plane, use)
    assert [said.strip() for said in found] == [f"stream {i} has words of its own" for i in range(24)]


@pytest.mark.promise("A9")
async def test_a_stream_left_early_frees_its_slot_sync_and_async() -> None:
    def leave(client: openai.OpenAI) -> str:
        with client.chat.completions.create(model="m", messages=QUESTION, max_tokens=1000, stream=True) as stream:
            return next(text for part in stream if (text := text_of([part])))

    async def leave_async(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(model="m", messages=QUESTION, max_tokens=1000, stream=True)
        async with stream:
            async for part in stream:
                if said := text_of([part]):
                    return said
        raise AssertionError("no token came")

    async with simulated(rate=20.0) as (plane, engine):
        assert await using(plane, leave)
        await until(lambda: engine.engine.counters.running == 0)
        assert await using_async(plane, leave_async)
        await until(lambda: engine.engine.counters.running == 0)
        await settled(plane)
    assert [row.status for row in plane.state.rows] == [499, 499]
    assert all(row.output_tokens < 1000 for row in plane.state.rows)


async def test_streamed_tool_calls_are_put_together() -> None:
    def use(client: openai.OpenAI) -> tuple[str, str]:
        with client.chat.completions.stream(model="m", messages=QUESTION, tools=TOOLS) as stream:
            for _ in stream:
                pass
            answer = stream.get_final_completion().choices[0]
        assert answer.finish_reason == "tool_calls"
        (call,) = answer.message.tool_calls or []
        return call.function.name, call.function.arguments

    async with running(stream_of("tools")) as plane:
        called = await using(plane, use)
        (request,) = plane.engines[0].received
        await settled(plane)
    assert called == ("weather", '{"city": "Köln"}')
    assert request.json["tools"] == TOOLS


async def test_whole_tool_calls_and_their_results_pass() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Köln"}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    document = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    document |= {"choices": [{"index": 0, "finish_reason": "tool_calls", "message": message}]}

    def use(client: openai.OpenAI) -> str:
        first = client.chat.completions.create(model="m", messages=QUESTION, tools=TOOLS, tool_choice="required")
        asked = first.choices[0].message
        result: ChatCompletionMessageParam = {"role": "tool", "tool_call_id": "call_1", "content": "rain"}
        history = [*QUESTION, asked.to_dict(), result]
        client.chat.completions.create(model="m", messages=history, tools=TOOLS)  # type: ignore[arg-type]
        (found,) = asked.tool_calls or []
        return found.id

    async with running(answering(json_answer(document))) as plane:
        assert await using(plane, use) == "call_1"
        second = plane.engines[0].received[1].json["messages"]
        await settled(plane)
    assert isinstance(second, list)
    assert second[1]["tool_calls"] == [call]
    assert second[2] == {"role": "tool", "tool_call_id": "call_1", "content": "rain"}


async def test_raw_responses_show_what_the_router_says_of_the_request() -> None:
    def use(client: openai.OpenAI) -> None:
        raw = client.chat.completions.with_raw_response.create(model="m", messages=QUESTION, max_tokens=3)
        assert raw.headers["x-request-id"].startswith("req-")
        assert raw.request_id == raw.headers["x-request-id"]
        assert raw.headers["content-type"] == "application/json"
        assert raw.headers["x-ratelimit-limit-requests"] == "100"
        assert raw.headers["x-ratelimit-remaining-requests"] == "99"
        assert raw.parse().choices[0].finish_reason == "length"
        assert not {"server", "set-cookie", "authorization"} & raw.headers.keys()
        with client.chat.completions.with_streaming_response.create(
            model="m", messages=QUESTION, max_tokens=3, stream=True
        ) as streamed:
            assert streamed.headers["content-type"].startswith("text/event-stream")
            assert streamed.headers["x-ratelimit-remaining-requests"] == "98"
            lines = [line for line in streamed.iter_lines() if line]
        assert lines[-1] == "data: [DONE]"

    async with simulated() as (plane, _):
        plane.state.limiter = Limiter(Counters.private(rows=64))
        plane.state.key = KeyRecord(id="k-test", name="test", limits=Limits(rpm=100, tpm=100_000))
        await using(plane, use)


async def test_refusals_are_the_clients_own_exceptions_with_code_and_param() -> None:
    def use(client: openai.OpenAI) -> None:
        with pytest.raises(openai.AuthenticationError) as unknown:
            client.with_options(api_key="sk-nobody-0123456789").models.list()
        assert unknown.value.code == "invalid_api_key"
        with pytest.raises(openai.NotFoundError) as missing:
            client.chat.completions.create(model="no-such-model", messages=QUESTION)
        assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError, match="at most 1024") as long:
            client.chat.completions.create(model="m", messages=QUESTION, max_tokens=5000)
        assert long.value.param == "max_tokens"
        with pytest.raises(openai.BadRequestError) as odd:
            client.chat.completions.create(model="m", messages=QUESTION, extra_body={"stream": "yes"})
        assert odd.value.param == "stream"
        with pytest.raises(openai.InternalServerError) as nobody:
            client.chat.completions.create(model="other", messages=QUESTION)
        assert (nobody.value.status_code, nobody.value.code) == (503, "model_not_ready")
        assert int(nobody.value.response.headers["retry-after"]) > 0
        with pytest.raises(openai.UnprocessableEntityError):
            client.chat.completions.create(model="m", messages=QUESTION, extra_body={"sim": {"fault": "error:422"}})

    async with simulated() as (plane, _):
        await using(plane, use)
        assert plane.state.in_flight == {}


async def test_a_limit_is_a_rate_limit_error_that_says_when_to_come_back() -> None:
    def use(client: openai.OpenAI) -> openai.RateLimitError:
        for _ in range(2):
            client.chat.completions.create(model="m", messages=QUESTION, max_tokens=1)
        with pytest.raises(openai.RateLimitError) as refused:
            client.chat.completions.create(model="m", messages=QUESTION, max_tokens=1)
        return refused.value

    async with simulated() as (plane, _):
        plane.state.limiter = Limiter(Counters.private(rows=64))
        plane.state.key = KeyRecord(id="k-test", name="test", limits=Limits(rpm=2))
        refused = await using(plane, use)
    assert (refused.code, refused.type) == ("rate_limit_exceeded", "requests")
    assert "k-test" in refused.message
    assert int(refused.response.headers["retry-after"]) > 0
    assert len(plane.state.rows) == 2


async def test_an_engine_that_breaks_off_is_an_error_after_the_tokens_it_sent() -> None:
    def use(client: openai.OpenAI) -> tuple[str, str | None]:
        said: list[str] = []
        fault = {"sim": {"fault": "drop:4", "text": "one two three four five six"}}
        stream = client.chat.completions.create(model="m", messages=QUESTION, stream=True, extra_body=fault)
        with pytest.raises(openai.APIError) as lost:
            said.extend(text_of([part]) for part in stream)
        return "".join(said), lost.value.code

    async with simulated() as (plane, _):
        said, code = await using(plane, use)
    assert (said.split(), code) == (["one", "two", "three", "four"], "engine_lost")


async def test_a_client_that_waits_no_longer_is_a_timeout_and_frees_its_slot() -> None:
    def use(client: openai.OpenAI) -> None:
        with pytest.raises(openai.APITimeoutError):
            client.with_options(timeout=0.2).chat.completions.create(
                model="m", messages=QUESTION, extra_body={"sim": {"fault": "hang"}}
            )
        with pytest.raises(openai.APITimeoutError):
            list(
                client.with_options(timeout=0.2).chat.completions.create(
                    model="m", messages=QUESTION, stream=True, extra_body={"sim": {"fault": "hang-after-headers"}}
                )
            )

    async with simulated() as (plane, engine):
        await using(plane, use)
        await until(lambda: engine.engine.counters.running == 0)


async def test_an_engine_that_never_answers_is_a_504_within_the_routers_own_limit() -> None:
    def use(client: openai.OpenAI) -> int:
        with pytest.raises(openai.InternalServerError) as late:
            client.chat.completions.create(model="m", messages=QUESTION, extra_body={"sim": {"fault": "hang"}})
        return late.value.status_code

    async with running_engine(keys=(b"ek-r0",)) as engine, running() as plane:
        plane.state.apply(routing(engine.url, timeouts=Timeouts(first_byte=0.3)))
        assert await using(plane, use) == 504
        await until(lambda: engine.engine.counters.running == 0)
        await settled(plane)


async def test_a_clients_own_retry_finds_the_replica_that_became_ready() -> None:
    def use(client: openai.OpenAI) -> str:
        answer = client.with_options(max_retries=3).chat.completions.create(model="m", messages=QUESTION, max_tokens=2)
        return answer.choices[0].message.content or ""

    async with running_engine(keys=(b"ek-r0",)) as engine, running() as plane, trio.open_nursery() as nursery:
        plane.state.apply(routing())

        async def ready_once_missed() -> None:
            await until(lambda: "m" in plane.state.wanted)
            plane.state.apply(routing(engine.url))

        nursery.start_soon(ready_once_missed)
        assert await using(plane, use)
        await settled(plane)
    assert [row.status for row in plane.state.rows if row.status == 200] == [200]


@pytest.mark.parametrize("name", [name for name in corpus("sse") if name not in NO_ANSWERS])
async def test_a_stream_reads_alike_through_the_router_and_without_it(name: str) -> None:
    def read(client: openai.OpenAI) -> tuple[str, str]:
        said = ""
        try:
            for part in client.chat.completions.create(model="m", messages=QUESTION, stream=True):
                said += text_of([part])
        except (openai.APIError, ValueError, TypeError) as error:
            return said, type(error).__name__
        return said, ""

    async with running(stream_of(name)) as plane:
        through = await using(plane, read)
        without = await using(plane, read, base_url=f"{plane.engines[0].endpoint}/v1")
        await settled(plane)
    assert through == without


async def test_a_stream_of_nothing_is_an_error_and_no_empty_answer() -> None:
    def read(client: openai.OpenAI) -> None:
        with pytest.raises(openai.InternalServerError) as failed:
            client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        assert failed.value.status_code == 502

    async with running(stream_of("empty")) as plane:
        await using(plane, read)
        await settled(plane)


async def test_half_an_event_at_the_end_is_no_silent_loss() -> None:
    def read(client: openai.OpenAI) -> None:
        stream = client.chat.completions.create(model="m", messages=QUESTION, stream=True)
        with pytest.raises(json.JSONDecodeError):
            list(stream)

    async with running(stream_of("half-an-event")) as plane:
        await using(plane, read)
        await settled(plane)
