"""How an attempt ends, and which answers of an engine are its own trouble."""

from enum import Enum
from typing import Final

ENGINE_REFUSES_ROUTER = frozenset({401, 403, 407})
"""Answers about the key the router showed, never the client's: another engine took the port, or it has another key."""


def engines_own(status: int) -> bool:
    """Whether an answer of this status is the engine's trouble and nothing a client should read."""
    return 300 <= status < 400 or status >= 500 or status in ENGINE_REFUSES_ROUTER


class End(Enum):
    """How a stream ended. The first group happened before a byte of an answer reached the client."""

    CLOSED = "the engine closed the connection before answering"
    GARBAGE = "the engine's answer is not HTTP"
    EMPTY = "the engine's answer was empty"
    SLOW = "the engine gave no first byte in time"
    STATUS = "the engine answered with an error of its own"

    COMPLETE = "complete"
    LOST = "the engine was lost midway"
    LEFT = "the client left"
    STALLED = "the client stopped reading"

    @property
    def before_start(self) -> bool:
        """Whether the request may be tried again."""
        return self in (End.CLOSED, End.GARBAGE, End.EMPTY, End.SLOW, End.STATUS)


COMPLETE: Final = End.COMPLETE
"""How nearly every stream ends, bound once: an enum's member is looked up by way of its metaclass, each time."""
