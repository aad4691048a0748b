"""The cluster's own certificates. A certificate says who its holder is; only this module decides what it says.

Files under `secrets` (0700, every file 0600): `ca.key`, `ca.crt`, `server.key`, `server.crt` (leaf, then CA) and
`cluster.id`. Only control planes hold a certificate for serverAuth: a chain to the CA with that purpose *is* the role.
That is why clients check chain, purpose and the cluster's URI instead of host names, which change on a LAN more often
than control planes do. The names are in the certificate all the same, for clients that want them.
"""

import datetime as dt
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from llmgw.control.pki_files import BACKDATED, key_usage, load_ca, load_cluster_id, load_key, subject_of, write
from llmgw.core.errors import InvalidInput
from llmgw.core.identity import Role, check_node_name, node_uri, serial_hex, server_uri
from llmgw.core.join_token import fingerprint_of

SERVER_LIFE = dt.timedelta(days=365)
NODE_LIFE = dt.timedelta(days=365)
RENEW_BELOW = 1 / 3
"""A certificate with less than this part of its life left is made anew."""
MAX_CSR_BYTES = 16 * 1024
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, kw_only=True)
class NodeCertificate:
    """A certificate made for a node."""

    pem: bytes
    serial: str
    """Lower-case hex."""
    fingerprint: str
    """Hex SHA-256 of the certificate (DER)."""
    not_after: dt.datetime


class Authority:
    """The cluster's CA and this control plane's own certificate."""

    def __init__(self, directory: Path, cluster_id: str, key: ec.EllipticCurvePrivateKey, ca: x509.Certificate) -> None:
        self.directory = directory
        self.cluster_id = cluster_id
        self._key = key
        self._ca = ca
        self._names: tuple[str, ...] = ()
        self._contexts: list[ssl.SSLContext] = []
        """Made by `_serving`: they show a renewed certificate to whoever connects next."""
        self._stale = False
        """Whether some of them may still show the one before."""

    @classmethod
    def open(cls, secrets: Path, *, names: Sequence[str] = (), now: dt.datetime | None = None) -> "Authority":
        """Load the authority, making what is not there yet; `names` are further hosts of this control plane.

        Raises PkiError when a file is damaged, InvalidInput for a name that is neither a host nor an address.
        """
        secrets.mkdir(parents=True, exist_ok=True)
        secrets.chmod(0o700)
        moment = now or _now()
        cluster_id = load_cluster_id(secrets / "cluster.id")
        key = load_key(secrets / "ca.key", may_make=not (secrets / "ca.crt").exists())
        ca = load_ca(secrets / "ca.crt", key, cluster_id, moment)
        authority = cls(secrets, cluster_id, key, ca)
        authority._names = tuple(names)
        authority.ensure_server_certificate(names, now=moment)
        return authority

    @property
    def ca_pem(self) -> bytes:
        """The CA's certificate."""
        return self._ca.public_bytes(serialization.Encoding.PEM)

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the CA's certificate (DER); stands in join tokens."""
        return fingerprint_of(self._ca.public_bytes(serialization.Encoding.DER))

    def ensure_server_certificate(self, names: Sequence[str] = (), *, now: dt.datetime | None = None) -> bool:
        """Make the control plane's certificate anew if its names changed or its life nears the end; True if it did."""
        moment = now or _now()
        wanted = _host_names((*_own_name(), *LOCAL_NAMES, *names))
        path = self.directory / "server.crt"
        key = load_key(self.directory / "server.key", may_make=True)
        if _still_good(path, key, wanted, self._ca, moment):
            return False
        builder = self._builder(Role.SERVER, _common_name(wanted), key.public_key(), moment, SERVER_LIFE)
        uri = x509.UniformResourceIdentifier(server_uri(self.cluster_id))
        builder = builder.add_extension(x509.SubjectAlternativeName([*wanted, uri]), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        leaf = builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        write(path, leaf.public_bytes(serialization.Encoding.PEM) + self.ca_pem)
        return True

    def renew(self, now: dt.datetime) -> bool:
        """Make the control plane's certificate anew if its life nears the end; True if it did.

        It is in use after `serve_renewed`. Raises OSError when it cannot be written, PkiError for a damaged key, and
        ValueError for an authority that has ended; the one in use stays then.
        """
        renewed = self.ensure_server_certificate(self._names, now=now)
        self._stale = renewed or self._stale
        return renewed

    def serve_renewed(self) -> None:
        """Show a certificate that was made anew in every context, also in one that could not read it before."""
        if self._stale:
            for context in self._contexts:
                context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
            self._stale = False

    def sign_node(
        self, csr_pem: bytes, node: str, *, serial: str | None = None, now: dt.datetime | None = None
    ) -> NodeCertificate:
        """A client certificate for `node`. Only the request's key is used: name, role and life are the server's.

        `serial` is kept where a certificate is renewed: by it a node is admitted, whichever of the two it shows.
        Raises InvalidInput for a bad name or a request that is not one for an EC P-256 key.
        """
        check_node_name(node)
        moment = now or _now()
        builder = self._builder(Role.NODE, node, _request_key(csr_pem), moment, NODE_LIFE, serial=serial)
        uri = x509.UniformResourceIdentifier(node_uri(self.cluster_id, node))
        builder = builder.add_extension(x509.SubjectAlternativeName([uri]), critical=False)
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        leaf = builder.add_extension(usage, critical=False).sign(self._key, hashes.SHA256())
        return NodeCertificate(
            pem=leaf.public_bytes(serialization.Encoding.PEM),
            serial=serial_hex(leaf.serial_number),
            fingerprint=fingerprint_of(leaf.public_bytes(serialization.Encoding.DER)),
            not_after=leaf.not_valid_after_utc,
        )

    def server_context(self) -> ssl.SSLContext:
        """TLS of the agent port: a client certificate is verified if there is one, and may be missing (Enroll)."""
        context = self._serving(ssl.CERT_OPTIONAL)
        context.set_alpn_protocols(["h2"])
        return context

    def mirror_server_context(self) -> ssl.SSLContext:
        """TLS of the mirror's port: HTTP/1.1; a certificate or the cluster's token, which the mirror checks."""
        context = self._serving(ssl.CERT_OPTIONAL)
        context.set_alpn_protocols(["http/1.1"])
        return context

    def _serving(self, verify: ssl.VerifyMode) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0  # no resumption: every connection shows its certificate anew
        context.load_cert_chain(self.directory / "server.crt", self.directory / "server.key")
        context.load_verify_locations(cadata=self.ca_pem.decode())
        context.verify_mode = verify
        self._contexts.append(context)
        return context

    def _builder(
        self,
        role: Role,
        name: str,
        key: ec.EllipticCurvePublicKey,
        now: dt.datetime,
        life: dt.timedelta,
        *,
        serial: str | None = None,
    ) -> x509.CertificateBuilder:
        ca_key_id = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject_of(name, role.value))
            .issuer_name(self._ca.subject)
            .public_key(key)
            .serial_number(x509.random_serial_number() if serial is None else int(serial, 16))
            .not_valid_before(now - BACKDATED)
            .not_valid_after(min(now + life, self._ca.not_valid_after_utc))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(ca_key_id), critical=False)
        )


def client_context(ca: Path, certificate: Path | None = None, key: Path | None = None) -> ssl.SSLContext:
    """TLS towards a control plane or mirror of the cluster whose CA is in the file `ca`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the module's docstring says what is checked instead
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cafile=ca)
    if certificate is not None:
        context.load_cert_chain(certificate, key)
    return context


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


def _own_name() -> tuple[str, ...]:
    """This machine's host name, unless it could not stand in a certificate."""
    name = socket.gethostname()
    try:
        _dns_name(name.lower())
    except InvalidInput:
        return ()
    return (name,)


def _host_names(names: Sequence[str]) -> list[x509.GeneralName]:
    found: dict[str, x509.GeneralName] = {}
    for name in names:
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            found.setdefault(name.lower(), _dns_name(name.lower()))
        else:
            found.setdefault(str(address), x509.IPAddress(address))
    return list(found.values())


def _dns_name(name: str) -> x509.DNSName:
    labels = name.rstrip(".").split(".")
    usable = len(name) <= 253 and all(
        0 < len(label) <= 63 and label.isascii() and all(c.isalnum() or c in "-_" for c in label) for label in labels
    )
    if not usable:
        raise InvalidInput(f"{name[:80]!r} is neither a host name nor an address", field="names")
    return x509.DNSName(name)


def _common_name(names: Sequence[x509.GeneralName]) -> str:
    return str(names[0].value)[:64]


def _still_good(
    path: Path,
    key: ec.EllipticCurvePrivateKey,
    wanted: Sequence[x509.GeneralName],
    ca: x509.Certificate,
    now: dt.datetime,
) -> bool:
    try:
        leaf = x509.load_pem_x509_certificates(path.read_bytes())[0]
        leaf.verify_directly_issued_by(ca)
        names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except Exception:
        # Whatever is wrong with a certificate that can be made again (missing, cut, another CA's): make it again.
        return False
    hosts = [name for name in names if not isinstance(name, x509.UniformResourceIdentifier)]
    left = leaf.not_valid_after_utc - now
    whole = leaf.not_valid_after_utc - leaf.not_valid_before_utc
    begun = leaf.not_valid_before_utc <= now
    return begun and hosts == list(wanted) and leaf.public_key() == key.public_key() and left > whole * RENEW_BELOW


def _request_key(csr_pem: bytes) -> ec.EllipticCurvePublicKey:
    if len(csr_pem) > MAX_CSR_BYTES:
        raise InvalidInput(f"{len(csr_pem)} bytes is over {MAX_CSR_BYTES}", field="csr_pem")
    try:
        request = x509.load_pem_x509_csr(csr_pem)
        key, signed = request.public_key(), request.is_signature_valid
    except Exception as error:
        # A stranger's bytes in a parser that raises what it likes; all of it means the same.
        raise InvalidInput("this is not a certificate request in PEM", field="csr_pem") from error
    if not isinstance(key, ec.EllipticCurvePublicKey) or not isinstance(key.curve, ec.SECP256R1):
        raise InvalidInput("the request's key must be on the curve P-256", field="csr_pem")
    if not signed:
        raise InvalidInput("the request is not signed by its own key", field="csr_pem")
    return key
