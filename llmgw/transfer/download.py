"""Brings one file here. Its name appears only when every byte is there and the checksum, where there is one, is right.

What arrives stays in `.part` through failures, cancellation and kills; a later call carries on from it. The part is
emptied only when its bytes cannot belong to the file any more.
"""

import zlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

import trio

from llmgw.core.weights import MAGIC_BYTES
from llmgw.transfer.behind import Behind
from llmgw.transfer.errors import (
    DiskFull,
    Interrupted,
    Refused,
    TransferError,
    WrongContent,
    disk_error,
    free_bytes,
)
from llmgw.transfer.gunzip import Gunzip
from llmgw.transfer.http import RECEIVE_BYTES, Remote, Response, redacted, request
from llmgw.transfer.limit import PIECE_S, Limit
from llmgw.transfer.part import Part
from llmgw.transfer.ranges import content_range, unsatisfied_total

ATTEMPTS = 6
"""In a row: one that brought `MOVED_BYTES` more than any before counts as the first again."""
MOVED_BYTES = 1024 * 1024
FIRST_PAUSE_S = 2.0
"""After the first failed attempt; doubles with each."""
LONGEST_PAUSE_S = 30.0
CHUNK_BYTES = 1024 * 1024
"""Written at once: what a kill may cost."""
WRITE_S = 0.25
"""Under a limit, what it lets through in this time is written at once where that is less: progress is told as often."""
KEPT = "what arrived is kept and the next fetch carries on from it"
_PAGES = ("text/html", "application/xhtml+xml")
_PAGE_NAMES = (".html", ".htm", ".xhtml")

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
Report = Callable[[int, int], None]
"""Called with bytes here and bytes in all (0 while that is unknown)."""


@dataclass(frozen=True, kw_only=True)
class Policy:
    """How hard to try. Tests replace `sleep` and `free_bytes`."""

    attempts: int = ATTEMPTS
    first_pause_s: float = FIRST_PAUSE_S
    longest_pause_s: float = LONGEST_PAUSE_S
    sleep: Callable[[float], Awaitable[object]] = trio.sleep
    free_bytes: Callable[[Path], int] = free_bytes
    room: Callable[[Path, int], None] | None = None
    """Asked for space for a path in bytes where others fetch too; raises DiskFull. None: what is free is to be had."""
    limit: Limit = field(default_factory=Limit)
    """How fast all downloads under this policy and its copies go together."""

    def make_room(self, path: Path, needed: int) -> None:
        """Return if `needed` bytes may be written for `path`; raises DiskFull before the first is."""
        if self.room is not None:
            self.room(path, needed)
        elif needed > (free := self.free_bytes(path.parent)):
            raise DiskFull(path, needed_bytes=needed, free_bytes=free)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """The file as it must be."""

    target: Path
    size: int | None = None
    """None: as many bytes as come."""
    sha256: str | None = None
    hashed: bool = True
    """Whether to hash what arrives: needed for `sha256`, and to learn it."""
    refuse_head: Callable[[bytes], str | None] | None = None
    """Given the file's first bytes, says why it is not wanted whatever its name, or none."""


@dataclass(frozen=True, kw_only=True)
class Downloaded:
    """A file that is here."""

    size: int
    sha256: str
    """Hex digest of what arrived; empty when it was not hashed."""


async def download(
    remote: Remote, wanted: Wanted, *, report: Report | None = None, policy: Policy | None = None
) -> Downloaded:
    """Fetch a file into `wanted.target`, carrying on from its part.

    Raises Interrupted after the last attempt, Refused, WrongContent (the part is removed) or DiskFull (it is kept).
    """
    if wanted.sha256 and not wanted.hashed:
        wanted = replace(wanted, hashed=True)
    job = _Download(remote, wanted, report or _unheard, policy or Policy())
    return await job.run()


class _MadeEmpty(Interrupted):
    """The part did not belong to the file: emptied, and asked for again at once."""


class _Pending:
    """Pieces that arrived and are not written yet."""

    def __init__(self) -> None:
        self.size = 0
        self._pieces: list[bytes | bytearray] = []

    def add(self, piece: bytes | bytearray) -> None:
        self._pieces.append(piece)
        self.size += len(piece)

    def take(self) -> list[bytes | bytearray]:
        pieces, self._pieces, self.size = self._pieces, [], 0
        return pieces


class _Download:
    def __init__(self, remote: Remote, wanted: Wanted, report: Report, policy: Policy) -> None:
        self._remote = remote
        self._wanted = wanted
        self._report = report
        self._policy = policy
        self._part = Part(wanted.target, hashed=wanted.hashed)
        self._behind = Behind()
        self._total = wanted.size or 0
        self._until = 0  # where the answer on its way ends; 0 while that is not said
        self._pieces = 0  # answers the part is put together from

    async def run(self) -> Downloaded:
        try:
            await self._file(self._part.open)
            # What an earlier run left may itself be of several answers.
            self._pieces = 2 if self._part.size else 0
            if self._part.size > (self._wanted.size if self._wanted.size is not None else self._part.size):
                await self._empty()
            return await self._try()
        finally:
            self._part.close()

    async def _try(self) -> Downloaded:
        failed = emptied = 0
        pause, furthest = self._policy.first_pause_s, self._part.size
        while True:
            try:
                await self._rehash()
                if self._wanted.size is None or self._part.size < self._wanted.size:
                    await self._attempt()
                return await self._finish()
            except _MadeEmpty as error:
                await self._empty()
                # These stay counted whatever follows, so that bytes which never fit are not fetched for ever.
                failed, emptied, furthest = failed + 1, emptied + 1, 0
                reason: Interrupted = error
                pause_s = 0.0
            except Interrupted as error:
                if self._part.size >= furthest + MOVED_BYTES:
                    failed, pause, furthest = emptied, self._policy.first_pause_s, self._part.size
                failed, reason = failed + 1, error
                pause_s = max(pause, min(error.retry_after_s, self._policy.longest_pause_s))
                pause = min(2 * pause, self._policy.longest_pause_s)
            if failed >= self._policy.attempts:
                raise Interrupted(f"{reason.message} (tried {self._policy.attempts} times; {KEPT})") from reason
            if pause_s:
                await self._policy.sleep(pause_s)

    async def _attempt(self) -> None:
        headers = {"Accept-Encoding": "identity"}
        if self._part.size:
            headers["Range"] = f"bytes={self._part.size}-"
            if self._part.etag and not self._part.etag.startswith("W/"):
                headers["If-Range"] = self._part.etag
        async with request(self._remote, headers=headers) as response:
            if response.status == 416:
                self._check_whole(response)
                return
            _check_status(response)
            gzipped = await self._prepare(response)
            self._check_space()
            await self._receive(response, gzipped)

    async def _prepare(self, response: Response) -> bool:
        """Make the part fit the answer: keep it for the right 206, empty it for a 200. True when the body is gzip."""
        encoding = response.headers.get("content-encoding", "identity").strip().lower().removeprefix("x-")
        etag = self._validator(response)
        self._check_kind(response)
        if response.status == 206:
            self._check_partial(response, encoding, etag)
            self._pieces += 1
            return False
        if encoding not in ("identity", "", "gzip"):
            raise Interrupted(
                f"{redacted(response.url)} answers {encoding[:20]!r}-encoded though identity was asked for"
            )
        piece = content_range(response.headers.get("content-range", ""))
        if piece is not None and (piece.start or piece.total not in (None, piece.end)):
            raise _MadeEmpty(f"{redacted(response.url)} answers a range as if it were the whole file")
        gzipped = encoding == "gzip"
        if not gzipped:
            # Before the part is emptied: a page in the file's place must not cost what arrived.
            self._learn_total(response.length)
        self._until = self._total
        if self._part.size:
            await self._empty()
        self._pieces = 1
        # An encoded body has its own ETag, which says nothing of the plain bytes kept here.
        if etag and not gzipped:
            await self._file(self._part.remember, etag)
        return gzipped

    def _validator(self, response: Response) -> str:
        """What tells this version of the file from others: its ETag, or its date where no checksum will tell."""
        etag = response.headers.get("etag", "")
        return etag or ("" if self._wanted.sha256 else response.headers.get("last-modified", ""))

    def _check_kind(self, response: Response) -> None:
        """A page for people, as a proxy's login gives, is never the file, even where its size and sum are not known."""
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind in _PAGES and not self._wanted.target.name.lower().endswith(_PAGE_NAMES):
            raise Refused(f"{redacted(response.url)} answers a page for people in the file's place")

    def _check_partial(self, response: Response, encoding: str, etag: str) -> None:
        found = content_range(response.headers.get("content-range", ""))
        where = redacted(response.url)
        if encoding not in ("identity", ""):
            raise _MadeEmpty(f"{where} answers a range of an encoded file")
        if found is None or found.start != self._part.size:
            raise _MadeEmpty(f"{where} answers another range than bytes {self._part.size} on")
        if response.length not in (None, found.end - found.start):
            raise _MadeEmpty(f"{where} answers {response.length} bytes as a range of {found.end - found.start}")
        if etag and etag != self._part.etag and _alike(etag, self._part.etag):
            raise _MadeEmpty(f"{where} holds another file than the one begun (its ETag or date changed)")
        if found.total is not None:
            if self._total and found.total != self._total:
                raise _MadeEmpty(f"{where} holds {found.total} bytes where {self._total} were expected")
            self._learn_total(found.total)
        elif not self._total:
            # A range may end anywhere: that it is the last one nobody says.
            raise _MadeEmpty(f"{where} answers a range without saying how large the file is")
        self._until = found.end

    def _check_whole(self, response: Response) -> None:
        """416: nothing follows what is here. That is the whole file only if the sizes agree."""
        told = unsatisfied_total(response.headers.get("content-range", ""))
        total = self._total if told is None else told
        # Where nobody says how large the file is, a larger one that was replaced would pass for whole.
        if not self._part.size or total != self._part.size:
            raise _MadeEmpty(f"{redacted(response.url)} has no bytes after {self._part.size}")
        self._learn_total(total)

    def _learn_total(self, total: int | None) -> None:
        if total is None:
            return
        if self._wanted.size is not None and total != self._wanted.size:
            raise Refused(f"{redacted(self._remote.url)} has {total} bytes where {self._wanted.size} were published")
        self._total = total

    def _check_space(self) -> None:
        if self._total:
            self._policy.make_room(self._wanted.target, self._total - self._part.size)

    async def _receive(self, response: Response, gzipped: bool) -> None:
        """Append the body in chunks; what arrived is written even when the rest does not come."""
        unzip = Gunzip() if gzipped else None
        pending, limit = _Pending(), self._policy.limit
        try:
            while data := await response.receive(limit.within(PIECE_S, RECEIVE_BYTES)):
                pending.add(data if unzip is None else unzip.decompress(data, CHUNK_BYTES))
                await limit.pay(len(data))
                while unzip is not None and unzip.unconsumed_tail:
                    await self._write(pending)
                    pending.add(unzip.decompress(unzip.unconsumed_tail, CHUNK_BYTES))
                if pending.size >= limit.within(WRITE_S, CHUNK_BYTES):
                    await self._write(pending)
        except zlib.error as error:
            raise _MadeEmpty(f"{redacted(response.url)} answers gzip that cannot be read ({error})") from error
        except Interrupted:
            await self._write(pending)
            await self._settle()
            raise
        finally:
            await self._behind.idle()
        await self._write(pending)
        await self._settle()
        if (unzip is not None and not unzip.eof) or self._part.size < self._total:
            raise Interrupted(f"{redacted(response.url)} ended after {self._part.size} of {self._total or '?'} bytes")

    async def _write(self, pending: "_Pending") -> None:
        """Have what is pending written, once what came before it is; told as here, a chunk ahead of the disk."""
        if not pending.size:
            return
        await self._settle()
        here = self._part.size + pending.size
        if self._until and here > self._until:
            raise _MadeEmpty(f"{redacted(self._remote.url)} sends more than the {self._until} bytes it has")
        await self._behind.start(partial(self._part.append, pending.take()))
        self._report(here, self._total)

    async def _settle(self) -> None:
        """Nothing is being written any more; raises DiskFull or Refused for what could not be."""
        try:
            await self._behind.settle()
        except OSError as error:
            raise self._disk_error(error) from error

    async def _finish(self) -> Downloaded:
        part, wanted = self._part, self._wanted
        if wanted.sha256 and part.sha256 != wanted.sha256:
            mixed = self._pieces > 1
            await self._file(part.restart)
            if mixed:
                # The pieces may be of different versions of the file; one whole answer settles it.
                raise _MadeEmpty(f"the pieces of {wanted.target.name} do not fit together")
            await self._file(part.discard)
            raise WrongContent(
                f"{wanted.target.name} from {redacted(self._remote.url)} does not have the published sha256 "
                f"{wanted.sha256[:12]}…; it was removed, and the next fetch starts from nothing"
            )
        if wanted.refuse_head and (why := wanted.refuse_head(await self._file(part.head, MAGIC_BYTES))):
            await self._file(part.discard)
            raise WrongContent(f"{why}; it was removed")
        await self._file(part.finish)
        self._report(part.size, part.size)
        return Downloaded(size=part.size, sha256=part.sha256)

    async def _rehash(self) -> None:
        while await self._file(self._part.rehash_step):
            pass

    async def _empty(self) -> None:
        await self._file(self._part.restart)
        self._pieces = 0
        self._report(0, self._total)

    async def _file(self, call: Callable[[*Ts], T], *args: *Ts) -> T:
        """A blocking file call in a thread, a full disk told with its figures."""
        try:
            return await trio.to_thread.run_sync(call, *args)
        except OSError as error:
            raise self._disk_error(error) from error

    def _disk_error(self, error: OSError) -> TransferError:
        return disk_error(error, self._wanted.target, needed_bytes=self._total - self._part.size)


def _alike(one: str, other: str) -> bool:
    """Whether both validators are ETags, or both dates."""
    return bool(one and other) and one.startswith(('"', "W/")) == other.startswith(('"', "W/"))


def _check_status(response: Response) -> None:
    """Sort the statuses: 200 and 206 go on, 5xx, 429 and 408 may pass, everything else is a refusal."""
    status = response.status
    where = redacted(response.url)
    if status in (200, 206):
        return
    if status >= 500 or status in (408, 429):
        after = response.headers.get("retry-after", "")
        seconds = float(after) if after.isascii() and after.isdigit() and len(after) < 6 else 0.0
        raise Interrupted(f"{where} answers {status}", retry_after_s=seconds)
    raise Refused(f"{where} answers {status}", status=status)


def _unheard(_done: int, _total: int) -> None:
    return None
