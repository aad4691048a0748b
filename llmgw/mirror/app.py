"""The mirror's HTTP API: nodes ask for sets and fetch their files in ranges. Without a credential one learns nothing.

A credential is a certificate of the cluster's authority (mutual TLS) or the token of `core.secrets.mirror_token`.

    POST /v1/sets {"source": …}          ensure; answers a SetAnswer
    GET  /v1/sets/{id}                   SetAnswer, with the manifest once it is ready
    GET  /v1/sets/{id}/files/{name}      the file; Range, If-Range, ETag
"""

import hmac
import re
import ssl
from collections.abc import Callable
from urllib.parse import unquote

import msgspec
import trio

from llmgw.core.errors import LlmgwError, NotFound, Unauthenticated
from llmgw.core.identity import PeerIdentity
from llmgw.core.weights import SetAnswer, SetRequest
from llmgw.mirror.server import HttpAnswer, HttpRequest, serve_http
from llmgw.mirror.service import Mirror

_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})")
_SET_PATH = re.compile(r"/v1/sets/([a-z0-9._-]{1,100})")
_FILE_PATH = re.compile(r"/v1/sets/([a-z0-9._-]{1,100})/files/(.{1,3000})")


class _Problem(msgspec.Struct, frozen=True, kw_only=True):
    code: str
    message: str
    status: int


async def serve(
    mirror: Mirror,
    *,
    host: str,
    port: int,
    ssl_context: ssl.SSLContext | None,
    token: str,
    allow_peer: Callable[[PeerIdentity], bool] | None = None,
    task_status: trio.TaskStatus[list[trio.SocketListener]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve the mirror until cancelled; starts with the listeners.

    `allow_peer` may turn away the holder of a good certificate, such as a node that was removed.
    `ssl_context` should ask for a client certificate without requiring it (CERT_OPTIONAL); none serves plain HTTP.
    """

    async def handle(request: HttpRequest) -> HttpAnswer:
        try:
            if request.peer is None or (allow_peer is not None and not allow_peer(request.peer)):
                _check_token(request.headers.get("authorization", ""), token)
            return await _route(mirror, request)
        except LlmgwError as error:
            problem = _Problem(code=error.code, message=error.message, status=error.http_status)
            return _json(problem, status=error.http_status)

    await serve_http(
        handle, host=host, port=port, ssl_context=ssl_context, limit=mirror.serving, task_status=task_status
    )


def _check_token(authorization: str, token: str) -> None:
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode("latin-1"), token.encode()):
        raise Unauthenticated("the mirror needs a node's certificate or its token (Authorization: Bearer …)")


async def _route(mirror: Mirror, request: HttpRequest) -> HttpAnswer:
    path = request.path.partition("?")[0]
    if path == "/v1/sets" and request.method == "POST":
        return _ensure(mirror, request.body)
    if request.method in ("GET", "HEAD"):
        if match := _SET_PATH.fullmatch(path):
            return _answer(mirror, match[1])
        if match := _FILE_PATH.fullmatch(path):
            return await _file(mirror, match[1], unquote(match[2]), request)
    raise NotFound("the mirror has no such address")


def _ensure(mirror: Mirror, body: bytes) -> HttpAnswer:
    try:
        asked = msgspec.json.decode(body, type=SetRequest)
    except msgspec.MsgspecError as error:
        return _json(_Problem(code="invalid", message=f"body: {error}", status=400), status=400)
    status = mirror.ensure(asked.source)
    return _json(mirror.answer(status.id) or SetAnswer(status=status))


def _answer(mirror: Mirror, set_id: str) -> HttpAnswer:
    answer = mirror.answer(set_id)
    if answer is None:
        raise NotFound("the mirror was never asked for this set")
    return _json(answer)


async def _file(mirror: Mirror, set_id: str, name: str, request: HttpRequest) -> HttpAnswer:
    """The file or the range of it that was asked for."""
    found = mirror.file(set_id, name)
    if found is None:
        raise NotFound("the mirror has no such file, or its set is not ready")
    file, path = found
    try:
        size = (await trio.to_thread.run_sync(path.stat)).st_size
    except OSError as error:
        raise NotFound(f"{name} is gone from the mirror's disk") from error
    if size != file.bytes:
        raise NotFound(f"{name} has {size} bytes on the mirror's disk where its manifest says {file.bytes}")
    await mirror.mark_used(set_id)
    etag = f'"{file.sha256 or size}"'
    headers = {"Content-Type": "application/octet-stream", "Accept-Ranges": "bytes", "ETag": etag}
    wanted = _range(request.headers.get("range", ""), size)
    if wanted is None or request.headers.get("if-range", etag) != etag:
        return HttpAnswer(status=200, headers=headers, file=path, length=size)
    start, end = wanted
    if start >= end:
        return HttpAnswer(status=416, headers={**headers, "Content-Range": f"bytes */{size}"})
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
    return HttpAnswer(status=206, headers=headers, file=path, start=start, length=end - start)


def _range(text: str, size: int) -> tuple[int, int] | None:
    """First byte and the one past the last; none for no range, several, or one that is not understood."""
    match = _RANGE.fullmatch(text.strip())
    if match is None or match[0] == "bytes=-":
        return None
    if not match[1]:
        return max(0, size - int(match[2])), size
    end = min(size, int(match[2]) + 1) if match[2] else size
    if match[2] and int(match[2]) < int(match[1]):
        return None
    return int(match[1]), end


def _json(document: msgspec.Struct, *, status: int = 200) -> HttpAnswer:
    return HttpAnswer(
        status=status, headers={"Content-Type": "application/json"}, body=msgspec.json.encode(document) + b"\n"
    )
