"""Logs on request: bounded in lines, in bytes a message and in number of readers, and free of control characters."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import trio

from agent.journal import file_name
from agent.output import plain_line, read_end
from llmgw.core.engine_builds import INSTALLED
from llmgw.core.errors import InvalidInput
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import AgentMessage, LogCancel, LogLines, LogRequest

log = logging.getLogger("agent.logs")

MESSAGE_MAX_BYTES = 64 * 1024
"""Text in one message, roughly: a message ends with the line that passes it."""
MAX_TAIL_LINES = 10_000
TAIL_MAX_BYTES = 4 * 1024 * 1024
"""How far back a tail looks."""
FOLLOW_EVERY_S = 0.5
"""How often a followed file is looked at."""
READ_BYTES = 256 * 1024
MAX_READERS = 32
"""Requests answered at once; more are refused."""


class LogDesk:
    """Answers log requests, each in a task of its own that a cancel or a new connection ends."""

    def __init__(self, layout: AgentLayout, outbound: trio.MemorySendChannel[AgentMessage]) -> None:
        self._layout = layout
        self._outbound = outbound
        self._readers: dict[str, trio.CancelScope] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve requests, for ever."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            await trio.sleep_forever()

    def request(self, order: LogRequest) -> None:
        """Begin to answer; a request id that is in use begins anew."""
        if self._nursery is None:
            return
        self.cancel(LogCancel(request_id=order.request_id))
        if len(self._readers) >= MAX_READERS:
            self._nursery.start_soon(self._refuse, order.request_id, f"{MAX_READERS} logs are being read already")
            return
        scope = trio.CancelScope()
        self._readers[order.request_id] = scope
        self._nursery.start_soon(self._answer, order, scope)

    def cancel(self, order: LogCancel) -> None:
        """End a request; one that is over is nothing to cancel."""
        scope = self._readers.pop(order.request_id, None)
        if scope is not None:
            scope.cancel()

    def cancel_all(self) -> None:
        """End every request: whoever asked is on another connection now."""
        for request_id in list(self._readers):
            self.cancel(LogCancel(request_id=request_id))

    async def _answer(self, order: LogRequest, scope: trio.CancelScope) -> None:
        with scope:
            try:
                path = self._build_log(order.engine) if order.engine else self._path(order.shard_id)
                await self._read(order, path)
            except InvalidInput as error:
                await self._refuse(order.request_id, error.message)
            except OSError as error:
                await self._refuse(order.request_id, f"the log cannot be read: {error.strerror}")
        if self._readers.get(order.request_id) is scope:
            del self._readers[order.request_id]

    def _path(self, shard_id: str) -> Path:
        if not shard_id:
            return self._layout.log / "agent.log"
        path = self._layout.shards / file_name(shard_id) / "output.log"
        if not path.exists():
            raise InvalidInput(f"there is no output of shard {shard_id!r} on this node", field="shard_id")
        return path

    def _build_log(self, engine: str) -> Path:
        """What installing an engine printed."""
        if engine not in INSTALLED:
            raise InvalidInput(f"{engine[:40]!r} is not one of {', '.join(INSTALLED)}", field="engine")
        path = self._layout.log / f"engine-{engine}.log"
        if not path.exists():
            raise InvalidInput(f"{engine} was never installed by this node's agent, so there is no log", field="engine")
        return path

    async def _read(self, order: LogRequest, path: Path) -> None:
        """The tail, then what is appended while it is followed."""
        data, offset = await trio.to_thread.run_sync(read_end, path, TAIL_MAX_BYTES)
        whole, partial = _split(data)
        if offset > TAIL_MAX_BYTES:
            whole = whole[1:]
        if not order.follow:
            whole, partial = whole + ([partial] if partial else []), b""
        count = min(order.tail_lines, MAX_TAIL_LINES)
        await self._send(order.request_id, whole[-count:] if count else [])
        while order.follow:
            await trio.sleep(FOLLOW_EVERY_S)
            data, offset = await trio.to_thread.run_sync(_read_from, path, offset)
            whole, partial = _split(partial + data)
            if len(partial) > READ_BYTES:
                whole, partial = [*whole, partial], b""
            await self._send(order.request_id, whole)
        await self._outbound.send(AgentMessage(log_lines=LogLines(request_id=order.request_id, end=True)))

    async def _send(self, request_id: str, lines: list[bytes]) -> None:
        for batch in _batches(lines):
            await self._outbound.send(AgentMessage(log_lines=LogLines(request_id=request_id, lines=batch)))

    async def _refuse(self, request_id: str, why: str) -> None:
        await self._outbound.send(AgentMessage(log_lines=LogLines(request_id=request_id, end=True, error=why)))


def _split(data: bytes) -> tuple[list[bytes], bytes]:
    """Whole lines, and the beginning of one that is not whole yet."""
    *whole, partial = data.split(b"\n")
    return whole, partial


def _batches(lines: list[bytes]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for line in lines:
        text = plain_line(line)
        batch.append(text)
        size += len(text.encode()) + 4
        if size >= MESSAGE_MAX_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _read_from(path: Path, offset: int) -> tuple[bytes, int]:
    """What stands from `offset` on, and the offset after it; a file that was emptied or replaced is read anew."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            start = offset if offset <= size else 0
            file.seek(start)
            data = file.read(READ_BYTES)
            return data, start + len(data)
    except FileNotFoundError:
        return b"", 0
