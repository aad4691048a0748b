"""Faults a request can ask for, as text: `hang`, or several with commas, `silent:2,no-usage`.

| fault | what happens |
|---|---|
| `hang` | the request is read and never answered |
| `hang-after-headers` | status and headers, then nothing |
| `drop-before-headers` | the connection closes without a byte |
| `drop:N` | after N tokens the connection closes, without the stream's end |
| `error:STATUS` | that status (400–599) in OpenAI's error shape; 429 and 503 carry `Retry-After: 1` |
| `drip:MS` | the answer leaves one byte at a time, MS milliseconds apart |
| `slow-start:S` | S seconds of silence before the headers |
| `silent:S` | S seconds of silence after the headers, before the first token |
| `loading` | 503 as of an engine that still loads its model; as a default, `/health` says so too |
| `no-usage` | usage is left out, even when asked for |
| `lie-usage` | usage has a negative and an enormous figure |
| `no-done` | the stream ends properly but without `data: [DONE]` |
| `big-line[:BYTES]` | the first token is BYTES long (1 MiB), in one line |
| `none` | no fault, whatever the default |
"""

import math
from dataclasses import dataclass

from llmgw.core.errors import InvalidInput

MAX_SECONDS = 86_400.0
MAX_BIG_LINE_BYTES = 64 * 1024 * 1024
DEFAULT_BIG_LINE_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class Faults:
    """What goes wrong with one request; the default is nothing."""

    hang: bool = False
    hang_after_headers: bool = False
    drop_before_headers: bool = False
    drop_after_tokens: int | None = None
    error_status: int | None = None
    drip_ms: float | None = None
    slow_start_s: float = 0.0
    silent_s: float = 0.0
    loading: bool = False
    no_usage: bool = False
    lie_usage: bool = False
    no_done: bool = False
    big_line_bytes: int = 0


NO_FAULTS = Faults()

_FLAGS = ("hang", "hang-after-headers", "drop-before-headers", "loading", "no-usage", "lie-usage", "no-done")
_NAMES = (*_FLAGS, "drop:N", "error:STATUS", "drip:MS", "slow-start:S", "silent:S", "big-line[:BYTES]", "none")


def parse_faults(text: str) -> Faults:
    """The faults `text` names; raises InvalidInput naming the part that is wrong."""
    values: dict[str, bool | int | float] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        name, _, argument = part.partition(":")
        if part in _FLAGS:
            values[part.replace("-", "_")] = True
        elif name == "drop":
            values["drop_after_tokens"] = _whole(part, argument, 0, 1 << 31)
        elif name == "error":
            values["error_status"] = _whole(part, argument, 400, 599)
        elif name == "drip":
            values["drip_ms"] = _number(part, argument, MAX_SECONDS * 1000)
        elif name in ("slow-start", "silent"):
            values[name.replace("-", "_") + "_s"] = _number(part, argument, MAX_SECONDS)
        elif name == "big-line":
            values["big_line_bytes"] = (
                _whole(part, argument, 1, MAX_BIG_LINE_BYTES) if argument else DEFAULT_BIG_LINE_BYTES
            )
        elif part != "none":
            raise InvalidInput(f"{part!r} is no fault; known are {', '.join(_NAMES)}", field="fault")
    return Faults(**values)  # type: ignore[arg-type]  # each name was given its own type above


def _whole(part: str, argument: str, low: int, high: int) -> int:
    if not argument.isascii() or not argument.isdigit() or not low <= int(argument[:12]) <= high or len(argument) > 12:
        raise InvalidInput(f"{part!r} needs a whole number from {low} to {high} after the colon", field="fault")
    return int(argument)


def _number(part: str, argument: str, high: float) -> float:
    try:
        value = float(argument)
    except ValueError:
        value = math.nan
    if not 0 <= value <= high:
        raise InvalidInput(f"{part!r} needs a number from 0 to {high:.0f} after the colon", field="fault")
    return value
