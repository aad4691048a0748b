"""Certificates that near their end while they are in use: the control plane's, and a node's, each renewed by itself."""

import datetime as dt
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import trio
from cryptography import x509

from agent.join import JoinError, ask
from agent.link_rpc import tls_context
from agent.renewal import Renewal
from llmgw.agents.sessions import NodeConnected, NodeDisconnected
from llmgw.control.builds import BuildService
from llmgw.control.certificates import WARN_BEFORE, Certificates
from llmgw.control.inventory import Inventory
from llmgw.control.leadership import Leadership
from llmgw.control.nodes import NodeService
from llmgw.control.pki import NODE_LIFE, SERVER_LIFE, Authority, client_context
from llmgw.control.pki_files import PkiError
from llmgw.core.errors import Conflict, NotAllowed
from llmgw.core.layout import AgentLayout
from llmgw.store import nodes as stored_nodes
from llmgw.store.nodes import NodeRow
from llmgw.store.store import Store
from llmgw.wire.llmgw.v1 import EnrollRequest, EnrollResponse
from tests.support.agentport import Port, enrolled, key_and_request, linked, make_port, running, tls_socket

if TYPE_CHECKING:
    from llmgw.control.reconciler import Reconciler

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def shown(port: Port) -> x509.Certificate:
    """The certificate that the running port shows to whoever connects."""
    context = client_context(port.authority.directory / "ca.crt")
    context.verify_mode = ssl.CERT_NONE  # its life begins when the test's clock says
    with tls_socket(port.port, context) as connection:
        der = connection.getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der)


def own(layout: AgentLayout) -> x509.Certificate:
    return x509.load_pem_x509_certificate(layout.certificate.read_bytes())


@pytest.mark.trio
async def test_a_control_plane_that_runs_for_a_year_shows_a_new_certificate(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    clock = NOW
    certificates = Certificates(port.authority, dict, now=lambda: clock)
    async with running(port):
        first = await trio.to_thread.run_sync(shown, port)
        await certificates.look()
        assert await trio.to_thread.run_sync(shown, port) == first
        clock = NOW + SERVER_LIFE - 100 * DAY
        await certificates.look()
        second = await trio.to_thread.run_sync(shown, port)
        assert second.not_valid_after_utc - first.not_valid_after_utc > 200 * DAY
        assert second.public_key() == first.public_key()
    assert certificates.problems() == ()


@pytest.mark.trio
@pytest.mark.parametrize(
    "error",
    [
        OSError(28, "No space left on device", "server.crt"),
        PkiError("server.key is damaged: No space left for guesses"),
        ValueError("the authority has ended: No space left for a life within its own"),
    ],
)
async def test_one_that_cannot_be_renewed_is_told_of_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    authority = Authority.open(tmp_path)

    def full(now: dt.datetime) -> bool:
        raise error

    monkeypatch.setattr(authority, "renew", full)
    certificates = Certificates(authority, dict)
    await certificates.look()
    (problem,) = certificates.problems()
    assert problem.startswith("the control plane's certificate cannot be renewed: ")
    assert "No space left" in problem


@pytest.mark.trio
async def test_one_that_could_not_be_read_at_first_is_shown_after_the_next_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = make_port(tmp_path)
    later = NOW + SERVER_LIFE - 100 * DAY
    certificates = Certificates(port.authority, dict, now=lambda: later)
    async with running(port):
        first = await trio.to_thread.run_sync(shown, port)
        with monkeypatch.context() as patched:
            patched.setattr(port.authority, "_contexts", [NoMoreFiles()])
            await certificates.look()
        assert "too many open files" in " ".join(certificates.problems())
        await certificates.look()
        assert await trio.to_thread.run_sync(shown, port) != first
        assert certificates.problems() == ()


class NoMoreFiles:
    """A context that cannot read what it is to show."""

    def load_cert_chain(self, certificate: Path, key: Path) -> None:
        raise OSError(24, "too many open files", str(certificate))


def test_one_whose_life_begins_in_the_future_is_made_anew(tmp_path: Path) -> None:
    ahead = Authority.open(tmp_path, now=NOW + 30 * DAY)
    assert ahead.ensure_server_certificate(now=NOW)
    assert not ahead.ensure_server_certificate(now=NOW)


def test_nodes_whose_certificate_ends_soon_are_told_of(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    ends = {"a": NOW + 200 * DAY, "b": NOW + WARN_BEFORE - DAY, "c": NOW - DAY}

    def told() -> str:
        return " ".join(Certificates(authority, lambda: ends, now=lambda: NOW).problems())

    assert told().startswith(
        f"the certificate of node c ended on {NOW - DAY:%Y-%m-%d}, and 1 other node's within 30 days"
    )
    assert "llmgw ctl join-token" in told()
    del ends["c"]
    assert told().startswith(f"the certificate of node b ends on {ends['b']:%Y-%m-%d}, and its agent has not")
    del ends["b"]
    assert told() == ""


@pytest.mark.trio
async def test_a_node_renews_its_certificate_and_is_still_the_same(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n", now=NOW - NODE_LIFE + 100 * DAY)
        before, key = own(layout), layout.key.read_bytes()
        port.serials["n"] = format(before.serial_number, "x")
        mirror = tls_context(layout.ca, layout.certificate, layout.key)
        async with linked(layout) as agent:
            await port.event(NodeConnected)
            await agent.until(lambda link: link.connected)
            renewal = Renewal(layout, connected_to=lambda: agent.link.connected_to, contexts=(mirror,))
            assert await renewal.look() is True
            after = own(layout)
            assert after.not_valid_after_utc - before.not_valid_after_utc > 200 * DAY
            assert (after.serial_number, layout.key.read_bytes()) == (before.serial_number, key)
            assert await renewal.look() is False
            assert agent.link.connected
        await port.event(NodeDisconnected)
        async with linked(layout):
            await port.event(NodeConnected)
    assert {p.name for p in layout.data.iterdir()} == {"node.key", "node.crt", "node.json", "ca.crt"}


@pytest.mark.trio
async def test_a_node_that_is_not_admitted_any_more_is_not_renewed(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n", now=NOW - NODE_LIFE + 100 * DAY)
        before = layout.certificate.read_bytes()
        port.serials["n"] = "another"
        with pytest.raises(JoinError, match="not admitted with this certificate"):
            await Renewal(layout, connected_to=lambda: port.address).look()
        assert layout.certificate.read_bytes() == before


@pytest.mark.trio
async def test_nothing_is_asked_early_or_of_nobody(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    early = enrolled(port, tmp_path / "early", "early", now=NOW - NODE_LIFE + 200 * DAY)
    alone = enrolled(port, tmp_path / "alone", "alone", now=NOW - NODE_LIFE + 10 * DAY)
    assert await Renewal(early, connected_to=lambda: "127.0.0.1:1").look() is False
    assert await Renewal(alone, connected_to=lambda: None).look() is False


@pytest.mark.trio
async def test_an_answer_that_is_no_certificate_of_ours_changes_nothing(tmp_path: Path) -> None:
    port = make_port(tmp_path / "p")
    stranger = Authority.open(tmp_path / "s")

    async def renew(node: str, serial: str, csr_pem: bytes) -> EnrollResponse:
        return EnrollResponse(certificate_pem=stranger.sign_node(csr_pem, node).pem)

    async def others(node: str, serial: str, csr_pem: bytes) -> EnrollResponse:
        return EnrollResponse(certificate_pem=port.authority.sign_node(key_and_request()[1], node).pem)

    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n", now=NOW - NODE_LIFE + 100 * DAY)
        before = layout.certificate.read_bytes()
        for answer in (renew, others):
            port.server._renew = answer
            with pytest.raises(JoinError, match="not a certificate for this machine's key"):
                await Renewal(layout, connected_to=lambda: port.address).look()
        assert layout.certificate.read_bytes() == before


@pytest.mark.trio
async def test_one_that_is_not_valid_yet_replaces_none(tmp_path: Path) -> None:
    port = make_port(tmp_path)

    async def renew(node: str, serial: str, csr_pem: bytes) -> EnrollResponse:
        signed = port.authority.sign_node(csr_pem, node, serial=serial, now=NOW + DAY)
        return EnrollResponse(certificate_pem=signed.pem)

    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n", now=NOW - NODE_LIFE + 100 * DAY)
        before = layout.certificate.read_bytes()
        port.server._renew = renew
        with pytest.raises(JoinError, match="not valid now: compare both machines' clocks"):
            await Renewal(layout, connected_to=lambda: port.address).look()
        assert layout.certificate.read_bytes() == before


@pytest.fixture
async def nodes(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NodeService:
    """The leader's, over a real store; a node may be renewed at once after it was."""
    monkeypatch.setattr("llmgw.control.nodes.RENEW_PAUSE", dt.timedelta(0))
    leadership = Leadership(store, "server-1")
    await leadership.acquired()
    inventory = Inventory(trio.current_time, lambda: None)
    return NodeService(
        leadership=leadership,
        inventory=inventory,
        reconciler=cast("Reconciler", None),
        builds=BuildService(leadership=leadership, inventory=inventory, orders=NoOrders()),
        authority=Authority.open(tmp_path / "secrets"),
        agents_url=lambda: "gw:9443",
        mirror_url=lambda: "https://gw:9470",
    )


class NoOrders:
    """Nobody to order anything of."""

    def set_builds(self, node: str, builds: Mapping[str, str]) -> bool:
        return False


async def admit(store: Store, serial: str) -> NodeRow:
    return await store.run(stored_nodes.upsert_node, name="n", fingerprint="f", serial=serial, actor="test")


@pytest.mark.trio
async def test_an_answer_that_was_lost_is_asked_for_again_after_a_pause(
    nodes: NodeService, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes.replace([await admit(store, "ab")])
    await nodes.renew("n", "ab", key_and_request()[1])
    answer = await nodes.renew("n", "ab", key_and_request()[1])
    assert x509.load_pem_x509_certificate(answer.certificate_pem).serial_number == 0xAB
    monkeypatch.undo()
    with pytest.raises(Conflict, match="renewed just now"):
        await nodes.renew("n", "ab", key_and_request()[1])


@pytest.mark.trio
async def test_a_renewal_under_way_undoes_neither_a_rejoin_nor_a_removal(nodes: NodeService, store: Store) -> None:
    await admit(store, "22")
    with pytest.raises(NotAllowed, match="not admitted with this certificate any more"):
        await nodes.renew("n", "11", key_and_request()[1])
    await store.run(stored_nodes.remove_node, "n", actor="test")
    with pytest.raises(NotAllowed, match="not admitted"):
        await nodes.renew("n", "22", key_and_request()[1])
    row = await store.run(stored_nodes.get_node, "n")
    assert row is not None
    assert (row.serial, row.evicted is None) == ("22", False)


@pytest.mark.trio
async def test_a_certificate_renews_its_own_node_and_no_other(tmp_path: Path) -> None:
    port = make_port(tmp_path)
    async with running(port):
        layout = enrolled(port, tmp_path / "n", "n")
        context = tls_context(layout.ca, layout.certificate, layout.key)
        request = EnrollRequest(node="other", csr_pem=key_and_request("other")[1])
        response = await ask("127.0.0.1", port.port, context, request)
        certificate = x509.load_pem_x509_certificate(response.certificate_pem)
        assert response.node == "n"
        assert certificate.serial_number == own(layout).serial_number
        assert "CN=n," in certificate.subject.rfc4514_string() + ","
        stranger = tls_context(layout.ca)
        with pytest.raises(JoinError, match="not a join token"):
            await ask("127.0.0.1", port.port, stranger, request)
