"""What answers are charged that do not say what they took, say what cannot be, or are errors under a good status."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.integration.test_router_limits import PRICED, limited
from tests.support.limits import ROOMY, key, month
from tests.support.router_plane import MODEL, chat, post, settled
from tests.support.scripted_engine import (
    SSE_HEAD,
    Behaviour,
    Exchange,
    answering,
    chunk,
    json_answer,
    token,
    usage_event,
)

TEXT = "x" * 400
CHOICES = [{"message": {"content": TEXT}}]
FAULT = {"error": {"message": "out of memory", "code": 500}}
DONE = b"data: [DONE]\n\n"


def events(*parts: bytes) -> Behaviour:
    """A stream of these events, each in a chunk of its own, ended properly."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(map(chunk, parts)) + b"0\r\n\r\n")

    return behave


def event(document: object) -> bytes:
    """One event."""
    return b"data: " + json.dumps(document).encode() + b"\n\n"


@pytest.mark.trio
@pytest.mark.parametrize(
    "usage",
    [
        None,
        {},
        {"prompt_tokens": -9, "completion_tokens": -4},
        {"prompt_tokens": "9", "completion_tokens": "4"},
        {"prompt_tokens": True, "completion_tokens": False},
        {"prompt_tokens": 9, "completion_tokens": 10**15},
    ],
)
async def test_an_answer_without_a_usable_count_is_charged_by_its_length(tmp_path: Path, usage: object) -> None:
    answer = {"choices": CHOICES, "usage": usage}
    async with limited(tmp_path, key(limits=ROOMY, budgets=month(10**9)), answering(json_answer(answer))) as it:
        for asked, least, most in ((None, 100, 200), (20, 20, 20)):
            assert (await it.plane.ask(post(chat() | ({"max_tokens": asked} if asked else {})))).status == 200
            row = it.plane.state.rows[-1]
            assert row.estimated
            assert row.input_tokens > 0
            assert least <= row.output_tokens <= most
        assert it.counted.tokens == sum(row.input_tokens + row.output_tokens for row in it.plane.state.rows)
        assert it.counted.month_micros == sum(row.cost_micros for row in it.plane.state.rows) > 0


@pytest.mark.trio
async def test_an_engine_is_not_believed_more_than_its_model_can_say(tmp_path: Path) -> None:
    async with limited(tmp_path, key(budgets=month(10**9)), answering(json_answer({}))) as it:
        for times, n, believed in ((1, 1, True), (2, 1, False), (2, 2, True)):
            claim = {"prompt_tokens": 9, "completion_tokens": MODEL.context_length * times}
            it.plane.engines[0].behaviour = answering(json_answer({"choices": CHOICES, "usage": claim}))
            assert (await it.plane.ask(post(chat(n=n)))).status == 200
            row = it.plane.state.rows[-1]
            assert (not row.estimated, row.output_tokens == claim["completion_tokens"]) == (believed, believed)


@pytest.mark.trio
@pytest.mark.parametrize(
    "behaviour",
    [
        answering(json_answer(FAULT)),
        events(event(FAULT), DONE),
        events(event(FAULT)),
        events(event({"choices": [{"delta": {"role": "assistant"}}]}) + event(FAULT), DONE),
    ],
    ids=["document", "event", "event without end", "event after a role"],
)
async def test_an_error_with_a_good_status_is_a_failure_and_costs_nothing(tmp_path: Path, behaviour: Behaviour) -> None:
    async with limited(tmp_path, key(limits=ROOMY, budgets=month(10**9)), behaviour) as it:
        answer = await it.plane.ask(post(chat(True)))
        assert answer.status == 200
        assert b"out of memory" in answer.body
        await settled(it.plane)
        (row,) = it.plane.state.rows
        assert (row.failed, row.input_tokens, row.output_tokens, row.cost_micros) == (True, 0, 0, 0)
        assert (it.counted.requests, it.counted.tokens, it.counted.month_micros) == (1, 0, 0)
        assert it.plane.state.meters.of("m").requests["engine_error"] == 1
        assert it.quiet()


@pytest.mark.trio
@pytest.mark.parametrize("end", [(DONE,), ()], ids=["done", "no done"])
@pytest.mark.parametrize("together", [True, False])
async def test_a_stream_that_ends_with_an_error_is_a_failure_charged_for_what_was_said(
    tmp_path: Path, end: tuple[bytes, ...], together: bool
) -> None:
    parts = (token("a"), token("b"), token("c"), event(FAULT), *end)
    behaviour = events(b"".join(parts)) if together else events(*parts)
    async with limited(tmp_path, key(budgets=month(10**9)), behaviour) as it:
        answer = await it.plane.ask(post(chat(True)))
        assert b"out of memory" in answer.body
        await settled(it.plane)
        (row,) = it.plane.state.rows
        assert row.failed
        assert 3 <= row.output_tokens <= 4
        assert it.counted.month_micros == row.cost_micros > 0


@pytest.mark.trio
async def test_the_word_error_in_an_answer_is_no_failure(tmp_path: Path) -> None:
    said = event({"error": None, "choices": [{"delta": {"content": 'an "error": {"code": 5}'}}]})
    for behaviour in (
        events(said, said, DONE),
        answering(json_answer({"error": None, "choices": [{"message": {"content": '{"error": {}}'}}]})),
    ):
        async with limited(tmp_path, key(budgets=month(10**9)), behaviour) as it:
            assert (await it.plane.ask(post(chat(True)))).status == 200
            await settled(it.plane)
            assert not it.plane.state.rows[0].failed
            assert it.plane.state.rows[0].cost_micros > 0
        (tmp_path / "counters").unlink()


@pytest.mark.trio
@pytest.mark.parametrize(
    ("said", "read", "written"),
    [
        ({"completion_tokens": 4}, None, 4),
        ({"prompt_tokens": None, "completion_tokens": 4, "total_tokens": 13}, None, 4),
        ({"prompt_tokens": 0, "completion_tokens": 4}, None, 4),
        ({"prompt_tokens": 9}, 9, None),
        ({"prompt_tokens": 9, "completion_tokens": None, "total_tokens": 9}, 9, None),
    ],
)
@pytest.mark.parametrize("streamed", [True, False])
async def test_of_two_counts_the_one_left_out_is_estimated(
    tmp_path: Path, said: dict[str, object], read: int | None, written: int | None, streamed: bool
) -> None:
    last = event({"choices": [], "usage": said})
    whole = answering(json_answer({"choices": CHOICES, "usage": said}))
    behaviour = events(token("a"), token("b"), last, DONE) if streamed else whole
    async with limited(tmp_path, key(budgets=month(10**9)), behaviour) as it:
        assert (await it.plane.ask(post(chat(streamed)))).status == 200
        await settled(it.plane)
        (row,) = it.plane.state.rows
        assert row.estimated
        assert row.input_tokens == read if read else row.input_tokens > 10
        assert row.output_tokens == written if written else row.output_tokens >= 2
        assert it.counted.month_micros == row.cost_micros == 2 * row.input_tokens + 10 * row.output_tokens


@pytest.mark.trio
async def test_an_answer_of_no_tokens_costs_none(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 0}
    answer = {"choices": [{"message": {"content": ""}, "finish_reason": "length"}], "usage": usage}
    async with limited(tmp_path, key(budgets=month(10**9)), answering(json_answer(answer))) as it:
        await it.plane.ask(post(chat()))
        (row,) = it.plane.state.rows
        assert (row.input_tokens, row.output_tokens, row.estimated) == (9, 0, False)


@pytest.mark.trio
@pytest.mark.parametrize("step", [64, 1 << 20])
@pytest.mark.parametrize(
    ("path", "asked", "answer"),
    [
        ("/v1/embeddings", {"model": "m", "input": "x"}, {"data": [{"embedding": [0.0123456789] * 4000}]}),
        (
            "/v1/rerank",
            {"model": "m", "query": "q"},
            {"results": [{"index": i, "relevance_score": 0.5} for i in range(999)]},
        ),
        ("/v1/completions", {"model": "m", "prompt": "x"}, {"choices": [{"text": "x" * 40_000}]}),
        ("/v1/chat/completions", chat(), {"choices": [{"message": {"content": '"usage": ' * 9_000}}]}),
    ],
)
async def test_a_count_at_the_beginning_of_a_long_answer_is_read(
    tmp_path: Path, path: str, asked: dict[str, object], answer: dict[str, object], step: int
) -> None:
    """As llama.cpp writes embeddings and ranks."""
    raw = json_answer({"model": "m", "usage": {"prompt_tokens": 9, "completion_tokens": 4}} | answer)

    async def behave(exchange: Exchange) -> None:
        for at in range(0, len(raw), step):
            await exchange.send(raw[at : at + step])

    async with limited(tmp_path, key(budgets=month(10**9)), behave) as it:
        assert (await it.plane.ask(post(asked, path))).status == 200
        await settled(it.plane)
        (row,) = it.plane.state.rows
        assert (row.input_tokens, row.output_tokens, row.estimated) == (9, 4, False)


@pytest.mark.trio
@pytest.mark.parametrize(
    "last",
    [
        event(
            {"choices": [{"delta": {}, "finish_reason": "stop", "usage": {"prompt_tokens": 9, "completion_tokens": 4}}]}
        ),
        event({"choices": [], "x_groq": {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}}),
        usage_event(9, 4) + event({"choices": [], "usage": {"prompt_tokens": 0, "completion_tokens": 0}}),
        usage_event(9, 4) + event({"choices": [], "usage": {}}),
        event({"usage": {"prompt_tokens": 9, "completion_tokens": 4}, "timings": {"usage": None}}),
    ],
    ids=["in the choice", "under another name", "before zeros", "before nothing", "before a null"],
)
async def test_a_count_in_an_odd_place_of_a_stream_is_read(tmp_path: Path, last: bytes) -> None:
    async with limited(tmp_path, key(budgets=month(10**9)), events(token("a"), last, DONE)) as it:
        await it.plane.ask(post(chat(True)))
        await settled(it.plane)
        (row,) = it.plane.state.rows
        assert (row.input_tokens, row.output_tokens, row.estimated) == (9, 4, False)


@pytest.mark.trio
@pytest.mark.parametrize("choices", [{}, {"choices": None}, {"choices": []}])
async def test_an_event_of_usage_alone_is_for_who_asked_and_an_error_for_everybody(
    tmp_path: Path, choices: dict[str, object]
) -> None:
    alone = choices | {"usage": {"prompt_tokens": 9, "completion_tokens": 4}}
    async with limited(tmp_path, key(budgets=month(10**9)), events(token("a"), event(alone), DONE)) as it:
        assert (await it.plane.ask(post(chat(True)))).body == token("a") + DONE
        it.plane.engines[0].behaviour = events(token("a"), event(alone | FAULT), DONE)
        assert b"out of memory" in (await it.plane.ask(post(chat(True)))).body
        await settled(it.plane)
        assert [row.failed for row in it.plane.state.rows] == [False, True]


@pytest.mark.trio
async def test_where_no_context_is_known_the_largest_there_is_bounds_a_claim(tmp_path: Path) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 900_000_000}
    answer = {"choices": CHOICES, "usage": usage}
    async with limited(tmp_path, key(budgets=month(10**9)), answering(json_answer(answer))) as it:
        unbounded = msgspec.structs.replace(PRICED, context_length=0, max_output=0)
        routing = it.plane.state.routing
        it.plane.state.apply(msgspec.structs.replace(routing, models=(unbounded,)))
        assert (await it.plane.ask(post(chat(max_tokens=50)))).status == 200
        (row,) = it.plane.state.rows
        assert (row.estimated, row.output_tokens) == (True, 50)
