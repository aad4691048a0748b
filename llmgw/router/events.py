"""Server-sent events on their way through: every byte of the engine's is passed on unchanged, however the reads fall.

An event leaves in one piece: an incomplete one waits for its end, so a stream can break off between events and never
inside one. Only one kind of event may be kept from the client, the usage-only one the router itself asked for.
Framing follows the HTML standard's section on server-sent events: lines end in LF, CR or CRLF.

Bytes are looked for by `find`, and a single one by its number: `in` with bytes on both sides raises and clears an error
inside before it looks, which is most of its cost.
"""

import re

import msgspec

from llmgw.router.limits import MAX_EVENT_BYTES
from llmgw.router.token_pass import loaded
from llmgw.router.token_usage import Usage, usage_at_end, usage_from

_BOUNDARY = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_LINE_END = re.compile(rb"\r\n|\n|\r")
_COMMENTS = re.compile(rb"(?::[^\r\n]*+(?:\r\n|\n))+")
COMMENTS_ONLY = re.compile(rb"(?:\xef\xbb\xbf)?(?:(?::[^\r\n]*+)?(?:\r\n|\n|\r))*+")
"""Matches what holds no event and no part of one."""
_CONTENT = re.compile(rb'"(?:content|text|reasoning|reasoning_content|arguments|refusal)"\s*:\s*"[^"]')
_USAGE = re.compile(rb'"usage"\s*:\s*\{')
_decode = msgspec.json.Decoder().decode
_LEAD = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*")
BOM = b"\xef\xbb\xbf"
DONE_EVENT = b"data: [DONE]\n\n"
EVENT_FIELDS = (b"data:", b"event:", b"id:", b"retry:", b":")
"""With what a stream of events begins."""
BULK_BYTES = 2048
"""Reads from here on are many events, of which only the remarkable are looked at."""
PLAIN_HELD_BYTES = 4096
"""A longer incomplete event is never copied to be looked at again, however small the reads."""
TOKEN_PASS, _ = loaded()
"""The searches in C."""


class EventStream:
    """Passes one engine's events on, counts them, and reads the usage among them.

    Most reads are whole events without anything to look into; `feed` lets them through after a few byte searches.
    """

    __slots__ = (
        "_error",
        "_held",
        "_scanned",
        "_skip_lf",
        "_started",
        "done",
        "events",
        "last",
        "loose",
        "usage",
        "withhold",
    )

    def __init__(self, *, withhold: bool) -> None:
        self.withhold = withhold
        """Whether the usage-only event is kept from the client."""
        self.done = False
        """`[DONE]` went by."""
        self.usage: Usage | None = None
        self.events = 0
        """Events with content so far: tokens, where the engine sends one an event."""
        self.loose = False
        """Part of an incomplete event was passed on, because it grew too long to hold."""
        self._error = False
        self._held = bytearray()
        self._scanned = 0
        self._started = False
        self._skip_lf: bool | None = None
        """The last event ended in a CR that an LF may complete; the value says whether that LF is passed on."""
        self.last = b""
        """The last events with content that were counted without being looked at one by one."""

    @property
    def between(self) -> bool:
        """Whether the answer has begun and nothing is held back: the next byte begins an event."""
        return self._started and not self._held and not self.loose and self._skip_lf is None

    @property
    def counted(self) -> bool:
        """Whether an event with content went by."""
        return self.events > 0

    @property
    def says_error(self) -> bool:
        """Whether it begins or ends with an error in the engine's own words."""
        return self._error or _is_error(self.last.rstrip(b"\r\n"))

    def feed(self, data: bytes) -> bytes:
        """What of `data`, and of what was held before, goes to the client."""
        if (
            self._started
            and not self._held
            and self._skip_lf is None
            and len(data) < BULK_BYTES
            and data.endswith(b"\n\n")
            and data[0] != 58  # a comment
            and 13 not in data
            and data.find(b"[DONE]") < 0
            and (data.find(b'"usage"') < 0 or data.count(b'"usage"') == data.count(b'"usage":null'))
        ):
            self.events += data.count(b"\n\n")
            self.last = data
            return data
        if (
            13 not in data
            and self._skip_lf is None
            and not self.loose
            and len(self._held) < PLAIN_HELD_BYTES
            and 13 not in self._held
        ):
            return self._plain(data)
        return self._careful(data)

    def finish(self) -> bytes:
        """What is left when the engine ended the answer properly, `[DONE]` included if it never sent one."""
        rest = bytes(self._held)
        self._held.clear()
        if self.done:
            return rest
        open_event = self.loose or bool(rest.strip(b"\r\n"))
        self.done = True
        if open_event and data_of(rest).strip() == b"[DONE]":
            return rest + b"\n\n"
        return rest + (b"\n\n" if open_event else b"") + DONE_EVENT

    def _plain(self, data: bytes) -> bytes:
        """Like `_careful`, for text without CR: only the events around something of interest are looked at singly."""
        held = self._held
        if held:
            data = bytes(held) + data
            held.clear()
        end = _event_start(data, 0, len(data))
        out: list[bytes] = []
        at = self._lead(data, end, out)
        done = _find_done(data, at, end)
        while at < end:
            if 0 <= done < at:
                done = _find_done(data, at, end)
            usage = _find_usage(data, at, end if done < 0 else done)
            mark = done if usage < 0 else usage
            if mark < 0:
                self._pass_many(data[at:end], out)
                break
            special = _event_start(data, at, mark)
            before = _event_start(data, at, special - 2) if special > at else at
            if before > at:
                self._pass_many(data[at:before], out)
            at = data.find(b"\n\n", mark) + 2
            if special > before:
                self._event(data[before:special], out)
            self._event(data[special:at], out)
        held += data[end:]
        self._release(out)
        self._scanned = max(0, len(held) - 3)
        return b"".join(out)

    def _lead(self, data: bytes, end: int, out: list[bytes]) -> int:
        """Pass on, one by one, the events before the first with content; where the rest begins."""
        at = 0
        while at < end and not self._started:
            blank = data.find(b"\n\n", at, end)
            # A blank line more than needed belongs to no event.
            stop = end if blank < 0 else blank + 2
            self._event(data[at:stop], out)
            at = stop
        return at

    def _pass_many(self, events: bytes, out: list[bytes]) -> None:
        """Pass on and count whole events of no interest.

        In bulk every two line ends are a token: three times cheaper than looking for blank lines, and wrong only for
        comments and events of several lines, where it matters only if the engine never says what it used.
        """
        out.append(events)
        if events[0] == 58 and events.find(b"\n\n") == len(events) - 2:
            return  # a comment on its own, with which an engine keeps the connection open
        self.events += events.count(b"\n\n") if len(events) < BULK_BYTES else _line_ends(events) // 2
        self.last = events

    def _careful(self, data: bytes) -> bytes:
        out: list[bytes] = []
        if self._skip_lf is not None and data:
            if data[0] == 10:
                if self._skip_lf:
                    out.append(b"\n")
                data = data[1:]
            self._skip_lf = None
        held = self._held
        held += data
        at = 0
        while (found := _BOUNDARY.search(held, max(at, self._scanned))) is not None:
            end = found.end()
            event = bytes(held[at:end])
            passed = self._event(event, out)
            if end == len(held) and event.endswith(b"\r"):
                self._skip_lf = passed
            at = self._scanned = end
        del held[:at]
        self._release(out)
        self._scanned = max(0, len(held) - 3)
        return b"".join(out)

    def _release(self, out: list[bytes]) -> None:
        """Pass on what need not wait: whole comment lines, and an event too long to hold."""
        held = self._held
        if not held:
            return
        if held[0] == 58 and not self.loose:
            comments = _COMMENTS.match(held)
            if comments is not None:
                whole = comments.group()
                out.append(whole)
                length = len(whole)
                del held[:length]
        if len(held) > MAX_EVENT_BYTES:
            keep = 3  # a boundary may have begun in the last bytes
            out.append(bytes(held[:-keep]))
            del held[:-keep]
            self.loose = True

    def _event(self, event: bytes, out: list[bytes]) -> bool:
        """Look into one whole event and pass it on unless it is to be withheld; whether it was passed on."""
        if self.loose:
            self.loose = False
            out.append(event)
            return True
        if event.find(b'"usage"') >= 0 and _USAGE.search(event) and self._read_usage(event):
            lead = _LEAD.match(event)
            if lead is not None:
                out.append(lead.group())
            return False
        if event.find(b"[DONE]") >= 0 and data_of(event).strip() == b"[DONE]":
            self.done = True
            self._uncount_last()
        elif _holds_content(event):
            self._started = True
            self.events += 1
        elif _is_error(event):
            self._error = True
        out.append(event)
        return True

    def _uncount_last(self) -> None:
        """The last event before the end usually carries the finish reason and no content."""
        last = self.last.rstrip(b"\r\n")
        if last and self.events and not _CONTENT.search(last, max(0, last.rfind(b"\n\n"))):
            self.events -= 1
            self._error = self._error or _is_error(last)
        self.last = b""

    def _read_usage(self, event: bytes) -> bool:
        """Read the usage in an event; whether it holds nothing else and is to be withheld."""
        data = data_of(event)
        try:
            document = _decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if not isinstance(document, dict):
            return False
        said = document.get("usage")
        found = usage_from(said) or usage_at_end(data)  # some write it into the choice, or under a name of their own
        if found is not None and (self.usage is None or found.input_tokens or found.output_tokens):
            self.usage = found
        return self.withhold and isinstance(said, dict) and not (document.get("choices") or document.get("error"))


def _holds_content(event: bytes) -> bool:
    """Whether an event holds a piece of an answer; as most engines write it that is found without the pattern."""
    at = event.find(b'"content":"') + 11
    return (at > 10 and event[at] != 34) or _CONTENT.search(event) is not None


def _is_error(events: bytes) -> bool:
    """Whether the last of these events is an error document."""
    at = max(0, events.rstrip(b"\r\n").rfind(b"\n\n"))
    event = events[at:]
    if event.find(b'"error"') < 0:
        return False
    try:
        document = _decode(data_of(event))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return isinstance(document, dict) and bool(document.get("error"))


def _event_start(data: bytes, at: int, before: int) -> int:
    """Where the event that holds data[before] begins, `at` at the earliest, which is the start of one."""
    found = data.rfind(b"\n\n", at, before)
    return at if found < 0 else found + 2


def _find_done(data: bytes, at: int, end: int) -> int:
    """Where the first `[DONE]` in data[at:end] is; -1 is nowhere."""
    return data.find(b"[DONE]", at, end) if TOKEN_PASS is None else TOKEN_PASS.find_done(data, at, end)


def _find_usage(data: bytes, at: int, end: int) -> int:
    """Where the first "usage" with something in it is in data[at:end]; -1 is nowhere."""
    if TOKEN_PASS is not None:
        return TOKEN_PASS.find_usage(data, at, end)
    usage = data.find(b'"usage"', at, end)
    while usage >= 0 and data.startswith(b":null", usage + 7):
        usage = data.find(b'"usage"', usage + 7, end)
    return usage


def _line_ends(data: bytes) -> int:
    """How many LF there are."""
    return data.count(b"\n") if TOKEN_PASS is None else TOKEN_PASS.line_ends(data)


def data_of(event: bytes) -> bytes:
    """The data of one event: its `data` lines, joined by LF."""
    if event.startswith(b"data: ") and event.find(b"\n") == len(event) - 2 and 13 not in event:
        return event[6:-2]
    lines = []
    for line in _LINE_END.split(event.removeprefix(BOM)):
        name, colon, value = line.partition(b":")
        if name == b"data":
            lines.append(value.removeprefix(b" ") if colon else b"")
    return b"\n".join(lines)
