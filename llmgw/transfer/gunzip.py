"""Unpacks a body that came as gzip: one member or several behind each other, which together are the file.

It stands in for zlib's own object, for which the first member is the whole: what follows would be dropped in silence.
"""

import zlib

_GZIP = 31
"""zlib's word for gzip with the largest window."""


class Gunzip:
    """`unconsumed_tail` is what is still to be given to `decompress`; zlib.error is raised for what is no gzip."""

    def __init__(self) -> None:
        self._member = zlib.decompressobj(_GZIP)
        self.unconsumed_tail = b""

    @property
    def eof(self) -> bool:
        """Whether the last member that began has ended."""
        return self._member.eof

    def decompress(self, data: bytes | bytearray, most: int) -> bytes:
        """Up to `most` bytes of the file."""
        if self._member.eof:
            # Files are padded with zeros to whole blocks of a tape or a disk.
            data = data.lstrip(b"\0")
            if not data:
                self.unconsumed_tail = b""
                return b""
            self._member = zlib.decompressobj(_GZIP)
        found = self._member.decompress(data, most)
        self.unconsumed_tail = self._member.unused_data or self._member.unconsumed_tail
        return found
