"""The request log's files: opened while none of them changes its name, and read from their ends, line by line.

A descriptor stays with its file when that is put aside, and a file is only appended to: what is read here up to the
size that a file had is the same at every look.
"""

import contextlib
import errno
import fcntl
import os
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from llmgw.control.request_cursor import Place
from llmgw.core.requests import RequestLine

BLOCK_BYTES = 256 * 1024
"""Read at a time. A line that is longer is no request's, and is passed over."""
BEGINNING_BYTES = 4096
"""Of a file's first line, what it is known by."""

_NAME = re.compile(r"(0|[1-9][0-9]{0,8})\.jsonl(?:\.([1-9][0-9]{0,8}))?", re.ASCII)
_decoder = msgspec.json.Decoder(RequestLine)


class Spent(Exception):
    """As much was looked through as may be at a time."""


class Budget:
    """Bytes that may still be looked through."""

    def __init__(self, left: int, routers: int = 0) -> None:
        """`left`, beside what it takes to know the newest line of so many routers: any page gets beyond that."""
        self._left = left + 2 * BLOCK_BYTES * routers

    def take(self, count: int) -> None:
        """Look through so many more; raises Spent."""
        self._left -= count
        if self._left < 0:
            raise Spent


class LogFile(NamedTuple):
    """One file, open."""

    descriptor: int
    inode: int
    mark: int
    """Checksum of how it begins."""
    size: int
    """What it had when it was opened; what is behind that is newer."""


class Logs(NamedTuple):
    """All files of the log as they were at one moment."""

    directory: int
    """The directory's inode."""
    routers: Mapping[int, Sequence[LogFile]]
    """By router; the newest file first."""


def open_logs(stack: contextlib.ExitStack, directory: Path) -> Logs | None:
    """What there is of the log, open for as long as `stack` is; none where there is no such directory.

    Raises OSError when the process has no descriptors left for it.
    """
    try:
        held = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        inode = os.fstat(held).st_ino
        fcntl.flock(held, fcntl.LOCK_SH)  # routers put files aside under it: none is missed, none is met twice
        opened = _open_all(stack, held)
    finally:
        os.close(held)
    routers: dict[int, list[LogFile]] = {}
    known: set[int] = set()
    for router, descriptor in opened:
        file = _known(descriptor)
        if file is not None and file.inode not in known:
            known.add(file.inode)
            routers.setdefault(router, []).append(file)
    return Logs(inode, routers)


def _open_all(stack: contextlib.ExitStack, directory: int) -> list[tuple[int, int]]:
    """Routers with descriptors of their files, in the order of the routers, the newest file first."""
    found = sorted(
        (int(match[1]), int(match[2] or 0), name)
        for name in os.listdir(directory)
        if (match := _NAME.fullmatch(name)) is not None
    )
    opened = []
    for router, _, name in found:
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise  # a page without this file would look like a whole one
            continue
        stack.callback(os.close, descriptor)
        opened.append((router, descriptor))
    return opened


def _known(descriptor: int) -> LogFile | None:
    """The file with what it is known by; none for one of which the first line is not whole yet."""
    status = os.fstat(descriptor)
    beginning = os.pread(descriptor, BEGINNING_BYTES, 0)
    line, newline, _ = beginning.partition(b"\n")
    if not newline and len(beginning) < BEGINNING_BYTES:
        return None
    return LogFile(descriptor, status.st_ino, zlib.crc32(line), status.st_size)


class Told(NamedTuple):
    """A line of a chain's, and where in the chain's current file it begins."""

    line: RequestLine
    offset: int
    chain: "Chain"


class Chain:
    """The lines of one router, the newest first. Whoever tells one moves `offset` to where it begins."""

    def __init__(self, router: int, files: Sequence[LogFile], budget: Budget) -> None:
        """`files` are the router's, the newest first, one at least."""
        self._router = router
        self._files = files
        self._budget = budget
        self._inode, self._mark = files[0].inode, files[0].mark
        self.offset = files[0].size
        """In the current file: nothing before it was told, everything behind it was."""

    @property
    def place(self) -> Place:
        """How far it was told."""
        return Place(self._router, self._inode, self._mark, self.offset)

    def go_to(self, place: Place) -> bool:
        """Go on where an earlier chain was; false for a place that its file cannot have.

        Where the file is gone there is nothing more: those put aside before it went before it.
        """
        self._inode, self._mark, self.offset = place.inode, place.mark, place.offset
        at = 0
        while at < len(self._files) and (self._files[at].inode, self._files[at].mark) != (place.inode, place.mark):
            at += 1
        self._files = self._files[at:]
        return not self._files or place.offset <= self._files[0].size

    def lines(self) -> Iterator[Told]:
        """Those before its place; raises Spent."""
        for number, file in enumerate(self._files):
            self._inode, self._mark = file.inode, file.mark
            if number:
                self.offset = file.size
            for offset, raw in backward(file.descriptor, self.offset, self._budget):
                line = line_of(raw, self._router)
                if line is None:
                    self.offset = offset  # nobody has to look at it again
                else:
                    yield Told(line, offset, self)


def line_of(raw: bytes, router: int) -> RequestLine | None:
    """A line of a router's log; none for what is torn, or somebody else's."""
    try:
        line = _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(line, router=router) if router else line


def backward(descriptor: int, end: int, budget: Budget, mark: bytes = b"") -> Iterator[tuple[int, bytes]]:
    """Lines of a file's first `end` bytes with where they begin, the last first; those alone that begin with `mark`.

    Of a line longer than BLOCK_BYTES there may come pieces, empty ones too. Raises Spent.
    """
    rest = b""
    """What ends a line that begins further ahead."""
    while end > 0:
        size = min(BLOCK_BYTES, end)
        budget.take(size)
        end -= size
        block, begin = os.pread(descriptor, size, end) + rest, end
        if end:
            cut = block.find(b"\n")
            if cut < 0:
                rest = block if len(block) <= BLOCK_BYTES else b""
                if not rest:
                    yield end, b""
                continue
            rest, block, begin = block[:cut], block[cut + 1 :], end + cut + 1
        if mark in block:
            at = begin + len(block)
            for line in reversed(block.split(b"\n")):
                at -= len(line)
                if line and line.startswith(mark):
                    yield at, line
                at -= 1
