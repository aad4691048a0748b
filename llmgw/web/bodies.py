"""Bodies in and out: strict decoding that names the field, bounded bodies, problem documents, line streams."""

import math
from types import TracebackType
from typing import TypeVar

import msgspec
import trio
from quart import Request, Response
from quart.wrappers.response import ResponseBody
from werkzeug.exceptions import RequestEntityTooLarge, RequestTimeout

from llmgw.api.paths import MAX_BODY_BYTES, PROBLEM_TYPE
from llmgw.api.problems import problem_of
from llmgw.api.types import Problem
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.core.strict import refuse_unknown

MAX_BATCH_BYTES = 64 * 1024
"""Lines that wait are sent together up to this much."""
STEP_BYTES = 16 * 1024
"""Of a body, within its app's `BODY_TIMEOUT`: a slow one is taken, one that drips is not."""

S = TypeVar("S", bound=msgspec.Struct)


class TooLarge(LlmgwError):
    """The body is over the limit."""

    code = "too_large"
    http_status = 413


class TooSlow(LlmgwError):
    """The body did not come in time."""

    code = "timeout"
    http_status = 408


async def read_body(request: Request, type_: type[S]) -> S:
    """The request's body as a `type_`; raises InvalidInput naming the field, TooLarge or TooSlow."""
    try:
        data = await _whole(request)
    except RequestEntityTooLarge as error:
        raise TooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes") from error
    except RequestTimeout as error:
        raise TooSlow("the request's body did not come in time") from error
    if not data:
        raise InvalidInput(f"a body is needed: JSON of {type_.__name__}")
    try:
        body = msgspec.json.decode(data, type=type_)
        refuse_unknown(msgspec.json.decode(data), type_)
        return body
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `")
        raise InvalidInput(text, field=path.rstrip("`").removeprefix("$").lstrip(".") or None) from error
    except RecursionError as error:
        raise InvalidInput("the body is nested too deeply") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the body is not JSON: {error}") from error


async def _whole(request: Request) -> bytes:
    """All of the body; raises RequestEntityTooLarge or RequestTimeout."""
    most, patience_s = request.max_content_length, request.body_timeout
    data, step_at = bytearray(), 0
    while True:
        with trio.move_on_after(math.inf if patience_s is None else patience_s):
            async for piece in request.body:
                data += piece
                if most is not None and len(data) > most:
                    raise RequestEntityTooLarge
                if len(data) - step_at >= STEP_BYTES:
                    break
            else:
                return bytes(data)
        if len(data) - step_at < STEP_BYTES:
            raise RequestTimeout
        step_at = len(data)


def document(value: object, *, status: int = 200) -> Response:
    """`value` as a JSON answer."""
    return Response(msgspec.json.encode(value), status=status, content_type="application/json")


def problem_response(problem: Problem) -> Response:
    """A refusal as its document; a 401 also says what would be accepted, a 503 when to try again."""
    response = Response(msgspec.json.encode(problem), status=problem.status, content_type=PROBLEM_TYPE)
    if problem.status == 401:
        response.headers["WWW-Authenticate"] = 'Bearer realm="llmgw"'
    if problem.status == 503:
        response.headers["Retry-After"] = "2"
    return response


def refusal(error: LlmgwError) -> Response:
    """The answer for a domain error."""
    return problem_response(problem_of(error))


class LinesBody(ResponseBody):
    """Lines of a channel as chunks of text, as they come. Owns the channel.

    An item that is an error breaks the answer off, so that a client never takes a part for the whole.
    """

    def __init__(self, lines: trio.MemoryReceiveChannel[str | LlmgwError], first: str | None = None) -> None:
        """`first` is a line that was taken from the channel already."""
        self._lines = lines
        self._first = first

    async def __aenter__(self) -> "LinesBody":
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, tb: TracebackType | None
    ) -> None:
        self._lines.close()

    def __aiter__(self) -> "LinesBody":
        return self

    async def __anext__(self) -> bytes:
        try:
            first, self._first = self._first, None
            batch = _encode(await self._lines.receive() if first is None else first)
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        while len(batch) < MAX_BATCH_BYTES:
            try:
                batch += _encode(self._lines.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        return batch


def _encode(item: str | LlmgwError) -> bytes:
    if isinstance(item, LlmgwError):
        raise item
    return item.replace("\n", "\\n").encode(errors="replace") + b"\n"
