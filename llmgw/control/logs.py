"""Logs wherever they are: the server's own files, or asked of the agent that has them, bounded on every side."""

import contextlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Protocol

import trio

from llmgw.control.inventory import Inventory
from llmgw.core.engine_builds import INSTALLED
from llmgw.core.errors import NotFound, Unavailable
from llmgw.core.layout import ServerLayout
from llmgw.core.shards import node_of, replica_and_rank, shard_id_of

LINES_QUEUED = 1000
"""Lines on their way to one reader; an agent that sends more waits for nobody, so the oldest go."""
POLL_S = 0.3
"""How often a followed file is looked at."""
TAIL_BYTES = 256 * 1024
"""At most this much of a file's end is read for its last lines."""

log = logging.getLogger(__name__)


class LogOrders(Protocol):
    """The agents, as far as logs go."""

    def request_logs(
        self, node: str, request_id: str, shard_id: str, tail: int, follow: bool, *, engine: str = ""
    ) -> bool:
        """Ask a node for log lines, of a shard, of an engine's installation or its own; False if not connected."""

    def cancel_logs(self, node: str, request_id: str) -> None:
        """No more of it."""


class _Reader:
    def __init__(self, node: str) -> None:
        self.node = node
        self.lines: deque[str] = deque(maxlen=LINES_QUEUED)
        self.ended = False
        self.error = ""
        self.wake = trio.Event()

    async def read(self) -> AsyncIterator[str]:
        while True:
            while self.lines:
                yield self.lines.popleft()
            if self.error:
                raise NotFound(self.error)
            if self.ended:
                return
            self.wake = trio.Event()
            await self.wake.wait()


class LogService:
    """Reads logs for operators."""

    def __init__(self, *, layout: ServerLayout, inventory: Inventory, orders: LogOrders) -> None:
        self._layout = layout
        self._inventory = inventory
        self._orders = orders
        self._readers: dict[str, _Reader] = {}
        self._ids = itertools.count(1)

    def received(self, node: str, request_id: str, lines: list[str], *, end: bool, error: str) -> None:
        """Lines of a node's agent; those that nobody waits for, or asked another node for, are dropped."""
        reader = self._readers.get(request_id)
        if reader is None or reader.node != node:
            return
        reader.lines.extend(lines)
        reader.ended = reader.ended or end
        reader.error = reader.error or error
        reader.wake.set()

    @asynccontextmanager
    async def open(self, target: str, *, tail: int, follow: bool) -> AsyncGenerator[AsyncIterator[str], None]:
        """The last `tail` lines of the target, and more as they come when `follow`."""
        own = self._own_file(target)
        if own is not None:
            yield _file_lines(own, tail, follow)
            return
        node, shard_id, engine = self._place(target)
        request_id = f"log-{next(self._ids)}"
        reader = self._readers[request_id] = _Reader(node)
        try:
            if not self._orders.request_logs(node, request_id, shard_id, tail, follow, engine=engine):
                raise Unavailable(f"node {node} is not connected, and {target}'s log is there")
            yield reader.read()
        finally:
            del self._readers[request_id]
            if not reader.ended:
                self._orders.cancel_logs(node, request_id)

    def _own_file(self, target: str) -> Path | None:
        """`server`, `postgres` and `router-N` are files of this machine."""
        if target == "server" or target == "postgres" or target.removeprefix("router-").isdecimal():
            path = self._layout.log / f"{target}.log"
            if path.exists():
                return path
        return None

    def _place(self, target: str) -> tuple[str, str, str]:
        """Node, shard and engine; NODE:ENGINE is what installing it there printed."""
        replica_id, rank = replica_and_rank(target)
        replica = self._inventory.replica(replica_id)
        if replica is not None and (node := node_of(replica, rank)):
            return node, shard_id_of(replica.id, rank), ""
        name, _, engine = target.partition(":")
        if any(node.name == name for node in self._inventory.nodes()) and (engine in INSTALLED or target == name):
            return name, "", engine
        raise NotFound(
            f"{target!r} has no log here: name a replica (`llmgw ctl replicas`), a node (`llmgw ctl nodes`), "
            "NODE:ENGINE for what installing an engine printed, or one of server, postgres, router-0"
        )


async def _file_lines(path: Path, tail: int, follow: bool) -> AsyncIterator[str]:
    position, lines = await trio.to_thread.run_sync(_tail, path, tail)
    for line in lines:
        yield line
    rest = b""
    while follow:
        await trio.sleep(POLL_S)
        position, fresh = await trio.to_thread.run_sync(_read_from, path, position)
        *whole, rest = (rest + fresh).split(b"\n")
        for raw in whole:
            yield raw.decode(errors="replace")


def _tail(path: Path, tail: int) -> tuple[int, list[str]]:
    with path.open("rb") as file:
        end = file.seek(0, 2)
        file.seek(max(0, end - TAIL_BYTES))
        # At line feeds alone: a page or line separator within a line is one of its characters.
        lines = file.read(TAIL_BYTES).removesuffix(b"\n").split(b"\n")
    if end > TAIL_BYTES:
        lines = lines[1:]
    kept = lines[-tail:] if tail and lines != [b""] else []
    return end, [line.decode(errors="replace") for line in kept]


def _read_from(path: Path, position: int) -> tuple[int, bytes]:
    """What was written since; a file that shrank was rotated and is read from its start."""
    with contextlib.suppress(FileNotFoundError), path.open("rb") as file:
        end = file.seek(0, 2)
        if end < position:
            position = 0
        file.seek(position)
        fresh = file.read(TAIL_BYTES)
        return position + len(fresh), fresh
    return 0, b""
