"""What is not inference goes to the control plane's public app, one connection a request, without the router's headers.

Only allow-listed prefixes reach it, with paths that `heads.check_path` took; whatever a client claims about internal
matters is dropped on the way. Of its address it is told what the router found; of the rest a proxy may say, what one
that is believed said.
"""

import contextlib
import re
import socket
import time
from collections.abc import Coroutine
from pathlib import Path

import trio

from llmgw.core.sockets import short_path
from llmgw.router.front import ClientConnection, Gone
from llmgw.router.heads import RequestHead
from llmgw.router.limits import BODY_TOTAL_S, MAX_HEAD_BYTES, MAX_RELAYED_BODY_BYTES, RECV_BYTES
from llmgw.router.ports import Refusal

PREFIXES = (b"/leader", b"/portal", b"/v1/files", b"/v1/batches", b"/mcp")
"""Paths of the public app; each stands for itself and what is below it."""
CONNECT_S = 5.0
"""How long the public app may take to accept."""
ANSWER_STALL_S = 120.0
"""How long it may say nothing."""
_DROPPED = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"content-length",
        b"upgrade",
        b"http2-settings",
        b"expect",
        b"forwarded",
        b"x-real-ip",
        b"x-request-id",
        b"x-http-method",
        b"x-http-method-override",
        b"x-method-override",
        b"x-original-url",
        b"x-rewrite-url",
        b"x-client-ip",
        b"true-client-ip",
    }
)
_INTERNAL = (b"x-llmgw-", b"x-forwarded-")
_TOLD_BY_PROXIES = frozenset({b"x-forwarded-proto", b"x-forwarded-host"})
"""What only the proxy that ends the client's TLS knows."""
_ANSWER_HEAD = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})(?: [\t\x20-\x7e\x80-\xff]*)?\r\n")


def is_public(path: bytes) -> bool:
    """Whether the path belongs to the public app."""
    if b"%2f" in path.lower():
        return False
    return any(path == prefix or path.startswith(prefix + b"/") for prefix in PREFIXES)


async def relay(
    conn: ClientConnection, head: RequestHead, public_socket: Path, request_id: str, *, believed: bool = False
) -> None:
    """Relay one request; the client's connection ends with the answer. Raises Refusal or Gone.

    `believed` says that the connection is a trusted proxy's.
    """
    if head.content_length > MAX_RELAYED_BODY_BYTES:
        raise _too_long()
    stream = await _connect(public_socket)
    async with stream:
        failures: list[Exception] = []
        async with trio.open_nursery() as nursery:
            conn.on_gone = nursery.cancel_scope.cancel
            body = trio.CancelScope()
            request = _request_head(conn, head, request_id, believed=believed)
            nursery.start_soon(_guarded, failures, nursery.cancel_scope, _send_body(conn, head, stream, request, body))
            await _guarded(failures, nursery.cancel_scope, _answer(conn, stream, request_id, body))
            nursery.cancel_scope.cancel()
        conn.on_gone = None
    if failures:
        raise failures[0]


async def _guarded(failures: list[Exception], scope: trio.CancelScope, work: Coroutine[object, object, None]) -> None:
    """Run one direction; what ends it ends both."""
    try:
        await work
    except (Refusal, Gone) as error:
        failures.append(error)
        scope.cancel()


async def _connect(path: Path) -> trio.SocketStream:
    sock = trio.socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with trio.fail_after(CONNECT_S), short_path(path) as name:
            await sock.connect(name)
    except (OSError, trio.TooSlowError):
        sock.close()
        raise _away() from None
    return trio.SocketStream(sock)


def _too_long() -> Refusal:
    return Refusal(413, f"The body is longer than {MAX_RELAYED_BODY_BYTES} bytes.", code="bad_request")


def _away() -> Refusal:
    return Refusal(
        503,
        "The control plane is away at the moment; inference goes on.",
        type="service_unavailable_error",
        code="control_plane_away",
        retry_after_s=2,
    )


def _request_head(conn: ClientConnection, head: RequestHead, request_id: str, *, believed: bool) -> bytes:
    version = b" HTTP/1.1" if head.http11 else b" HTTP/1.0"  # so that the answer's framing is one the client knows
    lines = [head.method + b" " + head.path + head.query + version]
    names = [name for name, _ in head.headers]
    told = {name for name in _TOLD_BY_PROXIES if believed and names.count(name) == 1}
    options = {option.strip() for value in _values(head, b"connection") for option in value.lower().split(b",")}
    for name, value in head.headers:
        internal = name.startswith(_INTERNAL) and name not in told
        if not internal and name not in _DROPPED and name not in options and b"_" not in name:
            lines.append(name + b": " + value)
    if b"host" not in head.once:
        lines.append(b"host: localhost")
    lines.append(b"x-forwarded-for: " + conn.address.encode("ascii", "replace"))
    lines.append(b"x-request-id: " + request_id.encode())
    if head.chunked:
        lines.append(b"transfer-encoding: chunked")
    elif b"content-length" in head.once:
        lines.append(b"content-length: %d" % head.content_length)
    lines.append(b"connection: close\r\n\r\n")
    return b"\r\n".join(lines)


def _values(head: RequestHead, wanted: bytes) -> list[bytes]:
    return [value for name, value in head.headers if name == wanted]


async def _send_body(
    conn: ClientConnection, head: RequestHead, stream: trio.SocketStream, request: bytes, scope: trio.CancelScope
) -> None:
    """Send the request. An app that answers early ends it: from then on only the answer uses the client's socket."""
    sent, until = 0, time.monotonic() + BODY_TOTAL_S
    with scope, contextlib.suppress(trio.BrokenResourceError):
        await stream.send_all(request)
        while (part := await conn.read_some(head, until=until)) is not None:
            sent += len(part)
            if sent > MAX_RELAYED_BODY_BYTES:
                raise _too_long()
            await stream.send_all(b"%x\r\n%b\r\n" % (len(part), part) if head.chunked else part)
        if head.chunked:
            await stream.send_all(b"0\r\n\r\n")


async def _answer(conn: ClientConnection, stream: trio.SocketStream, request_id: str, body: trio.CancelScope) -> None:
    """Pass the answer on as it comes; its end is the connection's."""
    buffer = b""
    while (end := buffer.find(b"\r\n\r\n")) < 0:
        data = await _receive(stream)
        buffer += data
        if not data or len(buffer) > 4 * MAX_HEAD_BYTES:
            raise _away()
    answer = _answer_head(buffer[: end + 4], request_id) + buffer[end + 4 :]
    body.cancel()
    await trio.lowlevel.checkpoint()
    while answer:
        await conn.write(answer)
        answer = await _receive(stream)


async def _receive(stream: trio.SocketStream) -> bytes:
    with trio.move_on_after(ANSWER_STALL_S), contextlib.suppress(trio.BrokenResourceError):
        return bytes(await stream.receive_some(RECV_BYTES))
    return b""


def _answer_head(raw: bytes, request_id: str) -> bytes:
    if not _ANSWER_HEAD.match(raw):
        raise _away()
    lines = raw[:-4].split(b"\r\n")
    kept = [lines[0]]
    for line in lines[1:]:
        name = line.partition(b":")[0].strip().lower()
        if name not in (b"connection", b"keep-alive", b"server", b"x-request-id") and not name.startswith(b"x-llmgw-"):
            kept.append(line)
    return b"\r\n".join([*kept, b"x-request-id: " + request_id.encode(), b"connection: close\r\n\r\n"])
