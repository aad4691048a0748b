"""What both ends of the agent protocol refuse before they believe a byte: sizes, counts and malformed messages.

`decode` returns a message in which every field has the type its schema says, or raises DecodeError; the time and memory
it spends are bounded. The structure is walked before it is parsed, because the parser by itself takes a length claim of
4 GiB over two bytes, a string where a number belongs, and field 0.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, Self, TypeVar

from llmgw.core.errors import LlmgwError

KIB = 1024
MIB = 1024 * KIB

MAX_FRAME_BYTES = 4 * MIB
"""Longest message on a Connect stream, checked at the frame's length prefix."""
MAX_ENROLL_BYTES = 64 * KIB
"""Longest Enroll request: the one call open to strangers."""
MAX_FIELDS = 50_000
"""Fields and packed elements of one message together: what bounds the time and memory of parsing it."""
MAX_UNKNOWN_BYTES = 64 * KIB
"""Bytes of fields a newer peer may send that this version does not know, in each message."""
MAX_DEPTH = 8
"""Messages within messages; the schema has four levels."""
MAX_FIELD_NUMBER = 2**29 - 1
FRAME_PREFIX_BYTES = 5
"""One byte that says "compressed", four of length, big-endian."""

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_VARINT_TYPES = frozenset({"enum", "bool", "int32", "int64", "uint32", "uint64", "sint32", "sint64"})
_FIXED64_TYPES = frozenset({"double", "fixed64", "sfixed64"})
_FIXED32_TYPES = frozenset({"float", "fixed32", "sfixed32"})
_FIXED_SIZES = {_FIXED64: 8, _FIXED32: 4}


class DecodeError(LlmgwError):
    """A frame or message that is malformed or over a limit; the stream it came on is dropped."""

    code = "invalid"
    http_status = 400


class FrameTooLarge(DecodeError):
    """A frame whose length prefix is over the cap; nothing of it was read."""


class WireMessage(Protocol):
    """What `decode` needs of a generated message class."""

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """The message, or any exception."""
        ...


M = TypeVar("M", bound=WireMessage)


@dataclass(frozen=True, kw_only=True)
class FieldShape:
    """How one field stands on the wire."""

    wire_type: int
    repeated: bool
    nested: type[WireMessage] | None
    """Class of a message (or map entry) field."""
    group: str | None
    """Name of its oneof: at most one field of a group may be set."""


async def read_frame(receive: Callable[[int], Awaitable[bytes]], *, max_bytes: int) -> bytes | None:
    """Body of the next gRPC frame, or None at the end of the stream. `receive(n)` returns n bytes, or b"" at the end.

    Raises FrameTooLarge before anything of a longer body is read, DecodeError for a compressed or cut frame.
    """
    prefix = await _exactly(receive, FRAME_PREFIX_BYTES)
    if not prefix:
        return None
    if prefix[0] != 0:
        raise DecodeError("the message is compressed or its frame is malformed: send it uncompressed")
    length = int.from_bytes(prefix[1:], "big")
    if length > max_bytes:
        raise FrameTooLarge(f"a message of {length} bytes is over the limit of {max_bytes} bytes")
    body = await _exactly(receive, length) if length else b""
    if len(body) != length:
        raise DecodeError(f"the stream ended within a message of {length} bytes")
    return body


async def _exactly(receive: Callable[[int], Awaitable[bytes]], size: int) -> bytes:
    try:
        return await receive(size)
    except AssertionError as error:  # how grpclib's buffer says that a stream ended within a read
        raise DecodeError("the stream ended within a message") from error


def decode(message_type: type[M], data: bytes) -> M:
    """`data` as a message; raises DecodeError, and nothing else, for whatever is not one."""
    check_structure(message_type, data)
    try:
        return message_type.parse(data)
    except Exception as error:
        # The parser raises a dozen kinds of error (struct.error, KeyError, UnicodeDecodeError, …); all mean the same.
        raise DecodeError(f"not a {message_type.__name__}: {type(error).__name__}") from error


def check_structure(message_type: type[WireMessage], data: bytes) -> None:
    """Walk tags and lengths; raises DecodeError where they break the format, the schema or a limit."""
    if len(data) > MAX_FRAME_BYTES:
        raise FrameTooLarge(f"a message of {len(data)} bytes is over the limit of {MAX_FRAME_BYTES} bytes")
    _Walk(data).message(message_type, 0, len(data), depth=0)


@cache
def shape_of(message_type: type[WireMessage]) -> Mapping[int, FieldShape]:
    """Fields by number, read from the metadata the generator leaves on the class."""
    meta: Any = message_type._betterproto  # type: ignore[attr-defined]  # generated classes only
    return {number: _field_shape(meta, name) for number, name in meta.field_name_by_number.items()}


def _field_shape(meta: Any, name: str) -> FieldShape:  # noqa: ANN401 - the generator's metadata is untyped
    field = meta.meta_by_field_name[name]
    kind: str = field.proto_type
    wire_type = _LENGTH
    if kind in _VARINT_TYPES:
        wire_type = _VARINT
    elif kind in _FIXED64_TYPES:
        wire_type = _FIXED64
    elif kind in _FIXED32_TYPES:
        wire_type = _FIXED32
    return FieldShape(
        wire_type=wire_type,
        repeated=bool(field.repeated) or kind == "map",
        nested=meta.cls_by_field[name] if kind in ("message", "map") else None,
        group=field.group,
    )


class _Walk:
    """One pass over one message; `left` counts down the fields it may still have."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = MAX_FIELDS

    def message(self, message_type: type[WireMessage], pos: int, end: int, *, depth: int) -> None:
        """Check the bytes from `pos` to `end` as one message."""
        if depth > MAX_DEPTH:
            raise DecodeError(f"messages are nested more than {MAX_DEPTH} deep")
        shape = shape_of(message_type)
        unknown = 0
        groups: dict[str, int] = {}
        while pos < end:
            start = pos
            self.count(1)
            tag, pos = self.varint(pos, end)
            number, wire_type = tag >> 3, tag & 7
            if not 1 <= number <= MAX_FIELD_NUMBER:
                raise DecodeError(f"field number {number} is outside 1 to {MAX_FIELD_NUMBER}")
            body, pos = self.body(wire_type, pos, end)
            field = shape.get(number)
            if field is None:
                unknown += pos - start
                if unknown > MAX_UNKNOWN_BYTES:
                    raise DecodeError(f"more than {MAX_UNKNOWN_BYTES} bytes of fields this version does not know")
                continue
            if field.group is not None and groups.setdefault(field.group, number) != number:
                raise DecodeError(f"two fields of {message_type.__name__}.{field.group} are set: only one may be")
            self.value(field, wire_type, body, pos, depth=depth, where=f"{message_type.__name__} field {number}")

    def value(self, field: FieldShape, wire_type: int, pos: int, end: int, *, depth: int, where: str) -> None:
        """Check a known field's value against its shape."""
        if wire_type == field.wire_type:
            if field.nested is not None:
                self.message(field.nested, pos, end, depth=depth + 1)
        elif wire_type == _LENGTH and field.repeated:
            self.packed(field.wire_type, pos, end, where=where)
        else:
            raise DecodeError(f"{where} has wire type {wire_type}, not {field.wire_type}")

    def packed(self, wire_type: int, pos: int, end: int, *, where: str) -> None:
        """Check a packed column's length and count."""
        if wire_type == _VARINT:
            while pos < end:
                self.count(1)
                _, pos = self.varint(pos, end)
            return
        size = _FIXED_SIZES[wire_type]
        if (end - pos) % size:
            raise DecodeError(f"{where}: {end - pos} bytes are no whole number of {size}-byte values")
        self.count((end - pos) // size)

    def body(self, wire_type: int, pos: int, end: int) -> tuple[int, int]:
        """Start and end of a field's value."""
        if wire_type == _VARINT:
            return pos, self.varint(pos, end)[1]
        if wire_type == _LENGTH:
            length, pos = self.varint(pos, end)
        elif wire_type in _FIXED_SIZES:
            length = _FIXED_SIZES[wire_type]
        else:
            raise DecodeError(f"wire type {wire_type} does not exist")
        if length > end - pos:
            raise DecodeError(f"a field claims {length} bytes where {end - pos} are left")
        return pos, pos + length

    def varint(self, pos: int, end: int) -> tuple[int, int]:
        """A variable-length number of at most ten bytes and 64 bits, and where it ends."""
        data = self.data
        result = shift = 0
        while True:
            if pos >= end:
                raise DecodeError("a number is cut off")
            byte = data[pos]
            pos += 1
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift >= 70:
                raise DecodeError("a number is longer than ten bytes")
        if result >= 2**64:
            raise DecodeError("a number is wider than 64 bits")
        return result, pos

    def count(self, fields: int) -> None:
        """Take `fields` from what this message may still have."""
        self.left -= fields
        if self.left < 0:
            raise DecodeError(f"a message has more than {MAX_FIELDS} fields and values")
