"""Refusals in OpenAI's shape: `{"error": {"message", "type", "param", "code"}}`, whatever went wrong and wherever."""

import math
from http import HTTPStatus

import msgspec

from llmgw.router.ports import Refusal

REASONS: dict[int, bytes] = {status.value: status.phrase.encode() for status in HTTPStatus} | {
    413: b"Content Too Large",
    414: b"URI Too Long",
    416: b"Range Not Satisfiable",
    422: b"Unprocessable Content",
}
"""Reason phrases; these few have other names in RFC 9110 than in Python."""

UNSUPPORTED = "unsupported_by_engine"
"""Code of what another engine might well answer."""
ROUTER_BUSY = "router_busy"
"""Code of what is for want of something in the router itself."""


class _Error(msgspec.Struct):
    message: str
    type: str
    param: str | None
    code: str | None


class _Envelope(msgspec.Struct):
    error: _Error


_encode = msgspec.json.Encoder().encode


def body_of(refusal: Refusal) -> bytes:
    """The JSON body of a refusal."""
    message = refusal.message.encode("utf-8", "replace").decode()
    return _encode(_Envelope(_Error(message, refusal.type, refusal.param, refusal.code)))


def response_of(
    refusal: Refusal, *, request_id: str = "", keep_alive: bool = False, allow: str = "", body: bytes | None = None
) -> bytes:
    """The whole response of a refusal; `allow` lists the methods of a 405, `body` is in another shape than OpenAI's."""
    extra = ""
    if refusal.retry_after_s is not None:
        extra += f"retry-after: {max(1, math.ceil(refusal.retry_after_s))}\r\n"
    for name, value in refusal.headers:
        extra += f"{name}: {value}\r\n"
    if refusal.status == 401:
        extra += "www-authenticate: Bearer\r\n"
    if allow:
        extra += f"allow: {allow}\r\n"
    body = body_of(refusal) if body is None else body
    return json_response(refusal.status, body, request_id=request_id, keep_alive=keep_alive, extra=extra)


def json_response(status: int, body: bytes, *, request_id: str = "", keep_alive: bool = True, extra: str = "") -> bytes:
    """A whole JSON response; `extra` is further header lines, each with its CRLF."""
    reason = REASONS.get(status, b"Status")
    rid = f"x-request-id: {request_id}\r\n" if request_id else ""
    ending = "" if keep_alive else "connection: close\r\n"
    headers = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n{rid}{extra}{ending}\r\n"
    return b"HTTP/1.1 %d %b\r\n" % (status, reason) + headers.encode("latin-1") + body


def error_event(refusal: Refusal) -> bytes:
    """What a client of a broken stream reads: an event with the error, then the end."""
    return b"data: " + body_of(refusal) + b"\n\ndata: [DONE]\n\n"


def model_not_found(name: str) -> Refusal:
    """No such model, or none this key may use: the two cannot be told apart."""
    return Refusal(
        404,
        f"The model {name[:140]!r} does not exist or you do not have access to it.",
        code="model_not_found",
        param="model",
    )


def no_model_named() -> Refusal:
    """A path that ends where the model's name would begin."""
    message = "No model is named after /v1/models/: GET /v1/models lists them."
    return Refusal(404, message, code="model_not_found", param="model")


def model_unrouted(why: str) -> Refusal:
    """A model that runs, and answers nothing that is asked here."""
    return Refusal(400, f"{why[:1].upper()}{why[1:]}.", code="model_not_routed", param="model")


def invalid_key(message: str = "Incorrect API key provided.") -> Refusal:
    """No key, a malformed one, or nobody's."""
    return Refusal(401, message, code="invalid_api_key")


def not_ready(name: str) -> Refusal:
    """The model is known and no replica of it is Ready."""
    return Refusal(
        503,
        f"The model {name[:140]!r} has no ready replica at the moment; try again shortly.",
        type="service_unavailable_error",
        code="model_not_ready",
        retry_after_s=5,
    )


def none_answers(name: str, retry_after_s: float) -> Refusal:
    """Every replica of the model keeps its clients waiting, and nobody shall wait to find that out again."""
    return Refusal(
        503,
        f"No replica of the model {name[:140]!r} answers at the moment; the router tries again by itself.",
        type="service_unavailable_error",
        code="model_unavailable",
        retry_after_s=retry_after_s,
    )


def unsupported() -> Refusal:
    """The engine is well and has no such thing as what was asked for: not its failure, and no use in asking again."""
    return Refusal(400, "This model's engine does not support what was asked for.", code=UNSUPPORTED)


def no_such_route(path: str) -> Refusal:
    """The engine is well and does not know the route at all."""
    return Refusal(404, f"This model's engine has no route {path}.", code=UNSUPPORTED, param="model")


def engine_failed(status: int, message: str, code: str) -> Refusal:
    """No replica answered as it should."""
    retry_after_s = 1.0 if status == 503 else None
    return Refusal(status, message, type="server_error", code=code, retry_after_s=retry_after_s)
