"""What answers are charged that do not say what they took, say what cannot be, or are errors under a good status."""

import json
from pathlib import Path

import pytest

from tests.integration.test_router_limits import limited
from tests.support.limits import ROOMY, key, month
from tests.support.router_plane import MODEL, chat, post, settled
from tests.support.scripted_engine import SSE_HEAD, Behaviour, Exchange, answering, chunk, json_answer, token

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
