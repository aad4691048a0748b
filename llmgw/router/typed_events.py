"""Server-sent events that say what they are: those of `/v1/responses`, `/v1/messages`, of sounds and of images.

They pass as they came, in one piece each, as in `EventStream`; none is added and none withheld. These streams have no
`[DONE]`: an event of the API's own is the last, and until it went by the answer is not whole.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from llmgw.router.events import BULK_BYTES, EventStream, data_of
from llmgw.router.limits import USAGE_TAIL_BYTES
from llmgw.router.token_usage import Usage, usage_at_end, usage_from

_decode = msgspec.json.Decoder().decode
_NAME = re.compile(rb'(?:^|[\r\n])event:[ ]?([^\r\n]+)|"type"\s*:\s*"([^"\\]+)"')
_EVENT_LINE = re.compile(rb"(?:^|[\r\n])event:[ ]?([^\r\n]+)")
_LAST_TYPE = re.compile(
    rb'"type"\s*+:\s*+"([^"\\]++)"(?:\s*+,\s*+"[^"\\]*+"\s*+:\s*+(?:"[^"\\]*+"|[\w.+-]++))*+\s*+\}\s*+'
)
"""Matches from the outermost object's own type to its end, where only plain values follow it."""
_NUMBER = re.compile(rb'"sequence_number"\s*:\s*([0-9]{1,15})')
NAME_BYTES = 512
"""Beginning of an event too long to hold, in which its name is looked for."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What an API calls the events the router must know."""

    content: re.Pattern[bytes]
    """Matches once for every piece of an answer."""
    mark: re.Pattern[bytes]
    """Found in every event that must be looked into, and in few others."""
    last: Callable[[str], bool]
    """Whether an event of this type is the stream's last."""
    usage: Callable[[dict[str, object], Usage | None], Usage | None]
    """What an event says of usage, given what was known before."""


class TypedEvents(EventStream):
    """Passes one engine's typed events on, counts them, and reads the usage among them."""

    __slots__ = ("_name", "_named", "_tail", "_words")

    def __init__(self, words: Vocabulary) -> None:
        super().__init__(withhold=False)
        self._words = words
        self._tail = b""
        """End of an event that is passed on in pieces."""
        self._name = ""
        """Its name."""
        self._named = False
        """Whether a line of its own says that name."""

    @property
    def between(self) -> bool:
        """Never: the quick way knows the framing of other events."""
        return False

    @property
    def next_number(self) -> int:
        """What comes after the last `sequence_number` that went by."""
        found = _NUMBER.findall(self.last)
        return int(found[-1]) + 1 if found else 0

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held before, goes to the client."""
        if (
            self._started
            and not self._held
            and self._skip_lf is None
            and not self.loose
            and len(data) < BULK_BYTES
            and data.endswith(b"\n\n")
            and b"\r" not in data
            and self._words.mark.search(data) is None
        ):
            self.events += len(self._words.content.findall(data))
            self._remember(data)
            return data
        return self._careful(data)

    def _remember(self, events: bytes) -> None:
        if b'"sequence_number"' in events:
            self.last = events

    def finish(self) -> bytes:
        """What is left when the engine ended the answer properly."""
        rest = bytes(self._held)
        self._held.clear()
        if not self.loose and not rest.strip(b"\r\n"):
            return rest
        out: list[bytes] = []
        self._event(rest + b"\n\n", out)
        return b"".join(out)

    def _event(self, event: bytes, out: list[bytes]) -> bool:
        out.append(event)
        words = self._words
        self._remember(event)
        if self.loose:
            self.loose = False
            self._end_of_long(event)
            return True
        found = len(words.content.findall(event))
        if found:
            self._started = True
            self.events += found
        if words.mark.search(event) is not None:
            self._look(event)
        elif b"[DONE]" in event and data_of(event).strip() == b"[DONE]":
            self.done = True
        return True

    def _look(self, event: bytes) -> None:
        """Read an event that may be the last, or hold usage."""
        data = data_of(event)
        try:
            document = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            document = _read_loosely(data, event)
        if not isinstance(document, dict):
            return
        self.usage = self._words.usage(document, self.usage)
        name = document.get("type")
        self._error = self._error or isinstance(document.get("error"), dict) or name == "response.failed"
        if isinstance(document.get("error"), dict) or (isinstance(name, str) and self._words.last(name)):
            self.done = True

    def _release(self, out: list[bytes]) -> None:
        """Pass on what need not wait; of an event in pieces its name and its end are kept."""
        begins, count = not self.loose, len(out)
        super()._release(out)
        if self.loose and len(out) > count:
            if begins:
                found = _NAME.search(out[-1], 0, NAME_BYTES)
                self._name = _text(found.group(1) or found.group(2)) if found else ""
                self._named = found is not None and found.group(1) is not None
                self._tail = b""
            self._tail = (self._tail + out[-1])[-USAGE_TAIL_BYTES:]

    def _end_of_long(self, event: bytes) -> None:
        tail = (self._tail + event)[-USAGE_TAIL_BYTES:]
        self.usage = usage_at_end(tail) or self.usage
        if self._words.last(self._name) or (not self._named and self._words.last(_type_at_end(tail))):
            self.done = True
        self._tail, self._name = b"", ""


def _text(name: bytes) -> str:
    return name.strip().decode("utf-8", "replace")


def _read_loosely(data: bytes, event: bytes) -> object:
    """The document of an event that is no strict JSON, as with half a surrogate or NaN; else what its name says."""
    try:
        return json.loads(data.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        named = _EVENT_LINE.search(event)
        return {"type": _text(named.group(1))} if named else None


def _type_at_end(tail: bytes) -> str:
    """The type that stands behind all that is long in a document of which this is the end; empty without one."""
    at = tail.rfind(b'"type"')
    found = _LAST_TYPE.fullmatch(tail, at) if at >= 0 else None
    return _text(found.group(1)) if found else ""


def _of_response(document: dict[str, object], before: Usage | None) -> Usage | None:
    response = document.get("response")
    found = usage_from(response.get("usage")) if isinstance(response, dict) else None
    return found or usage_from(document.get("usage")) or before


def _of_message(document: dict[str, object], before: Usage | None) -> Usage | None:
    """Input comes with the first event, output with the last, and what comes later is the better count."""
    message, found = document.get("message") or document.get("delta"), usage_from(document.get("usage"))
    if found is None and isinstance(message, dict):
        found = usage_from(message.get("usage"))
    if found is None or before is None:
        return found or before
    if not found.input_tokens:
        found.input_tokens, found.cached_tokens = before.input_tokens, before.cached_tokens
    found.output_tokens = found.output_tokens or before.output_tokens
    return found


def _of_media(document: dict[str, object], before: Usage | None) -> Usage | None:
    return usage_from(document.get("usage")) or before


_RESPONSE_ENDS = frozenset(
    {"response.completed", "response.failed", "response.incomplete", "response.cancelled", "error"}
)
RESPONSES_WORDS = Vocabulary(
    content=re.compile(rb'"delta"\s*:\s*"[^"]'),
    mark=re.compile(rb'"response\.(?:completed|failed|incomplete|cancelled)"|"error"'),
    last=_RESPONSE_ENDS.__contains__,
    usage=_of_response,
)
MESSAGES_WORDS = Vocabulary(
    content=re.compile(rb'"(?:text|thinking|partial_json)"\s*:\s*"[^"]'),
    mark=re.compile(rb'"usage"|"message_stop"|"error"'),
    last=frozenset({"message_stop", "error"}).__contains__,
    usage=_of_message,
)
MEDIA_WORDS = Vocabulary(
    content=re.compile(rb'"(?:delta|audio)"\s*:\s*"[^"]'),
    mark=re.compile(rb'"usage"|\.(?:completed|done)"|"error"'),
    last=lambda name: name.endswith((".completed", ".done")) or name == "error",
    usage=_of_media,
)
