"""The cluster's certificates, in real files and real handshakes."""

import datetime as dt
import os
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from llmgw.control.pki import MAX_CSR_BYTES, Authority, client_context
from llmgw.control.pki_files import PkiError
from llmgw.core.errors import InvalidInput
from llmgw.core.identity import PeerIdentity, Role, peer_identity
from tests.support.agentport import key_and_request

NOW = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)


def handshake(server: ssl.SSLContext, client: ssl.SSLContext) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """A TLS handshake in memory; raises ssl.SSLError where either side refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client_side = client.wrap_bio(to_client, to_server, server_hostname="localhost")
    server_side = server.wrap_bio(to_server, to_client, server_side=True)
    open_sides = [client_side, server_side]
    for _ in range(10):
        for side in list(open_sides):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
            open_sides.remove(side)
        if not open_sides:
            break
    assert not open_sides
    return client_side, server_side


def node_files(authority: Authority, directory: Path, *, now: dt.datetime | None = None) -> tuple[Path, Path]:
    """A node's certificate and key."""
    key, request = key_and_request()
    certificate, private = directory / "n.crt", directory / "n.key"
    certificate.write_bytes(authority.sign_node(request, "n1", now=now).pem)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private


def leaf(authority: Authority) -> x509.Certificate:
    """The control plane's certificate."""
    return x509.load_pem_x509_certificates((authority.directory / "server.crt").read_bytes())[0]


def test_first_start_makes_everything_private(tmp_path: Path) -> None:
    secrets = tmp_path / "a b" / "secrets"
    old = os.umask(0)
    try:
        Authority.open(secrets)
    finally:
        os.umask(old)
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o700
    files = {p.name: stat.S_IMODE(p.stat().st_mode) for p in secrets.iterdir()}
    assert files == dict.fromkeys(("ca.key", "ca.crt", "server.key", "server.crt", "cluster.id"), 0o600)


def test_a_second_start_finds_the_same(tmp_path: Path) -> None:
    first = Authority.open(tmp_path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    second = Authority.open(tmp_path)
    assert (first.cluster_id, first.fingerprint) == (second.cluster_id, second.fingerprint)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_the_server_certificate_names_its_hosts_and_is_made_again_when_they_change(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    names = leaf(authority).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1"} <= {str(a) for a in names.get_values_for_type(x509.IPAddress)}
    before = leaf(authority)
    authority = Authority.open(tmp_path, names=["Control.lan", "10.0.0.9"])
    assert leaf(authority) != before
    names = leaf(authority).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert "control.lan" in names.get_values_for_type(x509.DNSName)
    assert not authority.ensure_server_certificate(["control.lan", "10.0.0.9"])


def test_the_server_certificate_is_made_again_in_its_last_third(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path, now=NOW)
    assert not authority.ensure_server_certificate(now=NOW + dt.timedelta(days=240))
    assert authority.ensure_server_certificate(now=NOW + dt.timedelta(days=250))
    assert leaf(authority).not_valid_after_utc > NOW + dt.timedelta(days=600)


@pytest.mark.parametrize("name", ["a b", "x/y", "", "ü.lan", "a" * 64 + ".lan"])
def test_names_that_are_no_hosts(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match="neither a host name nor an address"):
        Authority.open(tmp_path, names=[name])


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "server.key", "cluster.id"])
def test_damaged_files_are_named(tmp_path: Path, name: str) -> None:
    Authority.open(tmp_path)
    (tmp_path / name).write_bytes(b"\x00damaged")
    with pytest.raises(PkiError, match=f"{name} .*"):
        Authority.open(tmp_path)


def test_a_ca_without_its_key_is_not_replaced(tmp_path: Path) -> None:
    Authority.open(tmp_path)
    (tmp_path / "ca.key").unlink()
    with pytest.raises(PkiError, match=r"ca\.key is missing"):
        Authority.open(tmp_path)


def test_a_damaged_server_certificate_is_made_again(tmp_path: Path) -> None:
    Authority.open(tmp_path)
    (tmp_path / "server.crt").write_bytes(b"damaged")
    assert leaf(Authority.open(tmp_path)).not_valid_after_utc > dt.datetime.now(dt.UTC)


def test_the_name_in_a_node_certificate_is_the_servers_choice(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    key = ec.generate_private_key(ec.SECP256R1())
    wants = x509.Name(
        [x509.NameAttribute(NameOID.COMMON_NAME, "root"), x509.NameAttribute(NameOID.ORGANIZATION_NAME, "llmgw-server")]
    )
    request = (
        x509.CertificateSigningRequestBuilder()
        .subject_name(wants)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    made = authority.sign_node(request.public_bytes(serialization.Encoding.PEM), "n1")
    certificate = x509.load_pem_x509_certificate(made.pem)
    assert [a.value for a in certificate.subject] == ["llmgw-node", "n1"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [n.value for n in names] == [f"llmgw://{authority.cluster_id}/node/n1"]
    assert made.not_after - dt.datetime.now(dt.UTC) < dt.timedelta(days=366)


def test_requests_that_are_refused(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    _, good = key_and_request()
    other = rsa.generate_private_key(65537, 2048)
    rsa_request = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(other, hashes.SHA256())
    broken = bytearray(x509.load_pem_x509_csr(good).public_bytes(serialization.Encoding.DER))
    broken[-1] ^= 1
    unsigned = ssl.DER_cert_to_PEM_cert(bytes(broken)).replace("CERTIFICATE", "CERTIFICATE REQUEST").encode()
    cases = {
        "not a certificate request": b"rubbish",
        "is over": b"x" * (MAX_CSR_BYTES + 1),
        "P-256": rsa_request.public_bytes(serialization.Encoding.PEM),
        "not signed by its own key|not a certificate request": unsigned,
    }
    for why, request in cases.items():
        with pytest.raises(InvalidInput, match=why):
            authority.sign_node(request, "n1")
    with pytest.raises(InvalidInput, match="not a node name"):
        authority.sign_node(good, "../x")


def test_mutual_handshake(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "s")
    certificate, key = node_files(authority, tmp_path)
    client = client_context(tmp_path / "s/ca.crt", certificate, key)
    client_side, server_side = handshake(authority.server_context(), client)
    peer = peer_identity(server_side.getpeercert())
    serial = format(x509.load_pem_x509_certificate(certificate.read_bytes()).serial_number, "x")
    assert peer == PeerIdentity(role=Role.NODE, name="n1", cluster_id=authority.cluster_id, serial=serial)
    server = peer_identity(client_side.getpeercert())
    assert server is not None
    assert (server.role, server.cluster_id) == (Role.SERVER, authority.cluster_id)


def test_without_a_certificate_the_server_sees_nobody(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    for context in (authority.server_context(), authority.mirror_server_context()):
        _, server_side = handshake(context, client_context(tmp_path / "ca.crt"))
        assert peer_identity(server_side.getpeercert()) is None


@pytest.mark.promise("A25")
def test_refused_handshakes(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "s")
    foreign = Authority.open(tmp_path / "f")
    server = authority.server_context()
    ca = tmp_path / "s/ca.crt"
    expired = node_files(authority, tmp_path, now=dt.datetime.now(dt.UTC) - dt.timedelta(days=400))
    with pytest.raises(ssl.SSLError, match="expired"):
        handshake(server, client_context(ca, *expired))
    early = node_files(authority, tmp_path, now=dt.datetime.now(dt.UTC) + dt.timedelta(days=1))
    with pytest.raises(ssl.SSLError, match="not yet valid"):
        handshake(server, client_context(ca, *early))
    with pytest.raises(ssl.SSLError, match="verify failed"):
        handshake(server, client_context(ca, *node_files(foreign, tmp_path)))
    with pytest.raises(ssl.SSLError, match="verify failed"):
        handshake(server, client_context(tmp_path / "f/ca.crt"))


@pytest.mark.promise("A25")
def test_a_node_cannot_serve(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path / "s")
    certificate, key = node_files(authority, tmp_path)
    pretender = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    pretender.load_cert_chain(certificate, key)
    with pytest.raises(ssl.SSLError, match=r"uns[a-z]+ certificate purpose"):
        handshake(pretender, client_context(tmp_path / "s/ca.crt"))


def test_old_tls_is_refused(tmp_path: Path) -> None:
    authority = Authority.open(tmp_path)
    client = client_context(tmp_path / "ca.crt")
    client.minimum_version = ssl.TLSVersion.TLSv1_2
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(authority.server_context(), client)
