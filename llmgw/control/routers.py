"""The routers of this machine: each listening socket is opened once and outlives every process that serves from it.

A process is only ever signalled through its pidfd, after boot id, pid and start time agreed, so a reused pid is never
touched. Routers outlive a killed server; the next one finds them, takes their sockets over, and replaces those of
another version one by one: the new one serves from the same socket before the old one drains. Cancelling `run` is the
clean stop and leaves nothing behind, unless `outlive` says that the server goes for another reason.
"""

import logging
import signal
import socket
from collections.abc import Sequence
from functools import partial

import trio

from llmgw import __version__
from llmgw.api.types import RouterInfo
from llmgw.control import router_answers
from llmgw.control.feed import FeedServer
from llmgw.control.listening import Address, bound_to, check_free, open_listener, resolve
from llmgw.control.router_process import RouterProcess, default_command, spawn_router
from llmgw.core.layout import ServerLayout
from llmgw.router.slots import reap_file

FIRST_BACKOFF_S = 0.1
LAST_BACKOFF_S = 10.0
"""Waits before a router that keeps dying is started again: at first and at most."""
SETTLED_S = 10.0
"""A router that lived this long is restarted without a wait."""
STOP_S = 10.0
"""At a clean stop, open requests get this long."""
LAST_WORDS_S = 3.0
"""After its drain is cut short a router gets this long to put its counts on disk; then it is killed."""
STRAYS_EVERY_S = 2.0
"""How often routers that are connected but not supervised are looked for."""

_log = logging.getLogger(__name__)


class _Slot:
    """One of the machine's listening sockets and the process that serves from it."""

    def __init__(self, index: int, listener: socket.socket, process: RouterProcess | None) -> None:
        self.index = index
        self.listener = listener
        self.process = process
        self.started_at = float("-inf")
        self.backoff_s = 0.0

    def back_off(self) -> None:
        """Set the wait before the next start: none for a process that lived long enough, else ever longer."""
        if trio.current_time() - self.started_at >= SETTLED_S:
            self.backoff_s = 0.0
        else:
            self.backoff_s = min(max(FIRST_BACKOFF_S, self.backoff_s * 2), LAST_BACKOFF_S)


class RouterSupervisor:
    """Keeps `count` routers serving on `listen`. One instance a data directory, under its lock."""

    def __init__(
        self,
        layout: ServerLayout,
        listen: tuple[str, int],
        count: int,
        feed: FeedServer,
        *,
        version: str = __version__,
        stop_s: float = STOP_S,
        drain_s: float = 600.0,
        command: Sequence[str] | None = None,
    ) -> None:
        """Listen on `listen` (name or address, port; 0 is any free one).

        `stop_s` is what open requests get at a clean stop, `drain_s` when a router is replaced or one too many;
        `command` starts another program with a router's arguments. `feed` must run before and after `run`.
        """
        self._layout = layout
        self._listen = listen
        self._count = count
        self._feed = feed
        self._version = version
        self._stop_s = stop_s
        self._drain_s = drain_s
        self._command = tuple(command or default_command())
        self._slots: list[_Slot] = []
        self._ending: dict[int, RouterProcess] = {}
        self.outlive = False
        """Whether routers go on when `run` is cancelled, for the next server to find; false is the clean stop."""

    @property
    def port(self) -> int:
        """The port served; 0 before `run` has started."""
        port: int = self._slots[0].listener.getsockname()[1] if self._slots else 0
        return port

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: started, with the port, once all routers serve (or had `READY_S` to).

        Raises Conflict when the address is taken by others, InvalidInput when it cannot be one.
        """
        address = await resolve(*self._listen)
        for directory in (self._layout.run, self._layout.log, self._layout.spool):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        unwanted = await self._take_stock(address)
        try:
            async with trio.open_nursery() as nursery:
                for process in unwanted:
                    nursery.start_soon(self._end, process, self._drain_s)
                replaced = [slot for slot in self._slots if slot.process and slot.process.version != self._version]
                async with trio.open_nursery() as starting:
                    for slot in self._slots:
                        if slot not in replaced:
                            starting.start_soon(nursery.start, self._keep, slot, nursery)
                for slot in replaced:
                    await nursery.start(self._keep, slot, nursery)
                nursery.start_soon(self._end_strays, nursery)
                task_status.started(self.port)
        finally:
            # Only a clean stop ends routers: if this broke, they go on and the next server finds them.
            if trio.current_effective_deadline() == float("-inf") and not self.outlive:
                with trio.CancelScope(shield=True):
                    await self._stop()
            self._close()

    # beginning

    async def _take_stock(self, address: Address) -> list[RouterProcess]:
        """Adopt what lives and open what is missing. Returns the routers that are too many, or elsewhere."""
        kept: dict[int, tuple[RouterProcess, socket.socket]] = {}
        unwanted: list[RouterProcess] = []
        port = 0
        for path in sorted(self._layout.run.glob("router-*.json")):
            number = path.stem.removeprefix("router-")
            if not number.isdecimal() or (found := await router_answers.adopt(self._layout, int(number))) is None:
                continue
            process, listener = found
            here = bound_to(listener, address) and port in (0, listener.getsockname()[1])
            port = listener.getsockname()[1] if here else port
            if here and process.index < self._count:
                kept[process.index] = found
            else:
                _log.info("router %s (pid %d) is not wanted any more and drains", number, process.pid)
                listener.close()
                unwanted.append(process)
        if port == 0:
            check_free(address)
            port = address.port
        for index in range(self._count):
            adopted, listener_ = kept.get(index, (None, None))
            listener_ = listener_ or open_listener(address, port)
            port = listener_.getsockname()[1]
            self._slots.append(_Slot(index, listener_, adopted))
        self._ending = {process.pid: process for process in unwanted}
        return unwanted

    # keeping

    async def _keep(
        self,
        slot: _Slot,
        nursery: trio.Nursery,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Service: a router of this version serves from the slot's socket, whatever happens to processes."""
        old = slot.process
        if old is not None and old.version == self._version:
            _log.info("router %d (pid %d) is adopted", slot.index, old.pid)
            old = None
        elif old is not None:
            self._ending[old.pid] = old
            slot.process = None
        started = False
        while True:
            serves = slot.process is not None or await self._start(slot)
            if old is not None and serves:
                _log.info("router %d: pid %d gives way to another version", slot.index, old.pid)
                nursery.start_soon(self._end, old, self._drain_s)
                old = None
            self._tell_feed()
            if not started:
                task_status.started()
                started = True
            if slot.process is not None:
                await router_answers.watch(self._layout, slot.process)
                await self._take_back()
                _log.error("router %d (pid %d) ended and is started again", slot.index, slot.process.pid)
                slot.process.close()
                slot.process = None
                self._tell_feed()
            slot.back_off()
            await trio.sleep(slot.backoff_s)

    async def _start(self, slot: _Slot) -> bool:
        """Whether a new process serves from the slot; one that was started but does not is `slot.process` too."""
        slot.started_at = trio.current_time()
        arguments = ["--drain-s", f"{self._drain_s:g}", "--as-version", self._version]
        try:
            process = await spawn_router(
                self._layout, slot.index, slot.listener, [*self._command, *arguments], version=self._version
            )
        except OSError as error:
            _log.error("router %d cannot be started: %s", slot.index, error)
            return False
        # Known before it is asked: a stop that comes meanwhile ends it.
        slot.process = process
        return await router_answers.serves(self._layout, process)

    async def _end_strays(self, nursery: trio.Nursery) -> None:
        """Service: drains routers of this directory that nobody supervises (their server died while replacing them)."""
        while True:
            await trio.sleep(STRAYS_EVERY_S)
            for process in self._strays():
                _log.info("router %d (pid %d) was left over and drains", process.index, process.pid)
                nursery.start_soon(self._end, process, self._drain_s)

    def _strays(self) -> list[RouterProcess]:
        known = {slot.process.pid for slot in self._slots if slot.process is not None} | self._ending.keys()
        strays = []
        for pid, hello in self._feed.connected().items():
            if pid in known:
                continue
            process = RouterProcess.open(pid, index=hello.index, version=hello.version)
            # Connected still, so the descriptor just opened is of the process that said hello.
            if process is not None and pid in self._feed.connected():
                strays.append(process)
        return strays

    async def _take_back(self) -> None:
        """A router ended: what it had open is counted for no key any more."""
        try:
            await trio.to_thread.run_sync(reap_file, self._layout.counters)
        except OSError as error:
            _log.warning("the counters of a router that ended cannot be looked at: %s", error)

    def _tell_feed(self) -> None:
        self._feed.supervise(
            [
                RouterInfo(pid=slot.process.pid, port=self.port, version=slot.process.version, connected=False)
                for slot in self._slots
                if slot.process is not None
            ]
        )

    # ending

    async def _end(self, process: RouterProcess, deadline_s: float) -> None:
        """Drain `process` within `deadline_s`; then cut it short, then kill it."""
        self._ending[process.pid] = process
        if not self._feed.drain(process.pid, deadline_s):
            process.signal(signal.SIGTERM)
        with trio.move_on_after(deadline_s):
            await process.ended()
        if process.alive:
            process.signal(signal.SIGTERM)
            with trio.move_on_after(LAST_WORDS_S):
                await process.ended()
        if process.alive:
            _log.error("router %d (pid %d) does not end and is killed", process.index, process.pid)
            process.signal(signal.SIGKILL)
            await process.ended()
            await self._take_back()
        del self._ending[process.pid]
        process.close()

    async def _stop(self) -> None:
        """End every router, those draining too, and leave nothing in `run`."""
        processes = {process.pid: process for process in self._ending.values()}
        processes |= {slot.process.pid: slot.process for slot in self._slots if slot.process is not None}
        processes |= {process.pid: process for process in self._strays()}
        async with trio.open_nursery() as nursery:
            for process in processes.values():
                nursery.start_soon(partial(self._end, process, self._stop_s))
        for slot in self._slots:
            slot.process = None
            router_answers.forget(self._layout, slot.index)

    def _close(self) -> None:
        self._feed.supervise(())
        for process in self._ending.values():
            process.close()
        self._ending = {}
        for slot in self._slots:
            slot.listener.close()
            if slot.process is not None:
                slot.process.close()
        self._slots = []
