"""Idle engine connections, a pool a replica, the last used first; and how more are opened.

A pool belongs to one replica at one endpoint: when the replica moves, the old pool ends with its connections.
"""

import ipaddress
import socket
import time
from urllib.parse import urlsplit

import trio

from llmgw.core.routing import RoutedReplica
from llmgw.router.limits import POOL_IDLE_S, POOL_SIZE
from llmgw.router.reactor import Reactor
from llmgw.router.upstream import Upstream


class Pool:
    """Idle connections of one replica, the last used first, and how to open more."""

    def __init__(self, reactor: Reactor, replica: RoutedReplica, engine_key: str) -> None:
        url = urlsplit(replica.endpoint)
        if url.scheme != "http" or not url.hostname:
            raise ValueError(f"{replica.endpoint!r} is not an http:// endpoint")
        self.reactor = reactor
        self.endpoint = replica.endpoint
        self._host = url.hostname
        self._port = url.port or 80
        self._idle: list[Upstream] = []
        self._closed = False
        self.used_at = reactor.now
        """Monotonic seconds when a request last went here: pools of replicas that are gone do not pile up."""
        self.prefix = url.path.rstrip("/").encode("ascii")
        """Path before the API's own, for replicas that share a listener."""
        self.constant_headers = (
            f" HTTP/1.1\r\nhost: {url.netloc}\r\nauthorization: Bearer {engine_key}\r\n"
            "content-type: application/json\r\naccept: "
        ).encode("ascii")

    def take(self) -> Upstream | None:
        """The idle connection used last."""
        return self._idle.pop() if self._idle else None

    def put(self, upstream: Upstream) -> None:
        """Keep a connection for the next request."""
        if self._closed or len(self._idle) >= POOL_SIZE:
            upstream.close()
        else:
            upstream.idle_since = self.reactor.now
            self._idle.append(upstream)

    def forget(self, upstream: Upstream) -> None:
        """A connection was closed, idle or not."""
        if upstream in self._idle:
            self._idle.remove(upstream)

    def sweep(self, now: float) -> None:
        """Close what was idle for too long; `now` is monotonic seconds."""
        while self._idle and now - self._idle[0].idle_since > POOL_IDLE_S:
            self._idle[0].close()

    def close(self) -> None:
        """Close idle connections, and the others when they are released."""
        self._closed = True
        while self._idle:
            self._idle[-1].close()

    async def connect(self, timeout_s: float) -> Upstream:
        """A new connection; raises OSError."""
        failure: OSError = OSError(f"{self._host} has no address")
        try:
            with trio.fail_after(timeout_s):
                for family, address in await self._addresses():
                    sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
                    try:
                        await _connect(sock, address)
                        return Upstream(self, sock)
                    except OSError as error:
                        sock.close()
                        failure = error
                    except BaseException:
                        sock.close()
                        raise
        except trio.TooSlowError:
            raise TimeoutError(f"no connection within {timeout_s:g} s") from None
        raise failure

    async def _addresses(self) -> list[tuple[socket.AddressFamily, tuple[str | int, ...]]]:
        try:
            version = ipaddress.ip_address(self._host).version
        except ValueError:
            found = await trio.socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            return [(family, (str(address[0]), self._port)) for family, _, _, _, address in found]
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, (self._host, self._port))]


async def _connect(sock: socket.socket, address: tuple[str | int, ...]) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        sock.connect(address)
    except BlockingIOError:
        await trio.lowlevel.wait_writable(sock)
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, "connect failed") from None


class Pools:
    """The pool of every replica."""

    def __init__(self, reactor: Reactor) -> None:
        self._reactor = reactor
        self._pools: dict[str, Pool] = {}
        self._swept_at = time.monotonic()
        reactor.ticking.add(self)

    def of(self, replica: RoutedReplica, engine_key: str) -> Pool:
        """The replica's pool, a new one if it moved; raises ValueError for an endpoint that is none."""
        pool = self._pools.get(replica.id)
        if pool is None or pool.endpoint != replica.endpoint:
            if pool is not None:
                pool.close()
            pool = self._pools[replica.id] = Pool(self._reactor, replica, engine_key)
        return pool

    def known(self, replica: RoutedReplica) -> Pool | None:
        """The replica's pool if it has one already."""
        pool = self._pools.get(replica.id)
        return pool if pool is not None and pool.endpoint == replica.endpoint else None

    def tick(self, now: float) -> None:
        """Close what was idle for too long."""
        if now - self._swept_at >= 1.0:
            self._swept_at = now
            for replica_id, pool in list(self._pools.items()):
                pool.sweep(now)
                if now - pool.used_at > POOL_IDLE_S * 10:
                    pool.close()
                    del self._pools[replica_id]

    def close(self) -> None:
        """Close every idle connection."""
        for pool in self._pools.values():
            pool.close()
