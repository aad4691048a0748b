"""Streams of lines from the admin API, over a unix socket of any path length or TCP with a token.

A line ends at a newline and nowhere else, and is bounded; the connection is closed when its context is left.
"""

import asyncio
import contextlib
import http
import importlib
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

import msgspec

from llmgw.api.paths import PROBLEM_TYPE, with_query
from llmgw.api.problems import ClientError, Refused, Unreachable, error_of
from llmgw.api.targets import ServerTarget
from llmgw.api.types import Problem
from llmgw.core.sockets import short_path

if TYPE_CHECKING:
    import httpx

CONNECT_TIMEOUT_S = 5.0
"""A server that is there accepts at once."""
MAX_PROBLEM_BYTES = 1024 * 1024


@contextlib.asynccontextmanager
async def open_lines(
    target: ServerTarget,
    path: str,
    query: Mapping[str, str | int | bool | None],
    *,
    max_line_bytes: int,
) -> AsyncIterator[AsyncIterator[bytes]]:
    """The lines of a GET answer, without their newline; raises ClientError with a sentence.

    A line over `max_line_bytes` is passed on in pieces of that size.
    """
    # httpx takes 0.1 s to import: the first paint must not wait for it.
    await asyncio.to_thread(importlib.import_module, "httpx")
    import httpx

    with contextlib.ExitStack() as stack:
        uds = stack.enter_context(short_path(target.socket)) if target.socket is not None else None
        transport = httpx.AsyncHTTPTransport(uds=uds, trust_env=False)
        base = "http://llmgw" if uds is not None else str(target)
        headers = {"Authorization": f"Bearer {target.token}"} if target.token else {}
        timeout = httpx.Timeout(None, connect=CONNECT_TIMEOUT_S)
        async with httpx.AsyncClient(transport=transport, base_url=base, headers=headers, timeout=timeout) as client:
            try:
                async with client.stream("GET", with_query(path, query)) as answer:
                    if answer.status_code >= http.HTTPStatus.MULTIPLE_CHOICES:
                        raise await _refusal(target, answer)
                    yield _lines(answer.aiter_bytes(), max_line_bytes)
            except (httpx.HTTPError, httpx.StreamError, OSError) as error:
                raise unreachable(target, error) from error


async def _lines(chunks: AsyncIterator[bytes], limit: int) -> AsyncIterator[bytes]:
    rest = bytearray()
    async for chunk in chunks:
        searched = len(rest)
        rest += chunk
        while (end := rest.find(b"\n", searched)) >= 0:
            yield bytes(rest[:end])
            del rest[: end + 1]
            searched = 0
        while len(rest) > limit:
            yield bytes(rest[:limit])
            del rest[:limit]
    if rest:
        yield bytes(rest)


async def _refusal(target: ServerTarget, answer: "httpx.Response") -> ClientError:
    content = bytearray()
    async for chunk in answer.aiter_bytes():
        content += chunk
        if len(content) > MAX_PROBLEM_BYTES:
            break
    if answer.headers.get("content-type", "").partition(";")[0] == PROBLEM_TYPE:
        with contextlib.suppress(msgspec.MsgspecError, ValueError):
            return error_of(msgspec.json.decode(content, type=Problem))
    return Refused(f"{target} answered {answer.status_code} {answer.reason_phrase}; is it llmgw's admin API?")


def unreachable(target: ServerTarget, error: Exception) -> Unreachable:
    """What a transport's error means, as a sentence."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, FileNotFoundError):
            return Unreachable(f"{target} is not there: no server runs, or it keeps its data elsewhere")
        if isinstance(cause, ConnectionRefusedError):
            return Unreachable(f"nothing listens at {target}: the server is down")
        if isinstance(cause, PermissionError):
            return Unreachable(f"{target} is not yours to open")
        cause = cause.__cause__ or cause.__context__
    name = type(error).__name__
    if "Timeout" in name:
        return Unreachable(f"{target} did not answer within {CONNECT_TIMEOUT_S:g} s")
    if "Protocol" in name or "Read" in name:
        return Unreachable(f"{target} broke off")
    return Unreachable(f"cannot reach {target}: {error or name}")
