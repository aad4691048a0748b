"""A download on its way: `NAME.part` beside the target, and `NAME.part.json` with the ETag it came under.

The target's own name appears by an atomic rename of a whole, synced file, and in no other way. All calls block.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable
from pathlib import Path

REHASH_BYTES = 64 * 1024 * 1024
"""Read back a call, so that a cancelled fetch does not wait for a hundred gigabytes."""

LEAVE_BYTES = 32 * 1024 * 1024
"""Sent on to the disk at once, while more arrives."""


class Part:
    """The `.part` of one target, open for appending."""

    def __init__(self, target: Path, *, hashed: bool) -> None:
        self.target = target
        self.path = target.with_name(target.name + ".part")
        self.memory = target.with_name(target.name + ".part.json")
        self.size = 0
        """Bytes in the part."""
        self.etag = ""
        """Validator of the file these bytes belong to; empty when none was given."""
        self._descriptor = -1
        self._hashed = hashed
        self._hasher = hashlib.sha256()
        self._hashed_bytes = 0
        self._leaving = 0  # so much is on its way from memory to the disk

    def open(self) -> None:
        """Open or make the part and learn what it holds."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._descriptor = os.open(self.path, flags, 0o644)
        self.size = self._leaving = os.fstat(self._descriptor).st_size
        self.etag = _read_etag(self.memory) if self.size else ""

    def rehash_step(self) -> bool:
        """Hash the next piece of what the part held before; False when all of it is hashed."""
        if not self._hashed or self._hashed_bytes >= self.size:
            return False
        end = min(self.size, self._hashed_bytes + REHASH_BYTES)
        while self._hashed_bytes < end:
            data = os.pread(self._descriptor, min(1024 * 1024, end - self._hashed_bytes), self._hashed_bytes)
            if not data:
                raise OSError(f"{self.path} became shorter while it was read")
            self._hasher.update(data)
            self._hashed_bytes += len(data)
        return self._hashed_bytes < self.size

    def append(self, pieces: Iterable[bytes | bytearray]) -> None:
        """Write at the end; what was written before an OSError counts, and the part stays usable."""
        for piece in pieces:
            view = memoryview(piece)
            while view:
                written = os.pwrite(self._descriptor, view, self.size)
                if self._hashed:
                    self._hasher.update(view[:written])
                    self._hashed_bytes += written
                self.size += written
                view = view[written:]
        if self.size - self._leaving >= LEAVE_BYTES:
            # Of pages that are not written back yet this begins it and drops none; so the sync at the end is short.
            os.posix_fadvise(self._descriptor, self._leaving, self.size - self._leaving, os.POSIX_FADV_DONTNEED)
            self._leaving = self.size

    def restart(self) -> None:
        """Empty the part and forget its ETag."""
        os.ftruncate(self._descriptor, 0)
        with contextlib.suppress(FileNotFoundError):
            self.memory.unlink()
        self.size = self._hashed_bytes = self._leaving = 0
        self.etag = ""
        self._hasher = hashlib.sha256()

    def remember(self, etag: str) -> None:
        """Keep the ETag of the file these bytes are of."""
        if etag != self.etag:
            self.memory.write_text(json.dumps({"etag": etag}), encoding="utf-8")
            self.etag = etag

    @property
    def sha256(self) -> str:
        """Hex digest of what the part holds; empty when it was not asked to hash."""
        return self._hasher.hexdigest() if self._hashed else ""

    def head(self, size: int) -> bytes:
        """The first `size` bytes."""
        return os.pread(self._descriptor, size, 0)

    def finish(self) -> None:
        """Sync, and give the file its own name."""
        os.fsync(self._descriptor)
        self.path.replace(self.target)
        with contextlib.suppress(FileNotFoundError):
            self.memory.unlink()
        sync_directory(self.target.parent)

    def discard(self) -> None:
        """Remove the part and what is remembered of it."""
        for path in (self.path, self.memory):
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def close(self) -> None:
        """Let the descriptor go; the part stays."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def sync_directory(path: Path) -> None:
    """Make renames in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a small file as a whole, durably."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        with open(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def _read_etag(memory: Path) -> str:
    try:
        etag = json.loads(memory.read_bytes()[:4096])["etag"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return etag if isinstance(etag, str) else ""
