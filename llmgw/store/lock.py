"""One living owner a data directory: the lock is the kernel's (`flock`), so a killed owner leaves none."""

import contextlib
import fcntl
import os
from pathlib import Path

from llmgw.core.errors import Conflict


class DataLock:
    """A held lock; `release` gives it up and removes the file, so that nothing is left behind."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Give the lock up. Safe to call twice."""
        if self._descriptor is None:
            return
        # Unlinked while still held: whoever waits on this inode finds it gone and makes its own file.
        with contextlib.suppress(OSError):
            self.path.unlink()
        os.close(self._descriptor)
        self._descriptor = None


def acquire(path: Path) -> DataLock:
    """Lock `path` (made 0600, holding this process's pid) or raise Conflict naming the process that holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise Conflict(
                f"{path.parent} is in use by process {holder or '(starting)'}: stop that one first, "
                "or choose another data directory"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        if _still_there(path, descriptor):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return DataLock(path, descriptor)
        os.close(descriptor)


def _still_there(path: Path, descriptor: int) -> bool:
    """Whether the file locked is the one at `path`: its last holder may have removed it in between."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False
