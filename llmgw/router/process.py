"""A router process from top to bottom: what follows the cluster outlives what serves clients, so no count is lost.

It is started by the server with an inherited listening socket and lives on without it: nothing here ties it to its
parent. SIGTERM, SIGINT or the control plane's word drain it (exit 0); a second signal ends the drain at once.
"""

import argparse
import gc
import logging
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

import trio

from llmgw import __version__
from llmgw.core import jsonlog
from llmgw.core.layout import ServerLayout
from llmgw.core.processes import boot_id, start_time
from llmgw.core.routing import RouterHello
from llmgw.core.secrets import key_digest
from llmgw.router import slots
from llmgw.router.counters import Counters
from llmgw.router.drain import Drain
from llmgw.router.feed import FeedClient
from llmgw.router.handover import RouterRecord, forget_record, serve_handover, write_record
from llmgw.router.keys import KeyCache, sweep_lookups
from llmgw.router.limiter import Limiter
from llmgw.router.ports import RouterState
from llmgw.router.saved import SavedState
from llmgw.router.state import FollowerState
from llmgw.router.token_pass import describe
from llmgw.router.usage import UsageSpool

DRAIN_S = 600.0
"""What is open when a router is told to end may take this long, unless it is told otherwise."""
LAST_USAGE_S = 2.0
"""A router that ends waits this long for its last usage to be stored; what is not is on disk."""

_log = logging.getLogger("llmgw.router")


class Serve(Protocol):
    """The data plane: serves clients from `listener` until cancelled.

    Once `drain` is set it accepts no more and closes `listener`: as long as this process had it open, the kernel would
    go on giving it connections that nobody accepts.
    """

    def __call__(
        self,
        listener: socket.socket,
        state: RouterState,
        *,
        public_socket: Path,
        drain: trio.Event,
        task_status: trio.TaskStatus[None],
    ) -> Awaitable[None]:
        """Returns when it is drained: nothing accepted any more, nothing open."""


@dataclass(frozen=True, kw_only=True)
class RouterOptions:
    """What a router is started with."""

    layout: ServerLayout
    index: int
    """Which of the machine's routers it is."""
    drain_s: float = DRAIN_S
    """Seconds that open requests get after SIGTERM."""
    version: str = __version__


async def run_router(options: RouterOptions, listener: socket.socket, serve: Serve) -> None:
    """Serve from `listener` until drained; raises OSError when the data directory cannot be used."""
    layout = options.layout
    secret = layout.cluster_secret.read_bytes()
    keys = KeyCache(partial(key_digest, secret))
    usage = UsageSpool(layout.spool, options.index)
    counters = _counters(layout)
    state = FollowerState(cluster_secret=secret, keys=keys, usage=usage, limiter=Limiter(counters))
    saved = _restore(layout, state, keys)
    drain = Drain()
    record = _describe(options, listener)
    hello = RouterHello(pid=record.pid, index=record.index, version=record.version, port=record.port, loads=True)
    feed = FeedClient(layout.feed_socket, hello, state=state, keys=keys, usage=usage, saved=saved, drain=drain.request)
    try:
        async with trio.open_nursery() as followers:
            await followers.start(_signals, drain, options.drain_s)
            await followers.start(saved.run)
            await followers.start(usage.run)
            await followers.start(partial(sweep_lookups, keys))
            await followers.start(feed.run)
            await _front(options, listener, state, drain, record, serve)
            await usage.finish(deadline_s=LAST_USAGE_S)
            followers.cancel_scope.cancel()
    finally:
        usage.close()
        saved.write()
        slots.give_up(counters)


async def _front(
    options: RouterOptions,
    listener: socket.socket,
    state: FollowerState,
    drain: Drain,
    record: RouterRecord,
    serve: Serve,
) -> None:
    """Serve clients and be found by supervisors, until drained."""
    layout = options.layout
    served = trio.Event()
    async with trio.open_nursery() as front:

        async def data_plane(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
            await serve(
                listener, state, public_socket=layout.public_socket, drain=drain.requested, task_status=task_status
            )
            served.set()

        await front.start(data_plane)
        async with trio.open_nursery() as door:
            await door.start(partial(serve_handover, layout.router_socket(options.index), listener, record))
            try:
                write_record(layout, record)
            except OSError as error:
                # A full disk is no reason not to serve.
                _log.error("router %d cannot be put on record: %s", options.index, error)
            _settle_memory()
            _log.info("router %d serves port %d, %s", options.index, record.port, describe())
            await drain.requested.wait()
            door.cancel_scope.cancel()
        forget_record(layout, record)
        _log.info("router %d drains: %d requests open", options.index, state.open_requests)
        with drain.scope:
            await served.wait()
        if state.open_requests:
            _log.warning("router %d ends with %d requests open", options.index, state.open_requests)
        front.cancel_scope.cancel()


async def _signals(
    drain: Drain, drain_s: float, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as received:
        task_status.started()
        async for _ in received:
            drain.request(0.0 if drain.requested.is_set() else drain_s)


def _counters(layout: ServerLayout) -> Counters:
    """The machine's counters with a slot of ours, or some of our own: limits then hold for this router alone."""
    try:
        counters = Counters.open(layout.counters)
        if slots.claim(counters):
            return counters
        counters.close()
        trouble = "no slot can be had"
    except OSError as error:
        trouble = str(error)
    _log.error("the shared counters cannot be used, each router limits for itself: %s", trouble)
    return Counters.private()


def _restore(layout: ServerLayout, state: FollowerState, keys: KeyCache) -> SavedState:
    """Begin with what the routers of this machine heard last, and keep what is heard from here on."""
    saved = SavedState(layout.routing_cache)
    routing, records = saved.load()
    if routing is not None:
        state.apply(routing)
    if saved.scopes is not None:
        state.apply_scopes(saved.scopes)
    for digest, record in records.items():
        keys.restore(digest, record)
    keys.on_learned = saved.learned
    keys.on_forgotten = saved.forgotten
    return saved


def _describe(options: RouterOptions, listener: socket.socket) -> RouterRecord:
    pid = os.getpid()
    return RouterRecord(
        pid=pid,
        start_time=start_time(pid) or 0,
        boot_id=boot_id(),
        port=listener.getsockname()[1],
        version=options.version,
        index=options.index,
    )


def _settle_memory() -> None:
    """What is loaded stays for good: the collector need not walk it again, and need not run for every few streams."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _options(argv: Sequence[str]) -> tuple[RouterOptions, int]:
    parser = argparse.ArgumentParser(
        prog="llmgw router", description="One router process. Internal: the server starts it."
    )
    parser.add_argument("--index", type=int, required=True, help="which of the machine's routers this is")
    parser.add_argument("--data", type=Path, required=True, help="the server's data directory")
    parser.add_argument("--fd", type=int, required=True, help="inherited descriptor of the listening socket")
    parser.add_argument("--drain-s", type=float, default=DRAIN_S, help="seconds open requests get after SIGTERM")
    parser.add_argument("--as-version", default=__version__, help="version to give as its own")
    given = parser.parse_args(argv)
    layout = ServerLayout(data=given.data.absolute())
    options = RouterOptions(layout=layout, index=given.index, drain_s=given.drain_s, version=given.as_version)
    return options, given.fd


def main(argv: Sequence[str] | None = None, *, load: Callable[[], Serve] | None = None) -> int:
    """Run `llmgw router` on the arguments `argv`; `load` gives another data plane than ours. Returns the exit code."""
    began = time.monotonic()
    options, descriptor = _options(sys.argv[1:] if argv is None else argv)
    name = f"router-{options.index}"
    try:
        jsonlog.setup(options.layout.log / f"{name}.log", process=name)
    except OSError:
        # A router without its log file serves all the same; its supervisor keeps what it prints.
        jsonlog.setup(None, process=name)
    try:
        _allow_descriptors()
        listener = socket.socket(fileno=descriptor)
        listener.set_inheritable(False)
        listener.setblocking(False)
        trio.run(run_router, options, listener, load() if load else _data_plane(options.layout, options.index))
    except BaseException:
        # The last border of the process: whatever ended it belongs into its log.
        _log.exception("router %d ended after %.1f s", options.index, time.monotonic() - began)
        return 1
    return 0


def _allow_descriptors() -> None:
    """As many as the machine allows: a stream takes two, and the usual soft limit of 1,024 would end at 500 of them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _data_plane(layout: ServerLayout, index: int = 0) -> Serve:
    from llmgw.router.service import serve

    proxies = layout.client_proxies
    return partial(
        serve,
        client_tls=layout.client_tls,
        client_proxies=proxies,
        private=(layout.data,),
        requests=layout.requests,
        index=index,
    )


if __name__ == "__main__":
    sys.exit(main())
