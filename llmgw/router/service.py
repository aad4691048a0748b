"""The data plane as a service: accepts clients, answers each in a task of its own, drains on request.

Nesting is shutdown order: accepting ends first, then idle connections, then those with an answer on its way, then the
reactor.
"""

import errno
import logging
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import trio

from llmgw.router import passthrough
from llmgw.router.catalog import list_models, show_model
from llmgw.router.errors import json_response, response_of
from llmgw.router.front import ClientConnection, Gone
from llmgw.router.front_proxies import FrontProxies
from llmgw.router.front_tls import FrontTls
from llmgw.router.heads import RequestHead
from llmgw.router.inference import Inference, key_record, new_request_id
from llmgw.router.limits import MAX_CONNECTIONS_PER_ADDRESS, UNCOUNTED_ADDRESSES
from llmgw.router.ports import Refusal, RouterState
from llmgw.router.reactor import Reactor, Signal
from llmgw.router.routes import ROUTES, Route
from llmgw.router.seen import RequestsSeen
from llmgw.router.shapes import ANTHROPIC, OPENAI, Shape
from llmgw.router.shares import Shares

log = logging.getLogger(__name__)

ACCEPT_BATCH = 64
"""Connections accepted before other tasks get their turn."""
OUT_OF_FILES_PAUSE_S = 0.1
"""Pause when the process has no descriptor left for another connection."""
_OUT_OF_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


async def serve(
    listener: socket.socket,
    state: RouterState,
    *,
    public_socket: Path,
    drain: trio.Event | None = None,
    client_tls: Path | None = None,
    client_proxies: Path | None = None,
    private: Sequence[Path] = (),
    requests: Path | None = None,
    index: int = 0,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve clients of a listening, non-blocking socket until drained.

    Once `drain` is set it accepts no more, closes `listener` (while it is open here, the kernel goes on handing it
    connections), ends idle connections, the others after the answer on their way, and returns; how long that may take
    is the caller's to bound by cancelling. Without a `drain` it runs until cancelled. `client_tls` is where the client
    port's TLS is written down (`front_tls`), `client_proxies` which peers may say for whom they ask (`front_proxies`);
    no provider's keys are read from what is in `private`. `requests` is where the request log is written, as that of
    the machine's router `index`.
    """
    drain = trio.Event() if drain is None else drain
    reactor = Reactor()
    tls = FrontTls(client_tls)
    proxies = FrontProxies(client_proxies)
    seen = RequestsSeen(state, requests, index, private)
    plane = DataPlane(reactor, state, public_socket, drain, tls, proxies, seen, private)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(reactor.run)
            nursery.start_soon(reactor.run_ticks)
            await nursery.start(tls.run)
            await nursery.start(proxies.run)
            await nursery.start(seen.run)
            await plane.run(listener, task_status)
            await seen.finish()
            nursery.cancel_scope.cancel()
    finally:
        plane.close()
        seen.close()
        reactor.close()


class DataPlane:
    """The connections of one router process and the routes they may ask for."""

    def __init__(
        self,
        reactor: Reactor,
        state: RouterState,
        public_socket: Path,
        drain: trio.Event,
        tls: FrontTls,
        proxies: FrontProxies,
        seen: RequestsSeen,
        private: Sequence[Path] = (),
    ) -> None:
        self._reactor = reactor
        self._tls = tls
        self._proxies = proxies
        self._state = state
        self._public_socket = public_socket
        self._drain = drain
        self._inference = Inference(reactor, state, seen, private)
        self._connections: set[ClientConnection] = set()
        self._shares = Shares(MAX_CONNECTIONS_PER_ADDRESS)

    def close(self) -> None:
        """Close idle engine connections."""
        self._inference.close()

    async def run(self, listener: socket.socket, task_status: trio.TaskStatus[None]) -> None:
        """Accept until drained, then until the last connection ended."""
        async with trio.open_nursery() as clients:
            accepting, ended = trio.CancelScope(), trio.Event()
            clients.start_soon(self._accept, listener, clients, accepting, ended)
            task_status.started()
            await self._drain.wait()
            accepting.cancel()
            await ended.wait()
            listener.close()
            for connection in list(self._connections):
                connection.retire()

    async def _accept(
        self, listener: socket.socket, clients: trio.Nursery, scope: trio.CancelScope, ended: trio.Event
    ) -> None:
        readable = Signal()
        fd = listener.fileno()
        with scope, self._reactor.watching(fd, readable):
            while True:
                await readable.wait()
                for _ in range(ACCEPT_BATCH):
                    try:
                        sock, peer = listener.accept()
                    except BlockingIOError:
                        break
                    except OSError as error:
                        if error.errno in _OUT_OF_FILES:
                            log.warning("cannot accept connections: %s", error.strerror)
                            await trio.sleep(OUT_OF_FILES_PAUSE_S)
                        break
                    self._admit(sock, peer, clients)
        ended.set()

    def _admit(self, sock: socket.socket, peer: object, clients: trio.Nursery) -> None:
        address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        sock.setblocking(False)
        counted = address not in UNCOUNTED_ADDRESSES and not self._proxies.trusted.trusts(address)
        group = self._shares.take(address) if counted else None
        if counted and group is None:
            _turn_away(sock, None if self._tls.on else self._shares.refusal())
            return
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls.on and self._tls.context is None:
                raise OSError(errno.EPROTO, "there is no certificate to show")
            connection = ClientConnection(self._reactor, sock, address, self._tls.context)
        except OSError as error:
            log.warning("cannot serve a connection: %s", error.strerror)
            sock.close()
            if group is not None:
                self._shares.give(group)
            return
        self._connections.add(connection)
        clients.start_soon(self._serve, connection, group)
        self._reactor.woken = True

    async def _serve(self, conn: ClientConnection, group: str | None) -> None:
        """Answer one connection's requests, one after another; it is counted in `group`, if it is."""
        try:
            await conn.secure()
            while not conn.retiring or not conn.answered:
                if not await self._serve_request(conn):
                    await conn.linger()
                    break
        except Gone:
            pass
        except Exception:  # supervised border: a fault in one connection must not end the others
            log.exception("a client connection failed")
        finally:
            conn.close()
            self._connections.discard(conn)
            if group is not None:
                self._shares.give(group)

    async def _serve_request(self, conn: ClientConnection) -> bool:
        """Answer one request; whether the connection may carry another. Raises Gone."""
        request_id = ""
        head: RequestHead | None = None
        try:
            head = await conn.next_head()
            request_id = new_request_id()
            if self._proxies.trusted and self._proxies.trusted.trusts(conn.peer):
                with self._asked_for(conn, head):
                    keep_alive = await self._route(conn, head, request_id)
            else:
                conn.address = conn.peer
                keep_alive = await self._route(conn, head, request_id)
        except Refusal as refusal:
            await trio.lowlevel.checkpoint()
            keep_alive = False
            if head is not None:
                conn.skip_body()
                keep_alive = head.keep_alive and conn.body_read and not conn.retiring and refusal.status != 400
            allow = _methods(head.path) if refusal.status == 405 and head is not None else ""
            body = shape_of(head).body(refusal)
            answer = response_of(refusal, request_id=request_id, keep_alive=keep_alive, allow=allow, body=body)
            await _write(conn, head, answer)
        conn.answered += 1
        return keep_alive

    @contextmanager
    def _asked_for(self, conn: ClientConnection, head: RequestHead) -> Iterator[None]:
        """Count a request of a proxy for the client it names; raises Refusal when that one has its share already."""
        forwarded = [value for name, value in head.headers if name == b"x-forwarded-for"]
        address = self._proxies.trusted.client(conn.peer, forwarded)
        conn.address = address
        group = None
        if address not in UNCOUNTED_ADDRESSES and not self._proxies.trusted.trusts(address):
            group = self._shares.take(address)
            if group is None:
                raise self._shares.refusal()
        try:
            yield
        finally:
            if group is not None:
                self._shares.give(group)

    async def _route(self, conn: ClientConnection, head: RequestHead, request_id: str) -> bool:
        """Answer a request of which the head is here; whether the connection may carry another."""
        route = ROUTES.get(head.path)
        if route is not None and head.method == b"POST":
            return await self._inference.serve(conn, head, route, request_id)
        return await self._serve_other(conn, head, route, request_id)

    async def _serve_other(
        self, conn: ClientConnection, head: RequestHead, route: Route | None, request_id: str
    ) -> bool:
        """Answer what is not inference. Raises Refusal or Gone."""
        await trio.lowlevel.checkpoint()  # pipelined requests without end must not keep others from their turn
        path, method = head.path, head.method
        if route is None and passthrough.is_public(path):
            believed = self._proxies.trusted.trusts(conn.peer)
            await passthrough.relay(conn, head, self._public_socket, request_id, believed=believed)
            return False
        own = path in (b"/live", b"/ready", b"/v1/models") or path.startswith(b"/v1/models/")
        if route is None and not own:
            raise Refusal(404, _unknown(method, path), code="unknown_url")
        if route is not None or method not in (b"GET", b"HEAD"):
            message = f"{method.decode()} is not allowed here: this path takes {_methods(path)}."
            raise Refusal(405, message, code="method_not_allowed")
        conn.skip_body()
        keep_alive = head.keep_alive and conn.body_read and not conn.retiring
        status, body = await self._document(conn, head)
        await _write(conn, head, json_response(status, body, request_id=request_id, keep_alive=keep_alive))
        return keep_alive

    async def _document(self, conn: ClientConnection, head: RequestHead) -> tuple[int, bytes]:
        if head.path == b"/live":
            return 200, b'{"status":"live"}'
        if head.path == b"/ready":
            if self._drain.is_set():
                return 503, b'{"status":"draining"}'
            return (200, b'{"status":"ready"}') if self._state.routes.ready else (503, b'{"status":"starting"}')
        key = await key_record(self._state, head, conn.address)
        if head.path == b"/v1/models":
            return 200, list_models(self._state.routes, key)
        return 200, show_model(self._state.routes, key, head.path.removeprefix(b"/v1/models/"))


def _methods(path: bytes) -> str:
    """Methods of a path that there is."""
    return "POST" if path in ROUTES else "GET, HEAD"


def _unknown(method: bytes, path: bytes) -> str:
    """That there is no such path, and which one was probably meant."""
    sentence = f"Unknown request URL: {method.decode()} {path[:200].decode()}"
    for meant in (path.rstrip(b"/"), b"/v1" + path.rstrip(b"/")):
        if meant in ROUTES or meant == b"/v1/models":
            return f"{sentence}; there is {meant.decode()}"
    return sentence


async def _write(conn: ClientConnection, head: RequestHead | None, response: bytes) -> None:
    if head is not None and head.method == b"HEAD":
        response = response[: response.index(b"\r\n\r\n") + 4]
    await conn.write(response)


def shape_of(head: RequestHead | None) -> Shape:
    """In whose API's words the client reads errors; whoever asks for no route of an API says it in a header."""
    route = ROUTES.get(head.path) if head is not None else None
    if head is None or route is not None:
        return route.shape if route is not None else OPENAI
    return ANTHROPIC if any(name == b"anthropic-version" for name, _ in head.headers) else OPENAI


def _turn_away(sock: socket.socket, refusal: Refusal | None) -> None:
    """Say why, where that can be said without a handshake, and close, without a task of its own."""
    try:
        if refusal is not None:
            sock.send(response_of(refusal))
    except OSError:
        pass
    sock.close()
