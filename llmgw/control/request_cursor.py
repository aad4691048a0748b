"""Where a page of the request log ended: of each router a file, and the byte before which nothing of it was told yet.

Files grow at their ends and change their names alone, so these places stay what they are: the next page goes on exactly
there, whatever was written meanwhile and whatever times the lines bear.
"""

import base64
from typing import Annotated, NamedTuple

import msgspec

from llmgw.core.errors import InvalidInput

MAX_CURSOR_CHARS = 8192
"""Places of far more routers than one machine has."""

_Count = Annotated[int, msgspec.Meta(ge=0)]


class Place(NamedTuple):
    """A byte of one router's log."""

    router: _Count
    inode: _Count
    mark: _Count
    """Checksum of how the file begins: the inode of one that is gone may be another's."""
    offset: _Count


class Places(NamedTuple):
    """Where a page ended."""

    directory: _Count
    """Inode of the log's directory: another machine's has another one."""
    routers: tuple[Place, ...]
    """Routers that had a log when the first page was read; what others write is newer than all of it."""


_decode = msgspec.msgpack.Decoder(Places).decode
_encode = msgspec.msgpack.Encoder().encode


def cursor_of(places: Places) -> str:
    """As the API tells it, in characters that a URL takes as they are."""
    return base64.urlsafe_b64encode(_encode(places)).rstrip(b"=").decode()


def places_of(cursor: str) -> Places:
    """What a cursor says; raises InvalidInput for one that no page ever had."""
    if len(cursor) > MAX_CURSOR_CHARS:
        raise no_cursor(cursor)
    try:
        data = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        places = _decode(data)
    except (ValueError, msgspec.DecodeError):
        raise no_cursor(cursor) from None
    if len({place.router for place in places.routers}) < len(places.routers):
        raise no_cursor(cursor)
    return places


def no_cursor(cursor: str) -> InvalidInput:
    """The refusal of a cursor that is nobody's, or another log's."""
    return InvalidInput(
        f"{cursor[:40]!r} is no cursor of a page of this machine's requests: give the one of the page before as it "
        "came, or none to begin with the newest",
        field="cursor",
    )
