"""The official client on the routes beside chat: responses, images, sounds, reranking's neighbours, errors and all."""

import base64
import io

import openai
import pytest

from tests.integration.test_router_openai import using
from tests.support.router_plane import running, settled
from tests.support.scripted_engine import LAST_CHUNK, SSE_HEAD, Behaviour, Exchange, answering, chunk, json_answer
from tests.support.typed_streams import response_stream, speech_stream, typed

pytestmark = pytest.mark.trio
EVENTS = response_stream(["Hello", " there"], usage=(11, 2, 5))
PICTURE = base64.b64encode(b"a picture").decode()
MESSAGE = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed"}
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "m",
    "status": "completed",
    "output": [MESSAGE | {"content": [{"type": "output_text", "text": "Hello there", "annotations": []}]}],
    "usage": {
        "input_tokens": 11,
        "input_tokens_details": {"cached_tokens": 5},
        "output_tokens": 2,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 13,
    },
}


def events_of(events: list[bytes], *, whole: bool = True) -> Behaviour:
    """Answer with these events."""

    async def behave(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD + b"".join(chunk(event) for event in events) + (LAST_CHUNK if whole else b""))
        if not whole:
            await exchange.close()

    return behave


async def test_a_response_whole_and_streamed() -> None:
    def whole(client: openai.OpenAI) -> None:
        answer = client.responses.create(model="m", input="hi", max_output_tokens=20)
        assert answer.output_text == "Hello there"
        assert answer.usage is not None
        assert answer.usage.total_tokens == 13

    def streamed(client: openai.OpenAI) -> None:
        events = list(client.responses.create(model="m", input="hi", stream=True))
        assert [event.type for event in events][-1] == "response.completed"
        assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Hello there"
        last = events[-1]
        assert last.type == "response.completed"
        assert last.response.usage is not None
        assert last.response.usage.input_tokens_details.cached_tokens == 5

    async with running(answering(json_answer(RESPONSE))) as plane:
        await using(plane, whole)
        plane.engines[0].behaviour = events_of(EVENTS)
        await using(plane, streamed)
        await settled(plane)
        rows = plane.state.rows
        assert [(row.input_tokens, row.cached_tokens, row.output_tokens, row.stream) for row in rows] == [
            (11, 5, 2, False),
            (11, 5, 2, True),
        ]


async def test_a_response_that_breaks_off_is_an_error_and_no_short_answer() -> None:
    def use(client: openai.OpenAI) -> None:
        stream = client.responses.create(model="m", input="hi", stream=True)
        seen = [next(stream).type for _ in range(4)]
        with pytest.raises(openai.APIError) as raised:
            next(stream)
        assert seen[-1] == "response.output_text.delta"
        assert raised.value.code == "engine_lost"

    async with running(events_of(EVENTS[:4], whole=False)) as plane:
        await using(plane, use)


async def test_pictures_made_and_edited() -> None:
    done = typed("image_generation.completed", {"b64_json": PICTURE, "usage": {"input_tokens": 3, "output_tokens": 40}})

    def make(client: openai.OpenAI) -> None:
        made = client.images.generate(model="m", prompt="a cat", n=2)
        assert made.data is not None
        assert made.data[0].b64_json == PICTURE
        edited = client.images.edit(model="m", prompt="a dog", image=("a.png", io.BytesIO(b"png" * 1000)))
        assert edited.data == made.data

    def streamed(client: openai.OpenAI) -> None:
        (event,) = client.images.generate(model="m", prompt="a cat", stream=True)
        assert event.type == "image_generation.completed"

    async with running(answering(json_answer({"created": 1, "data": [{"b64_json": PICTURE}]}))) as plane:
        await using(plane, make)
        assert b'name="image"; filename="a.png"' in plane.engines[0].received[1].body
        plane.engines[0].behaviour = events_of([done])
        await using(plane, streamed)
        await settled(plane)
        assert [row.output_tokens for row in plane.state.rows] == [0, 0, 40]


async def test_sounds_said_and_heard() -> None:
    sound = b"RIFF" + bytes(range(256)) * 8000

    def hear(client: openai.OpenAI) -> None:
        heard = client.audio.transcriptions.create(model="alias-of-m", file=("a.wav", sound))
        assert heard.text == "hello"
        with pytest.warns(DeprecationWarning, match="deprecated"):
            translated = client.audio.translations.create(model="m", file=("a.wav", sound))
        assert translated.text == "hello"

    def say(client: openai.OpenAI) -> None:
        assert client.audio.speech.create(model="m", input="hello", voice="alloy").content == sound

    def stream(client: openai.OpenAI) -> None:
        heard = list(client.audio.transcriptions.create(model="m", file=("a.wav", sound), stream=True))
        assert [event.type for event in heard] == ["transcript.text.delta", "transcript.text.done"]

    async with running(answering(json_answer({"text": "hello"}))) as plane:
        await using(plane, hear)
        assert sound in plane.engines[0].received[0].body
        assert b"alias-of-m" not in plane.engines[0].received[0].body
        head = b"HTTP/1.1 200 OK\r\nContent-Type: audio/mpeg\r\nContent-Length: %d\r\n\r\n" % len(sound)
        plane.engines[0].behaviour = answering(head + sound)
        await using(plane, say)
        text: dict[str, object] = {"text": "hello", "usage": {"type": "tokens", "input_tokens": 14, "output_tokens": 3}}
        events = [typed("transcript.text.delta", {"delta": "hello"}), typed("transcript.text.done", text)]
        plane.engines[0].behaviour = events_of(events)
        await using(plane, stream)
        await settled(plane)
        assert plane.engines[0].received[-1].header(b"accept") == b"text/event-stream"
        assert [(row.input_tokens, row.output_tokens) for row in plane.state.rows] == [(0, 0)] * 3 + [(14, 3)]


async def test_speech_as_events_is_asked_for_by_its_format() -> None:
    def use(client: openai.OpenAI) -> bytes:
        return client.audio.speech.create(model="m", input="hi", voice="alloy", stream_format="sse").content

    events = speech_stream([b"abc", b"def"], usage=(4, 9))
    async with running(events_of(events)) as plane:
        assert await using(plane, use) == b"".join(events)
        await settled(plane)
        (row,) = plane.state.rows
        assert (row.stream, row.input_tokens, row.output_tokens) == (True, 4, 9)


async def test_an_engine_without_the_route_is_an_error_the_client_knows() -> None:
    def use(client: openai.OpenAI) -> None:
        with pytest.raises(openai.NotFoundError, match="has no route /v1/images/generations") as refused:
            client.images.generate(model="m", prompt="a cat")
        assert refused.value.code == "unsupported_by_engine"
        with pytest.raises(openai.NotFoundError, match="has no route /v1/responses"):
            client.responses.create(model="m", input="hi", stream=True)
        assert client.models.retrieve("alias-of-m").id == "m"

    async with running(answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\nNot Found")) as plane:
        await using(plane, use)
        assert not plane.state.breakers
