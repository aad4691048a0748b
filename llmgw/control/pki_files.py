"""The authority's files: made once, never replaced by another, named when they are damaged.

A file is written as a whole or not at all. The CA's key is written before its certificate: a key without a certificate
signed nothing yet, a certificate without its key is a loss that only a backup repairs.
"""

import contextlib
import datetime as dt
import os
import secrets as random_secrets
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from llmgw.core.errors import LlmgwError
from llmgw.core.identity import CLUSTER_ID_PATTERN

CA_LIFE = dt.timedelta(days=3650)
BACKDATED = dt.timedelta(hours=2)
"""Certificates are valid from before they are made, for machines whose clocks are behind."""


class PkiError(LlmgwError):
    """The cluster's key files are damaged or incomplete; the sentence names the file."""

    code = "pki"


def load_cluster_id(path: Path) -> str:
    """The cluster's id, made at random when the file is not there; raises PkiError."""
    if not path.exists():
        write(path, random_secrets.token_hex(8).encode() + b"\n")
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if not CLUSTER_ID_PATTERN.fullmatch(text):
        raise PkiError(f"{path} does not hold a cluster id: restore it from a backup")
    return text


def load_key(path: Path, *, may_make: bool) -> ec.EllipticCurvePrivateKey:
    """The key in `path`, made when it is not there and `may_make`; raises PkiError."""
    if not path.exists():
        if not may_make:
            raise PkiError(f"{path} is missing though its certificate is there: restore it from a backup")
        made = ec.generate_private_key(ec.SECP256R1())
        write(path, _key_pem(made))
        return made
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError) as error:
        raise PkiError(f"{path} is not a private key in PEM: restore it from a backup") from error
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise PkiError(f"{path} is not an elliptic-curve key")
    path.chmod(0o600)
    return key


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def load_ca(path: Path, key: ec.EllipticCurvePrivateKey, cluster_id: str, now: dt.datetime) -> x509.Certificate:
    """The CA's certificate, made for `key` when it is not there; raises PkiError, also when it is another key's."""
    if not path.exists():
        write(path, _make_ca(key, cluster_id, now).public_bytes(serialization.Encoding.PEM))
    try:
        ca = x509.load_pem_x509_certificate(path.read_bytes())
    except ValueError as error:
        raise PkiError(f"{path} is not a certificate in PEM: restore it from a backup") from error
    if ca.public_key() != key.public_key():
        raise PkiError(f"{path} does not belong to ca.key beside it: restore both from one backup")
    if ca.not_valid_after_utc <= now:
        raise PkiError(f"{path} expired at {ca.not_valid_after_utc:%Y-%m-%d}")
    return ca


def _make_ca(key: ec.EllipticCurvePrivateKey, cluster_id: str, now: dt.datetime) -> x509.Certificate:
    subject = subject_of(f"llmgw {cluster_id}", "llmgw-ca")
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BACKDATED)
        .not_valid_after(now + CA_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )


def key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    """What a key may sign: certificates (the CA) or handshakes (everybody else)."""
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def subject_of(common: str, organisation: str) -> x509.Name:
    """Who a certificate is about."""
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organisation),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )


def write(path: Path, content: bytes) -> None:
    """Replace `path` as a whole, mode 0600: a crash leaves the old file or the new one."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    with contextlib.suppress(FileNotFoundError):
        temporary.unlink()
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
