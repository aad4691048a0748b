"""The client port's certificate as the control plane sees it: checked at the start, told to routers, watched since.

Routers read the files themselves (`run/client-tls.json` says which) and outlive this process, so a server whose
configuration changed tells those that run as well.
"""

import datetime as dt
from collections.abc import Callable
from pathlib import Path

from cryptography import x509

from llmgw.control.told_files import tell, tell_nothing
from llmgw.core.config import ClientTls
from llmgw.core.errors import InvalidInput
from llmgw.core.layout import ServerLayout
from llmgw.router.front_tls import ClientTlsFiles
from llmgw.router.tls import TlsFailure, server_context

WARN_BEFORE = dt.timedelta(days=21)
"""A certificate that expires sooner is told of: one that is renewed by itself is renewed long before."""


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)


class ClientCertificate:
    """What clients are shown, if the port speaks TLS."""

    def __init__(self, tls: ClientTls | None, layout: ServerLayout, now: Callable[[], dt.datetime] = _now) -> None:
        """Raise InvalidInput for files that cannot be used."""
        self._tls = tls
        self._layout = layout
        self._now = now
        if tls is not None:
            try:
                server_context(Path(tls.certificate), Path(tls.key))
            except TlsFailure as error:
                raise InvalidInput(str(error), field="client.tls") from None

    @property
    def on(self) -> bool:
        """Whether the port speaks TLS."""
        return self._tls is not None

    def tell_routers(self) -> None:
        """Write down for routers what the configuration says; raises OSError."""
        if self._tls is None:
            tell_nothing(self._layout.client_tls)
        else:
            tell(self._layout.client_tls, ClientTlsFiles(certificate=self._tls.certificate, key=self._tls.key))

    def problems(self) -> tuple[str, ...]:
        """A sentence when the files cannot be read any more, or the certificate expires soon or has."""
        if self._tls is None:
            return ()
        certificate = Path(self._tls.certificate)
        try:
            server_context(certificate, Path(self._tls.key))
            expires = x509.load_pem_x509_certificates(certificate.read_bytes())[0].not_valid_after_utc
        except TlsFailure as error:
            return (f"client port: {error}; routers go on with the certificate they have",)
        except (OSError, ValueError):
            return (f"client port: {certificate} cannot be read; routers go on with the certificate they have",)
        left = expires - self._now()
        if left > WARN_BEFORE:
            return ()
        shown = f"client port: the certificate {certificate}"
        when = f"{expires:%Y-%m-%d %H:%M} UTC"
        if left <= dt.timedelta():
            return (f"{shown} expired on {when}: clients refuse it",)
        return (f"{shown} expires on {when}: renew it, routers take it over within seconds",)
