"""Why a transfer ended. Only `Interrupted` is worth another attempt by itself; the others need a change first."""

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from llmgw.core.errors import LlmgwError
from llmgw.core.units import size

MAX_NAMES = 3
"""Other fetches a sentence names; further ones are counted."""
_NOBODY: Mapping[str, int] = MappingProxyType({})


class TransferError(LlmgwError):
    """A file could not be brought here."""

    code = "transfer_failed"
    http_status = 502


class Interrupted(TransferError):
    """A connection, a server or its answer failed in a way that may pass."""

    def __init__(self, message: str, *, retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Refused(TransferError):
    """The other side will not give the file; the same request would be refused again. `status` 0: no HTTP answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class Unwritable(Refused):
    """The disk does not let the file be written, though it may have room for it. What arrived is kept."""

    code = "disk_unwritable"


class WrongContent(TransferError):
    """What arrived is not what was published; it was removed."""

    code = "wrong_content"


class DiskFull(TransferError):
    """The disk cannot hold the file. What arrived is kept."""

    code = "disk_full"
    http_status = 507

    def __init__(
        self,
        path: Path,
        *,
        needed_bytes: int,
        free_bytes: int,
        promised: Mapping[str, int] = _NOBODY,
        limit: str = "",
    ) -> None:
        """`limit` is what ran out where that is not free bytes."""
        needed = f"{size(needed_bytes)} more are needed" if needed_bytes else "more is needed"
        free = f"though {size(free_bytes)} are free" if limit else f"and {size(free_bytes)} are free"
        super().__init__(
            f"no space for {path}: {needed} {f'and {limit}, ' if limit else ''}{free}{_promised(promised)}; "
            "what arrived is kept, and the next fetch carries on from it once there is space"
        )
        self.path = path
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes
        self.promised_bytes = sum(promised.values())
        """Of what is free, what other fetches on their way still need."""


def _promised(promised: Mapping[str, int]) -> str:
    """What of the free space is spoken for, and by whom."""
    if not promised:
        return ""
    largest = sorted(promised.items(), key=lambda item: (-item[1], item[0]))
    names = ", ".join(f"{name}: {size(count)}" for name, count in largest[:MAX_NAMES])
    names += f" and {len(promised) - MAX_NAMES} more" if len(promised) > MAX_NAMES else ""
    others = "1 other fetch" if len(promised) == 1 else f"{len(promised)} other fetches"
    return f", of which {size(sum(promised.values()))} are promised to {others} queued or on the way ({names})"


NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""How a full disk, quota or file-size limit says so."""
_LIMITS = {
    errno.EDQUOT: "the quota of the account that writes there is used up",
    errno.EFBIG: "a file may not become so large there",
}
ROOM_FOR_INODES_BYTES = 16 * 1024 * 1024
"""With less space than this a disk is full, whatever it says of inodes."""
_NO_INODES = "the file system has no inode left for another file"
_READ_ONLY = "its file system is mounted read-only; what arrived is kept, and the next fetch carries on once it is not"


def disk_error(error: OSError, path: Path, *, needed_bytes: int = 0) -> TransferError:
    """What a failed file operation on `path` means to an operator: a full disk with its figures, or the reason."""
    if error.errno in NO_SPACE:
        free, needed = _free_now(path), max(0, needed_bytes)
        # Some file systems make inodes of free space: without space they have none either.
        inodes = free > max(needed, ROOM_FOR_INODES_BYTES) and _inodes_are_gone(path)
        limit = _LIMITS.get(error.errno, "") or (_NO_INODES if inodes else "")
        return DiskFull(path, needed_bytes=needed, free_bytes=free, limit=limit)
    where = error.filename or path
    if error.errno == errno.EROFS:
        return Unwritable(f"{where} cannot be written: {_READ_ONLY}")
    return Unwritable(f"{where}: {error.strerror or error}")


def _free_now(path: Path) -> int:
    """Bytes free, for a sentence: a disk that does not even say so has none."""
    try:
        return free_bytes(path)
    except OSError:
        return 0


def _inodes_are_gone(path: Path) -> bool:
    """Whether files cannot be made though there may be room; file systems without a bound tell of no inodes at all."""
    try:
        stat = os.statvfs(_existing(path))
    except OSError:
        return False
    return stat.f_files > 0 and stat.f_favail == 0


def free_bytes(path: Path) -> int:
    """Bytes this user may still write in the file system of `path` or of its nearest existing parent."""
    stat = os.statvfs(_existing(path))
    return stat.f_bavail * stat.f_frsize


def _existing(path: Path) -> Path:
    """The path, or its nearest parent that is there."""
    while not path.exists() and path != path.parent:
        path = path.parent
    return path
