"""An engine's output file: appended to by the engine alone, bounded by copy-and-truncate, read a piece at a time."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

OUTPUT_MAX_BYTES = 16 * 1024 * 1024
"""A file this long is copied away and emptied."""
KEPT_OUTPUTS = 2
"""Copies kept beside the file: `.1` is the newer."""
_COPY_CHUNK_BYTES = 1024 * 1024
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[@-_]")
_CONTROLS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
MAX_LINE_CHARS = 8 * 1024
"""A longer line is cut: engines print whole prompts when asked to."""


def rotate_if_long(path: Path, *, max_bytes: int = OUTPUT_MAX_BYTES) -> bool:
    """Copy the file to `.1` (and `.1` to `.2`) and empty it when it is longer than `max_bytes`. Blocking.

    The engine goes on appending to the same file; what it writes between copy and truncation is lost. Of a file that
    grew far beyond the limit the last `max_bytes` are kept. A full disk empties the file without a copy.
    """
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return False
    if size <= max_bytes:
        return False
    try:
        for number in range(KEPT_OUTPUTS, 1, -1):
            with contextlib.suppress(FileNotFoundError):
                _numbered(path, number - 1).replace(_numbered(path, number))
        _copy_end(path, _numbered(path, 1), max_bytes)
    except OSError:
        with contextlib.suppress(OSError):
            _numbered(path, 1).unlink(missing_ok=True)
    os.truncate(path, 0)
    return True


def remove_output(path: Path) -> None:
    """Remove the file and its copies."""
    for file in (path, *(_numbered(path, number) for number in range(1, KEPT_OUTPUTS + 1))):
        file.unlink(missing_ok=True)


def read_end(path: Path, max_bytes: int) -> tuple[bytes, int]:
    """The last `max_bytes` of the file and its length. Blocking; empty when it is not there."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - max_bytes))
            return file.read(max_bytes), size
    except FileNotFoundError:
        return b"", 0


def length_of(path: Path) -> int:
    """Bytes of the file; 0 when it is not there. Blocking."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def lines_since(path: Path, start: int, *, max_bytes: int) -> Iterator[str]:
    """The lines after byte `start` as plain text, of at most `max_bytes`. Blocking; nothing when it is not there.

    A file that is shorter was emptied since: what it has now is read from its beginning.
    """
    try:
        with path.open("rb") as file:
            file.seek(start if start <= file.seek(0, os.SEEK_END) else 0)
            data = file.read(max_bytes)
    except FileNotFoundError:
        return
    for line in data.split(b"\n"):
        yield plain_line(line)


def last_lines(path: Path, count: int, *, max_bytes: int = 64 * 1024) -> list[str]:
    """The last lines as plain text, at most `count`, empty ones left out. Blocking."""
    data, size = read_end(path, max_bytes)
    lines = data.split(b"\n")
    if size > max_bytes:
        lines = lines[1:]
    texts = [plain_line(line) for line in lines[-count * 4 :]]
    return [text for text in texts if text.strip()][-count:]


def plain_line(line: bytes) -> str:
    """A line as text without escapes, control and bidi characters; a tab stays, and so does a bar's last state."""
    text = line.decode(errors="replace").rstrip("\r").rsplit("\r", 1)[-1]
    text = _CONTROLS.sub("", _ESCAPES.sub("", text))
    return text if len(text) <= MAX_LINE_CHARS else text[:MAX_LINE_CHARS] + "…"


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _copy_end(source: Path, target: Path, max_bytes: int) -> None:
    with source.open("rb") as reader:
        size = reader.seek(0, os.SEEK_END)
        reader.seek(max(0, size - max_bytes))
        fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "wb") as writer:
            left = max_bytes
            while left > 0 and (chunk := reader.read(min(left, _COPY_CHUNK_BYTES))):
                left -= writer.write(chunk)
