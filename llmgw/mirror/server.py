"""A small HTTP/1.1 server for files over trio streams: one request a connection, every wait under a deadline.

It exists for mutual TLS: the handler sees the client's certificate as the TLS session itself has it.
"""

import logging
import os
import ssl
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

import httptools
import trio

from llmgw.core.identity import PeerIdentity, peer_identity
from llmgw.transfer.limit import PIECE_S, Limit
from llmgw.transfer.moving import MovingStream

MAX_HEADER_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
REQUEST_DEADLINE_S = 10.0
"""TLS handshake and the whole request."""
SEND_STALL_S = 60.0
"""A client that takes nothing for this long is let go."""
MAX_CONNECTIONS = 512
CHUNK_BYTES = 1024 * 1024
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One whole request."""

    method: str
    path: str
    """Undecoded, query included."""
    headers: dict[str, str]
    """Names in lower case. A repeated header is refused before the handler sees it."""
    body: bytes
    peer: PeerIdentity | None
    """Who the client is by its certificate of the cluster's authority, if it showed one."""


@dataclass(frozen=True, kw_only=True)
class HttpAnswer:
    """What to send back: `body`, or `length` bytes of `file` from `start`."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    file: Path | None = None
    start: int = 0
    length: int = 0


Handler = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class BadRequest(Exception):
    """The request breaks HTTP or a limit; answered with `status` and the connection closed."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


async def serve_http(
    handler: Handler,
    *,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None,
    limit: Limit,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled, files no faster than `limit`; starts with the listeners (port 0 picks a free one)."""
    slots = trio.Semaphore(MAX_CONNECTIONS)

    async def connection(stream: trio.SocketStream) -> None:
        try:
            slots.acquire_nowait()
        except trio.WouldBlock:
            await trio.aclose_forcefully(stream)
            return
        try:
            await _serve_connection(stream, handler, ssl_context, limit)
        finally:
            slots.release()

    listeners = await trio.open_tcp_listeners(port, host=host)
    await trio.serve_listeners(connection, listeners, task_status=task_status)


async def _serve_connection(
    raw: trio.SocketStream, handler: Handler, ssl_context: ssl.SSLContext | None, limit: Limit
) -> None:
    moving = MovingStream(raw, stall_s=SEND_STALL_S)
    stream: MovingStream | trio.SSLStream[MovingStream] = moving
    if ssl_context is not None:
        stream = trio.SSLStream(moving, ssl_context, server_side=True, https_compatible=True)
    try:
        head_only = False
        try:
            with trio.fail_after(REQUEST_DEADLINE_S):
                request = await _read_request(stream)
            head_only = request.method == "HEAD"
            answer = await handler(request)
        except BadRequest as error:
            answer = HttpAnswer(status=error.status, body=str(error).encode() + b"\n")
        await _send(stream, answer, limit, head_only=head_only)
        with trio.move_on_after(1):
            await stream.aclose()
    except (OSError, trio.BrokenResourceError, trio.TooSlowError):
        pass  # the client left, was too slow, or its TLS handshake failed: nobody is there to be told
    # A border of supervision: one request's failure must not end the server.
    except Exception:
        _LOG.exception("a request to the mirror failed")
    finally:
        await trio.aclose_forcefully(raw)


class _Parse:
    """Collects one request from llhttp's callbacks."""

    def __init__(self) -> None:
        self.url = b""
        self.headers: dict[str, str] = {}
        self.body = b""
        self.whole = False
        self.problem: BadRequest | None = None

    def on_url(self, url: bytes) -> None:
        if not self.whole:
            self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.whole:
            return
        key = name.decode("latin-1").lower()
        if key in self.headers:
            self.problem = BadRequest(400, f"the header {key} is there twice")
        self.headers[key] = value.decode("latin-1").strip()

    def on_headers_complete(self) -> None:
        if "transfer-encoding" in self.headers:
            self.problem = BadRequest(411, "send a Content-Length")

    def on_body(self, body: bytes) -> None:
        if not self.whole:
            self.body += body
            if len(self.body) > MAX_BODY_BYTES:
                self.problem = BadRequest(413, f"a body has at most {MAX_BODY_BYTES} bytes")

    def on_message_complete(self) -> None:
        self.whole = True


async def _read_request(stream: MovingStream | trio.SSLStream[MovingStream]) -> HttpRequest:
    peer = None
    if isinstance(stream, trio.SSLStream):
        await stream.do_handshake()
        peer = peer_identity(stream.getpeercert())
    parse = _Parse()
    parser = httptools.HttpRequestParser(parse)
    received = 0
    while not parse.whole:
        data = await stream.receive_some(MAX_HEADER_BYTES)
        if not data:
            raise OSError("the client closed the connection")
        received += len(data)
        try:
            parser.feed_data(bytes(data))
        except httptools.HttpParserError as error:
            raise BadRequest(400, "this is not an HTTP/1.1 request") from error
        if parse.problem is not None:
            raise parse.problem
        if received - len(parse.body) > MAX_HEADER_BYTES:
            raise BadRequest(431, f"a header has at most {MAX_HEADER_BYTES} bytes")
    return HttpRequest(
        method=parser.get_method().decode("latin-1"),
        path=parse.url.decode("latin-1"),
        headers=parse.headers,
        body=parse.body,
        peer=peer,
    )


async def _send(stream: trio.abc.Stream, answer: HttpAnswer, limit: Limit, *, head_only: bool) -> None:
    length = answer.length if answer.file is not None else len(answer.body)
    lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    lines.append(f"Content-Length: {length}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    await stream.send_all(head if head_only or answer.file is not None else head + answer.body)
    if answer.file is not None and not head_only:
        await _send_file(stream, answer.file, answer.start, answer.length, limit)


async def _send_file(stream: trio.abc.Stream, path: Path, start: int, length: int, limit: Limit) -> None:
    descriptor = await trio.to_thread.run_sync(os.open, path, os.O_RDONLY | os.O_CLOEXEC)
    space = memoryview(bytearray(min(CHUNK_BYTES, length)))
    try:
        while length:
            piece = space[: min(length, limit.within(PIECE_S, CHUNK_BYTES))]
            got = _read_cached(descriptor, piece, start)
            if not got:
                got = await trio.to_thread.run_sync(os.preadv, descriptor, [piece], start)
            if not got:
                raise OSError(f"{path} is shorter than its manifest says")
            await stream.send_all(piece[:got])
            await limit.pay(got)
            start += got
            length -= got
    finally:
        os.close(descriptor)


def _read_cached(descriptor: int, space: memoryview, start: int) -> int:
    """What memory holds of the file already, read without a thread; 0 where only the disk has it."""
    try:
        return os.preadv(descriptor, [space], start, os.RWF_NOWAIT)
    except OSError:
        return 0  # not in memory, or a file system that cannot say so: a thread reads it
