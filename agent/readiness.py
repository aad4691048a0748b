"""Whether an engine answers and serves its model. Everything an engine says is read up to a limit, under a deadline."""

import json
from dataclasses import dataclass
from typing import Any

import httptools
import trio

HEALTH_MAX_BYTES = 64 * 1024
"""A health body is judged by its first 64 KiB."""
MODELS_MAX_BYTES = 1024 * 1024
"""A longer list of models is not read: the engine is not ready."""
HEAD_MAX_BYTES = 64 * 1024
REQUEST_TIMEOUT_S = 5.0
"""An engine on the same machine that needs longer for a health check is in trouble."""

NOT_READY_STATUSES = frozenset({"loading", "starting", "initializing", "warming_up", "error", "unhealthy"})
"""`status` in a health body that means "not yet", whatever the HTTP status."""


class NoAnswer(Exception):
    """The engine gave no whole answer; the text says what happened."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One HTTP answer."""

    status: int
    body: bytes
    cut: bool = False
    """Whether the body was longer than what was read."""
    broken: bool = False
    """Whether the connection ended before the body did, where its head says where that is."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """An engine to ask."""

    host: str
    port: int
    key: str
    """Sent as bearer token with every question."""


async def why_not_ready(target: Target, *, health_path: str, names: tuple[str, ...]) -> str:
    """Empty when the engine is healthy and lists all `names`, if any; else why it is not ready, in a few words."""
    reason = await why_not_alive(target, health_path=health_path)
    if reason or not names:
        return reason
    try:
        return judge_models(await get(target, "/v1/models", max_bytes=MODELS_MAX_BYTES), names)
    except NoAnswer as error:
        return f"/v1/models {error}"


async def why_not_alive(target: Target, *, health_path: str) -> str:
    """Empty when the engine is healthy; else why it is not. The light check of a running engine."""
    try:
        return judge_health(await get(target, health_path, max_bytes=HEALTH_MAX_BYTES))
    except NoAnswer as error:
        return f"{health_path} {error}"


async def why_not_listening(host: str, port: int) -> str:
    """Empty when something takes connections there; else why not. For what speaks no HTTP."""
    try:
        with trio.fail_after(REQUEST_TIMEOUT_S):
            stream = await trio.open_tcp_stream(host, port)
    except trio.TooSlowError:
        return f"port {port} does not answer within {REQUEST_TIMEOUT_S:g} s"
    except OSError as error:
        return f"port {port} cannot be connected to ({_cause(error)})"
    await stream.aclose()
    return ""


def judge_health(answer: Answer) -> str:
    """Empty for 200 unless the body's `status` says otherwise; a body that is no JSON object is no failure."""
    if answer.status != 200:
        return f"the health check answers {answer.status}"
    body = _json(answer.body)
    status = body.get("status") if isinstance(body, dict) else None
    if isinstance(status, str) and status.strip().lower() in NOT_READY_STATUSES:
        return f"the health check says {status.strip().lower()}"
    return ""


def judge_models(answer: Answer, names: tuple[str, ...]) -> str:
    """Empty when the answer lists every one of `names`."""
    if answer.status != 200:
        return f"/v1/models answers {answer.status}"
    if answer.cut:
        return f"/v1/models answers more than {MODELS_MAX_BYTES} bytes"
    listed = _listed(_json(answer.body))
    missing = [name for name in names if name not in listed]
    if not missing:
        return ""
    shown = ", ".join(sorted(listed)[:5])[:200] or "nothing"
    return f"/v1/models lists {shown}, not {', '.join(missing)}"


def _listed(body: Any) -> set[str]:  # noqa: ANN401 - any JSON an engine may say
    rows = body.get("data") if isinstance(body, dict) else None
    if not isinstance(rows, list):
        return set()
    return {row["id"] for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)}


def _json(body: bytes) -> Any:  # noqa: ANN401 - any JSON an engine may say
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


async def get(target: Target, path: str, *, max_bytes: int, timeout_s: float = REQUEST_TIMEOUT_S) -> Answer:
    """One GET on a connection of its own; raises NoAnswer. At most `max_bytes` of the body are kept and read."""
    try:
        with trio.fail_after(timeout_s):
            stream = await trio.open_tcp_stream(target.host, target.port)
            async with stream:
                await stream.send_all(_request(target, path))
                return await _read(stream, max_bytes)
    except trio.TooSlowError:
        raise NoAnswer(f"did not answer within {timeout_s:g} s") from None
    except (OSError, trio.BrokenResourceError) as error:
        raise NoAnswer(f"cannot be asked ({_cause(error)})") from error


def _request(target: Target, path: str) -> bytes:
    host = f"[{target.host}]" if ":" in target.host else target.host
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}:{target.port}", "Accept: application/json", "Connection: close"]
    if target.key:
        lines.append(f"Authorization: Bearer {target.key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _read(stream: trio.SocketStream, max_bytes: int) -> Answer:
    reader = _Reader(max_bytes)
    parser = httptools.HttpResponseParser(reader)
    head_bytes = 0
    while not reader.done:
        chunk = await stream.receive_some(16 * 1024)
        if not chunk:
            if not reader.headed:
                raise NoAnswer("closed the connection without an answer")
            break
        if not reader.headed:
            head_bytes += len(chunk)
            if head_bytes > HEAD_MAX_BYTES + 16 * 1024:
                raise NoAnswer(f"answers with more than {HEAD_MAX_BYTES} bytes of headers")
        try:
            parser.feed_data(chunk)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise NoAnswer("does not answer in HTTP") from error
    broken = reader.framed and not reader.done
    return Answer(status=parser.get_status_code(), body=bytes(reader.body[:max_bytes]), cut=reader.cut, broken=broken)


class _Reader:
    """httptools' callbacks; done when the message is whole or as much as is wanted was read."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self.body = bytearray()
        self.headed = self.done = self.cut = False
        self.framed = False
        """Whether the head says where the body ends."""

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self.framed = True

    def on_headers_complete(self) -> None:
        self.headed = True

    def on_body(self, data: bytes) -> None:
        self.body += data
        if len(self.body) > self._max_bytes:
            self.cut = self.done = True

    def on_message_complete(self) -> None:
        self.done = True


def _cause(error: BaseException) -> str:
    """The system's words for a failed connect, whose OSError trio raises from the attempts' own."""
    inner = error.__cause__ or error
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__)[:120]
