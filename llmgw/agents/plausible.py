"""What a node may say, and what becomes of the rest: over a limit it is refused, or counts as not said."""

import math
import re
from collections.abc import Sequence
from typing import TypeVar

from llmgw.core.cluster import MAX_NODE_CARDS
from llmgw.core.errors import InvalidInput
from llmgw.core.text import safe

MAX_CARDS = MAX_NODE_CARDS
MAX_SHARDS = 256
MAX_ENGINES = 32
MAX_PROBLEMS = 16
MAX_PARTS = 64
MAX_TOOLKITS = 16
MAX_LOG_LINES = 1000
MAX_BYTES = 2**50
"""1 PiB: no card, memory or disk of a node is larger."""
MAX_CPUS = 65_536
MAX_PID = 2**22
MAX_TOKENS = 2**31
LINE_CHARS = 4096
TEXT_CHARS = 500
NAME_CHARS = 128


T = TypeVar("T")
_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+=-]{0,254}")
HOST_PATTERN = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,252}[A-Za-z0-9])?|[0-9A-Fa-f:]{2,39}")
"""What may stand for a machine: a host name, or an address of either family."""


def clean(text: str, limit: int = TEXT_CHARS) -> str:
    """Text from a node as one harmless line of at most `limit` characters."""
    shown = safe(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def bounded(items: Sequence[T], limit: int, field: str) -> Sequence[tuple[int, T]]:
    """The items by number; raises InvalidInput for more than `limit`."""
    if len(items) > limit:
        raise InvalidInput(f"{len(items)} entries are over the limit of {limit}", field=field)
    return tuple(enumerate(items))


def identity(text: str, field: str) -> str:
    """The id; raises InvalidInput for a text that is none."""
    if not _ID_PATTERN.fullmatch(text) or any(part in ("", ".", "..") for part in text.split("/")):
        raise InvalidInput(f"{clean(text, 80)!r} is not an id: letters, digits and ._:/@+=- , 255 at most", field=field)
    return text


def whole(value: int, limit: int) -> int:
    """`value`, or 0 ("not said") when it cannot be."""
    return value if 0 <= value <= limit else 0


def size_of(value: int | None) -> int | None:
    """A count of bytes, none when it cannot be."""
    return value if value is not None and 0 <= value <= MAX_BYTES else None


def figure(value: float | None, limit: float) -> float | None:
    """A figure from 0 to `limit`, none when it is not."""
    return value if value is not None and math.isfinite(value) and 0.0 <= value <= limit else None


def column(values: Sequence[float], cards: int, field: str, limit: float) -> Sequence[float | None]:
    """One entry a card, none for each that was not reported; raises InvalidInput for another length."""
    if not values:
        return [None] * cards
    if len(values) != cards:
        raise InvalidInput(f"{len(values)} entries for {cards} cards", field=field)
    return [figure(value, limit) for value in values]
