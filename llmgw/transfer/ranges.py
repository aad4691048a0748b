"""What an answer to `Range: bytes=N-` says of itself (RFC 9110, 14.4): where its bytes lie in a file of what size."""

import re
from dataclasses import dataclass

_SATISFIED = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18}|\*)")
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,18})")


@dataclass(frozen=True, kw_only=True)
class ContentRange:
    """One run of bytes of a file."""

    start: int
    end: int
    """The byte after its last."""
    total: int | None
    """Bytes of the whole file; none where the answer does not tell."""


def content_range(text: str) -> ContentRange | None:
    """The range of a 206; none where there is none, or it cannot be: several ranges have one each, in the body."""
    match = _SATISFIED.fullmatch(text.strip())
    if match is None:
        return None
    start, end = int(match[1]), int(match[2]) + 1
    total = None if match[3] == "*" else int(match[3])
    if end <= start or (total is not None and end > total):
        return None
    return ContentRange(start=start, end=end, total=total)


def unsatisfied_total(text: str) -> int | None:
    """Bytes of the whole file, of a 416; none where it does not tell."""
    match = _UNSATISFIED.fullmatch(text.strip())
    return int(match[1]) if match else None
