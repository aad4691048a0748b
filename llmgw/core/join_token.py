"""Join tokens: what an operator carries to a new machine. Single use, short-lived, and tied to one cluster's CA.

`llmgw-join.SECRET.FINGERPRINT`: SECRET is 32 random bytes in base64url without padding, FINGERPRINT the first
FINGERPRINT_HEX hex digits of the SHA-256 of the CA's certificate (DER). The control plane keeps only the SHA-256 of the
secret; the node compares the fingerprint with the chain it is shown before the secret leaves it.
"""

import base64
import binascii
import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass

from llmgw.core.errors import InvalidInput

PREFIX = "llmgw-join"
SECRET_BYTES = 32
FINGERPRINT_HEX = 64
"""All of the SHA-256: nothing is gained by a shorter one in a line that is pasted."""
VALID_S = 15 * 60.0
"""How long a token may be used unless the operator says otherwise."""

_PATTERN = re.compile(rf"{PREFIX}\.([A-Za-z0-9_-]{{43}})\.([0-9a-f]{{{FINGERPRINT_HEX}}})")


@dataclass(frozen=True, kw_only=True)
class JoinToken:
    """A token's parts. `secret` is shown to nobody else."""

    secret: bytes
    fingerprint: str

    @property
    def digest(self) -> str:
        """What is stored: hex SHA-256 of the secret."""
        return hashlib.sha256(self.secret).hexdigest()

    def __str__(self) -> str:
        text = base64.urlsafe_b64encode(self.secret).rstrip(b"=").decode()
        return f"{PREFIX}.{text}.{self.fingerprint}"

    def __repr__(self) -> str:
        return f"JoinToken(secret=…, fingerprint={self.fingerprint!r})"


def new_token(ca_fingerprint: str) -> JoinToken:
    """A fresh token for the cluster whose CA has this SHA-256 (64 hex digits)."""
    return JoinToken(secret=secrets.token_bytes(SECRET_BYTES), fingerprint=ca_fingerprint)


def parse_token(text: str) -> JoinToken:
    """A token as it was pasted (surrounding white space is ignored); raises InvalidInput."""
    match = _PATTERN.fullmatch(text.strip()[:200])
    if match is None:
        raise InvalidInput(
            f"this is not a join token ({PREFIX}.….…): paste the whole line that `llmgw ctl join-token` printed",
            field="token",
        )
    try:
        secret = base64.urlsafe_b64decode(match[1] + "=")
    except binascii.Error as error:  # pragma: no cover - the pattern admits only base64url
        raise InvalidInput("the join token's secret is damaged", field="token") from error
    return JoinToken(secret=secret, fingerprint=match[2])


def same_fingerprint(left: str, right: str) -> bool:
    """Compare two fingerprints in constant time."""
    return hmac.compare_digest(left.encode(), right.encode())


def fingerprint_of(certificate_der: bytes) -> str:
    """Hex SHA-256 of a certificate."""
    return hashlib.sha256(certificate_der).hexdigest()
