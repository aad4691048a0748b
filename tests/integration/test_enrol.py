"""Enrolment end to end: token, fingerprint, certificate, first session; and everything that must not work."""

import socket
import ssl
import stat
import threading
from pathlib import Path

import msgspec
import pytest
import trio
from grpclib.const import Status

from agent.identity import load_identity, save_identity
from agent.join import JoinError, default_name, join
from agent.link_rpc import tls_context
from llmgw.agents.bridge import Limits
from llmgw.agents.sessions import NodeConnected, NodeDisconnected
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.core.identity import check_node_name
from llmgw.core.join_token import new_token, parse_token
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import EnrollRequest, EnrollResponse
from tests.support.agentport import Port, enrolled, free_port, key_and_request, linked, make_port, running
from tests.support.h2peer import ENROLL, H2Peer, frame


async def token_of(port: Port, *, valid_s: float = 900.0) -> str:
    """A fresh token."""
    text, _ = await port.enrolment.new_token(by="test", valid_s=valid_s)
    return text


@pytest.mark.trio
async def test_join_and_connect(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        data = tmp_path / "a node"
        identity = await join(await token_of(port), f"https://127.0.0.1:{port.port}", data=data, name="gpu-1")
        assert (identity.node, identity.cluster_id) == ("gpu-1", port.authority.cluster_id)
        assert identity.servers == (port.address,)
        assert identity.mirror_url == "https://127.0.0.1:9470"
        layout = AgentLayout(data=data)
        assert load_identity(layout) == identity
        assert stat.S_IMODE(data.stat().st_mode) == 0o700
        assert stat.S_IMODE(layout.key.stat().st_mode) == 0o600
        assert {p.name for p in data.iterdir()} == {"node.key", "node.crt", "node.json", "ca.crt"}
        async with linked(layout):
            assert (await port.event(NodeConnected)).node == "gpu-1"


@pytest.mark.trio
async def test_the_address_that_was_joined_is_kept_beside_what_the_server_calls_itself(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        port.servers = ["no-such-host.invalid:9443"]
        identity = await join(await token_of(port), f"https://127.0.0.1:{port.port}", data=tmp_path / "n", name="n")
        assert identity.servers == ("no-such-host.invalid:9443", f"127.0.0.1:{port.port}")


@pytest.mark.trio
async def test_only_the_hash_of_a_token_is_kept(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    text = await token_of(port)
    assert list(port.tokens.rows) == [parse_token(text).digest]
    assert text.split(".")[1] not in repr(port.tokens.rows)


@pytest.mark.trio
async def test_a_token_works_once(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        text = await token_of(port)
        await join(text, port.address, data=tmp_path / "a", name="a")
        with pytest.raises(JoinError, match="was used by 'a' already"):
            await join(text, port.address, data=tmp_path / "b", name="b")
        assert not (tmp_path / "b/node.json").exists()


@pytest.mark.trio
async def test_of_two_at_once_one_gets_in(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    outcomes: list[str] = []

    async def attempt(name: str, text: str) -> None:
        try:
            await join(text, port.address, data=tmp_path / name, name=name)
        except JoinError:
            outcomes.append("refused")
        else:
            outcomes.append("joined")

    async with running(port):
        text = await token_of(port)
        async with trio.open_nursery() as nursery:
            for i in range(4):
                nursery.start_soon(attempt, f"n{i}", text)
    assert sorted(outcomes) == ["joined", "refused", "refused", "refused"]


@pytest.mark.trio
async def test_tokens_that_do_not_work(tmp_path: Path) -> None:
    port = make_port(tmp_path / "p")
    other = make_port(tmp_path / "o")
    async with running(port):
        with pytest.raises(InvalidInput, match="not a join token"):
            await join("rubbish", port.address, data=tmp_path / "n")
        with pytest.raises(JoinError, match="is not known here"):
            await join(str(new_token(port.authority.fingerprint)), port.address, data=tmp_path / "n", name="n")
        expired = await token_of(port, valid_s=-1.0)
        with pytest.raises(JoinError, match="expired"):
            await join(expired, port.address, data=tmp_path / "n", name="n")
        foreign = await token_of(other)
        with pytest.raises(JoinError, match=r"not of the cluster that made this token.*Nothing was sent"):
            await join(foreign, port.address, data=tmp_path / "n", name="n")
        assert not (tmp_path / "n/node.json").exists()


@pytest.mark.trio
async def test_the_secret_is_not_shown_to_a_server_of_another_ca(tmp_path: Path) -> None:
    port = make_port(tmp_path / "p")
    impostor = make_port(tmp_path / "i")
    seen: list[str] = []

    async def enrol(token: str, node: str, csr: bytes) -> EnrollResponse:
        seen.append(token)
        return EnrollResponse()

    impostor.server._enrol = enrol
    async with running(impostor):
        with pytest.raises(JoinError, match="somebody stands in between"):
            await join(await token_of(port), impostor.address, data=tmp_path / "n", name="n")
    assert seen == []


@pytest.mark.trio
async def test_addresses_that_do_not_work(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    text = await token_of(port)
    with pytest.raises(InvalidInput, match=r"url: .*HOST:PORT"):
        await join(text, "http://x:1", data=tmp_path / "n", name="n")
    with pytest.raises(JoinError, match="cannot reach"):
        await join(text, f"127.0.0.1:{free_port()}", data=tmp_path / "n", name="n")
    with pytest.raises(InvalidInput, match="not a node name"):
        await join(text, "127.0.0.1:9", data=tmp_path / "n", name="../x")
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def serve() -> None:
            connection, _ = plain.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(JoinError, match="does not speak TLS"):
            await join(text, f"127.0.0.1:{plain.getsockname()[1]}", data=tmp_path / "n", name="n")
        thread.join()


@pytest.mark.trio
async def test_joining_again_replaces_the_certificate_and_refuses_the_old(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        first = tmp_path / "first"
        await join(await token_of(port), port.address, data=first, name="n")
        async with linked(AgentLayout(data=first)) as old:
            await port.event(NodeConnected)
            second = tmp_path / "second"
            await join(await token_of(port), port.address, data=second, name="n")
            assert "replaced by a newer one" in (await port.event(NodeDisconnected)).reason
            await old.until(lambda link: "PERMISSION_DENIED" in link.last_error)
        async with linked(AgentLayout(data=second)):
            await port.event(NodeConnected)


@pytest.mark.trio
async def test_a_machine_of_another_cluster_is_not_moved_by_accident(tmp_path: Path) -> None:
    port = make_port(tmp_path / "p")
    other = make_port(tmp_path / "o")
    async with running(other):
        await join(await token_of(other), other.address, data=tmp_path / "n", name="n")
    before = (tmp_path / "n/node.key").read_bytes()
    async with running(port):
        with pytest.raises(JoinError, match=f"belongs to cluster {other.authority.cluster_id} as n: .* remove"):
            await join(await token_of(port), port.address, data=tmp_path / "n", name="n")
        assert (tmp_path / "n/node.key").read_bytes() == before
        (tmp_path / "n/node.json").unlink()
        await join(await token_of(port), port.address, data=tmp_path / "n", name="n")


@pytest.mark.trio
async def test_a_damaged_identity_is_cured_by_joining(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n")
        layout.identity.write_text("{damaged")
        await join(await token_of(port), port.address, data=tmp_path / "n", name="n")
        save_identity(layout, msgspec.structs.replace(load_identity(layout), epoch=5))


@pytest.mark.trio
async def test_a_bad_request_does_not_cost_the_token(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    text = await token_of(port)
    _, request = key_and_request()
    for token, node, csr in ((text, "n", b"rubbish"), (text, "N", request), (text + "x", "n", request)):
        with pytest.raises(InvalidInput):
            await port.enrolment.enrol(token, node, csr)
    response = await port.enrolment.enrol(text, "n", request)
    assert response.node == "n"
    with pytest.raises(LlmgwError, match="another cluster"):
        await port.enrolment.enrol(str(new_token("0" * 64)), "n", request)


async def enroll_status(port: Port, body: bytes, *, end: bool = True) -> tuple[Status, str]:
    """What a bare Enroll call with this body gets."""

    def ask() -> tuple[int, str]:
        context = tls_context(port.authority.directory / "ca.crt")
        with H2Peer(port.port, context) as peer:
            return peer.status(peer.call(ENROLL, body, end=end))

    with trio.fail_after(60):
        code, message = await trio.to_thread.run_sync(ask)
    return Status(code), message


@pytest.mark.trio
async def test_enroll_from_strangers(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(hello_s=0.5))
    async with running(port):
        assert (await enroll_status(port, b""))[0] is Status.INVALID_ARGUMENT
        assert (await enroll_status(port, frame(b"\x00")))[0] is Status.INVALID_ARGUMENT
        assert (await enroll_status(port, b"\x00\x00\x01\x00\x01"))[0] is Status.RESOURCE_EXHAUSTED
        assert (await enroll_status(port, b"\x00\x00", end=False))[0] is Status.DEADLINE_EXCEEDED
        status, message = await enroll_status(port, frame(bytes(EnrollRequest(token="x", node="n"))))
        assert (status, "not a join token" in message) == (Status.INVALID_ARGUMENT, True)


@pytest.mark.trio
async def test_a_failing_store_tells_strangers_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    port = make_port(tmp_path)

    async def enrol(token: str, node: str, csr: bytes) -> EnrollResponse:
        raise RuntimeError("password=hunter2")

    port.server._enrol = enrol
    async with running(port):
        status, message = await enroll_status(port, frame(bytes(EnrollRequest(token="x", node="n"))))
        assert status is Status.INTERNAL
        assert "hunter2" not in message
        assert "hunter2" in caplog.text


@pytest.mark.trio
async def test_a_slow_enrolment_has_an_end(tmp_path: Path) -> None:
    port = make_port(tmp_path, limits=Limits(enrol_s=0.2))
    cancelled = trio.Event()

    async def enrol(token: str, node: str, csr: bytes) -> EnrollResponse:
        try:
            await trio.sleep(3600)
        finally:
            cancelled.set()
        return EnrollResponse()

    port.server._enrol = enrol
    async with running(port):
        status, _ = await enroll_status(port, frame(bytes(EnrollRequest(token="x", node="n"))))
        assert status is Status.DEADLINE_EXCEEDED
        with trio.fail_after(60):
            await cancelled.wait()


def test_the_host_name_gives_a_node_name() -> None:
    assert check_node_name(default_name())


def test_the_presented_chain_ends_with_the_ca(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    chain = (port.authority.directory / "server.crt").read_text()
    assert chain.count("BEGIN CERTIFICATE") == 2
    assert chain.endswith(port.authority.ca_pem.decode())
    assert ssl.PEM_cert_to_DER_cert(port.authority.ca_pem.decode())
