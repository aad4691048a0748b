"""A certificate authority made for one test, and leaves of it, as PEM files."""

import datetime as dt
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_DAY = dt.timedelta(days=1)


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """Files of a certificate and its key."""

    certificate: Path
    key: Path
    serial: int

    def server_context(self) -> ssl.SSLContext:
        """A TLS server that shows it."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


class TestAuthority:
    """An authority whose certificate is in `ca`."""

    __test__ = False

    def __init__(self, directory: Path, name: str = "Test CA") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        builder = self._builder(self._name, self._key.public_key(), _now() + 100 * _DAY)
        usage = dict.fromkeys(("content_commitment", "key_encipherment", "data_encipherment", "key_agreement"), False)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).add_extension(
            x509.KeyUsage(
                digital_signature=True,
                key_cert_sign=True,
                crl_sign=True,
                encipher_only=False,
                decipher_only=False,
                **usage,
            ),
            critical=True,
        )
        self.ca = directory / f"{name.replace(' ', '-').lower()}.crt"
        self.ca.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))

    def leaf(self, *names: str, file: str = "leaf", life: dt.timedelta = 30 * _DAY) -> Leaf:
        """A server's certificate for host names and addresses; the same `file` again replaces the files."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(
            x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]), key.public_key(), _now() + life
        )
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(name) for name in names]), critical=False)
        leaf = builder.sign(self._key, hashes.SHA256())
        paths = self._directory / f"{file}.crt", self._directory / f"{file}.key"
        paths[0].write_bytes(leaf.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return Leaf(certificate=paths[0], key=paths[1], serial=leaf.serial_number)

    def client_context(self) -> ssl.SSLContext:
        """A TLS client that trusts this authority alone."""
        return ssl.create_default_context(cafile=str(self.ca))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, until: dt.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(_now(), until) - _DAY)
            .not_valid_after(until)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
