"""The sim engine over real sockets: the official client, slots, departures, keys, and every fault."""

import collections
import json

import openai
import pytest
import trio

from tests.support.sim_engine import (
    DEADLINE_S,
    RunningEngine,
    chat,
    join_chunks,
    read_all,
    request,
    running_engine,
    split,
    until,
)

CHAT = "/v1/chat/completions"


def events(body: bytes) -> list[bytes]:
    """The data of each event."""
    parts = body.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith(b"data: ") for part in parts)
    return [part.removeprefix(b"data: ") for part in parts]


def stream_text(body: bytes) -> str:
    """The tokens of a chat stream, joined."""
    chunks = [json.loads(event) for event in events(body) if event != b"[DONE]"]
    return "".join(c["choices"][0]["delta"].get("content", "") for c in chunks if c["choices"])


@pytest.mark.trio
async def test_the_official_client_streams_and_not() -> None:
    def use(url: str) -> tuple[str, str]:
        with openai.OpenAI(base_url=url + "/v1", api_key="secret", max_retries=0) as client:
            whole = client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], max_tokens=9
            )
            assert whole.usage is not None
            assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (5, 9)
            assert whole.choices[0].finish_reason == "length"
            text, usage, reason = "", None, None
            for part in client.chat.completions.create(
                model="m",
                messages=[{"role": "user", "content": "hi"}],
                max_tokens=9,
                stream=True,
                stream_options={"include_usage": True},
            ):
                usage = part.usage or usage
                for choice in part.choices:
                    text += choice.delta.content or ""
                    reason = choice.finish_reason or reason
            assert usage is not None
            assert (usage.total_tokens, reason) == (14, "length")
            old = client.completions.create(model="m", prompt="a b c")
            assert old.usage is not None
            assert (old.usage.prompt_tokens, old.usage.completion_tokens) == (3, 64)
            vectors = client.embeddings.create(model="m", input=["a", "b"])
            floats = client.embeddings.create(model="m", input="a", encoding_format="float", dimensions=384)
            assert vectors.data[0].embedding == pytest.approx(floats.data[0].embedding, abs=1e-6)
            assert [model.id for model in client.models.list()] == ["m"]
            with pytest.raises(openai.NotFoundError, match="other"):
                client.chat.completions.create(model="other", messages=[{"role": "user", "content": "hi"}])
            return whole.choices[0].message.content or "", text

    async with running_engine(keys=(b"secret",)) as running:
        whole, streamed = await trio.to_thread.run_sync(use, running.url)
    assert whole == streamed
    assert len(whole.split()) == 9


@pytest.mark.trio
async def test_a_stream_event_by_event() -> None:
    async with running_engine() as running:
        status, headers, body = await running.ask(
            CHAT, chat(stream=True, max_tokens=3, stream_options={"include_usage": True})
        )
    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    role, *tokens, finish, usage, done = events(body)
    assert json.loads(role)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert len(tokens) == 3
    assert json.loads(finish)["choices"][0]["finish_reason"] == "length"
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    assert done == b"[DONE]"


@pytest.mark.trio
async def test_connections_are_kept_and_pipelined() -> None:
    async with running_engine() as running:
        stream = await running.connect()
        async with stream:
            await stream.send_all(request(CHAT, chat(stream=True, max_tokens=2)) + request("/health"))
            with trio.fail_after(DEADLINE_S):
                data = b""
                while not data.endswith(b'{"status":"ok"}'):
                    data += await stream.receive_some()
    assert data.count(b"HTTP/1.1 200 OK") == 2
    assert data.index(b"[DONE]") < data.index(b'{"status":"ok"}')


@pytest.mark.trio
async def test_pace_is_kept() -> None:
    async with running_engine(rate=100.0, prefill_ms=50.0) as running:
        began = trio.current_time()
        await running.ask(CHAT, chat(stream=True, max_tokens=21))
        streamed_s = trio.current_time() - began
        began = trio.current_time()
        await running.ask(CHAT, chat(max_tokens=21))
        whole_s = trio.current_time() - began
    assert streamed_s >= 0.05 + 20 * 0.01
    assert whole_s >= 0.05 + 21 * 0.01


@pytest.mark.trio
async def test_chunk_joins_events_in_one_write() -> None:
    async with running_engine() as running:
        stream = await running.connect()
        async with stream:
            body = chat(stream=True, max_tokens=8, sim={"chunk": 4})
            await stream.send_all(request(CHAT, body, {"Connection": "close"}))
            with trio.fail_after(DEADLINE_S):
                _, _, answer = split(await read_all(stream))
    assert len(events(answer)) == 8 + 3


@pytest.mark.trio
async def test_slots_and_queue_are_limits() -> None:
    async with running_engine(slots=1, queue=1) as running, trio.open_nursery() as nursery:
        first = await running.connect()
        await first.send_all(request(CHAT, chat(sim={"fault": "hang"})))
        await until(lambda: running.engine.counters.running == 1)
        second = await running.connect()
        await second.send_all(request(CHAT, chat(max_tokens=1), {"Connection": "close"}))
        await until(lambda: running.engine.waiting == 1)

        status, headers, body = await running.ask(CHAT, chat())
        assert (status, headers["retry-after"]) == (503, "1")
        assert json.loads(body)["error"]["code"] == "queue_full"
        _, _, metrics = await running.ask("/metrics")
        assert b"llamacpp:requests_processing 1\n" in metrics
        assert b'vllm:num_requests_waiting{model_name="m"} 1\n' in metrics

        await first.aclose()
        with trio.fail_after(DEADLINE_S):
            assert split(await read_all(second))[0] == 200
        await second.aclose()
        await until(lambda: running.engine.counters.running == 0)
        assert running.engine.counters.kv_tokens == 0
        nursery.cancel_scope.cancel()


@pytest.mark.trio
@pytest.mark.parametrize(
    "sim", [{"fault": "hang"}, {"fault": "silent:60"}, {"rate": 5, "tokens": 1000}, {"prefill_ms": 60e3}]
)
@pytest.mark.parametrize("stream", [True, False])
async def test_a_slot_is_free_when_its_client_leaves(sim: dict[str, object], stream: bool) -> None:
    async with running_engine(slots=1) as running:
        client = await running.connect()
        await client.send_all(request(CHAT, chat(stream=stream, sim=sim)))
        await until(lambda: running.engine.counters.running == 1)
        await client.aclose()
        await until(lambda: running.engine.counters.running == 0, within_s=1.0)
        assert running.engine.counters.kv_tokens == 0
        assert (await running.ask(CHAT, chat()))[0] == 200


@pytest.mark.trio
async def test_a_waiting_client_that_leaves_gives_up_its_place() -> None:
    async with running_engine(slots=1) as running:
        first, second = await running.connect(), await running.connect()
        await first.send_all(request(CHAT, chat(sim={"fault": "hang"})))
        await until(lambda: running.engine.counters.running == 1)
        await second.send_all(request(CHAT, chat()))
        await until(lambda: running.engine.waiting == 1)
        await second.aclose()
        await until(lambda: running.engine.waiting == 0, within_s=1.0)
        await first.aclose()


@pytest.mark.trio
async def test_a_slow_reader_loses_nothing() -> None:
    async with running_engine(ctx_size=1 << 20) as running:
        stream = await running.connect()
        async with stream:
            body = chat(stream=True, sim={"tokens": 60_000, "chunk": 50})
            await stream.send_all(request(CHAT, body, {"Connection": "close"}))
            await until(lambda: running.engine.counters.generated_tokens > 1000)
            held = running.engine.counters.generated_tokens
            for _ in range(20):
                await trio.lowlevel.checkpoint()
            with trio.fail_after(DEADLINE_S * 3):
                raw = await read_all(stream)
    joined, ended = join_chunks(raw.partition(b"\r\n\r\n")[2])
    assert ended
    assert held < 60_000
    assert joined.count(b'"content"') == 60_001
    assert joined.endswith(b"data: [DONE]\n\n")


@pytest.mark.trio
async def test_many_streams_at_once() -> None:
    done: collections.Counter[int] = collections.Counter()

    async def one(running: RunningEngine) -> None:
        _, _, body = await running.ask(CHAT, chat(stream=True, max_tokens=20))
        done[len(events(body))] += 1

    async with running_engine(slots=400, rate=100.0, jitter=0.5) as running, trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(one, running)
    assert done == {20 + 3: 300}


@pytest.mark.trio
@pytest.mark.parametrize("given", [None, "Bearer wrong", "Basic secret", "secret", "Bearer secret2", "Bearer "])
async def test_the_key_is_checked(given: str | None) -> None:
    async with running_engine(keys=(b"secret", b"other")) as running:
        headers = {"Authorization": given} if given is not None else {}
        for path, body in (("/v1/models", None), (CHAT, chat()), ("/v1/embeddings", {"input": "x"})):
            status, _, answer = await running.ask(path, body, headers)
            assert (status, json.loads(answer)["error"]["code"]) == (401, "invalid_api_key")
        assert (await running.ask("/v1/models", None, {"Authorization": "Bearer other"}))[0] == 200
        assert (await running.ask("/health"))[0] == 200


@pytest.mark.trio
async def test_wrong_paths_methods_and_bytes() -> None:
    async with running_engine() as running:
        assert (await running.ask("/nothing"))[0] == 404
        assert (await running.ask("/v1/chat/completions"))[0] == 405
        assert (await running.ask(CHAT, b"{"))[0] == 400
        for raw, status in (
            (b"GARBAGE\r\n\r\n", 400),
            (b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 70_000 + b"\r\n\r\n", 431),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n", 413),
            (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        ):
            stream = await running.connect()
            async with stream:
                await stream.send_all(raw)
                with trio.fail_after(DEADLINE_S):
                    assert split(await read_all(stream))[0] == status


@pytest.mark.trio
@pytest.mark.parametrize("by", ["body", "header", "default"])
async def test_a_fault_comes_by_body_header_or_default(by: str) -> None:
    async with running_engine(fault="error:422" if by == "default" else "") as running:
        body = chat(sim={"fault": "error:422"}) if by == "body" else chat()
        headers = {"x-sim-fault": "error:422"} if by == "header" else {}
        assert (await running.ask(CHAT, body, headers))[0] == 422


@pytest.mark.trio
@pytest.mark.parametrize("status", [400, 404, 413, 422, 429, 500, 503])
async def test_injected_errors(status: int) -> None:
    async with running_engine() as running:
        for path, body in ((CHAT, chat(stream=True)), ("/v1/embeddings", {"input": "x"})):
            got, headers, answer = await running.ask(path, body, {"x-sim-fault": f"error:{status}"})
            assert got == status
            assert set(json.loads(answer)["error"]) == {"message", "type", "param", "code"}
            assert ("retry-after" in headers) == (status in (429, 503))


@pytest.mark.trio
async def test_hangs_and_drops() -> None:
    async with running_engine() as running:
        for fault in ("hang", "hang-after-headers"):
            stream = await running.connect()
            async with stream:
                await stream.send_all(request(CHAT, chat(stream=True, sim={"fault": fault})))
                await until(lambda: running.engine.counters.running == 1)
                if fault == "hang-after-headers":
                    assert (await stream.receive_some()).endswith(b"\r\n\r\n")
                with trio.move_on_after(0.1) as scope:
                    await stream.receive_some()
                assert scope.cancelled_caught
            await until(lambda: running.engine.counters.running == 0)

        stream = await running.connect()
        async with stream:
            await stream.send_all(request(CHAT, chat(sim={"fault": "drop-before-headers"})))
            with trio.fail_after(DEADLINE_S):
                assert await read_all(stream) == b""


@pytest.mark.trio
@pytest.mark.parametrize("tokens", [0, 1, 5])
async def test_a_stream_dropped_after_tokens(tokens: int) -> None:
    async with running_engine() as running:
        stream = await running.connect()
        async with stream:
            await stream.send_all(request(CHAT, chat(stream=True, sim={"fault": f"drop:{tokens}"})))
            with trio.fail_after(DEADLINE_S):
                raw = await read_all(stream)
        body, ended = join_chunks(raw.partition(b"\r\n\r\n")[2])
        assert not ended
        assert len(events(body)) == 1 + tokens
        assert running.engine.counters.running == 0
        status, headers, part = await running.ask(CHAT, chat(sim={"fault": f"drop:{tokens}"}))
        assert status == 200
        assert len(part) < int(headers["content-length"])


@pytest.mark.trio
async def test_a_drop_past_the_end_is_none() -> None:
    async with running_engine() as running:
        _, _, body = await running.ask(CHAT, chat(stream=True, max_tokens=3, sim={"fault": "drop:3"}))
        assert events(body)[-1] == b"[DONE]"


@pytest.mark.trio
@pytest.mark.case("C1")
@pytest.mark.parametrize("stream", [True, False])
async def test_a_dripped_answer_is_whole(stream: bool) -> None:
    text = "読写é🙂 はい"
    async with running_engine() as running:
        _, _, body = await running.ask(CHAT, chat(stream=stream, sim={"fault": "drip:0", "text": text}))
    answer = stream_text(body) if stream else json.loads(body)["choices"][0]["message"]["content"]
    assert answer == text


@pytest.mark.trio
async def test_silences() -> None:
    async with running_engine() as running:
        for fault, headers_first in (("slow-start:0.2", False), ("silent:0.2", True)):
            stream = await running.connect()
            async with stream:
                began = trio.current_time()
                await stream.send_all(request(CHAT, chat(stream=True, sim={"fault": fault})))
                with trio.fail_after(DEADLINE_S):
                    first = await stream.receive_some()
                    assert (trio.current_time() - began < 0.2) == headers_first
                    assert (b"data:" not in first) == headers_first
                    if headers_first:
                        assert b"data:" in await stream.receive_some()
                assert trio.current_time() - began >= 0.2


@pytest.mark.trio
async def test_usage_and_done_faults() -> None:
    async with running_engine() as running:
        options = {"stream": True, "stream_options": {"include_usage": True}, "max_tokens": 2}
        for fault, has_usage, has_done in (("no-usage", False, True), ("no-done", True, False), ("none", True, True)):
            _, _, body = await running.ask(CHAT, chat(**options, sim={"fault": fault}))
            assert (b'"usage"' in body, body.endswith(b"data: [DONE]\n\n")) == (has_usage, has_done)
        _, _, body = await running.ask(CHAT, chat(sim={"fault": "no-usage"}))
        assert "usage" not in json.loads(body)
        _, _, body = await running.ask(CHAT, chat(sim={"fault": "lie-usage"}))
        assert json.loads(body)["usage"]["prompt_tokens"] < 0


@pytest.mark.trio
async def test_a_big_line() -> None:
    async with running_engine() as running:
        _, _, body = await running.ask(CHAT, chat(stream=True, max_tokens=2, sim={"fault": "big-line:300000"}))
    assert max(map(len, body.split(b"\n"))) > 300_000


@pytest.mark.trio
@pytest.mark.parametrize("code", [200, 503])
async def test_loading_shows_in_the_body_of_health(code: int) -> None:
    async with running_engine(start_delay_s=0.3, loading_code=code) as running:
        status, _, body = await running.ask("/health")
        assert (status, json.loads(body)) == (code, {"status": "loading"})
        status, _, body = await running.ask(CHAT, chat())
        assert (status, json.loads(body)["error"]["code"]) == (503, "loading")
        await until(lambda: not running.engine.loading)
        assert json.loads((await running.ask("/health"))[2]) == {"status": "ok"}
        assert (await running.ask(CHAT, chat()))[0] == 200


@pytest.mark.trio
async def test_an_idle_connection_is_closed() -> None:
    async with running_engine(keep_alive_s=0.05) as running:
        stream = await running.connect()
        async with stream:
            with trio.fail_after(DEADLINE_S):
                assert await stream.receive_some() == b""
