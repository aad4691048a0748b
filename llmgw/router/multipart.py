"""Forms (`multipart/form-data`, RFC 7578) as they pass by: where the few fields we need are, and nothing kept of files.

What is read here is what an engine will read: a field of ours that comes twice, as a file, or under a name that
readers spell differently is refused. Memory is bounded by a part's head and our fields' values, whatever comes.
"""

import re
from collections.abc import Collection
from enum import Enum

from llmgw.router.heads import bad_request
from llmgw.router.limits import MAX_FIELD_BYTES, MAX_PART_HEAD_BYTES, MAX_PARTS
from llmgw.router.ports import Refusal

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PARAM = rb"[ \t]*;[ \t]*(" + _TOKEN + rb')=(?:"((?:[^"\\\r\n]|\\.)*+)"|(' + _TOKEN + rb"))"
_TYPE = re.compile(rb"(?i:multipart/form-data)((?:" + _PARAM + rb")*)[ \t]*;?[ \t]*")
_DISPOSITION = re.compile(rb"(?i:form-data)((?:" + _PARAM + rb")*)[ \t]*;?[ \t]*")
_PARAMS = re.compile(_PARAM)
_BOUNDARY = re.compile(rb"[0-9A-Za-z'()+_,./:=? -]{0,69}[0-9A-Za-z'()+_,./:=?-]")
_LINE = re.compile(_TOKEN + rb":[\t \x21-\x7e\x80-\xff]*")
_ESCAPE = re.compile(rb"\\(.)|%([0-9A-Fa-f]{2})", re.DOTALL)
_PLAIN_CODINGS = frozenset({b"7bit", b"8bit", b"binary"})
_PADDING_BYTES = 64
"""Blanks that may follow a boundary."""


def is_form(content_type: bytes) -> bool:
    """Whether a content type is that of a form."""
    return content_type[:19].lower() == b"multipart/form-data"


def boundary_of(content_type: bytes) -> bytes:
    """The boundary named in a form's content type; raises Refusal (400)."""
    found = _TYPE.fullmatch(content_type)
    named = [quoted or token for name, quoted, token in _pairs(found.group(1) if found else b"") if name == b"boundary"]
    if len(named) != 1 or not _BOUNDARY.fullmatch(named[0]):
        raise bad_request("The Content-Type must name the form's boundary: see RFC 2046, section 5.1.1.")
    return named[0]


class _State(Enum):
    START = 0
    DELIMITED = 1
    HEAD = 2
    VALUE = 3
    END = 4


class FormReader:
    """Reads one form in pieces of any size; `spans` and `values` are whole once `finish` returned."""

    def __init__(self, boundary: bytes, names: Collection[str]) -> None:
        self._delimiter = b"\r\n--" + boundary
        self._names = names
        self._state = _State.START
        self._buffer = b""
        self._at = 0
        """Offset of the buffer in the form."""
        self._parts = 0
        self._name = ""
        """Of ours, while its value passes."""
        self._begin = 0
        self._value = bytearray()
        self.values: dict[str, bytes] = {}
        """Values of the fields asked for."""
        self.spans: dict[str, tuple[int, int]] = {}
        """Where in the form they begin, and the byte after each."""

    def feed(self, data: bytes) -> None:
        """More of the form; raises Refusal (400)."""
        self._buffer += data
        step = self._step
        while step():
            pass

    def finish(self) -> None:
        """The form is over; raises Refusal (400) if it is not whole."""
        if self._state is not _State.END:
            raise bad_request("The form ends before its last boundary.")

    def _step(self) -> bool:
        """One move through the buffer; whether another may follow."""
        state = self._state
        if state is _State.VALUE:
            return self._pass_value()
        if state is _State.HEAD:
            return self._read_head()
        if state is _State.DELIMITED:
            return self._after_delimiter()
        if state is _State.START:
            return self._read_start()
        self._skip(len(self._buffer))  # an epilogue means nothing
        return False

    def _skip(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._at += count

    def _read_start(self) -> bool:
        first = self._delimiter[2:]
        lead = 2 if self._buffer[:2] == b"\r\n" else 0
        if len(self._buffer) < lead + len(first):
            if not (first.startswith(self._buffer[lead:]) or self._buffer == b"\r"):
                raise bad_request("The form does not begin with the boundary that its Content-Type names.")
            return False
        if not self._buffer.startswith(first, lead):
            raise bad_request("The form does not begin with the boundary that its Content-Type names.")
        self._skip(lead + len(first))
        self._state = _State.DELIMITED
        return True

    def _after_delimiter(self) -> bool:
        buffer = self._buffer
        if buffer.startswith(b"--"):
            self._state = _State.END
            return True
        end = buffer.find(b"\r\n", 0, _PADDING_BYTES)
        if end < 0:
            if len(buffer) >= _PADDING_BYTES or buffer.rstrip(b"\r").strip(b" \t") not in (b"", b"-"):
                raise bad_request("A boundary of the form is not followed by the end of its line (CR LF).")
            return False
        if buffer[:end].strip(b" \t"):
            raise bad_request("A boundary of the form is not followed by the end of its line (CR LF).")
        self._parts += 1
        if self._parts > MAX_PARTS:
            raise bad_request(f"The form has more than {MAX_PARTS} parts.")
        self._skip(end)  # the line's end also begins an empty head's
        self._state = _State.HEAD
        return True

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n", 0, MAX_PART_HEAD_BYTES)
        if end < 0:
            if len(self._buffer) >= MAX_PART_HEAD_BYTES:
                raise bad_request(f"A part of the form has a head longer than {MAX_PART_HEAD_BYTES} bytes.")
            return False
        name = _our_field(self._buffer[2:end].split(b"\r\n"), self._names)
        if name in self.spans:
            raise _bad_field(name, "comes twice: readers differ on which one counts")
        self._skip(end + 4)
        self._name, self._begin = name, self._at
        self._value.clear()
        self._state = _State.VALUE
        return True

    def _pass_value(self) -> bool:
        end = self._buffer.find(self._delimiter)
        passed = end if end >= 0 else len(self._buffer) - len(self._delimiter) + 1
        if passed > 0 and self._name:
            self._value += self._buffer[:passed]
            if len(self._value) > MAX_FIELD_BYTES:
                raise _bad_field(self._name, f"is longer than {MAX_FIELD_BYTES} bytes")
        if end < 0:
            if passed > 0:
                self._skip(passed)
            return False
        if self._name:
            self.values[self._name] = bytes(self._value)
            self.spans[self._name] = (self._begin, self._at + end)
        self._skip(end + len(self._delimiter))
        self._state = _State.DELIMITED
        return True


def _our_field(lines: list[bytes], names: Collection[str]) -> str:
    """Which of `names` a part is, by its head; empty for another. Raises Refusal (400)."""
    found: dict[bytes, bytes] = {}
    for line in lines:
        if not _LINE.fullmatch(line):
            raise bad_request("The head of a part of the form is malformed.")
        header, _, value = line.partition(b":")
        if header.lower() in found:
            raise bad_request(f"A part of the form has two headers {header.decode()[:40]}.")
        found[header.lower()] = value.strip(b" \t")
    match = _DISPOSITION.fullmatch(found.get(b"content-disposition", b""))
    if match is None:
        raise bad_request("A part of the form has no Content-Disposition of form-data, or a malformed one.")
    pairs = _pairs(match.group(1))
    params = {name: quoted or token for name, quoted, token in pairs}
    if len(params) != len(pairs) or b"name" not in params or b"name*" in params:
        raise bad_request("A part of the form must have one name.")
    raw = params[b"name"]
    plain = _ESCAPE.sub(_unescaped, raw).strip().decode("utf-8", "replace")
    if plain not in names:
        return ""
    coding = found.get(b"content-transfer-encoding", b"binary").lower()
    if raw != plain.encode() or b"filename" in params or b"filename*" in params or coding not in _PLAIN_CODINGS:
        raise _bad_field(plain, "must be a plain one: no file, no encoding, its name without escapes and blanks")
    return plain


def _bad_field(name: str, what: str) -> Refusal:
    refusal = bad_request(f"The form's field {name!r} {what}.")
    refusal.param = name
    return refusal


def _pairs(params: bytes) -> list[tuple[bytes, bytes, bytes]]:
    return [(name.lower(), quoted, token) for name, quoted, token in _PARAMS.findall(params)]


def _unescaped(found: re.Match[bytes]) -> bytes:
    return found.group(1) or bytes([int(found.group(2), 16)])
