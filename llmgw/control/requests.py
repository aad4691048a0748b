"""The request log read back: what the routers of this machine wrote, the newest first, a bounded part at a time.

Files are read from their ends, in a thread, while routers write them and put them aside. Lines of one file are in the
order of their times; a line that is torn is passed over.
"""

import contextlib
import heapq
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import trio

from llmgw.api.request_types import RequestPage, RequestQuery, RequestTold
from llmgw.core import why
from llmgw.core.errors import InvalidInput, NotFound
from llmgw.core.requests import RequestLine

SCAN_BYTES = 64 * 1024 * 1024
"""Looked through for one page."""
SEARCH_BYTES = 4 * 1024 * 1024 * 1024
"""Looked through for one id: more than the files of many routers hold by default."""
BLOCK_BYTES = 256 * 1024
SLACK_S = 2.0
"""Times in one file may be out of order by this much, while two routers write to it."""
MAX_ID_CHARS = 80
AT_ONCE = 2
"""Questions answered at the same time; others wait."""

Position = tuple[float, str]
_decoder = msgspec.json.Decoder(RequestLine)


class _Spent(Exception):
    """As much was looked through as may be at a time."""


class _Budget:
    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise _Spent


class RequestReader:
    """The requests of one machine's routers."""

    def __init__(self, directory: Path, *, scan_bytes: int = SCAN_BYTES) -> None:
        self._directory = directory
        self._scan_bytes = scan_bytes
        # A log without the id that is looked for is read to its end: those who look must not take everybody's threads.
        self._threads = trio.CapacityLimiter(AT_ONCE)

    async def page(self, query: RequestQuery) -> RequestPage:
        """Requests that match; raises InvalidInput for a cursor of nobody's."""
        before = None if query.cursor is None else _position(query.cursor)
        return await trio.to_thread.run_sync(self._page, query, before, limiter=self._threads)

    async def told(self, request_id: str) -> RequestTold:
        """One request and why it went as it did; raises NotFound."""
        line = None
        if 0 < len(request_id) <= MAX_ID_CHARS and request_id.isascii():
            line = await trio.to_thread.run_sync(self._find, request_id, limiter=self._threads)
        if line is None:
            raise NotFound(
                f"no request {request_id[:MAX_ID_CHARS]!r} is in the log of this machine's routers: it is older than "
                "the files kept, another machine's router served it, or it was not written down "
                "(`llmgw ctl config get router.request_log.keep`)"
            )
        return RequestTold(request=line, why=why.sentences(line))

    def _page(self, query: RequestQuery, before: Position | None) -> RequestPage:
        budget = _Budget(self._scan_bytes)
        found: list[RequestLine] = []
        last: Position | None = None
        with contextlib.ExitStack() as stack:
            chains = [self._chain(stack, index, before, budget) for index in self._indices()]
            try:
                for line in heapq.merge(*chains, key=lambda line: -line.at):
                    if before is not None and (line.at, line.id) >= before:
                        continue
                    if query.since is not None and line.at < query.since - SLACK_S:
                        return RequestPage(requests=tuple(found))
                    last = (line.at, line.id)
                    if query.matches(line):
                        found.append(line)
                        if len(found) >= query.limit:
                            return RequestPage(requests=tuple(found), cursor=_cursor(last))
            except _Spent:
                return RequestPage(requests=tuple(found), cursor=_cursor(last) if last else query.cursor)
        return RequestPage(requests=tuple(found))

    def _find(self, request_id: str) -> RequestLine | None:
        mark = b'{"id":%b,' % msgspec.json.encode(request_id)
        budget = _Budget(SEARCH_BYTES)
        with contextlib.ExitStack() as stack, contextlib.suppress(_Spent):
            for index in self._indices():
                for descriptor in self._files(stack, index):
                    for raw in _backward(descriptor, os.fstat(descriptor).st_size, budget, mark):
                        line = _told_by(raw, index)
                        if line is not None:
                            return line
        return None

    def _indices(self) -> list[int]:
        """Routers that have a log here."""
        names = (path.name.removesuffix(".jsonl") for path in self._directory.glob("*.jsonl"))
        return sorted(int(name) for name in names if name.isdecimal())

    def _chain(
        self, stack: contextlib.ExitStack, index: int, before: Position | None, budget: _Budget
    ) -> Iterator[RequestLine]:
        """One router's requests, the newest first."""
        for descriptor in self._files(stack, index):
            end = os.fstat(descriptor).st_size
            if before is not None:
                end = _end_before(descriptor, end, before[0] + SLACK_S)
            for raw in _backward(descriptor, end, budget):
                line = _told_by(raw, index)
                if line is not None:
                    yield line

    def _files(self, stack: contextlib.ExitStack, index: int) -> list[int]:
        """Descriptors of one router's files, the newest first: open, they stay what they are when put aside."""
        current = self._directory / f"{index}.jsonl"
        aside = (path for path in self._directory.glob(f"{index}.jsonl.*") if path.suffix[1:].isdecimal())
        found: dict[int, int] = {}
        for path in (current, *sorted(aside, key=lambda path: int(path.suffix[1:]))):
            with contextlib.suppress(OSError):
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
                stack.callback(os.close, descriptor)
                found.setdefault(os.fstat(descriptor).st_ino, descriptor)
        return list(found.values())


def _told_by(raw: bytes, index: int) -> RequestLine | None:
    try:
        line = _decoder.decode(raw)
    except msgspec.DecodeError:
        return None
    return msgspec.structs.replace(line, router=index) if index else line


def _backward(descriptor: int, end: int, budget: _Budget, mark: bytes = b"") -> Iterator[bytes]:
    """Whole lines of a file's first `end` bytes, the last first; those alone that begin with `mark`."""
    rest = b""
    """What ends a line that begins further ahead."""
    while end > 0:
        size = min(BLOCK_BYTES, end)
        budget.take(size)
        end -= size
        block = os.pread(descriptor, size, end) + rest
        if end:
            cut = block.find(b"\n")
            if cut < 0:
                rest = block
                continue
            rest, block = block[:cut], block[cut + 1 :]
        if mark in block:
            yield from (line for line in reversed(block.split(b"\n")) if line and line.startswith(mark))


def _end_before(descriptor: int, end: int, at: float) -> int:
    """An offset behind every line of times up to `at`, and before most of those after; found by halving."""
    low, high = 0, end
    while high - low > BLOCK_BYTES:
        middle = (low + high) // 2
        time = _time_after(descriptor, middle)
        if time is None:
            return end
        if time > at:
            high = middle
        else:
            low = middle
    return min(end, high + BLOCK_BYTES)


def _time_after(descriptor: int, offset: int) -> float | None:
    """The time of the first whole line after `offset`; none where there is none soon."""
    _, *lines = os.pread(descriptor, BLOCK_BYTES // 4, offset).split(b"\n")
    for raw in lines[:-1]:
        line = _told_by(raw, 0)
        if line is not None:
            return line.at
    return None


def _cursor(position: Position) -> str:
    return f"{position[0]!r}~{position[1]}"


def _position(cursor: str) -> Position:
    text, mark, request_id = cursor.partition("~")
    try:
        at = float(text)
    except ValueError:
        at = float("nan")
    if not mark or at != at or len(cursor) > 2 * MAX_ID_CHARS:
        raise InvalidInput(f"{cursor[:40]!r} is no cursor of a page of requests", field="cursor")
    return at, request_id
