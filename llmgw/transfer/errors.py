"""Why a transfer ended. Only `Interrupted` is worth another attempt by itself; the others need a change first."""

import errno
import os
from pathlib import Path

from llmgw.core.errors import LlmgwError
from llmgw.core.units import size


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


class WrongContent(TransferError):
    """What arrived is not what was published; it was removed."""

    code = "wrong_content"


class DiskFull(TransferError):
    """The disk cannot hold the file. What arrived is kept."""

    code = "disk_full"
    http_status = 507

    def __init__(self, path: Path, *, needed_bytes: int, free_bytes: int) -> None:
        needed = f"{size(needed_bytes)} more are needed" if needed_bytes else "more is needed"
        super().__init__(
            f"no space for {path}: {needed} and {size(free_bytes)} are free; what arrived is kept, "
            "and the next fetch carries on from it once there is space"
        )
        self.path = path
        self.needed_bytes = needed_bytes
        self.free_bytes = free_bytes


NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""How a full disk, quota or file-size limit says so."""


def disk_error(error: OSError, path: Path, *, needed_bytes: int = 0) -> TransferError:
    """What a failed file operation on `path` means to an operator: a full disk with its figures, or the reason."""
    if error.errno in NO_SPACE:
        return DiskFull(path, needed_bytes=max(0, needed_bytes), free_bytes=free_bytes(path))
    return Refused(f"{error.filename or path}: {error.strerror or error}")


def free_bytes(path: Path) -> int:
    """Bytes this user may still write in the file system of `path` or of its nearest existing parent."""
    while not path.exists() and path != path.parent:
        path = path.parent
    stat = os.statvfs(path)
    return stat.f_bavail * stat.f_frsize
