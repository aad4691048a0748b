"""An answer of the client API as it streams: pieces of text, then why it ended and what it used.

Leaving the iterator closes the connection, which is how a client tells the router that nobody reads any more. What the
server says is bounded: an event, an error body and a line have a longest length.
"""

import asyncio
import contextlib
import http
import importlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from llmgw.api.problems import ClientError, Denied, Refused, Unreachable

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
"""A router that is there accepts at once."""
MAX_EVENT_BYTES = 1024 * 1024
MAX_ERROR_BYTES = 64 * 1024
CHAT_PATH = "/v1/chat/completions"


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One message of the conversation."""

    role: str
    """`user` or `assistant`."""
    text: str


@dataclass(frozen=True, kw_only=True)
class Piece:
    """Some text of the answer, usually one token's."""

    text: str
    thinking: bool = False
    """Whether it is the model's reasoning, which is not part of the answer."""


@dataclass(frozen=True, kw_only=True)
class Ended:
    """The end of a whole answer."""

    reason: str
    """`stop`, `length`, …; empty when the engine gave none."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    """None where the engine did not count."""


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    delta: _Delta | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw()


class _Error(msgspec.Struct):
    message: str = ""
    code: str | int | None = None


class _ErrorBody(msgspec.Struct):
    error: msgspec.Raw


_CHUNK = msgspec.json.Decoder(_Chunk)


async def ask(url: str, key: str, model: str, turns: Sequence[Turn]) -> AsyncGenerator[Piece | Ended, None]:
    """Have `model` go on from `turns`; the last item is `Ended`. Raises ClientError with a sentence.

    `url` is the client API's without a path. Close the iterator to end the answer.
    """
    # httpx takes 0.1 s to import, which the first paint must not wait for.
    await asyncio.to_thread(importlib.import_module, "httpx")
    import httpx

    body = {
        "model": model,
        "messages": [{"role": turn.role, "content": turn.text} for turn in turns],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json", "Accept": "text/event-stream"}
    async with httpx.AsyncClient(trust_env=False, timeout=timeout) as client:
        try:
            async with client.stream(
                "POST", url.rstrip("/") + CHAT_PATH, content=msgspec.json.encode(body), headers=headers
            ) as answer:
                await _check(answer, url)
                async with contextlib.aclosing(_answer(_events(answer.aiter_bytes()))) as items:
                    async for item in items:
                        yield item
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise _unreachable(url, error) from error


async def _check(answer: "httpx.Response", url: str) -> None:
    """Raise what an answer that is no stream means."""
    if answer.status_code < http.HTTPStatus.MULTIPLE_CHOICES:
        kind = answer.headers.get("content-type", "")
        if kind.partition(";")[0].strip() != "text/event-stream":
            raise Refused(f"{url} answered with {kind[:60] or 'nothing known'} where a stream was asked for")
        return
    content = bytearray()
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > MAX_ERROR_BYTES:
            break
    try:
        sentence = _sentence(msgspec.json.decode(content, type=_ErrorBody).error)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        sentence = f"{url} answered {answer.status_code} {answer.reason_phrase}; is it the client API?"
    kind_of = Denied if answer.status_code in (401, 403) else Refused
    raise kind_of(sentence)


def _sentence(error: msgspec.Raw) -> str:
    """OpenAI's error object as a sentence; some engines say a string."""
    try:
        told = msgspec.json.decode(error, type=_Error | str)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return f"the server said: {bytes(error)[:300].decode(errors='replace')}"
    if isinstance(told, str):
        return told
    return told.message or f"the server refused it with code {told.code}"


async def _answer(events: AsyncIterator[bytes]) -> AsyncGenerator[Piece | Ended, None]:
    reason, usage, done = "", _Usage(), False
    async for event in events:
        if event == b"[DONE]":
            done = True
            break
        try:
            chunk = _CHUNK.decode(event)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise Refused(f"the server sent an event that is no part of an answer: {str(error)[:200]}") from error
        if bytes(chunk.error) not in (b"", b"null"):
            raise Refused(_sentence(chunk.error))
        usage = chunk.usage or usage
        for choice in chunk.choices[:1]:
            reason = choice.finish_reason or reason
            delta = choice.delta or _Delta()
            if delta.reasoning_content:
                yield Piece(text=delta.reasoning_content, thinking=True)
            if delta.content:
                yield Piece(text=delta.content)
    if not done and not reason:
        raise Unreachable("the answer broke off before its end")
    yield Ended(reason=reason, input_tokens=usage.prompt_tokens, output_tokens=usage.completion_tokens)


async def _events(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Data of each server-sent event; an engine's events are one line each."""
    rest = bytearray()
    async for chunk in chunks:
        searched = len(rest)
        rest += chunk
        while (end := rest.find(b"\n", searched)) >= 0:
            line = bytes(rest[:end]).rstrip(b"\r")
            del rest[: end + 1]
            searched = 0
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
        if len(rest) > MAX_EVENT_BYTES:
            raise Refused(f"the server sent an event of more than {MAX_EVENT_BYTES:,} bytes")


def _unreachable(url: str, error: Exception) -> ClientError:
    name = type(error).__name__
    if name == "ConnectTimeout":
        return Unreachable(f"{url} did not answer within {CONNECT_TIMEOUT_S:g} s")
    if name == "ConnectError":
        return Unreachable(f"nothing answers at {url} from this machine: {error}")
    if name in ("InvalidURL", "UnsupportedProtocol", "LocalProtocolError"):
        return Refused(f"{url} cannot be asked: {error}")
    return Unreachable("the answer broke off before its end")
