"""The request log's files: JSON lines, put aside by size, whole lines only, whoever else writes to the same file.

Two routers of one index may overlap while one of them drains. Each appends with one write, looks whether the file is
still the one of that name, and puts it aside under a lock.
"""

import contextlib
import fcntl
import os
from pathlib import Path


class RequestFiles:
    """`N.jsonl` being written and `N.jsonl.1`, `.2`, … put aside, the newest first. For one thread at a time."""

    def __init__(self, directory: Path, index: int) -> None:
        """Nothing is touched before the first `write`."""
        self._directory = directory
        self._path = directory / f"{index}.jsonl"
        self._descriptor = -1
        self._torn = False
        """The file ends within a line, which a full disk or a crash cut short."""

    def write(self, lines: bytes, *, most_bytes: int, kept: int) -> None:
        """Append whole lines; a file that is full is put aside first, `kept` files stay in all. Raises OSError."""
        size = self._open()
        if size and size + len(lines) > most_bytes:
            self._put_aside(most_bytes - len(lines), kept)
            self._open()
        if self._torn:
            lines = b"\n" + lines
        try:
            taken = os.write(self._descriptor, lines)
        except OSError:
            self.close()
            raise
        self._torn = False
        if taken < len(lines):
            self.close()
            raise OSError(f"{self._path} took {taken} of {len(lines)} bytes")

    def close(self) -> None:
        """Close the file; the next `write` opens it again."""
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)

    def _open(self) -> int:
        """Have the file of that name open; its size."""
        if self._descriptor >= 0:
            mine = os.fstat(self._descriptor)
            with contextlib.suppress(FileNotFoundError):
                there = os.stat(self._path)
                if (there.st_ino, there.st_dev) == (mine.st_ino, mine.st_dev):
                    return there.st_size
            self.close()
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self._path, flags, 0o600)
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        return size

    def _put_aside(self, size: int, kept: int) -> None:
        """Rename the file, unless another process has done so meanwhile: it is then no longer than `size`."""
        directory = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(directory, fcntl.LOCK_EX)
            try:
                if os.stat(self._path).st_size <= size:
                    return
            except FileNotFoundError:
                return  # the other process has put it aside and not begun the next
            for number in range(self._last(), 0, -1):
                old = self._aside(number)
                if number >= kept - 1:
                    old.unlink(missing_ok=True)
                else:
                    with contextlib.suppress(FileNotFoundError):
                        old.rename(self._aside(number + 1))
            with contextlib.suppress(FileNotFoundError):
                if kept > 1:
                    self._path.rename(self._aside(1))
                else:
                    self._path.unlink()
        finally:
            os.close(directory)
            self.close()

    def _last(self) -> int:
        """The highest number of a file that was put aside."""
        found = (path.name.removeprefix(f"{self._path.name}.") for path in self._directory.glob(f"{self._path.name}.*"))
        return max((int(number) for number in found if number.isdecimal()), default=0)

    def _aside(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}")
