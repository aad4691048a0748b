"""One agent a data directory: the lock is the kernel's, so it goes with the process whatever ends it."""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

from llmgw.core.errors import Conflict


@contextlib.contextmanager
def data_lock(path: Path) -> Iterator[None]:
    """Hold the lock at `path`, with this pid in it, and remove it at the end. Raises Conflict naming the holder."""
    fd = _take(path)
    try:
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(fd)


def _take(path: Path) -> int:
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(fd, 32).decode(errors="replace").strip() or "unknown"
            os.close(fd)
            raise Conflict(
                f"another agent (pid {holder}) runs on {path.parent}; stop it or choose another data"
            ) from None
        # A holder that ended removed its file: what was locked must be what others will find under the name.
        if _is_at(fd, path):
            return fd
        os.close(fd)


def _is_at(fd: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), path.stat())
    except FileNotFoundError:
        return False
