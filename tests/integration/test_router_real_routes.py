"""The real llama.cpp behind the router: the routes beside chat that it has, and those it has not."""

import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import httpx
import openai
import pytest
import trio

from llmgw.core.routing import RoutedReplica, Routing
from tests.integration.test_router_openai import using
from tests.support.cluster import free_port
from tests.support.router_plane import KEY, MODEL, Plane, post, running, settled

pytestmark = pytest.mark.trio
START_S = 60.0
QUESTION = {"role": "user", "content": "Who wrote Hamlet?"}


@asynccontextmanager
async def real(model: Path, tmp_path: Path) -> AsyncIterator[Plane]:
    """The data plane before one engine with SmolLM2."""
    keys, port = tmp_path / "keys", free_port()
    keys.write_text("ek-r0\n")
    argv = [sys.executable, "-P", "-m", "agent.engines.llamacpp_launcher", "--model", str(model), "--alias", "m"]
    argv += ["--host", "127.0.0.1", "--port", str(port), "--ctx-size", "1024", "--parallel", "1", "--threads", "1"]
    argv += ["--api-key-file", str(keys), "--n-gpu-layers", "0", "--no-warmup"]
    endpoint = f"http://127.0.0.1:{port}"
    async with trio.open_nursery() as nursery:
        run = partial(trio.run_process, argv, stdout=-3, stderr=-3, check=False, cwd=Path(__file__).parents[2])
        await nursery.start(run)
        async with running() as plane:
            with trio.fail_after(START_S):
                while not await trio.to_thread.run_sync(serves, endpoint):  # noqa: ASYNC110 - another process
                    await trio.sleep(0.1)
            replica = RoutedReplica(id="r0", model="m", endpoint=endpoint)
            plane.state.apply(Routing(revision="1/1", models=(MODEL,), replicas=(replica,)))
            yield plane
            await settled(plane)
        nursery.cancel_scope.cancel()


def serves(endpoint: str) -> bool:
    """Whether the engine is there and has its model."""
    try:
        return httpx.get(f"{endpoint}/health", timeout=2.0).status_code == 200
    except httpx.HTTPError:
        return False


async def test_the_real_engines_other_routes(smollm2: Path, tmp_path: Path) -> None:
    def respond(client: openai.OpenAI) -> None:
        whole = client.responses.create(model="m", input="Who wrote Hamlet?", max_output_tokens=8, temperature=0)
        assert whole.usage is not None
        assert 0 < whole.usage.output_tokens <= 8
        events = list(
            client.responses.create(
                model="alias-of-m", input="Who wrote Hamlet?", max_output_tokens=8, temperature=0, stream=True
            )
        )
        assert events[0].type == "response.created"
        said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
        assert said == whole.output_text
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.usage is not None
        assert last.response.usage.output_tokens == whole.usage.output_tokens

    async with real(smollm2, tmp_path) as plane:
        await using(plane, respond)
        await settled(plane)
        first, second = plane.state.rows
        assert (first.input_tokens, first.output_tokens) == (second.input_tokens, second.output_tokens)
        assert not first.estimated
        assert not second.estimated

        ask = {"model": "m", "max_tokens": 6, "messages": [QUESTION]}
        counted = await plane.ask(post({"model": "m", "messages": [QUESTION]}, "/v1/messages/count_tokens"))
        tokens = json.loads(counted.body)["input_tokens"]
        message = json.loads((await plane.ask(post(ask, "/v1/messages"))).body)
        assert (message["type"], message["role"]) == ("message", "assistant")
        streamed = await plane.ask(post(ask | {"stream": True}, "/v1/messages"))
        assert streamed.whole
        assert b'"type":"message_stop"' in streamed.body
        assert b"[DONE]" not in streamed.body
        await settled(plane)
        nothing, whole, stream = plane.state.rows[2:]
        assert (nothing.input_tokens, nothing.output_tokens) == (0, 0)
        assert whole.input_tokens == tokens
        assert 0 < whole.output_tokens <= 6
        assert 0 < stream.output_tokens <= 6
        assert stream.input_tokens > 0

        # What this engine has not, or not with this model.
        rerank = await plane.ask(post({"model": "m", "query": "q", "documents": ["a", "b"]}, "/v1/rerank"))
        speech = await plane.ask(post({"model": "m", "input": "x", "voice": "v"}, "/v1/audio/speech"))
        picture = await plane.ask(post({"model": "m", "prompt": "x"}, "/v1/images/generations"))
        url = f"http://127.0.0.1:{plane.address[1]}/v1/audio/transcriptions"
        sound = await trio.to_thread.run_sync(
            lambda: httpx.post(
                url,
                data={"model": "m"},
                files={"file": ("a.wav", b"RIFF")},
                headers={"authorization": f"Bearer {KEY.decode()}"},
                timeout=30.0,
            )
        )
        assert [rerank.status, speech.status, picture.status, sound.status_code] == [400, 404, 404, 400]
        assert {a.error["code"] for a in (rerank, speech, picture)} == {"unsupported_by_engine"}
        assert sound.json()["error"]["code"] == "unsupported_by_engine"
        assert not plane.state.breakers
