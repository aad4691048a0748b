"""A listener of the simulated engines: each connection has a task, and a want of descriptors is waited out."""

import socket
from collections.abc import Awaitable, Callable

import trio

from llmgw.core import sockets
from llmgw.sim.http1 import Connection

BACKLOG = 4096
ACCEPT_PAUSE_S = 0.05
"""Pause after `accept` failed for want of descriptors or memory."""
Serve = Callable[[Connection], Awaitable[object]]
"""Has a connection until it ends."""


def listen(host: str, port: int) -> socket.socket:
    """A non-blocking listening socket; raises OSError."""
    return sockets.listen_tcp(host, port, backlog=BACKLOG)


async def accept(listener: socket.socket, nursery: trio.Nursery, serve: Serve) -> None:
    """Serve every connection in `nursery`, until cancelled."""
    while True:
        await trio.lowlevel.wait_readable(listener)
        await _accept_waiting(listener, nursery, serve)


async def _accept_waiting(listener: socket.socket, nursery: trio.Nursery, serve: Serve) -> None:
    while True:
        try:
            sock, _ = listener.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:
            await trio.sleep(ACCEPT_PAUSE_S)
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nursery.start_soon(serve, Connection(sock))
