"""The API key in a request head: from exactly one header, or the request is refused."""

import re

from llmgw.router.errors import invalid_key
from llmgw.router.heads import RequestHead

_BEARER = re.compile(rb"(?i:bearer) +([\x21-\x7e]{1,512})")
_BARE = re.compile(rb"[\x21-\x7e]{1,512}")


def api_key_of(head: RequestHead) -> bytes | None:
    """The key from `Authorization: Bearer`, `x-api-key` or `api-key`; none when there is none.

    Raises Refusal (401) for a malformed one, and for two headers that name different keys.
    """
    once = head.once
    authorization = once.get(b"authorization")
    found: set[bytes] = set()
    if authorization is not None:
        match = _BEARER.fullmatch(authorization)
        if match is None:
            raise invalid_key("The Authorization header must be 'Bearer' and an API key.")
        found.add(match.group(1))
    for name in (b"x-api-key", b"api-key"):
        value = once.get(name)
        if value is not None:
            if not _BARE.fullmatch(value):
                raise invalid_key(f"The header {name.decode()} must be an API key.")
            found.add(value)
    if len(found) > 1:
        raise invalid_key("Two headers name different API keys.")
    return found.pop() if found else None
