"""What an engine's error means to a client: its own fault, told in the shape it reads, or a route the engine has not.

An engine without a route is well, and no breaker hears of it.
"""

import json

import msgspec

from llmgw.router.errors import no_such_route
from llmgw.router.ports import Refusal
from llmgw.router.routes import Route

NO_ROUTE = frozenset({404, 405})
"""Answers of an engine that has no such route, or so it may be."""
_NOT_FOUND = frozenset({"", "not found", "file not found", "page not found", "method not allowed", "invalid url"})
"""What servers say of a path they do not know, as against a thing of that name which they do not have."""
_decode = msgspec.json.Decoder().decode
_read_loosely = json.JSONDecoder().raw_decode
_MESSAGE_CHARS = 2000


def engine_refusal(route: Route, status: int, body: bytes) -> Refusal | None:
    """What the client is told instead of an engine's error; none when it is for the client as it is.

    `body` is empty for one too long to be an error.
    """
    document = _document(body)
    fault = _fault(document)
    if status in NO_ROUTE and (fault is None or _is_no_route(fault)):
        return no_such_route(route.path)
    if not route.shape.translates or _is_anthropic(document):
        return None
    return _told(status, fault)


def cut_refusal(route: Route, status: int, body: bytes) -> Refusal:
    """What the client is told where an engine's error broke off after `body`."""
    return engine_refusal(route, status, body) or _told(status, _fault(_document(body)))


def _told(status: int, fault: dict[str, object] | None) -> Refusal:
    message = _text(fault, "message") or f"The model's engine answered {status}."
    kind = _text(fault, "type") or "invalid_request_error"
    return Refusal(status, message[:_MESSAGE_CHARS], type=kind, code=_text(fault, "code") or None)


def says_error(body: bytes) -> bool:
    """Whether a whole answer is an error, whatever its status says."""
    document = _document(body) if b'"error"' in body else None
    return isinstance(document, dict) and bool(document.get("error"))


def is_json(body: bytes) -> bool:
    """Whether it is a whole document, or several; not all engines write them as strictly as others read them."""
    return _document(body) is not None or _is_loose_json(body)


def _is_loose_json(body: bytes) -> bool:
    rest = body.decode("utf-8", "replace").strip()
    try:
        while rest:
            rest = rest[_read_loosely(rest)[1] :].lstrip()
    except (ValueError, RecursionError):
        return False
    return bool(body.strip())


def _document(body: bytes) -> object:
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _fault(document: object) -> dict[str, object] | None:
    """The error in a document, in whichever shape; none in what is no error of an API."""
    if not isinstance(document, dict):
        return None
    error = document.get("error")
    if isinstance(error, dict):
        return error
    if document.get("object") == "error":
        return document
    said = error or document.get("detail")
    return {"message": said} if isinstance(said, str) else None


def _is_no_route(fault: dict[str, object]) -> bool:
    return fault.get("code") == "unknown_url" or _text(fault, "message").strip(" .").lower() in _NOT_FOUND


def _is_anthropic(document: object) -> bool:
    return isinstance(document, dict) and document.get("type") == "error" and isinstance(document.get("error"), dict)


def _text(fault: dict[str, object] | None, name: str) -> str:
    value = fault.get(name) if fault is not None else None
    return value if isinstance(value, str) else ""
