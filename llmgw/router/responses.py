"""Heads of answers to clients: the engine's status and harmless headers, and framing that is always our own."""

import re
from enum import Enum

from llmgw.router.errors import REASONS
from llmgw.router.upstream import Header

_DROPPED = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
        b"content-length",
        b"set-cookie",
        b"set-cookie2",
        b"server",
        b"date",
        b"via",
        b"location",
        b"www-authenticate",
        b"x-request-id",
        b"x-accel-buffering",
        b"x-powered-by",
        b"alt-svc",
        b"strict-transport-security",
    }
)
"""Headers that speak of the engine's own connection, host or software, or that an engine has no say in."""
_PREFIXES = (b"x-llmgw-", b"access-control-")
_PLAIN_VALUE = re.compile(rb"[\t \x21-\x7e\x80-\xff]*")


class Framing(Enum):
    """How the client sees where the body ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


def is_event_stream(headers: list[Header]) -> bool:
    """Whether the engine announced server-sent events."""
    return any(n == b"content-type" and v[:17].lower() == b"text/event-stream" for n, v in headers)


def head_of(
    status: int, headers: list[Header], *, request_id: bytes, http11: bool, events: bool, keep_alive: bool
) -> tuple[bytes, Framing]:
    """The head for the client and the framing it announces; `events` bodies may change length on the way."""
    lines = [b"HTTP/1.1 %d %b" % (status, REASONS.get(status, b"Status"))]
    length: bytes | None = None
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif _may_pass(name) and _PLAIN_VALUE.fullmatch(value):
            lines.append(name + b": " + value)
    lines.append(b"x-request-id: " + request_id)
    if status in (204, 304):
        framing = Framing.LENGTH
    elif length is not None and length.isdigit() and not events:
        framing = Framing.LENGTH
        lines.append(b"content-length: " + length)
    elif http11:
        framing = Framing.CHUNKED
        lines.append(b"transfer-encoding: chunked")
    else:
        framing = Framing.CLOSE
    if events:
        lines.append(b"x-accel-buffering: no")
    if not keep_alive or framing is Framing.CLOSE:
        lines.append(b"connection: close")
    lines.append(b"\r\n")
    return b"\r\n".join(lines), framing


def _may_pass(name: bytes) -> bool:
    return name not in _DROPPED and not name.startswith(_PREFIXES) and b"_" not in name
