"""What answers of providers cost: the tokens they tell are billed at the model's prices, whatever API was asked."""

import msgspec
import pytest

from llmgw.core.prices import Prices
from tests.integration.test_outside_endpoints import outside
from tests.support.provider import routing_to
from tests.support.router_plane import MODEL, OTHER, post
from tests.support.scripted_engine import (
    DONE,
    LAST_CHUNK,
    SSE_HEAD,
    Behaviour,
    answering,
    chunk,
    json_answer,
    token,
    usage_event,
)
from tests.support.typed_streams import message_stream, response_stream

PRICES = Prices(input=2.0, cached_input=0.5, output=10.0)
OPENAI = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 60}}
RESPONSES = {"input_tokens": 100, "output_tokens": 7, "input_tokens_details": {"cached_tokens": 60}}
MESSAGES = {"input_tokens": 40, "output_tokens": 7, "cache_read_input_tokens": 60}
"""Anthropic's API tells what was read afresh, and beside it what was in the cache."""
WRITTEN = 40 * 2 + 60 * 0.5 + 7 * 10
READ = 40 * 2 + 60 * 0.5


def events(*parts: bytes) -> Behaviour:
    return answering(SSE_HEAD + b"".join(chunk(part) for part in parts) + LAST_CHUNK)


CASES: dict[str, tuple[str, dict[str, object], Behaviour, float]] = {
    "chat": ("/v1/chat/completions", {"messages": []}, answering(json_answer({"usage": OPENAI})), WRITTEN),
    "chat stream": (
        "/v1/chat/completions",
        {"messages": [], "stream": True},
        events(token("a"), token("", finish="stop"), usage_event(100, 7, 60), DONE),
        WRITTEN,
    ),
    "completions": ("/v1/completions", {"prompt": "x"}, answering(json_answer({"usage": OPENAI})), WRITTEN),
    "responses": ("/v1/responses", {"input": "x"}, answering(json_answer({"usage": RESPONSES})), WRITTEN),
    "responses stream": (
        "/v1/responses",
        {"input": "x", "stream": True},
        events(*response_stream(["a"], usage=(100, 7, 60))),
        WRITTEN,
    ),
    "messages": (
        "/v1/messages",
        {"messages": [], "max_tokens": 9},
        answering(json_answer({"usage": MESSAGES})),
        WRITTEN,
    ),
    "messages stream": (
        "/v1/messages",
        {"messages": [], "max_tokens": 9, "stream": True},
        events(*message_stream(["a"], usage=(40, 60, 7))),
        WRITTEN,
    ),
    "embeddings": (
        "/v1/embeddings",
        {"input": "x"},
        answering(json_answer({"data": [], "usage": {k: v for k, v in OPENAI.items() if k != "completion_tokens"}})),
        READ,
    ),
}


@pytest.mark.trio
@pytest.mark.parametrize("case", CASES)
async def test_a_providers_tokens_are_billed_in_every_api(case: str) -> None:
    path, body, behaviour, cost = CASES[case]
    async with outside(behaviour) as (plane, (provider,)):
        priced = msgspec.structs.replace(MODEL, prices=PRICES)
        plane.state.apply(msgspec.structs.replace(routing_to(provider), models=(priced, OTHER)))
        assert (await plane.ask(post({"model": "m", **body}, path))).status == 200
        (row,) = plane.state.rows
        assert (row.input_tokens, row.cached_tokens) == (100, 60)
        assert (row.cost_micros, row.estimated) == (cost, False)
