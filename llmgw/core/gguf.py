"""Reads the header of a GGUF file. Nothing is allocated for a figure the file merely claims.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian. Every count and
length is held against a cap, what is read against `MAX_HEADER_BYTES`, and every tensor against the file's size.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from llmgw.core.catalog import ModelFacts
from llmgw.core.errors import InvalidInput
from llmgw.core.ggml_types import FILE_TYPES, TENSOR_TYPES
from llmgw.core.gguf_caches import MAX_LAYERS, caches
from llmgw.core.text import safe

MAX_HEADER_BYTES = 64 * 1024 * 1024
"""Published headers stay under 20 MiB: a vocabulary of 256,000 tokens with its merges."""
MAX_ENTRIES = 65_536
MAX_TENSORS = 262_144
MAX_KEY_BYTES = 65_535
MAX_STRING_BYTES = 4 * 1024 * 1024
MAX_KEPT_STRING_BYTES = 256
"""Longer strings (chat templates) are stepped over."""
MAX_ARRAY = 2_097_152
MAX_KEPT_ARRAY = 4096
"""Longer arrays (tokens, scores) are stepped over; per-layer figures stay below."""
MAX_KEPT_ITEMS = 65_536
"""Items of all kept arrays together; further arrays are stepped over."""
MAX_TENSOR_NAME_BYTES = 1024
MAX_DIMENSIONS = 8
MAX_ALIGNMENT = 1024 * 1024
MAX_ELEMENTS = 1 << 53
_DEFAULT_ALIGNMENT = 32
_READ_BYTES = 256 * 1024

_STRING, _ARRAY = 8, 9
_SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}
_SIZES = {kind: struct.calcsize(code) for kind, code in _SCALARS.items()}
_EXPERTS = re.compile(r"blk\.([0-9]{1,4})\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps(?:\.|$)")
"""Tensors llama.cpp can keep in memory beside a card, by their layer (`--n-cpu-moe`)."""
_NO_MODELS = {
    "adapter": "an adapter for a model",
    "mmproj": "the part of a model that reads pictures",
    "imatrix": "what a model was measured with before it was quantized",
}
"""`general.type` of files that no engine serves by themselves."""

Scalar = int | float | bool | str
Value = Scalar | tuple[Scalar, ...]


class Reader(Protocol):
    """What a header is read from: an open binary file, or bytes in an io.BytesIO."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes, empty at the end."""
        ...


class GgufHeader(msgspec.Struct, frozen=True, kw_only=True):
    """What a GGUF file says of its model."""

    version: int
    metadata: dict[str, Value]
    """Scalars, short strings and short numeric arrays; the rest is stepped over."""
    array_lengths: dict[str, int]
    """Lengths of all arrays, kept or not."""
    tensors: int
    parameters: int
    """Sum of all tensors' elements."""
    tensor_bytes: int
    """Sum of the tensors whose type is known."""
    data_offset: int
    """Where tensor data starts in the file."""
    expert_bytes: dict[int, int] = {}
    """Bytes of the experts in this file, by layer."""

    @property
    def no_model(self) -> str:
        """What the file is instead of a model, by its own word; empty for a model."""
        kind = self.metadata.get("general.type")
        return _NO_MODELS.get(kind, "") if isinstance(kind, str) else ""

    @property
    def split_count(self) -> int:
        """Parts the model was split into, 0 when it was not."""
        return _natural(self.metadata.get("split.count"))

    @property
    def architecture(self) -> str:
        """`general.architecture`."""
        value = self.metadata.get("general.architecture", "")
        return value if isinstance(value, str) else ""

    def integer(self, key: str) -> int:
        """`{architecture}.{key}` as a non-negative integer, 0 when absent or of another kind."""
        return _natural(self.metadata.get(f"{self.architecture}.{key}"))

    def per_layer(self, key: str, layers: int) -> tuple[int, ...]:
        """`{architecture}.{key}` for each layer: one figure for all, or an array with one each; empty when absent."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, tuple):
            return tuple(_natural(item) for item in value[:layers])
        return (_natural(value),) * layers if _natural(value) else ()

    def marks(self, key: str, layers: int) -> tuple[bool, ...]:
        """`{architecture}.{key}` as a mark for each layer; empty when it is no array of them."""
        value = self.metadata.get(f"{self.architecture}.{key}")
        return tuple(item is True or item == 1 for item in value[:layers]) if isinstance(value, tuple) else ()


def read_header(stream: Reader, *, file_bytes: int | None = None) -> GgufHeader:
    """Parse the header at the stream's position; raises InvalidInput naming what does not hold.

    With `file_bytes` every tensor must lie within the file.
    """
    cursor = _Cursor(stream, file_bytes)
    if cursor.take(4) != b"GGUF":
        raise _bad("it does not start with GGUF")
    version = cursor.number("<I")
    if version not in (2, 3):
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        hint = "it is big-endian" if swapped in (2, 3) else "convert the model again with a current llama.cpp"
        raise _bad(f"version {version} is not 2 or 3; {hint}")
    tensors = cursor.count("tensors", MAX_TENSORS)
    entries = cursor.count("metadata entries", MAX_ENTRIES)
    metadata: dict[str, Value] = {}
    lengths: dict[str, int] = {}
    for _ in range(entries):
        _read_entry(cursor, metadata, lengths)
    return _read_tensors(cursor, version, tensors, metadata, lengths, file_bytes)


def facts(header: GgufHeader, file_bytes: int, *, parts: Iterable[GgufHeader] = ()) -> ModelFacts:
    """What the catalog needs of a model of `file_bytes` (of all `parts`, this one among them, when it is split)."""
    whole = tuple(parts) or (header,)
    layers = min(header.integer("block_count"), MAX_LAYERS)
    kept = caches(header, layers)
    kv_heads = header.per_layer("attention.head_count_kv", layers)
    heads = header.per_layer("attention.head_count", layers)
    vocabulary = header.array_lengths.get("tokenizer.ggml.tokens", 0) or header.integer("vocab_size")
    return ModelFacts(
        weights_bytes=file_bytes,
        trained_context=header.integer("context_length"),
        kv_bytes_per_token=kept.per_token,
        architecture=safe(header.architecture),
        parameters=sum(part.parameters for part in whole),
        layers=layers,
        attention_heads=max(heads, default=0),
        kv_heads=max(kv_heads or heads, default=0),
        embedding_length=header.integer("embedding_length"),
        vocabulary=vocabulary,
        quantization=FILE_TYPES.get(_natural(header.metadata.get("general.file_type"), absent=-1), ""),
        sliding_window=kept.window,
        sliding_kv_bytes_per_token=kept.windowed_per_token,
        state_bytes=kept.state,
        experts=header.integer("expert_count"),
        expert_bytes=_by_layer([part.expert_bytes for part in whole], layers),
    )


def _by_layer(parts: Sequence[Mapping[int, int]], layers: int) -> tuple[int, ...]:
    """Bytes of each layer's experts over all parts; empty for a dense model."""
    found = [sum(part.get(layer, 0) for part in parts) for layer in range(layers)]
    return tuple(found) if any(found) else ()


class _Cursor:
    """Takes bytes off a stream in blocks, never more than the header may have."""

    def __init__(self, stream: Reader, file_bytes: int | None) -> None:
        self._stream = stream
        self._buffer = b""
        self._at = 0
        self._before = 0  # bytes of the header ahead of the buffer
        self.kept_items = 0
        self._limit = min(MAX_HEADER_BYTES, MAX_HEADER_BYTES if file_bytes is None else file_bytes)

    @property
    def offset(self) -> int:
        """Bytes taken so far."""
        return self._before + self._at

    def need(self, size: int) -> None:
        """Have `size` bytes in the buffer, or refuse."""
        left = len(self._buffer) - self._at
        if left >= size:
            return
        if self.offset + size > self._limit:
            raise _bad(f"its header claims more than the {self._limit} bytes there can be")
        blocks = [self._buffer[self._at :]]
        while left < size:
            block = self._stream.read(max(_READ_BYTES, min(size - left, 1024 * 1024)))
            if not block:
                raise _bad(f"it ends within its header, after {self.offset + left} bytes")
            blocks.append(block)
            left += len(block)
        self._before += self._at
        self._at = 0
        self._buffer = b"".join(blocks)

    def take(self, size: int) -> bytes:
        """The next `size` bytes; the caller has held `size` against a cap."""
        self.need(size)
        start = self._at
        self._at += size
        return self._buffer[start : self._at]

    def skip(self, size: int) -> None:
        """Step over `size` bytes, a block at a time."""
        if self.offset + size > self._limit:
            raise _bad(f"its header claims more than the {self._limit} bytes there can be")
        while size:
            step = min(size, _READ_BYTES)
            self.need(step)
            self._at += step
            size -= step

    def number(self, code: str) -> int:
        """One integer."""
        value: int = struct.unpack(code, self.take(struct.calcsize(code)))[0]
        return value

    def count(self, what: str, most: int) -> int:
        """A 64-bit count held against its cap."""
        value = self.number("<Q")
        if value > most:
            raise _bad(f"it claims {value} {what}; at most {most} are read")
        return value

    def text(self, what: str, most: int) -> str:
        """A string of at most `most` bytes; bytes that are not UTF-8 become marks."""
        return self.take(self.count(f"bytes of {what}", most)).decode(errors="replace")


def _read_entry(cursor: _Cursor, metadata: dict[str, Value], lengths: dict[str, int]) -> None:
    key = cursor.text("a key", MAX_KEY_BYTES)
    if key in metadata or key in lengths:
        raise _bad(f"it has {key[:80]!r} twice")
    kind = cursor.number("<I")
    if kind == _STRING:
        size = cursor.count(f"bytes in {key[:80]}", MAX_STRING_BYTES)
        if size > MAX_KEPT_STRING_BYTES:
            cursor.skip(size)
        else:
            metadata[key] = cursor.take(size).decode(errors="replace")
    elif kind == _ARRAY:
        _read_array(cursor, key, metadata, lengths)
    else:
        metadata[key] = _read_scalar(cursor, kind, key)


def _read_scalar(cursor: _Cursor, kind: int, key: str) -> Scalar:
    code = _SCALARS.get(kind)
    if code is None:
        raise _bad(f"{key[:80]!r} has the unknown type {kind}")
    value: Scalar = struct.unpack(code, cursor.take(_SIZES[kind]))[0]
    return value


def _read_array(cursor: _Cursor, key: str, metadata: dict[str, Value], lengths: dict[str, int]) -> None:
    kind = cursor.number("<I")
    length = cursor.count(f"items in {key[:80]}", MAX_ARRAY)
    lengths[key] = length
    if kind == _STRING:
        for _ in range(length):
            cursor.skip(cursor.count(f"bytes of an item of {key[:80]}", MAX_STRING_BYTES))
    elif kind not in _SIZES:
        nested = "arrays within arrays are not read" if kind == _ARRAY else f"its items have the unknown type {kind}"
        raise _bad(f"{key[:80]!r}: {nested}")
    elif length > MAX_KEPT_ARRAY or cursor.kept_items + length > MAX_KEPT_ITEMS:
        cursor.skip(length * _SIZES[kind])
    else:
        cursor.kept_items += length
        metadata[key] = tuple(_read_scalar(cursor, kind, key) for _ in range(length))


def _read_tensors(
    cursor: _Cursor,
    version: int,
    count: int,
    metadata: dict[str, Value],
    lengths: dict[str, int],
    file_bytes: int | None,
) -> GgufHeader:
    alignment = _natural(metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
    if not 0 < alignment <= MAX_ALIGNMENT or alignment & (alignment - 1):
        raise _bad(f"alignment {alignment} is not a power of two up to {MAX_ALIGNMENT}")
    parameters = tensor_bytes = furthest = 0
    experts: dict[int, int] = {}
    offsets: list[int] = []
    unsized: list[tuple[int, int]] = []
    for _ in range(count):
        name, elements, size, offset = _read_tensor(cursor)
        if offset % alignment:
            raise _bad(f"a tensor starts at {offset}, which is not a multiple of {alignment}")
        parameters += elements
        tensor_bytes += size
        furthest = max(furthest, offset + size)
        offsets.append(offset)
        if match := _EXPERTS.match(name):
            experts[int(match[1])] = experts.get(int(match[1]), 0) + size
            if not size:
                unsized.append((int(match[1]), offset))
    data_offset = -(-cursor.offset // alignment) * alignment
    if count and file_bytes is not None and data_offset + furthest > file_bytes:
        raise _bad(f"a tensor reaches to byte {data_offset + furthest} of a file of {file_bytes}")
    # Of a type nobody here knows: all up to where the next tensor begins.
    starts = [*sorted(set(offsets)), (file_bytes or data_offset) - data_offset] if unsized else []
    for layer, offset in unsized:
        experts[layer] += max(0, starts[bisect_right(starts, offset, 0, len(starts) - 1)] - offset)
    return GgufHeader(
        version=version,
        metadata=metadata,
        array_lengths=lengths,
        tensors=count,
        parameters=parameters,
        tensor_bytes=tensor_bytes,
        data_offset=data_offset,
        expert_bytes=experts,
    )


def _read_tensor(cursor: _Cursor) -> tuple[str, int, int, int]:
    """Name, elements, bytes (0 for a type this version does not know) and offset of the next tensor."""
    name = cursor.text("a tensor's name", MAX_TENSOR_NAME_BYTES)
    dimensions = cursor.number("<I")
    if dimensions > MAX_DIMENSIONS:
        raise _bad(f"tensor {name[:80]!r} claims {dimensions} dimensions")
    elements = 1
    for _ in range(dimensions):
        elements *= cursor.number("<Q")
        if elements > MAX_ELEMENTS:
            raise _bad(f"tensor {name[:80]!r} claims more than 2**53 elements")
    kind = cursor.number("<I")
    offset = cursor.number("<Q")
    block, size = TENSOR_TYPES.get(kind, (1, 0))
    if elements % block:
        raise _bad(f"tensor {name[:80]!r} has {elements} elements, not a multiple of its type's {block}")
    return name, elements, elements // block * size, offset


def _natural(value: object, *, absent: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        return absent
    return value


def _bad(message: str) -> InvalidInput:
    return InvalidInput(f"not a GGUF file llmgw can read: {message}")
