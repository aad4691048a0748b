"""Tokens as engines say them, in the words of each API: counts of 0..MAX_COUNT, or nothing is said.

`input_tokens` is all that was read, from a cache or not: the one meaning that bills and limits know. An engine whose
figures cannot be counts said nothing, so that its answers are not taken for free ones, nor for ones beyond all price.
"""

import json
from dataclasses import dataclass

from llmgw.router.limits import MAX_COUNT

_COUNTS = (
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_NAME = b'"usage"'
_MENTIONS = 4
"""How many of them are looked at: the others may be null, or somebody else's."""


@dataclass(slots=True)
class Usage:
    """Tokens as the engine counted them, bounded."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    output_unsaid: bool = False
    """What was written was left out, which is not the same as nothing."""


class _Impossible(Exception):
    """A figure that is no count."""


def usage_from(document: object) -> Usage | None:
    """What a `usage` object says, in OpenAI's older or newer words or Anthropic's; none when it names no counts."""
    if not isinstance(document, dict) or not _names_counts(document):
        return None
    try:
        return _read(document)
    except _Impossible:
        return None


def _names_counts(document: dict[str, object]) -> bool:
    for name in _COUNTS:  # noqa: SIM110 - once a request, and a generator costs four times as much
        if document.get(name) is not None:
            return True
    return False


def _read(document: dict[str, object]) -> Usage:
    if "prompt_tokens" in document or not ("input_tokens" in document or "output_tokens" in document):
        prompt, unsaid = _count(document.get("prompt_tokens")), document.get("completion_tokens") is None
        if not prompt and "prompt_tokens" not in document and "completion_tokens" not in document:
            prompt, unsaid = _count(document.get("total_tokens")), False  # rerankers that only read name nothing else
        cached = _cached(document.get("prompt_tokens_details"))
        return Usage(prompt, min(cached, prompt), _count(document.get("completion_tokens")), unsaid)
    read, output = _count(document.get("input_tokens")), _count(document.get("output_tokens"))
    unsaid = document.get("output_tokens") is None
    if "cache_read_input_tokens" in document or "cache_creation_input_tokens" in document:
        # Anthropic counts as input only what no cache had to do with.
        cached = _count(document.get("cache_read_input_tokens"))
        whole = min(read + cached + _count(document.get("cache_creation_input_tokens")), MAX_COUNT)
        return Usage(whole, min(cached, whole), output, unsaid)
    return Usage(read, min(_cached(document.get("input_tokens_details")), read), output, unsaid)


def usage_at_end(tail: bytes) -> Usage | None:
    """The last `usage` object in the end of a JSON document whose beginning may be missing; none without one."""
    at = len(tail)
    for _ in range(_MENTIONS):
        at = tail.rfind(_NAME, 0, at)
        if at < 0:
            break
        found = _usage_after(tail, at)
        if found is not None:
            return found
    return None


def usage_at_start(lead: bytes) -> Usage | None:
    """The first `usage` object in the beginning of a JSON document whose end may be missing; none without one."""
    at = -1
    for _ in range(_MENTIONS):
        at = lead.find(_NAME, at + 1)
        if at < 0:
            break
        found = _usage_after(lead, at)
        if found is not None:
            return found
    return None


def _usage_after(part: bytes, at: int) -> Usage | None:
    """What the name at this place is the name of, if that is a `usage` object."""
    begin = at + len(_NAME)
    text = part[begin:].decode("utf-8", "replace").lstrip(" \t\r\n").removeprefix(":").lstrip(" \t\r\n")
    try:
        document, _ = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None
    return usage_from(document)


def _cached(details: object) -> int:
    """Of what was read, what came from a cache: a detail, for whose sake the rest is not doubted."""
    try:
        return _count(details.get("cached_tokens")) if isinstance(details, dict) else 0
    except _Impossible:
        return 0


def _count(value: object) -> int:
    """A count, 0 for one left out; raises _Impossible."""
    if value is None:
        return 0
    if isinstance(value, int | float) and value is not True and value is not False and 0 <= value <= MAX_COUNT:
        return int(value)
    raise _Impossible
