"""The agent port against everybody who may come to it, over real mutual TLS on loopback."""

import gc
import os
import resource
import ssl
import tracemalloc
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio
import trio_asyncio
from grpclib.const import Status
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.link import LinkTimes
from agent.link_rpc import tls_context
from llmgw.agents.bridge import Limits
from llmgw.agents.bridge_h2 import BoundedBuffer
from llmgw.agents.sessions import (
    OUTBOX_MESSAGES,
    NodeConnected,
    NodeDisconnected,
    NodeMessage,
    Session,
    Sessions,
    TokenBucket,
)
from llmgw.control.pki import Authority
from llmgw.core.errors import Unavailable
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import (
    AgentMessage,
    Heartbeat,
    Hello,
    LogLines,
    LogRequest,
    Sensors,
    ServerMessage,
    StopShard,
    Welcome,
)
from tests.support.agentport import Port, enrolled, linked, make_port, running
from tests.support.h2peer import CONNECT, ENROLL, H2Peer, frame

HELLO = frame(bytes(AgentMessage(hello=Hello(node="n1"))))
BEAT = frame(bytes(AgentMessage(heartbeat=Heartbeat(seq=7))))


def context_of(layout: AgentLayout) -> ssl.SSLContext:
    """TLS of a node."""
    return tls_context(layout.ca, layout.certificate, layout.key)


async def answer(port: Port, context: ssl.SSLContext, body: bytes, *, path: str = CONNECT) -> tuple[Status | None, str]:
    """Status and sentence that one call with this body gets."""

    def ask() -> tuple[int, str]:
        with H2Peer(port.port, context) as peer:
            return peer.status(peer.call(path, body))

    with trio.fail_after(60):
        code, message = await trio.to_thread.run_sync(ask)
    return (None if code < 0 else Status(code)), message


def resident_mib() -> float:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


@pytest.mark.trio
async def test_a_session(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port), linked(enrolled(port, tmp_path / "n")) as agent:
        connected = await port.event(NodeConnected)
        assert (connected.node, connected.peer_address, connected.hello.agent_version) == ("n1", "127.0.0.1", "t")
        assert connected.hello.pid == os.getpid()
        assert (await agent.order()).welcome is not None
        await agent.say.send(AgentMessage(sensors=Sensors(cpu_percent=3.0)))
        message = await port.event(NodeMessage)
        assert message.session_id == connected.session_id
        assert message.message.sensors == Sensors(cpu_percent=3.0)
        assert port.server.send("n1", ServerMessage(stop_shard=StopShard(shard_id="m-1/0")))
        assert (await agent.order()).stop_shard == StopShard(shard_id="m-1/0")
        assert not port.server.send("n2", ServerMessage(stop_shard=StopShard(shard_id="m-1/0")))
        port.server.disconnect("n1", "evicted for a test")
        gone = await port.event(NodeDisconnected)
        assert (gone.session_id, gone.reason) == (connected.session_id, "evicted for a test")
        await agent.until(lambda link: "evicted for a test" in link.last_error)
        again = await port.event(NodeConnected)
        assert again.session_id > connected.session_id
        assert port.server.nodes == ["n1"]


@pytest.mark.trio
async def test_heartbeats_are_heard_and_are_no_events(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port), linked(enrolled(port, tmp_path / "n")):
        await port.event(NodeConnected)
        with trio.fail_after(60):
            while len(port.beats) < 3:  # noqa: ASYNC110 - the bridge has no event for it, on purpose
                await trio.sleep(0.01)
        assert set(port.beats) == {"n1"}
        with pytest.raises(trio.WouldBlock):
            port.server.events.receive_nowait()


@pytest.mark.trio
async def test_who_is_refused(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    foreign = Authority.open(tmp_path / "foreign")
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        nobody = tls_context(layout.ca)
        status, message = await answer(port, nobody, HELLO)
        assert status is Status.UNAUTHENTICATED
        assert "llmgw agent join" in message
        other = enrolled(port, tmp_path / "o", "n2")
        status, message = await answer(port, context_of(other), HELLO)
        assert status is Status.PERMISSION_DENIED
        assert "for node n2: it cannot speak for 'n1'" in message
        stranger = enrolled(port, tmp_path / "f", authority=foreign)
        assert (await answer(port, context_of(stranger), HELLO))[0] is None
        secrets = port.authority.directory
        server = tls_context(layout.ca, secrets / "server.crt", secrets / "server.key")
        status, message = await answer(port, server, HELLO)
        assert status is Status.PERMISSION_DENIED
        assert "role llmgw-server" in message
        elsewhere = frame(bytes(AgentMessage(hello=Hello(node="n1", cluster_id="another"))))
        assert (await answer(port, context_of(layout), elsewhere))[0] is Status.PERMISSION_DENIED
        port.serials["n1"] = "0"
        status, message = await answer(port, context_of(layout), HELLO)
        assert status is Status.PERMISSION_DENIED
        assert "new join token" in message
    assert port.server.events.statistics().current_buffer_used == 0


@pytest.mark.trio
@pytest.mark.promise("A25")
async def test_a_revoked_node_is_put_out(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port), linked(enrolled(port, tmp_path / "n")) as agent:
        await port.event(NodeConnected)
        port.serials["n1"] = "0"
        assert "not admitted" in (await port.event(NodeDisconnected)).reason
        await agent.until(lambda link: "PERMISSION_DENIED" in link.last_error)
        assert not agent.link.connected


@pytest.mark.trio
@pytest.mark.parametrize(
    ("body", "status"),
    [
        pytest.param(BEAT, Status.INVALID_ARGUMENT, id="heartbeat first"),
        pytest.param(frame(b""), Status.INVALID_ARGUMENT, id="empty message first"),
        pytest.param(frame(b"\x0a\xff\xff\xff\xff\x0fab"), Status.INVALID_ARGUMENT, id="4 GiB claimed in a field"),
        pytest.param(frame(b"\x00\x01"), Status.INVALID_ARGUMENT, id="field 0"),
        pytest.param(frame(b"\x0a\x03\x0a\x01\xff"), Status.INVALID_ARGUMENT, id="not UTF-8"),
        pytest.param(b"\x01\x00\x00\x00\x01a", Status.INVALID_ARGUMENT, id="compressed"),
        pytest.param(b"\x00\xff\xff\xff\xff", Status.RESOURCE_EXHAUSTED, id="4 GiB claimed in the frame"),
        pytest.param(b"\x00\x00\x40\x00\x01", Status.RESOURCE_EXHAUSTED, id="4 MiB and a byte"),
        pytest.param(b"\x00\x00", Status.DEADLINE_EXCEEDED, id="half a frame"),
        pytest.param(b"", Status.DEADLINE_EXCEEDED, id="nothing"),
        pytest.param(HELLO + frame(b"\x00\x01"), Status.INVALID_ARGUMENT, id="field 0 after Hello"),
        pytest.param(HELLO + HELLO, Status.INVALID_ARGUMENT, id="two Hellos"),
        pytest.param(HELLO + b"\x00\xff\xff\xff\xff", Status.RESOURCE_EXHAUSTED, id="4 GiB after Hello"),
    ],
)
async def test_malformed_streams(tmp_path: Path, body: bytes, status: Status) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        assert (await answer(port, context_of(layout), body))[0] is status
        with trio.fail_after(60):
            while port.server.nodes:
                await trio.lowlevel.checkpoint()
        assert (await answer(port, context_of(layout), BEAT))[0] is Status.INVALID_ARGUMENT  # it serves on


@pytest.mark.trio
async def test_a_stream_that_falls_silent_is_dropped(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(silent_s=0.4, check_s=0.05))
    async with running(port):
        context = context_of(enrolled(port, tmp_path / "n"))
        with await trio.to_thread.run_sync(H2Peer, port.port, context) as peer:
            peer.call(CONNECT, HELLO + BEAT)
            await port.event(NodeConnected)
            assert "silent for 0.4 s" in (await port.event(NodeDisconnected)).reason
            await trio.to_thread.run_sync(peer.wait_closed)
            assert b"\x08\x07" in peer.data[1]  # the heartbeat was acknowledged with its number


@pytest.mark.trio
async def test_a_newer_stream_replaces_the_older(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        context = context_of(enrolled(port, tmp_path / "n"))
        with (
            await trio.to_thread.run_sync(H2Peer, port.port, context) as old,
            await trio.to_thread.run_sync(H2Peer, port.port, context) as new,
        ):
            stream = old.call(CONNECT, HELLO)
            first = await port.event(NodeConnected)
            new.call(CONNECT, HELLO)
            gone = await port.event(NodeDisconnected)
            assert gone.session_id == first.session_id
            second = await port.event(NodeConnected)
            assert second.session_id > first.session_id
            code, message = await trio.to_thread.run_sync(old.status, stream)
            assert (Status(code), "newer stream" in message) == (Status.ABORTED, True)
            assert port.server.nodes == ["n1"]


@pytest.mark.trio
async def test_the_streams_of_one_node_are_counted(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(hello_s=3.0))
    async with running(port):
        context = context_of(enrolled(port, tmp_path / "n"))
        with await trio.to_thread.run_sync(H2Peer, port.port, context) as peer:
            streams = [peer.call(CONNECT) for _ in range(6)]
            code, message = await trio.to_thread.run_sync(peer.status, streams[-1])
            assert Status(code) is Status.UNAVAILABLE
            assert "4 streams" in message


@pytest.mark.trio
async def test_a_node_that_takes_no_orders_is_dropped(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(silent_s=5.0))
    async with running(port):
        context = context_of(enrolled(port, tmp_path / "n"))
        with await trio.to_thread.run_sync(H2Peer, port.port, context) as peer:
            peer.call(CONNECT, HELLO)
            await port.event(NodeConnected)
            order = ServerMessage(log_request=LogRequest(request_id="r", shard_id="x" * 4000))
            sent = 0
            with trio.fail_after(60):
                while port.server.send("n1", order):
                    sent += 1
                    await trio.lowlevel.checkpoint()
            assert sent >= OUTBOX_MESSAGES
            assert "waiting orders" in (await port.event(NodeDisconnected)).reason


@pytest.mark.trio
async def test_a_slow_control_plane_slows_its_agents_and_loses_nothing(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(messages_per_s=1e6))
    async with running(port), linked(enrolled(port, tmp_path / "n")) as agent:
        await port.event(NodeConnected)
        await agent.until(lambda link: link.connected)
        total = 3000

        async def talk() -> None:
            for i in range(total):
                await agent.say.send(AgentMessage(log_lines=LogLines(request_id=str(i), lines=["x"])))
                if i % 200 == 0:  # the link drops what a server does not take; give it time to
                    await trio.sleep(0.01)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(talk)
            with trio.fail_after(60):
                while port.server.events.statistics().current_buffer_used < 1024:
                    await trio.lowlevel.checkpoint()
            seen = 0
            while seen < 1024:
                event = await port.next_event()
                assert isinstance(event, NodeMessage)
                assert event.message.log_lines is not None
                assert event.message.log_lines.request_id == str(seen)
                seen += 1
            nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_no_leader_to_speak_for(tmp_path: Path) -> None:
    port = make_port(tmp_path)

    def welcome() -> Welcome:
        raise Unavailable("there is no leader at the moment")

    port.server._welcome = welcome
    async with running(port):
        status, message = await answer(port, context_of(enrolled(port, tmp_path / "n")), HELLO)
        assert (status, message) == (Status.UNAVAILABLE, "there is no leader at the moment")


def flood_big_frames(peer: H2Peer) -> None:
    """Claim the largest frame on many streams and send all of it that goes."""
    peer.h2.remote_settings.max_concurrent_streams = 1000
    for _ in range(90):
        stream = peer.call(CONNECT, b"\x00\x00\x40\x00\x00")
        peer.send(stream, b"x" * 60_000)


def flood_tiny_frames(peer: H2Peer) -> None:
    """A message a byte a DATA frame: an object a frame would cost the server hundreds of times what was sent."""
    stream = peer.call(CONNECT, b"\x00\x00\x40\x00\x00")
    for _ in range(80):
        peer.raw((b"\x00\x00\x01\x00\x00" + stream.to_bytes(4, "big") + b"x") * 2000)
    peer.wait_closed()


def flood_empty_frames(peer: H2Peer) -> None:
    """DATA frames that take nothing from the window."""
    stream = peer.call(CONNECT, b"\x00\x00\x40\x00\x00")
    peer.raw((b"\x00\x00\x00\x00\x00" + stream.to_bytes(4, "big")) * 200_000)
    peer.wait_closed()


def flood_pings(peer: H2Peer) -> None:
    """Pings whose answers are never read."""
    for _ in range(300):
        peer.raw((b"\x00\x00\x08\x06\x00\x00\x00\x00\x00" + b"pingping") * 5000)
    peer.wait_closed()


def flood_resets(peer: H2Peer) -> None:
    """Calls that are taken back at once."""
    for _ in range(1000):
        stream = peer.call(CONNECT)
        peer.h2.reset_stream(stream)
        peer.flush()
    peer.wait_closed()


@pytest.mark.trio
@pytest.mark.parametrize("certificate", [True, False], ids=["node", "stranger"])
@pytest.mark.parametrize("flood", [flood_big_frames, flood_tiny_frames, flood_empty_frames, flood_pings, flood_resets])
async def test_floods_leave_memory_flat_and_others_served(
    tmp_path: Path, flood: Callable[[H2Peer], None], certificate: bool
) -> None:
    port = make_port(tmp_path, limits=Limits(hello_s=3.0))
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        context = context_of(layout) if certificate else tls_context(layout.ca)
        async with linked(enrolled(port, tmp_path / "o", "other"), times=LinkTimes()) as agent:
            await port.event(NodeConnected)
            await agent.until(lambda link: link.connected)
            gc.collect()
            before = resident_mib()
            with await trio.to_thread.run_sync(H2Peer, port.port, context) as peer, trio.fail_after(20):
                await trio.to_thread.run_sync(partial(flood, peer))
                assert resident_mib() - before < 30
            assert agent.link.connected
            await agent.say.send(AgentMessage(sensors=Sensors(cpu_percent=1.0)))
            await port.event(NodeMessage)


@pytest.mark.trio
async def test_too_many_streams_at_once_end_the_connection(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(hello_s=4.0))
    async with running(port):
        context = tls_context(enrolled(port, tmp_path / "n").ca)
        with await trio.to_thread.run_sync(H2Peer, port.port, context) as peer:
            peer.h2.remote_settings.max_concurrent_streams = 1000
            for _ in range(101):
                peer.call(ENROLL)
            await trio.to_thread.run_sync(peer.wait_closed)


@pytest.mark.trio
async def test_a_handshake_that_never_ends_is_cut(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(handshake_s=0.3))
    async with running(port):
        stream = await trio.open_tcp_stream("127.0.0.1", port.port)
        async with stream:
            await stream.send_all(b"\x16\x03\x01")
            with trio.fail_after(60):
                try:
                    assert await stream.receive_some() == b""
                except trio.BrokenResourceError:
                    pass


@pytest.mark.trio
async def test_arbitrary_bytes_after_the_handshake_end_only_their_connection(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    blobs: list[bytes] = []

    @settings(max_examples=40, deadline=None, database=None)
    @given(
        st.one_of(
            st.binary(max_size=200),
            st.builds(h2_frame, st.binary(max_size=30), st.integers(0, 255), st.integers(0, 255), st.integers(0, 9)),
        )
    )
    def collect(blob: bytes) -> None:
        blobs.append(blob)

    collect()

    def throw(context: ssl.SSLContext) -> None:
        for blob in blobs:
            with H2Peer(port.port, context) as peer:
                stream = peer.call(CONNECT, HELLO[:7])
                peer.raw(blob)
                peer.raw(h2_frame(b"", 0, 1, stream))

    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        with trio.fail_after(30):
            await trio.to_thread.run_sync(throw, context_of(layout))
        async with linked(layout) as agent:
            await agent.until(lambda link: link.connected)


def h2_frame(payload: bytes, kind: int, flags: int, stream: int) -> bytes:
    """An HTTP/2 frame of any kind."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


@pytest.mark.trio
async def test_requests_without_the_usual_headers_leave_no_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    port = make_port(tmp_path)

    def ask(context: ssl.SSLContext) -> list[int]:
        with H2Peer(port.port, context) as peer:
            for name in (":method", ":path"):
                peer.call(CONNECT, without=name)
            statuses = []
            for name in ("te", "content-type"):
                statuses.append(peer.status(peer.call(CONNECT, without=name))[0])
            statuses.append(peer.status(peer.call("/llmgw.v1.Agents/Other"))[0])
            return statuses

    async with running(port):
        context = tls_context(enrolled(port, tmp_path / "n").ca)
        statuses = await trio.to_thread.run_sync(ask, context)
        assert statuses == [Status.UNKNOWN.value, Status.UNKNOWN.value, Status.UNIMPLEMENTED.value]
    assert [r for r in caplog.records if r.levelname in ("WARNING", "ERROR")] == []


@pytest.mark.trio
async def test_stopping_tells_the_agents_and_leaves_nothing(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    layout: AgentLayout
    async with trio.open_nursery() as nursery:
        async with running(port):
            layout = enrolled(port, tmp_path / "n")
            agent = await nursery.start(partial(_hold, layout))
            await port.event(NodeConnected)
            started = trio.current_time()
        assert trio.current_time() - started < 3.0
        assert (await port.event(NodeDisconnected)).reason == "the control plane is stopping"
        await agent.until(lambda link: "the control plane is stopping" in link.last_error)
        nursery.cancel_scope.cancel()


async def _hold(layout: AgentLayout, *, task_status: trio.TaskStatus[object]) -> None:
    async with linked(layout) as agent:
        task_status.started(agent)
        await trio.sleep_forever()


@pytest.mark.trio
async def test_a_port_in_use_is_an_os_error(tmp_path: Path) -> None:
    port = make_port(tmp_path / "a")
    async with running(port):
        second = make_port(tmp_path / "b", port=port.port)
        with pytest.raises(OSError, match="in use"):
            await second.server.run()


@pytest.mark.trio
async def test_a_buffer_holds_bytes_not_pieces() -> None:
    acknowledged: list[int] = []

    async def fill_and_read() -> tuple[int, bytes]:
        buffer = BoundedBuffer(acknowledged.append)
        tracemalloc.start()
        for _ in range(50_000):
            buffer.add(b"x", 1)
        held = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        assert acknowledged == []  # nobody read: the window stays closed
        taken = await buffer.read(40_000)
        assert sum(acknowledged) == 40_000
        buffer.eof()
        rest = await buffer.read(10_000)
        assert await buffer.read(5) == b""
        return held, taken + rest

    async with trio_asyncio.open_loop():
        held, data = await trio_asyncio.aio_as_trio(fill_and_read)()
    assert data == b"x" * 50_000
    assert held < 200_000
    assert sum(acknowledged) == 50_000


def test_sessions_refuse_when_the_control_plane_is_behind() -> None:
    sessions = Sessions()
    session = open_session(sessions, "n1")
    while not sessions.congested:
        sessions.deliver(session, AgentMessage(sensors=Sensors(cpu_percent=1.0)))
    with pytest.raises(Unavailable):
        open_session(sessions, "n2")
    sessions.end_all("stop")
    sessions.end(session, "again")
    assert session.ended == "stop"
    assert sessions.nodes == []


def open_session(sessions: Sessions, node: str) -> Session:
    """A session of `node` that nobody serves."""
    return sessions.open(
        Hello(node=node), node=node, serial="1", peer_address="", welcome=ServerMessage(), wake=lambda: None
    )


def test_token_bucket() -> None:
    bucket = TokenBucket(rate=10.0, burst=5.0, now=0.0)
    assert [bucket.take(1, 0.0) for _ in range(5)] == [0.0] * 5
    assert bucket.take(1, 0.0) == pytest.approx(0.1)
    assert bucket.take(1, 10.0) == 0.0
