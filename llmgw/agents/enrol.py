"""Enrolment, server side: a token is spent only on a request that can be answered, and only its hash is ever stored.

A node name that is enrolled already may enrol again with a new token: that is how a rebuilt machine returns. Its new
certificate replaces the old one, whose serial number is refused from then on (`issued` records the one that counts).
"""

import datetime as dt
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from llmgw.core.errors import NotAllowed
from llmgw.core.identity import check_node_name
from llmgw.core.join_token import VALID_S, new_token, parse_token, same_fingerprint
from llmgw.wire.llmgw.v1 import EnrollResponse

CreateToken = Callable[[str, float, str], Awaitable[dt.datetime]]
"""`await create(digest, ttl_s, actor)`: keep the hash of a new token; answers when it expires."""
ConsumeToken = Callable[[str, str], Awaitable[None]]
"""`await consume(digest, node)`: use the token up, once; raises Unauthenticated saying why it is not good."""
Issued = Callable[[str, str, str], Awaitable[None]]
"""`await issued(node, serial, fingerprint)`: from now on this is the node's only valid certificate.

Of a renewal it raises NotAllowed where the node is not admitted with that serial number any more.
"""


class SignedCertificate(Protocol):
    """What the authority gives for a request."""

    @property
    def pem(self) -> bytes:
        """The certificate."""
        ...

    @property
    def serial(self) -> str:
        """Lower-case hex."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of its DER."""
        ...


class SigningAuthority(Protocol):
    """What enrolment needs of the cluster's CA."""

    @property
    def cluster_id(self) -> str:
        """The cluster's id."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hex SHA-256 of the CA's certificate."""
        ...

    @property
    def ca_pem(self) -> bytes:
        """The CA's certificate."""
        ...

    def sign_node(self, csr_pem: bytes, node: str, *, serial: str | None = None) -> SignedCertificate:
        """A certificate for the request's key, with that serial number if one is given; raises InvalidInput."""
        ...


class Enrolment:
    """Makes join tokens and trades them for certificates."""

    def __init__(
        self,
        *,
        authority: SigningAuthority,
        create: CreateToken,
        consume: ConsumeToken,
        issued: Issued,
        renewed: Issued,
        servers: Callable[[], Sequence[str]],
        mirror_url: Callable[[], str],
    ) -> None:
        self._authority = authority
        self._create = create
        self._consume = consume
        self._issued = issued
        self._renewed = renewed
        self._servers = servers
        self._mirror_url = mirror_url

    async def new_token(self, *, by: str, valid_s: float = VALID_S) -> tuple[str, dt.datetime]:
        """A token, shown once, and when it expires. Raises what `create` raises."""
        token = new_token(self._authority.fingerprint)
        expires = await self._create(token.digest, valid_s, by)
        return str(token), expires

    async def enrol(self, token: str, node: str, csr_pem: bytes) -> EnrollResponse:
        """Trade a token for a certificate; raises InvalidInput, NotAllowed, Unauthenticated: what the operator does."""
        parsed = parse_token(token)
        check_node_name(node)
        if not same_fingerprint(parsed.fingerprint, self._authority.fingerprint):
            raise NotAllowed("this join token was made by another cluster")
        signed = self._authority.sign_node(csr_pem, node)  # before the token is spent: a bad request must not cost it
        await self._consume(parsed.digest, node)
        await self._issued(node, signed.serial, signed.fingerprint)
        return self._answer(node, signed)

    async def renew(self, node: str, serial: str, csr_pem: bytes) -> EnrollResponse:
        """A certificate with a new life for a node that has just shown its own, of that serial number.

        The number stays: the certificate before is good until its end, so an answer that is lost shuts nobody out.
        Raises InvalidInput, and NotAllowed where that number is not the node's any more.
        """
        signed = self._authority.sign_node(csr_pem, node, serial=serial)
        await self._renewed(node, signed.serial, signed.fingerprint)
        return self._answer(node, signed)

    def _answer(self, node: str, signed: SignedCertificate) -> EnrollResponse:
        return EnrollResponse(
            node=node,
            certificate_pem=signed.pem,
            ca_pem=self._authority.ca_pem,
            cluster_id=self._authority.cluster_id,
            servers=list(self._servers()),
            mirror_url=self._mirror_url(),
        )
