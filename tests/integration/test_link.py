"""The agent's line to its control planes over real mutual TLS: kept up, patient, and deaf to older leaders."""

import random
import socket
from pathlib import Path

import msgspec
import pytest
import trio

from agent.identity import IdentityError, load_identity, save_identity, split_address
from agent.link import Link, LinkTimes
from llmgw.agents.bridge import Limits
from llmgw.agents.sessions import NodeConnected, NodeDisconnected, NodeMessage
from llmgw.control.pki import Authority
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import AgentMessage, Heartbeat, Hello, Sensors, ServerMessage, StopShard
from tests.support.agentport import QUICK_LINK, enrolled, free_port, linked, make_port, running


def link_of(layout: AgentLayout, *, times: LinkTimes = QUICK_LINK, seed: int = 1) -> Link:
    """A link that does not run."""
    _, outbound = trio.open_memory_channel[AgentMessage](1)
    inbound, _ = trio.open_memory_channel[ServerMessage](1)
    return Link(layout, hello=Hello, outbound=outbound, inbound=inbound, times=times, chance=random.Random(seed))


@pytest.mark.trio
async def test_welcome_is_remembered(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    port.epoch = 7
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        port.servers = [port.address, "other:9443", "not an address", "http://x"]
        async with linked(layout) as agent:
            await agent.until(lambda link: link.connected)
            assert agent.link.connected_to == f"127.0.0.1:{port.port}"
    identity = load_identity(layout)
    assert identity.servers == (port.address, "other:9443")
    assert identity.epoch == 7
    assert [p.name for p in layout.data.iterdir() if "new" in p.name] == []


@pytest.mark.trio
async def test_the_address_that_answers_is_kept_beside_a_name_that_may_not(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        port.servers = ["no-such-host.invalid:9443"]
        async with linked(layout) as agent:
            await agent.until(lambda link: link.connected)
        assert load_identity(layout).servers == ("no-such-host.invalid:9443", port.address)
        async with linked(layout) as agent:
            await agent.until(lambda link: link.connected)


@pytest.mark.trio
@pytest.mark.promise("A2")
async def test_an_older_leader_is_refused(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    port.epoch = 3
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        save_identity(layout, msgspec.structs.replace(load_identity(layout), epoch=4))
        async with linked(layout) as agent:
            await agent.until(lambda link: "epoch 3, but epoch 4 was seen" in link.last_error)
            assert not agent.link.connected
            with pytest.raises(trio.WouldBlock):
                agent.orders.receive_nowait()
            port.epoch = 4
            await agent.until(lambda link: link.connected)


@pytest.mark.trio
async def test_it_comes_back_after_the_server_did(tmp_path: Path) -> None:
    number = free_port()
    port = make_port(tmp_path, port=number)
    layout = enrolled(port, tmp_path / "n")
    async with linked(layout) as agent:
        await agent.until(lambda link: "refused" in link.last_error.lower() or "connect" in link.last_error.lower())
        await agent.say.send(AgentMessage(heartbeat=Heartbeat(seq=9)))  # dropped: nobody to say it to
        async with running(port):
            await agent.until(lambda link: link.connected)
            await port.event(NodeConnected)
        await agent.until(lambda link: not link.connected)
        assert (await port.event(NodeDisconnected)).reason == "the control plane is stopping"
        again = make_port(tmp_path, port=number)
        async with running(again):
            await agent.until(lambda link: link.connected)
            await again.event(NodeConnected)
            await agent.say.send(AgentMessage(sensors=Sensors(cpu_percent=1.0)))
            await again.event(NodeMessage)


@pytest.mark.trio
async def test_servers_take_turns(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        dead = f"127.0.0.1:{free_port()}"
        save_identity(layout, msgspec.structs.replace(load_identity(layout), servers=(dead, "[::1]:1", port.address)))
        async with linked(layout) as agent:
            await agent.until(lambda link: link.connected)


@pytest.mark.trio
async def test_a_server_of_another_cluster_is_refused(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        save_identity(layout, msgspec.structs.replace(load_identity(layout), cluster_id="another"))
        async with linked(layout) as agent:
            await agent.until(lambda link: "server belongs to cluster" in link.last_error)
        layout.ca.write_bytes(Authority.open(tmp_path / "foreign").ca_pem)
        async with linked(layout) as agent:
            await agent.until(lambda link: "not one of this node's cluster" in link.last_error)
        assert port.server.nodes == []


@pytest.mark.trio
async def test_a_foreign_certificate_is_explained(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n", authority=Authority.open(tmp_path / "foreign"))
        async with linked(layout) as agent:
            await agent.until(lambda link: "may not accept this node's certificate" in link.last_error)


@pytest.mark.trio
async def test_a_missing_key_does_not_end_the_agent(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        key = layout.key.read_bytes()
        layout.key.unlink()
        async with linked(layout) as agent:
            await agent.until(lambda link: "No such file" in link.last_error)
            layout.key.write_bytes(key)
            await agent.until(lambda link: link.connected)


@pytest.mark.trio
async def test_a_server_that_accepts_and_says_nothing_is_left(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        layout = enrolled(port, tmp_path / "n")
        address = f"127.0.0.1:{mute.getsockname()[1]}"
        save_identity(layout, msgspec.structs.replace(load_identity(layout), servers=(address,)))
        async with linked(layout) as agent:
            with trio.move_on_after(0.3):
                await agent.until(lambda link: link.connected)
            assert not agent.link.connected  # and cancellation in the middle of the handshake leaves nothing open


@pytest.mark.trio
async def test_a_server_that_stops_answering_is_dropped(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(silent_s=10.0))
    times = with_changes(QUICK_LINK, heartbeat_s=0.3, silent_s=0.2)
    async with running(port), linked(enrolled(port, tmp_path / "n"), times=times) as agent:
        # Heartbeats are rarer than the patience for their answers: every pause looks like silence.
        await agent.until(lambda link: "silent for 0.2 s" in link.last_error)
        await port.event(NodeConnected)
        await port.event(NodeDisconnected)


def with_changes(times: LinkTimes, **changes: float) -> LinkTimes:
    """`times` with changes."""
    fields = {name: getattr(times, name) for name in times.__dataclass_fields__}
    return LinkTimes(**{**fields, **changes})


@pytest.mark.trio
async def test_heartbeats_keep_an_idle_stream_alive(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(silent_s=1.0, check_s=0.05))
    times = with_changes(QUICK_LINK, heartbeat_s=0.1, silent_s=1.0)
    async with running(port), linked(enrolled(port, tmp_path / "n"), times=times) as agent:
        await port.event(NodeConnected)
        await agent.until(lambda link: link.connected)
        with trio.move_on_after(2.5) as scope:
            await port.server.events.receive()
        assert scope.cancelled_caught
        assert agent.link.connected


@pytest.mark.trio
async def test_a_busy_agent_delays_orders_and_loses_none(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port), linked(enrolled(port, tmp_path / "n"), inbound=1) as agent:
        await port.event(NodeConnected)
        for i in range(100):
            assert port.server.send("n1", ServerMessage(stop_shard=StopShard(shard_id=f"m-{i}/0")))
        assert (await agent.order()).welcome is not None
        for i in range(100):
            assert (await agent.order()).stop_shard == StopShard(shard_id=f"m-{i}/0")


@pytest.mark.trio
async def test_what_changes_while_hello_travels_follows_it(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port), trio.open_nursery() as nursery:
        layout = enrolled(port, tmp_path / "n")
        say, outbound = trio.open_memory_channel[AgentMessage](0)
        inbound, _ = trio.open_memory_channel[ServerMessage](10)
        said = trio.Event()

        def hello() -> Hello:
            said.set()
            return Hello()

        async def speak() -> None:
            await said.wait()
            await say.send(AgentMessage(sensors=Sensors(cpu_percent=5.0)))

        link = Link(layout, hello=hello, outbound=outbound, inbound=inbound, times=QUICK_LINK)
        nursery.start_soon(speak)
        nursery.start_soon(link.run)
        await port.event(NodeConnected)
        assert (await port.event(NodeMessage)).message.sensors is not None
        nursery.cancel_scope.cancel()


@pytest.mark.trio
async def test_cancelled_in_the_middle(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n")
        for delay in (0.0, 0.001, 0.003, 0.005, 0.01, 0.02, 0.03):
            with trio.move_on_after(delay):
                async with linked(layout):
                    await trio.sleep_forever()
        with trio.fail_after(60):
            while port.server.nodes:
                await trio.lowlevel.checkpoint()


def test_waits_double_up_to_a_minute_and_differ(tmp_path: Path) -> None:
    layout = AgentLayout(data=tmp_path)
    port_layout(layout)
    link = link_of(layout, times=LinkTimes())
    waits = []
    for failures in range(10):
        link._failures = failures
        waits.append(link.retry_delay_s())
    assert waits[0] <= 1.0
    for failures, wait in enumerate(waits):
        longest = min(60.0, 2.0**failures)
        assert longest / 2 <= wait <= longest
    assert link_of(layout, times=LinkTimes(), seed=2).retry_delay_s() != waits[0]
    link._failures = 10**6
    assert link.retry_delay_s() <= 60.0


def port_layout(layout: AgentLayout) -> None:
    """An identity without certificates."""
    layout.identity.write_text('{"node": "n1", "cluster_id": "c", "servers": ["127.0.0.1:1"]}')


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "has not joined a cluster"),
        ("{", "join again"),
        ('{"node": "n1", "cluster_id": "c", "servers": []}', "no server is listed"),
        ('{"node": 5}', "join again"),
    ],
)
def test_identities_that_do_not_help(tmp_path: Path, content: str | None, why: str) -> None:
    layout = AgentLayout(data=tmp_path)
    if content is not None:
        layout.identity.write_text(content)
    with pytest.raises(IdentityError, match=why):
        link_of(layout)


@pytest.mark.parametrize(
    ("text", "pair"),
    [
        ("host:9443", ("host", 9443)),
        ("https://host:1234", ("host", 1234)),
        ("https://host:1234/", ("host", 1234)),
        ("host", ("host", 9443)),
        ("[fd00::1]:99", ("fd00::1", 99)),
        ("[fd00::1]", ("fd00::1", 9443)),
        (" 10.0.0.1:65535 ", ("10.0.0.1", 65535)),
    ],
)
def test_addresses(text: str, pair: tuple[str, int]) -> None:
    assert split_address(text) == pair


@pytest.mark.parametrize(
    "text",
    ["", ":9443", "host:", "host:0", "host:65536", "host:x", "fd00::1", "http://host:1", "a/b:1", "u@h:1", "h:٣"],
)
def test_no_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="address"):
        split_address(text)
