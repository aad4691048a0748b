"""What a request says of where it had better go: the session it is part of, and the beginning of its prompt."""

from collections.abc import Sequence

import msgspec

from llmgw.core.routing import KeyRecord
from llmgw.router.affinity import FINE_BLOCK, READ_BYTES
from llmgw.router.fields import Fields
from llmgw.router.routes import Route

SESSION_HEADER = b"x-session-id"
MAX_SESSION_BYTES = 256
"""What is longer is no id."""


class Hints:
    """Looks at a request only as far as it is asked."""

    __slots__ = ("_fields", "_headers", "_key", "_route")

    def __init__(self, headers: Sequence[tuple[bytes, bytes]], key: KeyRecord, fields: Fields, route: Route) -> None:
        """`headers` have lower-case names."""
        self._headers = headers
        self._key = key
        self._fields = fields
        self._route = route

    @property
    def scope(self) -> str:
        """Within whom sessions and prompts are the same: the key's team, or the key alone if it has none."""
        return f"team {self._key.team}" if self._key.team else f"key {self._key.id}"

    @property
    def session(self) -> bytes:
        """The session's id, from the header or else the body; empty when there is none."""
        for name, value in self._headers:
            if name == SESSION_HEADER and 0 < len(value) <= MAX_SESSION_BYTES:
                return value
        fields = self._fields
        return _id(fields.session_id) or _id(fields.prompt_cache_key) or _id(fields.user)

    @property
    def prompt(self) -> bytes:
        """The prompt's first bytes as they stand in the body; empty when it is too short to matter or not there."""
        if not self._route.writes:
            return b""
        fields = self._fields
        raw = fields.messages or fields.prompt or fields.input
        if len(raw) < FINE_BLOCK:
            return b""
        return bytes(memoryview(raw)[:READ_BYTES])


def _id(raw: msgspec.Raw) -> bytes:
    """The string in `raw` without its quotes, escapes as they are; empty for anything else."""
    if 2 < len(raw) <= MAX_SESSION_BYTES + 2:
        value = bytes(raw)
        if value[:1] == b'"':
            return value[1:-1]
    return b""
