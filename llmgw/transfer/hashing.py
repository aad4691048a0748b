"""Reads files back to check them, in steps short enough that a cancelled check ends at once. All calls block."""

import hashlib
import io
from pathlib import Path

STEP_BYTES = 32 * 1024 * 1024
"""Hashed a call: some tens of milliseconds."""
_READ_BYTES = 1024 * 1024


def open_binary(path: Path) -> io.BufferedReader:
    """The file, open for reading."""
    return path.open("rb")


def hash_step(stream: io.BufferedReader, digest: "hashlib._Hash") -> int:
    """Hash the next piece of the stream; gives its size, 0 at the end."""
    done = 0
    while done < STEP_BYTES and (data := stream.read(_READ_BYTES)):
        digest.update(data)
        done += len(data)
    return done
