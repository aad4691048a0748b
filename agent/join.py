"""Enrolling this machine: trust first, secret second. The token's secret leaves only towards the CA the token names.

The server's chain is read in a handshake that believes nothing; if the certificate whose SHA-256 stands in the token is
in it, a second connection that accepts only that CA carries the secret and the request. The private key never leaves.
"""

import re
import socket
import ssl
import sys
from pathlib import Path

import trio
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from grpclib.exceptions import GRPCError, StreamTerminatedError

from agent.identity import MAX_SERVERS, MAX_TEXT, Identity, IdentityError, load_identity, save_identity, split_address
from agent.identity import write_file as write
from agent.link_rpc import CONNECT_S, enroll, tls_context, transport_sentence
from llmgw.core.errors import InvalidInput, LlmgwError
from llmgw.core.identity import CLUSTER_ID_PATTERN, check_node_name
from llmgw.core.join_token import JoinToken, fingerprint_of, parse_token, same_fingerprint
from llmgw.core.layout import AgentLayout, check_own
from llmgw.wire.llmgw.v1 import EnrollRequest, EnrollResponse


class JoinError(LlmgwError):
    """The machine did not join; the sentence says why and what would work. Nothing was changed."""

    code = "join"


async def join(token: str, url: str, *, data: Path, name: str | None = None) -> Identity:
    """Enrol this machine at the control plane at `url` (`host:9443` or `https://host:9443`) and store its identity.

    `name` defaults to the host name. Joining the same cluster again replaces the node's certificate; the former one is
    refused from then on. Raises InvalidInput (token, address, name) and JoinError (everything else).
    """
    parsed = parse_token(token)
    try:
        host, port = split_address(url)
    except ValueError as error:
        raise InvalidInput(str(error), field="url") from error
    node = check_node_name(name) if name is not None else default_name()
    layout = AgentLayout(data=data)
    known = _known(layout)
    ca_der = await trio.to_thread.run_sync(_trusted_ca, parsed, host, port)
    _make_directory(layout)
    key = ec.generate_private_key(ec.SECP256R1())
    response = await _enrol(layout, parsed, host, port, node, key, ca_der, known)
    identity = _identity(response, fallback=f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
    _store(layout, identity, response, key, ca_der)
    return identity


def default_name() -> str:
    """This machine's host name as a node name; raises InvalidInput when it cannot be one."""
    name = re.sub(r"[^a-z0-9.-]+", "-", socket.gethostname().split(".")[0].lower()).strip("-.")[:63]
    if not name:
        raise InvalidInput("this machine's host name gives no node name: choose one with --name", field="node")
    return check_node_name(name)


def _known(layout: AgentLayout) -> Identity | None:
    if not layout.identity.exists():
        return None
    try:
        return load_identity(layout)
    except IdentityError:
        return None  # damaged: joining again is the cure


def _trusted_ca(token: JoinToken, host: str, port: int) -> bytes:
    """DER of the certificate in the server's chain that the token names. Blocking; nothing secret is sent."""
    where = f"{host}:{port}"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what is presented is compared with the token below
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection((host, port), timeout=CONNECT_S) as raw,
            context.wrap_socket(raw, server_hostname=host) as tls,
        ):
            chain = _presented_chain(tls)
    except ssl.SSLError as error:
        raise JoinError(f"{where} does not speak TLS as a control plane's agent port does: {error.reason}") from error
    except OSError as error:
        raise JoinError(f"cannot reach {where}: {transport_sentence(error)}: is it the agent port (9443)?") from error
    for certificate in chain:
        if same_fingerprint(fingerprint_of(certificate), token.fingerprint):
            return certificate
    shown = fingerprint_of(chain[-1])[:16] if chain else "none"
    raise JoinError(
        f"{where} is not of the cluster that made this token: its CA's fingerprint is {shown}…, the token names "
        f"{token.fingerprint[:16]}…. Check the address; if it is right, somebody stands in between. Nothing was sent"
    )


def _presented_chain(tls: ssl.SSLSocket) -> list[bytes]:
    """Certificates the server showed, leaf first, as DER."""
    if sys.version_info >= (3, 13):
        return [bytes(item) for item in tls.get_unverified_chain()]
    inner = getattr(tls, "_sslobj")  # noqa: B009 - public from Python 3.13 on
    return [ssl.PEM_cert_to_DER_cert(item.public_bytes()) for item in inner.get_unverified_chain() or ()]


def _make_directory(layout: AgentLayout) -> None:
    check_own(layout.data)
    try:
        layout.data.mkdir(parents=True, exist_ok=True)
        layout.data.chmod(0o700)
    except OSError as error:
        raise JoinError(f"cannot write to {layout.data}: {error.strerror}") from error


async def _enrol(
    layout: AgentLayout,
    token: JoinToken,
    host: str,
    port: int,
    node: str,
    key: ec.EllipticCurvePrivateKey,
    ca_der: bytes,
    known: Identity | None,
) -> EnrollResponse:
    candidate = layout.data / "ca.joining.crt"
    write(candidate, ssl.DER_cert_to_PEM_cert(ca_der).encode(), mode=0o600)
    try:
        if known is not None and not _same_ca(layout, ca_der):
            raise JoinError(
                f"this machine belongs to cluster {known.cluster_id} as {known.node}: to move it to another, stop the "
                f"agent and remove {layout.identity} first"
            )
        request = EnrollRequest(token=str(token), node=node, csr_pem=certificate_request(key, node))
        return await ask(host, port, tls_context(candidate), request)
    finally:
        candidate.unlink(missing_ok=True)


async def ask(host: str, port: int, context: ssl.SSLContext, request: EnrollRequest) -> EnrollResponse:
    """The control plane's answer to a request for a certificate; raises JoinError with what stood in the way."""
    try:
        return await enroll(host, port, context, request)
    except GRPCError as error:
        raise JoinError(f"{host}:{port} refused: {error.message or error.status.name}") from error
    except (OSError, LlmgwError, StreamTerminatedError) as error:
        raise JoinError(f"{host}:{port}: {transport_sentence(error)}") from error


def _same_ca(layout: AgentLayout, ca_der: bytes) -> bool:
    try:
        return ssl.PEM_cert_to_DER_cert(layout.ca.read_text().strip()) == ca_der
    except (OSError, ValueError):
        return False


def certificate_request(key: ec.EllipticCurvePrivateKey, node: str) -> bytes:
    """A request (PEM) for a certificate of `key`."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, node)])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    return request.public_bytes(serialization.Encoding.PEM)


def _identity(response: EnrollResponse, *, fallback: str) -> Identity:
    if not CLUSTER_ID_PATTERN.fullmatch(response.cluster_id):
        raise JoinError("the server's answer names no cluster")
    told = [text[:MAX_TEXT] for text in response.servers[: MAX_SERVERS - 1]]
    servers = tuple(dict.fromkeys((*told, fallback)))  # what it is told may have no name here; this one answered
    return Identity(
        node=check_node_name(response.node),
        cluster_id=response.cluster_id,
        servers=servers,
        mirror_url=response.mirror_url[:MAX_TEXT],
    )


def own_certificate(pem: bytes, ca_der: bytes, key: ec.EllipticCurvePrivateKey) -> x509.Certificate:
    """The certificate in a server's answer, if the CA gave it to this key; raises JoinError."""
    try:
        certificate = x509.load_pem_x509_certificate(pem)
        certificate.verify_directly_issued_by(x509.load_der_x509_certificate(ca_der))
        if certificate.public_key() != key.public_key():
            raise ValueError("another key's certificate")
    except Exception as error:
        # A parser fed by the network: whatever it raises, the answer is no certificate of ours.
        raise JoinError("the server's answer is not a certificate for this machine's key") from error
    return certificate


def _store(
    layout: AgentLayout, identity: Identity, response: EnrollResponse, key: ec.EllipticCurvePrivateKey, ca_der: bytes
) -> None:
    certificate = own_certificate(response.certificate_pem, ca_der, key)
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    try:
        write(layout.key, pem, mode=0o600)
        write(layout.certificate, certificate.public_bytes(serialization.Encoding.PEM), mode=0o644)
        write(layout.ca, ssl.DER_cert_to_PEM_cert(ca_der).encode(), mode=0o644)
        save_identity(layout, identity)
    except OSError as error:
        raise JoinError(f"cannot write to {layout.data}: {error.strerror}; join again with a new token") from error
