"""Who leads: a lease in the store, renewed well before it ends. Only its holder orders agents and writes.

A leader that cannot reach the store stops ordering when its lease has run out by its own monotonic clock; it goes on
routing. One that is told its epoch is over steps down at once.
"""

import logging
import os
import socket
from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import trio

from llmgw.core.errors import LlmgwError, Unavailable
from llmgw.store import leadership
from llmgw.store.sql import Conn
from llmgw.store.store import Store

LEASE_S = 10.0
"""How long a leader leads without being heard."""
RENEW_EVERY_S = 2.0
"""How often the lease is renewed, or tried for."""

log = logging.getLogger(__name__)
P = ParamSpec("P")
T = TypeVar("T")


class Leadership:
    """This server's part in the election."""

    def __init__(self, store: Store, owner: str) -> None:
        self._store = store
        self.owner = owner
        self.epoch = 0
        """Epoch under which this server leads; 0 while it does not."""
        self.leader: str | None = None
        """Owner id of whoever leads, as last read."""
        self.leader_host = ""
        self.on_written: Callable[[], None] = lambda: None
        """Called after every write under this server's epoch."""
        self._valid_until = 0.0

    @property
    def leading(self) -> bool:
        """Whether this server may order and write now."""
        return self.epoch > 0 and trio.current_time() < self._valid_until

    async def lead(self, fn: Callable[Concatenate[Conn, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a write under this server's epoch; raises Unavailable naming the leader when it is another."""
        if not self.epoch:
            raise Unavailable(f"this server does not lead; {self.leader_host or 'no server'} does")
        try:
            result = await self._store.lead(self.epoch, fn, *args, **kwargs)
        except leadership.StaleLease:
            # Nothing is ordered on it until the next renewal has said whether the epoch goes on.
            self._valid_until = 0.0
            raise
        self.on_written()
        return result

    async def acquired(self) -> int:
        """Wait until this server leads; its epoch."""
        while True:
            asked_at = trio.current_time()
            try:
                epoch = await self._store.run(
                    leadership.acquire,
                    owner=self.owner,
                    ttl_s=LEASE_S,
                    host=socket.gethostname(),
                    pid=os.getpid(),
                )
                await self._look()
            except LlmgwError as error:
                log.warning("cannot try for the lease: %s", error.message)
                epoch = None
            if epoch is not None:
                self.epoch, self._valid_until = epoch, asked_at + LEASE_S
                log.info("leading", extra={"epoch": epoch})
                return epoch
            await trio.sleep(RENEW_EVERY_S)

    async def hold(self) -> None:
        """Renew until the epoch is over, then return: step down."""
        while True:
            await trio.sleep(RENEW_EVERY_S)
            asked_at = trio.current_time()
            try:
                kept = await self._store.run(leadership.renew, owner=self.owner, epoch=self.epoch, ttl_s=LEASE_S)
                await self._look()
            except LlmgwError as error:
                log.warning("cannot renew the lease: %s", error.message)
                continue
            if not kept:
                log.error("stepping down: another server leads", extra={"epoch": self.epoch})
                self.epoch = 0
                return
            self._valid_until = asked_at + LEASE_S

    async def release(self) -> None:
        """Let another server lead at once."""
        if not self.epoch:
            return
        epoch, self.epoch = self.epoch, 0
        with trio.move_on_after(RENEW_EVERY_S):
            try:
                await self._store.run(leadership.release, owner=self.owner, epoch=epoch)
            except LlmgwError as error:
                log.info("the lease was not released and runs out by itself: %s", error.message)

    async def _look(self) -> None:
        lease = await self._store.run(leadership.current)
        self.leader = lease.owner if lease.held else None
        self.leader_host = lease.host if lease.held else ""
