"""Frames of the feed: a 4-byte big-endian length and that many bytes. What is kept of an unfinished one is bounded."""

from llmgw.core.routing import MAX_FRAME_BYTES

_PREFIX_BYTES = 4


class FrameTooLong(ValueError):
    """A frame beyond `MAX_FRAME_BYTES`: the connection it came on, or would go on, cannot be used."""


def encode_frame(payload: bytes) -> bytes:
    """`payload` with its length before it; raises FrameTooLong."""
    if len(payload) > MAX_FRAME_BYTES:
        raise FrameTooLong(f"a frame of {len(payload)} bytes is over the limit of {MAX_FRAME_BYTES}")
    return len(payload).to_bytes(_PREFIX_BYTES, "big") + payload


class FrameDecoder:
    """Takes bytes as they were read and gives whole frames; holds at most one unfinished frame."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Frames completed by `data`, in order; raises FrameTooLong as soon as a length says so."""
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        while len(self._buffer) - start >= _PREFIX_BYTES:
            length = int.from_bytes(self._buffer[start : start + _PREFIX_BYTES], "big")
            if length > MAX_FRAME_BYTES:
                raise FrameTooLong(f"a frame of {length} bytes was announced; the limit is {MAX_FRAME_BYTES}")
            end = start + _PREFIX_BYTES + length
            if len(self._buffer) < end:
                break
            frames.append(bytes(self._buffer[start + _PREFIX_BYTES : end]))
            start = end
        del self._buffer[:start]
        return frames
