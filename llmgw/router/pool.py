"""Idle connections, a pool a replica, the last used first; and how more are opened.

A pool belongs to one replica, or one endpoint outside the cluster, at one address: when it moves, the old pool ends
with its connections. A connection is nobody's in particular: which provider's key a request shows is in its own head.
"""

import ipaddress
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import trio

from llmgw.core.routing import RoutedReplica
from llmgw.router.limits import POOL_IDLE_S, POOL_SIZE
from llmgw.router.provider_keys import KeyRing
from llmgw.router.provider_rings import KeyRings
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.tls import ProviderContexts, TlsSocket, peer_failure
from llmgw.router.upstream import Socket, Upstream

_PORTS = {"http": 80, "https": 443}


class Pool:
    """Idle connections of one replica, the last used first, and how to open more."""

    def __init__(
        self,
        reactor: Reactor,
        replica: RoutedReplica,
        engine_key: str,
        contexts: ProviderContexts | None = None,
        keys: KeyRing | None = None,
    ) -> None:
        """`contexts` serve TLS endpoints; `keys` are the provider's, for an endpoint outside the cluster.

        Raises ValueError for an endpoint that is none.
        """
        url = urlsplit(replica.endpoint)
        external = replica.external
        if url.scheme not in (_PORTS if external else ("http",)) or not url.hostname:
            raise ValueError(f"{replica.endpoint!r} is not an {'https:// or ' if external else ''}http:// endpoint")
        self.reactor = reactor
        self.endpoint = replica.endpoint
        self.external = external
        self._host = url.hostname
        self._port = url.port or _PORTS[url.scheme]
        self._contexts = (contexts or ProviderContexts()) if url.scheme == "https" else None
        self.keys = keys
        self._idle: list[Upstream] = []
        self._closed = False
        self.used_at = reactor.now
        """Monotonic seconds when a request last went here: pools of replicas that are gone do not pile up."""
        self.prefix = url.path.rstrip("/").encode("ascii")
        """Path before the API's own: of replicas that share a listener, or a provider's base URL."""
        # A provider's answer is passed on as it is, and what a client cannot read must not be asked for.
        own = "accept-encoding: identity\r\n" if external else f"authorization: Bearer {engine_key}\r\n"
        self.own_headers = f" HTTP/1.1\r\nhost: {url.netloc}\r\n{own}content-type: ".encode("ascii")
        """Up to the value of the content's type."""
        self.constant_headers = self.own_headers + b"application/json\r\naccept: "
        """The same for JSON, up to the value of what is accepted."""

    def path_of(self, route: str) -> bytes:
        """The path that a route (`/v1/…`) has here: a provider's base URL says itself what stands for `/v1`."""
        return self.prefix + (route.removeprefix("/v1") if self.external is not None else route).encode("ascii")

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
        """A new connection, secured where the endpoint says so; raises OSError."""
        failure: OSError = OSError(f"{self._host} has no address")
        try:
            with trio.fail_after(timeout_s):
                context = await self._contexts.of(self.external.ca_file) if self._contexts and self.external else None
                for family, address in await self._addresses():
                    try:
                        return Upstream(self, await self._open(family, address, context))
                    except OSError as error:
                        failure = error
        except trio.TooSlowError:
            raise TimeoutError(f"no connection within {timeout_s:g} s") from None
        raise failure

    async def _open(
        self, family: socket.AddressFamily, address: tuple[str | int, ...], context: ssl.SSLContext | None
    ) -> Socket:
        """A connected socket, or none that is left open."""
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
        secured: TlsSocket | None = None
        try:
            await self._connect(sock, address)
            if context is None:
                return sock
            secured = TlsSocket(sock, context, server_hostname=self._host)
            await self._handshake(secured)
        except BaseException:
            (secured or sock).close()
            raise
        return secured

    async def _connect(self, sock: socket.socket, address: tuple[str | int, ...]) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            sock.connect(address)
        except BlockingIOError:
            await self._until(sock.fileno(), select.EPOLLOUT)
            code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, "connect failed") from None

    async def _until(self, fd: int, events: int) -> None:
        """Until one of `events` holds for a descriptor, or it fails."""
        ready = Signal()
        with self.reactor.watching(fd, ready, events):
            await ready.wait()

    async def _handshake(self, secured: TlsSocket) -> None:
        try:
            while (reading := secured.handshake()) is not None:
                await self._until(secured.fileno(), select.EPOLLIN if reading else select.EPOLLOUT)
        except OSError as error:
            raise peer_failure(error, self._host) from None

    async def _addresses(self) -> list[tuple[socket.AddressFamily, tuple[str | int, ...]]]:
        try:
            version = ipaddress.ip_address(self._host).version
        except ValueError:
            try:
                found = await trio.socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
            except UnicodeError:
                raise OSError(f"{self._host[:80]!r} is no host name") from None
            return [(family, (str(address[0]), self._port)) for family, _, _, _, address in found]
        family = socket.AF_INET if version == 4 else socket.AF_INET6
        return [(family, (self._host, self._port))]


class Pools:
    """The pool of every replica."""

    def __init__(
        self,
        reactor: Reactor,
        private: Sequence[Path] = (),
        on_mended: Callable[[str, float], None] = lambda replica_id, now: None,
    ) -> None:
        """`on_mended` is told the endpoint that has keys to show again because its file was changed, and when."""
        self._reactor = reactor
        self._on_mended = on_mended
        self._rings = KeyRings(private)
        self._contexts = ProviderContexts()
        self._pools: dict[str, Pool] = {}
        self._swept_at = time.monotonic()
        reactor.ticking.add(self)

    def of(self, replica: RoutedReplica, engine_key: str) -> Pool:
        """The replica's pool, a new one if it moved; raises ValueError for an endpoint that is none."""
        pool = self.known(replica)
        if pool is None:
            before = self._pools.get(replica.id)
            if before is not None:
                before.close()
            keys = self._rings.of(replica) if replica.external is not None else None
            pool = Pool(self._reactor, replica, engine_key, self._contexts, keys)
            self._pools[replica.id] = pool
        return pool

    def known(self, replica: RoutedReplica) -> Pool | None:
        """The replica's pool if it has one already."""
        pool = self._pools.get(replica.id)
        same = pool is not None and pool.endpoint == replica.endpoint and pool.external == replica.external
        return pool if same else None

    def tick(self, now: float) -> None:
        """Close what was idle for too long, and look whether keys were mended."""
        if now - self._swept_at >= 1.0:
            self._swept_at = now
            for replica_id, pool in list(self._pools.items()):
                pool.sweep(now)
                if pool.keys is not None and pool.keys.mended(now):
                    self._on_mended(replica_id, now)
                if now - pool.used_at > POOL_IDLE_S * 10:
                    pool.close()
                    del self._pools[replica_id]
            self._rings.sweep({pool.keys for pool in self._pools.values() if pool.keys is not None}, now)

    def close(self) -> None:
        """Close every idle connection."""
        for pool in self._pools.values():
            pool.close()
