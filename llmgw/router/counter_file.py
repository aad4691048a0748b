"""The file under the shared counters: made whole or not at all, and replaced when it is of another kind.

A file of another version, size or content is never written into: a new one takes its name, and routers that have the
old one open go on with it until they end. Its size is fixed and its blocks are taken from the disk before they are
written through the map, because a write into a hole on a full disk would be a SIGBUS.
"""

import contextlib
import fcntl
import mmap
import os
import stat
import sys
import time
from pathlib import Path

WORD = 8
"""Bytes in a word: everything in the file is signed 64-bit words of the machine's own byte order."""
MAGIC = 0x6C6C6D67775F6374
"""`llmgw_ct`."""
VERSION = 1
"""Of the layout; a change of anything below makes another."""
SLOTS = 120
"""Router processes at once: the 64 that may be configured, and most of those that drain while they are replaced."""
SLOT_WORDS = 4
"""pid (0 is free), start time, boot, unused."""
ROW_HEAD_WORDS = 16
ROW_WORDS = ROW_HEAD_WORDS + 2 * SLOTS
"""A row's own words, then a word a slot for its open requests, then a word a slot for its reserved micros."""
ROW_BYTES = ROW_WORDS * WORD
"""2 KiB."""
ROWS = 16_384
"""Scopes counted at once: the 10,000 keys a router knows, with their teams and tenants."""
BUCKETS = 4_096
BUCKET_WORDS = 16
"""Index: row numbers plus one, by the scope's hash. Full, a bucket holds 4 on average, and more than 16 once in 10⁶."""

H_MAGIC, H_VERSION, H_ROWS, H_ROW_WORDS, H_SLOTS, H_USED, H_ALLOCATED, H_SLOTS_HIGH = range(8)
"""Words of the header: what the file is, rows given out so far, rows with blocks on disk, highest slot taken plus 1."""
SLOTS_AT = 64
"""Word where the table of slots begins."""
INDEX_AT = 8192 // WORD
"""Word where the index begins."""
ROWS_AT = INDEX_AT * WORD + BUCKETS * BUCKET_WORDS * WORD
"""Byte where the rows begin."""
ALLOCATE_ROWS = 32
"""Rows whose blocks are taken from the disk in one go."""
OPENING_S = 2.0
"""How long opening waits for another process that is opening: a stopped one must not keep routers from starting."""
_OPENING_POLL_S = 0.01


def file_bytes(rows: int) -> int:
    """Size of a file with room for `rows`."""
    return ROWS_AT + rows * ROW_BYTES


def open_file(path: Path, *, rows: int = ROWS, create: bool = True) -> tuple[int, mmap.mmap]:
    """Descriptor and map of the counters at `path`, made anew (0600) unless the file there is one of ours.

    Raises OSError; FileNotFoundError for want of a good file without `create`. The descriptor must be the process's
    only one of this file: closing any drops all of the process's locks.
    """
    lock = _opening(path.with_name(f"{path.name}.lock"))
    try:
        with contextlib.suppress(FileNotFoundError):
            descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _is_ours(descriptor, rows):
                    return descriptor, mmap.mmap(descriptor, file_bytes(rows))
            except BaseException:
                os.close(descriptor)
                raise
            os.close(descriptor)
        if not create:
            raise FileNotFoundError(f"{path} is no counter file of this version")
        descriptor = _make(path, rows)
        return descriptor, mmap.mmap(descriptor, file_bytes(rows))
    finally:
        os.close(lock)


def private_map(rows: int = ROWS) -> mmap.mmap:
    """The same in memory of this process alone; takes room only where it is written."""
    memory = mmap.mmap(-1, file_bytes(rows), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with memoryview(memory) as view, view.cast("q") as words:
        for at, word in enumerate(_header(rows)):
            words[at] = word
        words[H_ALLOCATED] = rows
    return memory


def allocate(descriptor: int, first: int, count: int) -> None:
    """Take the blocks of `count` rows from the disk; raises OSError when it has none."""
    os.posix_fallocate(descriptor, ROWS_AT + first * ROW_BYTES, count * ROW_BYTES)


def _header(rows: int) -> tuple[int, ...]:
    return (MAGIC, VERSION, rows, ROW_WORDS, SLOTS)


def _is_ours(descriptor: int, rows: int) -> bool:
    """Whether it can be mapped and worked in as it is."""
    found = os.fstat(descriptor)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size != file_bytes(rows):
        return False
    if stat.S_IMODE(found.st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    with memoryview(os.pread(descriptor, SLOTS_AT * WORD, 0)) as raw, raw.cast("q") as words:
        used, allocated, high = words[H_USED], words[H_ALLOCATED], words[H_SLOTS_HIGH]
        known = tuple(words[:H_USED]) == _header(rows)
    return known and 0 <= used <= allocated <= rows and 0 <= high <= SLOTS


def _make(path: Path, rows: int) -> int:
    temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.ftruncate(descriptor, file_bytes(rows))
        os.posix_fallocate(descriptor, 0, ROWS_AT)
        os.pwrite(descriptor, b"".join(word.to_bytes(WORD, sys.byteorder, signed=True) for word in _header(rows)), 0)
        temporary.replace(path)
    except BaseException:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    return descriptor


def _opening(path: Path) -> int:
    """The lock under which files are looked at and made; raises OSError when somebody else keeps it."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    until = time.monotonic() + OPENING_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                os.close(descriptor)
                raise TimeoutError(f"another process has been opening {path} for {OPENING_S:g} s") from None
            time.sleep(_OPENING_POLL_S)
        except BaseException:
            os.close(descriptor)
            raise
        else:
            return descriptor
