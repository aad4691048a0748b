"""A node's certificate is renewed by itself: late in its life the agent shows it and gets one that lives as long again.

The key stays, so a single file is replaced, whole or not at all, and an answer that is lost costs nothing: the
certificate before is good until its own end, and is shown again at the next look.
"""

import datetime as dt
import logging
import ssl
from collections.abc import Callable, Sequence

import trio
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agent.identity import load_identity, split_address, write_file
from agent.join import JoinError, ask, certificate_request, own_certificate
from agent.link_rpc import tls_context
from llmgw.core.layout import AgentLayout
from llmgw.wire.llmgw.v1 import EnrollRequest

LOOK_S = 600.0
"""How often the certificate's end is looked at."""
RENEW_BELOW = 1 / 3
"""A certificate with less than this part of its life left is renewed: of a year, with four months to go."""

log = logging.getLogger("agent.renewal")


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class Renewal:
    """Looks after one node's certificate."""

    def __init__(
        self,
        layout: AgentLayout,
        *,
        connected_to: Callable[[], str | None],
        contexts: Sequence[ssl.SSLContext] = (),
        now: Callable[[], dt.datetime] = _now,
    ) -> None:
        """`connected_to` is the control plane that speaks with this node; `contexts` show the new certificate too."""
        self._layout = layout
        self._connected_to = connected_to
        self._contexts = contexts
        self._now = now

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Service: look, until cancelled."""
        task_status.started()
        while True:
            try:
                await self.look()
            except Exception as error:
                # A supervised border: whatever went wrong on the wire, the certificate before is shown again next time.
                log.warning("the certificate is not renewed: %s", error)
            await trio.sleep(LOOK_S)

    async def look(self) -> bool:
        """Renew if it is time and there is a control plane to ask; whether it was. Raises what stood in the way."""
        old = x509.load_pem_x509_certificate(self._layout.certificate.read_bytes())
        left, whole = old.not_valid_after_utc - self._now(), old.not_valid_after_utc - old.not_valid_before_utc
        address = self._connected_to()
        if address is None or left > whole * RENEW_BELOW:
            await trio.lowlevel.checkpoint()
            return False
        await self._renew(address)
        for context in self._contexts:
            context.load_cert_chain(self._layout.certificate, self._layout.key)
        return True

    async def _renew(self, address: str) -> None:
        layout, node = self._layout, load_identity(self._layout).node
        key = serialization.load_pem_private_key(layout.key.read_bytes(), password=None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise JoinError(f"{layout.key} is not a node's key: join again with a new join token")
        csr = certificate_request(key, node)
        host, port = split_address(address)
        context = tls_context(layout.ca, layout.certificate, layout.key)
        response = await ask(host, port, context, EnrollRequest(node=node, csr_pem=csr))
        fresh = own_certificate(response.certificate_pem, ssl.PEM_cert_to_DER_cert(layout.ca.read_text().strip()), key)
        if not fresh.not_valid_before_utc <= self._now() < fresh.not_valid_after_utc:
            raise JoinError("the server gave a certificate that is not valid now: compare both machines' clocks")
        write_file(layout.certificate, fresh.public_bytes(serialization.Encoding.PEM), mode=0o644)
        log.info("the certificate is renewed", extra={"ends": fresh.not_valid_after_utc.isoformat()})
