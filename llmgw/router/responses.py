"""Heads of answers to clients: the engine's status and harmless headers, and framing that is always our own."""

import functools
import re
from enum import Enum
from typing import Final

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
        b"openai-organization",
        b"openai-project",
    }
)
"""Headers that speak of the engine's own connection, host or software, or that an engine has no say in."""
HEADS_KNOWN = 32
"""Heads of engines remembered; one is 64 KiB at most and a few hundred bytes as a rule."""
_PREFIXES = (b"x-llmgw-", b"access-control-", b"x-ratelimit-")
"""A provider's limits are those of the gateway's account there, and no client's."""
_PLAIN_VALUE = re.compile(rb"[\t \x21-\x7e\x80-\xff]*")


class Framing(Enum):
    """How the client sees where the body ends."""

    LENGTH = "length"
    CHUNKED = "chunked"
    CLOSE = "close"


LENGTH: Final = Framing.LENGTH  # bound once: an enum's member is looked up by way of its metaclass, each time
CHUNKED: Final = Framing.CHUNKED
CLOSE: Final = Framing.CLOSE


def is_event_stream(headers: list[Header]) -> bool:
    """Whether these are server-sent events that can be read: what is compressed, unasked, cannot."""
    return not is_encoded(headers) and any(
        n == b"content-type" and v[:17].lower() == b"text/event-stream" for n, v in headers
    )


def is_encoded(headers: list[Header]) -> bool:
    """Whether the body is compressed."""
    return any(n == b"content-encoding" and v.strip().lower() not in (b"", b"identity") for n, v in headers)


def head_of(
    status: int,
    headers: list[Header],
    *,
    request_id: bytes,
    http11: bool,
    events: bool,
    keep_alive: bool,
    extra: bytes = b"",
) -> tuple[bytes, Framing]:
    """The head for the client and the framing it announces; `events` bodies may change length on the way.

    `extra` are lines of ours, on rate limits and on who answers, each with its CRLF; an engine's own are left out.
    """
    passed, length = _passed(tuple(headers))
    lines = [b"HTTP/1.1 %d %b\r\n%bx-request-id: %b" % (status, REASONS.get(status, b"Status"), passed, request_id)]
    if status in (204, 304):
        framing: Framing = LENGTH
    elif length is not None and length.isdigit() and not events:
        framing = LENGTH
        lines.append(b"content-length: " + length)
    elif http11:
        framing = CHUNKED
        lines.append(b"transfer-encoding: chunked")
    else:
        framing = CLOSE
    if events:
        lines.append(b"x-accel-buffering: no")
    if not keep_alive or framing is CLOSE:
        lines.append(b"connection: close")
    lines.append(extra + b"\r\n")
    return b"\r\n".join(lines), framing


@functools.lru_cache(maxsize=HEADS_KNOWN)
def _passed(headers: tuple[Header, ...]) -> tuple[bytes, bytes | None]:
    """The lines of what goes to the client, and the length the engine gave; engines repeat their heads for a second."""
    length: bytes | None = None
    lines = b""
    # What `Connection` names speaks of the engine's connection as well.
    hops = {word.strip().lower() for name, value in headers if name == b"connection" for word in value.split(b",")}
    for name, value in headers:
        if name == b"content-length":
            length = value
        elif name not in hops and _may_pass(name) and _PLAIN_VALUE.fullmatch(value):
            lines += b"%b: %b\r\n" % (name, value)
    return lines, length


def _may_pass(name: bytes) -> bool:
    return name not in _DROPPED and not name.startswith(_PREFIXES) and b"_" not in name
