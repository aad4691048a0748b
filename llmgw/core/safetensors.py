"""The header of a safetensors file: 8 bytes with its length, JSON with every tensor's place, then the tensors.

It tells how long the file is, so that one that was cut off can be told from a whole one without a checksum.
"""

from typing import IO

import msgspec

from llmgw.core.errors import InvalidInput

MAX_HEADER_BYTES = 100_000_000
"""The format's own bound."""


class _Tensor(msgspec.Struct):
    data_offsets: tuple[int, int]


def check_length(stream: IO[bytes], *, name: str, file_bytes: int) -> None:
    """Raise InvalidInput unless the file is as long as its header says."""
    length = int.from_bytes(stream.read(8), "little")
    if not 2 <= length <= MAX_HEADER_BYTES or 8 + length > file_bytes:
        raise InvalidInput(f"{name} is cut off within its header, or is no safetensors file")
    try:
        entries = msgspec.json.decode(stream.read(length), type=dict[str, msgspec.Raw])
        ends = [
            msgspec.json.decode(entry, type=_Tensor).data_offsets[1]
            for key, entry in entries.items()
            if key != "__metadata__"
        ]
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvalidInput(f"{name} has a header that cannot be read: {error}") from error
    told = 8 + length + max(ends, default=0)
    if told != file_bytes:
        raise InvalidInput(f"{name} is not whole: its header tells of {told} bytes, and {file_bytes} are here")
