"""Slow but moving, over real sockets on a clock that the tests move: no end of it may cut the other."""

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import trio
from hypercorn.typing import ASGIFramework
from trio.testing import MockClock, wait_all_tasks_blocked

from llmgw.control.pki import Authority, client_context
from llmgw.core.addresses import parse_listen
from llmgw.mirror.server import SEND_STALL_S, HttpAnswer, HttpRequest, serve_http
from llmgw.transfer.errors import Interrupted
from llmgw.transfer.http import Remote, Timeouts, request
from llmgw.transfer.limit import Limit
from llmgw.web import serve as serving

SIZE = 6 * 1024 * 1024
TAKEN = 192 * 1024
"""At a time: more than the client's own buffer holds, so that the server's is emptied too."""
BUFFER = 32 * 1024
STALL_S = 60.0


@asynccontextmanager
async def file_server(file: Path, context: ssl.SSLContext | None) -> AsyncIterator[tuple[str, int]]:
    """A server of that file, whatever is asked; gives its address."""

    async def handle(_request: HttpRequest) -> HttpAnswer:
        return HttpAnswer(status=200, file=file, length=SIZE)

    async def api(*, task_status: trio.TaskStatus[list[trio.SocketListener]]) -> None:
        await serve_http(handle, host="127.0.0.1", port=0, ssl_context=context, limit=Limit(), task_status=task_status)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(api)
        yield listeners[0].socket.getsockname()
        nursery.cancel_scope.cancel()


async def small_socket(address: tuple[str, int]) -> trio.SocketStream:
    """A connection whose buffer is small from its beginning."""
    sock = trio.socket.socket()
    sock.setsockopt(trio.socket.SOL_SOCKET, trio.socket.SO_RCVBUF, BUFFER)
    await sock.connect(address)
    return trio.SocketStream(sock)


async def read_slowly(stream: trio.abc.Stream, clock: MockClock, every_s: float) -> int:
    """Take a little, let the time pass, until the end; gives how much came."""
    got = 0
    while True:
        taken = 0
        while taken < TAKEN:
            data = await stream.receive_some(TAKEN - taken)
            if not data:
                return got + taken
            taken += len(data)
        got += taken
        await wait_all_tasks_blocked()
        clock.jump(every_s)
        await wait_all_tasks_blocked()


@pytest.mark.trio
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
async def test_a_client_that_takes_a_little_gets_the_whole_file(
    tmp_path: Path, mock_clock: MockClock, tls: bool
) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(SIZE))
    authority = Authority.open(tmp_path / "secrets", names=["127.0.0.1"])
    (tmp_path / "ca.crt").write_bytes(authority.ca_pem)
    async with file_server(file, authority.mirror_server_context() if tls else None) as address:
        stream: trio.abc.Stream = await small_socket(address)
        if tls:
            context = client_context(tmp_path / "ca.crt")
            stream = trio.SSLStream(stream, context, server_hostname="127.0.0.1", https_compatible=True)
        async with stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert await read_slowly(stream, mock_clock, 0.75 * SEND_STALL_S) > SIZE
        assert trio.current_time() > 20 * SEND_STALL_S


@pytest.mark.trio
async def test_a_client_that_takes_nothing_is_let_go(tmp_path: Path, mock_clock: MockClock) -> None:
    file = tmp_path / "weights"
    file.write_bytes(bytes(SIZE))
    async with file_server(file, None) as address, await small_socket(address) as stream:
        await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert await stream.receive_some(8) == b"HTTP/1.1"
        for _ in range(3):
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(SEND_STALL_S)
        await wait_all_tasks_blocked(0.01)
        assert await read_slowly(stream, mock_clock, 0.0) < SIZE


async def large_answer(_scope: object, _receive: object, send: Callable[[object], Awaitable[None]]) -> None:
    """An application whose answer is one piece."""
    headers = [(b"content-length", str(SIZE).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": bytes(SIZE), "more_body": False})


@pytest.mark.trio
async def test_a_reader_of_the_api_that_takes_a_little_gets_its_whole_answer(mock_clock: MockClock) -> None:
    listener = serving.open_tcp(parse_listen("127.0.0.1:0", source="test"))
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(serving.serve, cast("ASGIFramework", large_answer), [listener], closing=trio.Event())
        )
        async with await small_socket(listener.getsockname()) as stream:
            await stream.send_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            assert await read_slowly(stream, mock_clock, 0.75 * serving.STALL_S) > SIZE
        nursery.cancel_scope.cancel()


class Dripping:
    """A server over TLS that sends one record of 16 KiB, a piece of it at a time, whenever it is told to."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.ready = trio.Event()
        self.record = b""
        self.stream: trio.SocketStream

    async def connection(self, stream: trio.SocketStream) -> None:
        """Shake hands, take the request, make the answer, and wait."""
        self.stream = stream
        done = False
        while not done:
            self._incoming.write(await stream.receive_some(65536))
            try:
                self._tls.do_handshake()
                done = bool(self._tls.read(65536))
            except ssl.SSLWantReadError:
                pass
            await stream.send_all(self._outgoing.read())
        self._tls.write(b"HTTP/1.1 200 OK\r\nContent-Length: 16000\r\n\r\n")
        await stream.send_all(self._outgoing.read())
        self._tls.write(bytes(16000))
        self.record = self._outgoing.read()
        self.ready.set()
        await trio.sleep_forever()


@pytest.mark.trio
@pytest.mark.parametrize("moves", [True, False], ids=["moving", "silent"])
async def test_a_record_that_comes_in_drops_is_taken_and_silence_ends(
    tmp_path: Path, mock_clock: MockClock, moves: bool
) -> None:
    authority = Authority.open(tmp_path / "secrets", names=["127.0.0.1"])
    (tmp_path / "ca.crt").write_bytes(authority.ca_pem)
    server = Dripping(authority.mirror_server_context())
    got: list[int] = []
    failed: list[Interrupted] = []

    async def client(url: str) -> None:
        timeouts = Timeouts(connect_s=STALL_S, stall_s=STALL_S)
        remote = Remote(url=url, tls=client_context(tmp_path / "ca.crt"), proxies=False, timeouts=timeouts)
        try:
            async with request(remote) as response:
                got.append(len(await response.read(16000)))
        except Interrupted as error:
            failed.append(error)

    async with trio.open_nursery() as nursery:
        listeners: list[trio.SocketListener] = await nursery.start(trio.serve_tcp, server.connection, 0)
        port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(client, f"https://127.0.0.1:{port}/")
        await server.ready.wait()
        for at in range(0, len(server.record), 2000):
            if moves:
                await server.stream.send_all(server.record[at : at + 2000])
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(0.75 * STALL_S)
            await wait_all_tasks_blocked(0.01)
        nursery.cancel_scope.cancel()
    assert (got == [16000]) is moves
    assert bool(failed) is not moves
    if failed:
        assert "sent nothing for 60 s" in failed[0].message
