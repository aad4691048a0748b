"""One task serves every socket of the data plane from a private epoll: no task switch and no epoll_ctl per token.

Handlers are called synchronously and never block. While streams keep arriving the reactor stays in its own loop for at
most TURN_S, waiting inside its epoll rather than in trio's; then, or as soon as a handler woke a task, all tasks run.
With very many tokens a second it looks for them every NAP_S: waking up for each would cost as much as passing it on.
Where `token_pass` was built, the loop itself is C.
"""

import contextlib
import logging
import select
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import trio

from llmgw.router.limits import TICK_S, TURN_S
from llmgw.router.token_pass import loaded

log = logging.getLogger(__name__)

READ_EVENTS = select.EPOLLIN | select.EPOLLRDHUP
CLIENT_EVENTS = select.EPOLLIN | select.EPOLLOUT | select.EPOLLRDHUP | select.EPOLLET
"""Edge-triggered: a client's pipelined bytes stay in its socket without waking anyone twice."""
GONE_EVENTS = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
MAX_EVENTS = 512
TICKED_AT_ONCE = 250
"""Deadlines looked at in a row: with thousands of connections, tokens pass in between."""
WAIT_MS = 1
"""The shortest wait epoll knows."""
WAIT_FROM_PER_S = 1000.0
"""Events a second from which the next is waited for here rather than in trio: it comes within WAIT_MS on average."""
NAP_S = 0.0001
"""While many streams are served, reads that come within this long share one wake-up; a token waits no longer for it.

Naps of 0.2 ms take a fifth less CPU with 128 streams of 5 ms a token, and put the last hundredth of first tokens more
than a millisecond behind.
"""
NAP_FROM_PER_S = 4000.0
"""Events a second from which naps are taken: at fewer, there would be nothing to share."""
SMOOTHING = 0.1
"""Weight of one turn in the mean of events a second."""
TOKEN_PASS, _ = loaded()
"""The walk in C."""


class Ticking(Protocol):
    """Whoever holds deadlines."""

    def tick(self, now: float) -> None:
        """Look at the deadlines; `now` is monotonic seconds."""


class Reactor:
    """The epoll, its handlers by descriptor, and the clock they share."""

    def __init__(self) -> None:
        self.epoll = select.epoll()
        self.handlers: dict[int, Callable[[int], None]] = {}
        self.ticking: set[Ticking] = set()
        """Deadline holders, looked at every TICK_S."""
        self.now = time.monotonic()
        """Monotonic seconds when the current batch of events began."""
        self.woken = False
        """Set by a handler that woke a task: the turn ends after this batch."""
        self._events_per_s = 0.0
        self._turned_at = self.now

    def add(self, fd: int, events: int, handler: Callable[[int], None]) -> None:
        """Call `handler` with the event mask whenever one of `events` holds for `fd`."""
        self.epoll.register(fd, events)
        self.handlers[fd] = handler

    def remove(self, fd: int) -> None:
        """Forget a descriptor; call before closing it."""
        if self.handlers.pop(fd, None) is not None:
            with contextlib.suppress(OSError):  # its owner closed it already, and with that it left the epoll
                self.epoll.unregister(fd)

    @contextlib.contextmanager
    def watching(self, fd: int, ready: "Signal", events: int = select.EPOLLIN) -> Iterator[None]:
        """Set `ready` whenever one of `events` holds, to read unless said otherwise, while the context is open.

        Trio's own waits would end with the turn, which may serve streams for TURN_S first.
        """

        def wake(_mask: int) -> None:
            self.woken = True
            ready.set()

        self.add(fd, events, wake)
        try:
            yield
        finally:
            self.remove(fd)

    async def run(self) -> None:
        """Serve for ever."""
        fd = self.epoll.fileno()
        while True:
            await trio.lowlevel.wait_readable(fd)
            self.turn()

    def close(self) -> None:
        """Close the epoll, once every connection is closed and `run` has ended."""
        self.epoll.close()

    async def run_ticks(self) -> None:
        """Look at deadlines for ever."""
        while True:
            await trio.sleep(TICK_S)
            now = self.now = time.monotonic()
            for number, holder in enumerate(list(self.ticking), start=1):
                try:
                    if holder in self.ticking:  # it may have gone meanwhile
                        holder.tick(now)
                except Exception:  # supervised border: one connection's fault must not end the others
                    log.exception("deadline handler failed")
                if number % TICKED_AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()

    def turn(self) -> None:
        """Serve what is ready, and what becomes ready meanwhile, for TURN_S at most.

        Tasks that were woken since the last turn began may run after this one instead of before it: then it serves
        what is ready and no more.
        """
        turn_s = 0.0 if self.woken else TURN_S
        self.woken = False
        nap_s = NAP_S if self._events_per_s > NAP_FROM_PER_S else 0.0
        wait_ms = WAIT_MS if self._events_per_s > WAIT_FROM_PER_S else 0
        if TOKEN_PASS is not None:
            served = TOKEN_PASS.serve(self, self.epoll.fileno(), self.handlers, nap_s, wait_ms, turn_s)
        else:
            served = self.walk(nap_s, wait_ms, turn_s)
        self._measure(served)

    def walk(self, nap_s: float, wait_ms: int, turn_s: float) -> int:
        """Call the handlers of what is ready until nothing is, napping or waiting in between; how many were called.

        It ends after `turn_s`, and as soon as a handler woke a task.
        """
        poll, get, monotonic, nap = self.epoll.poll, self.handlers.get, time.monotonic, time.sleep
        served, began, wait_s = 0, monotonic(), 0.0 if nap_s else wait_ms / 1000
        events = poll(0, MAX_EVENTS)
        while events:
            now = self.now = monotonic()
            served += len(events)
            for fd, mask in events:
                handler = get(fd)
                if handler is not None:
                    try:
                        handler(mask)
                    except Exception as error:  # supervised border: one stream's fault must not end the others
                        self.failed(fd, error)
            if self.woken or now - began >= turn_s:
                break
            if nap_s:
                nap(nap_s)
            events = poll(wait_s, MAX_EVENTS)
        return served

    def failed(self, fd: int, error: Exception) -> None:
        """A handler raised: its descriptor is left alone from now on."""
        log.error("stream handler failed", exc_info=error)
        self.remove(fd)

    def _measure(self, served: int) -> None:
        """Keep the mean of events a second, between the ends of two turns."""
        now = time.monotonic()
        self._events_per_s += SMOOTHING * (served / max(now - self._turned_at, NAP_S) - self._events_per_s)
        self._turned_at = now


class Signal:
    """Wakes the one task that waits for it; set before the wait it is remembered."""

    __slots__ = ("_fired", "_task")

    def __init__(self) -> None:
        self._task: trio.lowlevel.Task | None = None
        self._fired = False

    def set(self) -> None:
        """Wake the waiting task, or the next one to wait."""
        task = self._task
        if task is None:
            self._fired = True
        else:
            self._task = None
            trio.lowlevel.reschedule(task)

    def clear(self) -> None:
        """Forget a `set` nobody waited for."""
        self._fired = False

    async def wait(self) -> None:
        """Until `set`; one task at a time."""
        if self._fired:
            self._fired = False
            await trio.lowlevel.checkpoint_if_cancelled()
            return
        self._task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._task = None
        return trio.lowlevel.Abort.SUCCEEDED
