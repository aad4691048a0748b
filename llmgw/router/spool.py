"""Usage rows on disk: a directory a router process, locked while it lives, with append-only segments in it.

A record is a 4-byte length, a CRC-32 and a msgpack array of rows; a torn or damaged one is skipped. Whoever finds a
directory whose lock is free owns it from then on, so what a dead router left is sent by a living one, exactly once as
far as files go. Everything here is synchronous and may raise OSError.
"""

import contextlib
import errno
import fcntl
import os
import struct
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from llmgw.core.routing import UsageRow

SEGMENT_BYTES = 1024 * 1024
"""A segment is sealed once it is this long."""
SPOOL_CAP_BYTES = 100 * 1024 * 1024
"""One router keeps no more than this on disk."""
ROWS_A_RECORD = 500
"""A damaged record loses at most this many rows."""
_HEAD = struct.Struct(">II")
_FIXARRAY, _ARRAY16 = 0x90, 0xDC
"""How msgpack begins an array of up to 15, and of up to 65,535 elements."""
_LOCK = "lock"
_SUFFIX = ".rows"
_FORGOTTEN_S = 60.0
"""A directory without a lock file that is older than this was left by a router killed while it made it."""

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[UsageRow, ...])


@dataclass(slots=True)
class _Home:
    """A directory of segments this process has locked. `held_bytes`: what its sealed segments take."""

    path: Path
    lock: int
    held_bytes: int = 0

    def discard(self) -> None:
        """Unlock; remove the directory if no segment is left in it."""
        if not any(self.path.glob(f"*{_SUFFIX}")):
            with contextlib.suppress(OSError):
                (self.path / _LOCK).unlink()
                self.path.rmdir()
        os.close(self.lock)


@dataclass(slots=True)
class Segment:
    """A sealed file of rows."""

    path: Path
    home: _Home
    size: int
    own: bool
    """Whether it is in this process's own directory, which stays until the process ends."""
    rows: int = 0
    """How many rows it holds, as far as that is known without decoding them."""

    def read(self) -> tuple[list[UsageRow], int]:
        """Its rows, and how many records were torn or damaged."""
        return read_records(self.path.read_bytes())

    def remove(self) -> None:
        """Its rows are stored: delete it, and the dead router's directory after its last one."""
        with contextlib.suppress(FileNotFoundError):
            self.path.unlink()
        self.home.held_bytes -= self.size
        if not self.own and not any(self.home.path.glob(f"*{_SUFFIX}")):
            self.home.discard()


@dataclass(slots=True)
class SpoolDirectory:
    """This router's own segments, and those it takes over from the dead. `index` names the router."""

    root: Path
    index: int
    cap_bytes: int = SPOOL_CAP_BYTES
    lacking: bool = False
    """The last append failed: what it was for is in no file."""
    size: int = 0
    """Bytes in the newest segment."""
    _own: _Home | None = None
    _adopted: list[_Home] = field(default_factory=list)
    _file: int | None = None
    _path: Path | None = None
    _count: int = 0

    @property
    def full(self) -> bool:
        """Whether the newest segment should be sealed."""
        return self.size >= SEGMENT_BYTES

    def append(self, rows: Sequence[UsageRow]) -> None:
        """Add `rows` to the newest segment. On OSError nothing of them is in it; over the cap that is ENOSPC."""
        data = b"".join(encode_records(rows))
        try:
            held = sum(home.held_bytes for home in (self._own, *self._adopted) if home is not None)
            if held + self.size + len(data) > self.cap_bytes:
                raise OSError(errno.ENOSPC, f"the spool holds its limit of {self.cap_bytes} bytes", str(self.root))
            self._write(data)
        except OSError:
            self.lacking = True
            raise
        self.lacking = False

    def seal(self) -> Segment | None:
        """Complete the newest segment and hand it out, on disk to stay; none when there is none."""
        if self._file is None or self._path is None or self._own is None or self.size == 0:
            return None
        os.fsync(self._file)
        os.close(self._file)
        segment = Segment(path=self._path, home=self._own, size=self.size, own=True)
        self._own.held_bytes += self.size
        self._file, self._path, self.size = None, None, 0
        return segment

    def replace(self, rows: Sequence[UsageRow]) -> None:
        """Begin a new segment with `rows`, then remove the one that was the newest. On OSError that one stays."""
        file, path, size = self._file, self._path, self.size
        self._file, self._path, self.size = None, None, 0
        try:
            self._write(b"".join(encode_records(rows)))
        except OSError:
            self._close_file()
            self._file, self._path, self.size = file, path, size
            raise
        if file is not None and path is not None:
            os.close(file)
            path.unlink()

    def truncate(self) -> None:
        """All rows in the newest segment are stored."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
        self.size, self.lacking = 0, False

    def adopt(self) -> list[Segment]:
        """Take over the directories of routers that ended, of whatever index, as far as nobody else did."""
        self._adopted = [home for home in self._adopted if home.held_bytes > 0]
        found: list[Segment] = []
        for path in sorted(self.root.glob("router-*/*/")):
            home = _lock_home(path)
            if home is None:
                continue
            segments = [
                Segment(path=file, home=home, size=file.stat().st_size, own=False, rows=count_rows(file.read_bytes()))
                for file in sorted(path.glob(f"*{_SUFFIX}"))
            ]
            if not segments:
                home.discard()
                continue
            home.held_bytes = sum(segment.size for segment in segments)
            self._adopted.append(home)
            found.extend(segments)
        return found

    def close(self) -> None:
        """Give up all locks. A newest segment without rows is removed."""
        if self.size == 0 and self._path is not None:
            self._path.unlink()
        self._close_file()
        for home in (self._own, *self._adopted):
            if home is not None and home.path.exists():
                home.discard()
        self._own, self._adopted = None, []

    def _close_file(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file = None

    def _write(self, data: bytes) -> None:
        if self._own is None:
            self._own = _make_home(self.root / f"router-{self.index}")
        if self._file is None:
            self._count += 1
            self._path = self._own.path / f"{self._count:06d}{_SUFFIX}"
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, memoryview(data)[written:])
        except OSError:
            # Half a record would hide those after it.
            os.ftruncate(self._file, self.size)
            raise
        self.size += written


def encode_records(rows: Sequence[UsageRow]) -> Iterator[bytes]:
    """`rows` as records."""
    for start in range(0, len(rows), ROWS_A_RECORD):
        payload = _encoder.encode(tuple(rows[start : start + ROWS_A_RECORD]))
        yield _HEAD.pack(len(payload), zlib.crc32(payload)) + payload


def read_records(data: bytes) -> tuple[list[UsageRow], int]:
    """Rows of all whole records in `data`, and how many records were damaged; what follows a torn length is one."""
    rows: list[UsageRow] = []
    damaged = 0
    position = 0
    while position < len(data):
        if len(data) - position < _HEAD.size:
            return rows, damaged + 1
        length, crc = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        payload = data[position : position + length]
        position += length
        if len(payload) < length or zlib.crc32(payload) != crc:
            damaged += 1
            continue
        try:
            rows.extend(_decoder.decode(payload))
        except msgspec.DecodeError:
            damaged += 1
    return rows, damaged


def count_rows(data: bytes) -> int:
    """How many rows the whole records in `data` say they hold, by the length each array begins with."""
    rows = position = 0
    while position + _HEAD.size < len(data):
        length, _ = _HEAD.unpack_from(data, position)
        position += _HEAD.size
        payload = memoryview(data)[position : position + 3]
        position += length
        if position > len(data):
            break
        if payload[0] & 0xF0 == _FIXARRAY:
            rows += payload[0] & 0x0F
        elif payload[0] == _ARRAY16 and len(payload) == 3:
            rows += int.from_bytes(payload[1:], "big")
    return rows


def _make_home(parent: Path) -> _Home:
    """A new, locked directory under `parent`."""
    while True:
        path = parent / f"{time.time_ns()}-{os.getpid()}"
        path.mkdir(parents=True, mode=0o700)
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        home = _locked(path, lock)
        if home is not None:
            return home


def _lock_home(path: Path) -> _Home | None:
    """`path` if nobody living owns it."""
    try:
        lock = os.open(path / _LOCK, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _FORGOTTEN_S:
                path.rmdir()
        return None
    return _locked(path, lock)


def _locked(path: Path, lock: int) -> _Home | None:
    """Lock `lock`, unless another has it or has removed the directory meanwhile; then it is closed."""
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if (path / _LOCK).stat().st_ino == os.fstat(lock).st_ino:
            return _Home(path=path, lock=lock)
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(lock)
    return None
