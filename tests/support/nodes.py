"""Credentials of a node, made as enrolment makes them."""

from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from llmgw.control.pki import Authority


def node_credentials(authority: Authority, directory: Path, node: str) -> tuple[Path, Path]:
    """Paths of a certificate and its key for `node`, signed by `authority`."""
    directory.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    csr = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([])).sign(key, hashes.SHA256())
    signed = authority.sign_node(csr.public_bytes(serialization.Encoding.PEM), node)
    certificate, private = directory / "node.crt", directory / "node.key"
    certificate.write_bytes(signed.pem)
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return certificate, private
