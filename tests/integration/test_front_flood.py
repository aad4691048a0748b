"""What floods, slow clients and oversized requests cost a router, measured on a process of its own.

`LLMGW_SOAK=1` takes the sizes that are promised; without it they are a fifth.
"""

import contextlib
import os
import resource
import socket
from collections.abc import Iterator

import pytest
import trio

from llmgw.router import limits
from llmgw.router.limits import KIB, MAX_BODY_BYTES, MAX_CONNECTIONS_PER_ADDRESS, MIB
from tests.support.front_child import FrontChild, front_child
from tests.support.router_plane import KEY, RawClient, chat, get, post
from tests.support.scripted_engine import SSE_HEAD, Exchange, ScriptedEngine, chunk, token
from tests.support.waiting import until, until_sync

SOAK = bool(os.environ.get("LLMGW_SOAK"))
IDLE = 5000 if SOAK else 1000
AT_ONCE = 3000 if SOAK else 600
FLOOD_KIB = 50 * KIB
"""What the promised flood may add to the router's memory."""
NOISE_KIB = 8 * KIB
"""What the allocator may keep of anything."""
STALLED = 100 if SOAK else 40
STREAM_KIB = 256
"""Held of one stream that nobody reads."""
REPEATS = 200 if SOAK else 20
LIVE = get("/live")
WAIT_S = 60


def connect(child: FrontChild, source: str = "127.0.0.1") -> socket.socket:
    sock = socket.socket()
    sock.settimeout(WAIT_S)
    sock.bind((source, 0))
    sock.connect(("127.0.0.1", child.port))
    return sock


def status(sock: socket.socket) -> int:
    """Status of the next answer, of which no more than its head is needed."""
    head = b""
    while b"\r\n\r\n" not in head:
        data = sock.recv(65536)
        assert data, head
        head += data
    return int(head.split(b" ", 2)[1])


def probe(child: FrontChild) -> int:
    """Status a new client gets."""
    with connect(child) as sock:
        sock.sendall(LIVE)
        return status(sock)


@pytest.fixture
def child() -> Iterator[FrontChild]:
    """A router, and as many descriptors here as may be."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * (IDLE + AT_ONCE):
        pytest.skip(f"a process may open {hard} descriptors here (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        with front_child() as running:
            assert probe(running) == 200
            yield running
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_figures() -> None:
    """As they are promised, and no better known to a test that changes them."""
    assert limits.HEAD_DEADLINE_S <= 10.0
    assert limits.BODY_STALL_S == 60.0
    assert limits.MAX_EVENT_BYTES + 2 * limits.RECV_BYTES <= STREAM_KIB * KIB
    assert limits.MAX_HEAD_BYTES < 64 * KIB
    assert MAX_BODY_BYTES < 33 * MIB
    assert MAX_CONNECTIONS_PER_ADDRESS == 200


@pytest.mark.promise("A15")
def test_a_flood_of_connections_is_held_and_leaves_nothing(child: FrontChild) -> None:
    before_kib, descriptors = child.forget_peak(), child.descriptors()
    with contextlib.ExitStack() as stack:
        idle = [stack.enter_context(connect(child)) for _ in range(IDLE)]
        for sock in idle:
            sock.sendall(LIVE)
        assert {status(sock) for sock in idle} == {200}
        flood = []
        for _ in range(AT_ONCE):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(("127.0.0.1", child.port))
            flood.append(sock)
        assert probe(child) == 200
        for sock in flood:
            sock.settimeout(WAIT_S)
            sock.sendall(LIVE)
        assert {status(sock) for sock in flood} == {200}
        assert probe(child) == 200
        assert child.descriptors() >= IDLE + AT_ONCE
        share = (IDLE + AT_ONCE) / 8000
        assert child.status_kib("VmHWM") - before_kib <= FLOOD_KIB * share + (0 if SOAK else NOISE_KIB)
    until_sync(lambda: child.descriptors() <= descriptors, deadline_s=WAIT_S)
    assert probe(child) == 200


@pytest.mark.promise("A15")
def test_one_address_holds_two_hundred_connections_and_no_more(child: FrontChild) -> None:
    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(connect(child, "127.0.0.2")) for _ in range(MAX_CONNECTIONS_PER_ADDRESS)]
        for sock in held:
            sock.sendall(LIVE)
        assert {status(sock) for sock in held} == {200}
        for _ in range(20):
            with connect(child, "127.0.0.2") as extra:
                assert status(extra) == 429
        with connect(child, "127.0.0.3") as other:
            other.sendall(LIVE)
            assert status(other) == 200
        many = [stack.enter_context(connect(child)) for _ in range(MAX_CONNECTIONS_PER_ADDRESS + 20)]
        for sock in many:
            sock.sendall(LIVE)
        assert {status(sock) for sock in many} == {200}, "a proxy on this machine speaks for many"


@pytest.mark.promise("A16")
@pytest.mark.trio
async def test_readers_that_stop_hold_a_bounded_buffer_and_are_cut() -> None:
    """Engines go on writing as long as anybody takes it; the router takes no more than it may hold."""

    async def endless(exchange: Exchange) -> None:
        await exchange.send(SSE_HEAD)
        event = chunk(token("x" * 30_000))
        while True:
            await exchange.send(event)

    engine = ScriptedEngine(endless)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        with front_child(engine.port, client_stall_s=3.0) as child:
            before_kib = child.forget_peak()
            clients = [await _reader(child, small=True) for _ in range(STALLED)]
            for client in clients:
                await client.send(post(chat(True)))
            await until(lambda: len(engine.received) == STALLED)
            with trio.fail_after(WAIT_S):
                while engine.open_connections:  # noqa: ASYNC110 - a plain counter
                    await trio.sleep(0.01)
            assert child.status_kib("VmHWM") - before_kib <= STALLED * STREAM_KIB + NOISE_KIB
            for client in clients:
                await client.stream.aclose()
            fresh = await _reader(child)
            await fresh.send(LIVE)
            assert (await fresh.answer()).status == 200
            await fresh.stream.aclose()
        nursery.cancel_scope.cancel()


async def _reader(child: FrontChild, *, small: bool = False) -> RawClient:
    sock = trio.socket.socket()
    if small:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await sock.connect(("127.0.0.1", child.port))
    return RawClient(trio.SocketStream(sock))


HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: gw\r\nAuthorization: Bearer " + KEY + b"\r\n"
OVERSIZE = {
    "64 KiB of head": (HEAD + b"X: " + b"y" * 65_536 + b"\r\n\r\n", 431, 0),
    "1,000 headers": (HEAD + b"X: y\r\n" * 1000 + b"\r\n", 431, 0),
    "a body of 33 MiB": (HEAD + b"Content-Length: %d\r\n\r\n" % (33 * MIB) + b" " * MIB, 413, 0),
    "100,000 brackets in 5 MB": (post(b'{"model":"m","messages":' + b"[" * 100_000 + b" " * 4_900_000), 400, 5 * MIB),
    "n of 16,384": (post(chat(n=16384)), 400, 0),
    "max_tokens of 1e12": (post(chat(max_tokens=10**12)), 400, 0),
    "max_tokens as 1e12": (post(b'{"model":"m","messages":[],"max_tokens":1e12}'), 400, 0),
}


@pytest.mark.promise("A18")
@pytest.mark.parametrize("name", OVERSIZE)
def test_what_is_oversized_is_refused_and_memory_stays_flat(child: FrontChild, name: str) -> None:
    raw, expected, body_bytes = OVERSIZE[name]

    def ask() -> None:
        with connect(child) as sock:
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                sock.sendall(raw)
            assert status(sock) == expected

    for _ in range(3):
        ask()
    before_kib = child.forget_peak()
    for _ in range(REPEATS):
        ask()
    # A body is there once as it is read and once whole; of all of them the allocator may keep one's room.
    assert child.status_kib("VmHWM") - before_kib <= 3 * body_bytes // KIB + NOISE_KIB
    assert child.status_kib("VmRSS") - before_kib <= body_bytes // KIB + NOISE_KIB


@pytest.mark.promise("A18")
def test_chunks_without_end_take_no_more_than_a_body_may(child: FrontChild) -> None:
    before_kib = child.forget_peak()
    with connect(child) as sock:
        sock.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(MAX_BODY_BYTES // MIB + 16):
                sock.sendall(chunk(b" " * MIB))
        assert status(sock) == 413
    assert child.status_kib("VmHWM") - before_kib <= 2 * MAX_BODY_BYTES // KIB
    assert probe(child) == 200


@pytest.mark.promise("A20")
@pytest.mark.trio
async def test_requests_sent_and_abandoned_start_one_after_the_other() -> None:
    """Without HTTP/2 there are no streams to open and reset: a connection has one request at an engine, or none."""
    most = 0

    async def hanging(exchange: Exchange) -> None:
        nonlocal most
        most = max(most, len(engine.received))
        await exchange.until_closed()

    engine = ScriptedEngine(hanging)
    async with trio.open_nursery() as nursery:
        await nursery.start(engine.run)
        with front_child(engine.port) as child:
            clients = [await _reader(child) for _ in range(20)]
            for client in clients:
                await client.send(post(chat(True)) * 50)
            await until(lambda: len(engine.received) == len(clients))
            for client in clients:
                await client.stream.aclose()
            with trio.fail_after(WAIT_S):
                while engine.open_connections:  # noqa: ASYNC110 - a plain counter
                    await trio.sleep(0.01)
        assert len(engine.received) == len(clients)
        nursery.cancel_scope.cancel()
